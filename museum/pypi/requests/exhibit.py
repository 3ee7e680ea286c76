"""Post 30 times on each of two kept-alive connections, with requests and socket options of one's own."""

import socket
import sys
import threading

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection


class KeepAliveAdapter(HTTPAdapter):
    """Turn on TCP's keep-alive probes, in place of urllib3's options or in addition to them."""

    def init_poolmanager(self, *args, **kwargs):
        options = HTTPConnection.default_socket_options if sys.argv[1] == "added" else []
        kwargs["socket_options"] = [*options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        super().init_poolmanager(*args, **kwargs)


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nthanks"


def answer_posts(listener):
    """Stand in for an HTTP server: one write per answer, after the whole request has arrived."""
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

for _ in range(2):
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", KeepAliveAdapter())
        for _ in range(30):
            reply = session.post(f"http://127.0.0.1:{port}/", data=b"a small body")
            assert reply.status_code == 200 and reply.content == b"thanks"
