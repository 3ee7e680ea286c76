"""Start a Thrift server, then call it 30 times on each of two connections."""

import socket
import subprocess
import sys
import time

from answers import Answers
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

ADDRESS = ("127.0.0.1", 9090)


def ask():
    """Call through a buffered transport: one write per call."""
    connection = TSocket(*ADDRESS)
    connection.open()
    connection.handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client = Answers.Client(TBinaryProtocol(TBufferedTransport(connection)))
    for _ in range(30):
        assert client.answer(7) == 42
    connection.close()


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
