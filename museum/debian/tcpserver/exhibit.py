"""Start the line server given on the command line (on port 8000), then send it lines; it answers each with two."""

import socket
import subprocess
import sys
import time


def connect():
    for _ in range(100):
        try:
            connection = socket.create_connection(("127.0.0.1", 8000))
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
    raise SystemExit("the server did not start")


def main():
    server = subprocess.Popen(sys.argv[1:])
    try:
        for _ in range(2):
            with connect() as connection, connection.makefile("rb") as reader:
                for _ in range(30):
                    connection.sendall(b"hello\n")
                    assert reader.readline() + reader.readline() == b"hello\nhello\n"
    finally:
        server.terminate()
        server.wait()


main()
