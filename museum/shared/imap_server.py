"""An IMAP server that answers every command in one write; the client given on the command line runs twice."""

import re
import socket
import subprocess
import sys
import threading

EXTRA = {b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n", b"LOGOUT": b"* BYE bye\r\n"}


def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reader = connection.makefile("rb")
    connection.sendall(b"* OK ready\r\n")
    while line := reader.readline():
        tag, word = line.split()[:2]
        if literal := re.search(rb"{(\d+)}\r\n$", line):
            connection.sendall(b"+ go ahead\r\n")
            reader.read(int(literal[1]))
            assert reader.readline() == b"\r\n"
        connection.sendall(EXTRA.get(word, b"") + tag + b" OK done\r\n")
    reader.close()
    connection.close()


def main():
    listener = socket.create_server(("127.0.0.1", 8143))
    for _ in range(2):
        client = subprocess.Popen(sys.argv[1:])
        server = threading.Thread(target=serve, args=(listener.accept()[0],))
        server.start()
        assert client.wait() == 0
        server.join()


main()
