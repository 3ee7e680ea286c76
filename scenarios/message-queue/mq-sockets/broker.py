#!/usr/bin/env python3
"""The broker: it answers every message with SUCCESS, and does not answer a confirm.

broker PORT             serve SDKs for ever
broker configuration    send ourselves a message and print what the kernel says about the connection afterwards

QUICKACK=on|off         set TCP_QUICKACK after each recv(): once is not enough, the next answer undoes it
"""

import os
import socket
import sys
import threading

from frames import CONFIRM, MESSAGE, SUCCESS, frame, frames


def acknowledge_at_once(connection: socket.socket) -> None:
    """Send the ACK that is due, if any, and leave the interactive ("pingpong") mode that delays ACKs."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def leave_acks_to_the_kernel(_: socket.socket) -> None:
    """Do nothing: the kernel delays ACKs as it sees fit."""


AFTER_RECV = {"on": acknowledge_at_once, "off": leave_acks_to_the_kernel}[os.environ.get("QUICKACK", "off")]


def serve(connection: socket.socket) -> None:
    """Serve one SDK until it closes."""
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for kind, _ in frames(connection, AFTER_RECV):
                if kind == MESSAGE:
                    connection.sendall(frame(SUCCESS, b"SUCCESS"))
        except ConnectionError as error:
            print(f"broker: {error}", file=sys.stderr)


def configuration() -> None:
    """Receive a message and its confirm from ourselves: TCP_QUICKACK then reads 0 if the kernel delays ACKs."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sdk:
        connection, _ = listener.accept()
        with connection:
            received = frames(connection, AFTER_RECV)
            sdk.sendall(frame(MESSAGE))
            next(received)
            connection.sendall(frame(SUCCESS))
            sdk.sendall(frame(CONFIRM))
            next(received)
            print(f"connection TCP_QUICKACK={connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)}")


def main(port: int) -> None:
    """Accept SDKs for ever, a thread each."""
    listener = socket.create_server(("", port), backlog=128)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if sys.argv[1] == "configuration":
    configuration()
else:
    main(int(sys.argv[1]))
