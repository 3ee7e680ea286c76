"""Start a Thrift server, then call it 30 times on each of two connections."""

import socket
import subprocess
import sys
import time

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer

ADDRESS = ("127.0.0.1", 9090)


def call():
    """answer(7), as bytes that can be sent in one write."""
    message = TMemoryBuffer()
    protocol = TBinaryProtocol(message)
    protocol.writeMessageBegin("answer", TMessageType.CALL, 1)
    protocol.writeFieldBegin("question", TType.I32, 1)
    protocol.writeI32(7)
    protocol.writeFieldStop()
    return message.getvalue()


def read(connection, length):
    return connection.recv(length, socket.MSG_WAITALL)


def ask():
    with socket.create_connection(ADDRESS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(30):
            connection.sendall(call())
            assert read(connection, 4 + 4 + len("answer") + 4 + 3 + 4 + 1)[-5:] == b"\0\0\0*\0"


def wait_for(server):
    for _ in range(160):
        try:
            return socket.create_connection(ADDRESS).close()
        except ConnectionRefusedError:
            if server.poll() is not None:
                break
            time.sleep(0.05)
    sys.exit("the server did not start")


server = subprocess.Popen([sys.executable, "server.py", *sys.argv[1:]])
try:
    wait_for(server)
    ask()
    ask()
finally:
    server.terminate()
    server.wait()
