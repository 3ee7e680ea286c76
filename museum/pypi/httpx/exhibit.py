"""Post 30 times on each of two kept-alive connections, with httpx."""

import socket
import threading

import httpx

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
    with httpx.Client(trust_env=False) as client:
        for _ in range(30):
            reply = client.post(f"http://127.0.0.1:{port}/", content=b"a small body")
            assert reply.status_code == 200 and reply.content == b"thanks"
