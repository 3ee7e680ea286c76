"""Start the relay given on the command line (port 8000 to port 9000), then send 1500-byte messages through it."""

import socket
import subprocess
import sys
import threading
import time

MESSAGE = b"x" * 1500


def serve(listener):
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as reader:
            while reader.read(len(MESSAGE)):
                connection.sendall(b"ok\n")


def connect():
    for _ in range(100):
        try:
            connection = socket.create_connection(("127.0.0.1", 8000))
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
    raise SystemExit("the relay did not start")


def main():
    listener = socket.create_server(("127.0.0.1", 9000))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    relay = subprocess.Popen(sys.argv[1:])
    try:
        for _ in range(2):
            with connect() as connection, connection.makefile("rb") as reader:
                for _ in range(30):
                    connection.sendall(MESSAGE)
                    assert reader.readline() == b"ok\n"
    finally:
        relay.terminate()
        relay.wait()


main()
