"""A shop that answers each question in two writes."""

import socket

HEADER, BODY = b"h" * 200, b"b" * 600


def serve(listener):
    while True:
        peer, _ = listener.accept()
        while peer.recv(4096):
            reply(peer)
        peer.close()


def reply(peer):
    peer.sendall(HEADER)
    peer.sendall(BODY)


serve(socket.create_server(("", 8080)))
