"""A mail server that answers every command in one write; the mail client given on the command line runs twice."""

import socket
import subprocess
import sys
import threading


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader = connection.makefile("rb")
    connection.sendall(b"220 localhost\r\n")
    while line := reader.readline():
        word = line.split()[0].upper()
        if word == b"DATA":
            connection.sendall(b"354 go ahead\r\n")
            while reader.readline() != b".\r\n":
                pass
        connection.sendall(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
        if word == b"QUIT":
            break
    reader.close()
    connection.close()


def main():
    listener = socket.create_server(("127.0.0.1", 8025))
    for _ in range(2):
        client = subprocess.Popen(sys.argv[1:])
        server = threading.Thread(target=serve, args=(listener.accept()[0],))
        server.start()
        assert client.wait() == 0
        server.join()


main()
