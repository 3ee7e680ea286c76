"""A server that takes uploads, each answered in one write; curl, given on the command line, uploads 60 files."""

import socket
import subprocess
import sys
import threading


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as reader:
        while reader.readline():
            length = 0
            while line := reader.readline().strip():
                name, value = line.split(b":", 1)
                if name.lower() == b"content-length":
                    length = int(value)
            assert len(reader.read(length)) == length
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")


def main():
    listener = socket.create_server(("127.0.0.1", 8000))
    for _ in range(2):
        client = subprocess.Popen([*sys.argv[1:], "http://127.0.0.1:8000/file[1-30]"], stdout=subprocess.DEVNULL)
        server = threading.Thread(target=serve, args=(listener.accept()[0],))
        server.start()
        assert client.wait() == 0
        server.join()


main()
