"""Start the server given on the command line (on port 8000), then ask it over two keep-alive connections."""

import socket
import subprocess
import sys
import time


def connect():
    for _ in range(600):
        try:
            connection = socket.create_connection(("127.0.0.1", 8000))
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
    raise SystemExit("the server did not start")


def read_reply(reader):
    status = reader.readline()
    assert status.split()[1] == b"200", status
    length = 0
    while line := reader.readline().strip():
        name, value = line.split(b":", 1)
        if name.lower() == b"content-length":
            length = int(value)
    assert length and len(reader.read(length)) == length


def main(path="/page.txt"):
    server = subprocess.Popen(sys.argv[1:])
    try:
        for _ in range(2):
            with connect() as connection, connection.makefile("rb") as reader:
                for _ in range(30):
                    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                    read_reply(reader)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
