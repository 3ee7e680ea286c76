"""Post 30 times through an HTTP proxy on each of two kept-alive connections, with urllib3."""

import socket
import sys
import threading

import urllib3
from urllib3.connection import HTTPConnection

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nthanks"


def answer_posts(listener):
    """Stand in for an HTTP proxy and what is behind it: one write per answer, after the whole request has arrived."""
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer_on, args=[connection], daemon=True).start()


def answer_on(connection):
    with connection, connection.makefile("rb") as requests:
        while requests.readline():
            length = 0
            while (line := requests.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            requests.read(length)
            connection.sendall(ANSWER)


listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
threading.Thread(target=answer_posts, args=[listener], daemon=True).start()

options = {"socket_options": HTTPConnection.default_socket_options} if sys.argv[1] == "defaults" else {}
for _ in range(2):
    with urllib3.ProxyManager(f"http://127.0.0.1:{port}", **options) as proxy:
        for _ in range(30):
            reply = proxy.request("POST", "http://example.test/", body=b"a small body")
            assert reply.status == 200 and reply.data == b"thanks"
