"""Set a key and get it back, 30 times on each of two connections, with pymemcache."""

import socket
import sys
import threading

from pymemcache.client.base import Client


def stand_in_for_memcached(listener):
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=[connection], daemon=True).start()


def serve(connection):
    """Know "set" with noreply and "get" of one key; one write per answer."""
    values = {}
    with connection, connection.makefile("rb") as commands:
        for line in commands:
            command, key, *more = line.split()
            if command == b"set":
                flags, _, length, noreply = more
                assert noreply == b"noreply"
                values[key] = flags, commands.read(int(length) + 2)
            else:
                flags, value = values[key]
                connection.sendall(b"VALUE %s %s %d\r\n%sEND\r\n" % (key, flags, len(value) - 2, value))


listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=stand_in_for_memcached, args=[listener], daemon=True).start()
for _ in range(2):
    client = Client(listener.getsockname(), no_delay=sys.argv[1] == "no_delay")
    for number in range(30):
        value = f"value {number}".encode()
        client.set("key", value)
        assert client.get("key") == value
    client.close()
