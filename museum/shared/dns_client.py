"""Start the DNS servers given on the command line, with -- between them; ask the last of them two queries at a time.

The first server listens on port 5353, the second on port 5300. Both queries, for the A and the AAAA records of a
name, leave in one write, over two connections that are kept.
"""

import socket
import struct
import subprocess
import sys
import time

NAME = b"\x03www\x07example\x00"
TYPES = (1, 28)
PORTS = (5353, 5300)


def query(number, kind):
    message = struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + NAME + struct.pack(">2H", kind, 1)
    return struct.pack(">H", len(message)) + message


def read_answer(reader):
    """The number of the query, and whether one record answers it."""
    (length,) = struct.unpack(">H", reader.read(2))
    message = reader.read(length)
    number, flags, _, answers = struct.unpack(">4H", message[:8])
    return number, flags & 15 == 0 and answers == 1


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def wait_for(port):
    """Wait until the server knows the name."""
    for _ in range(400):
        try:
            with connect(port) as connection, connection.makefile("rb") as reader:
                connection.sendall(query(0, TYPES[0]))
                if read_answer(reader) == (0, True):
                    return
        except (OSError, struct.error):
            pass
        time.sleep(0.05)
    raise SystemExit("the server did not start")


def main():
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    commands = [command for command in (words[:end], words[end + 1 :]) if command]
    servers = []
    try:
        for command, port in zip(commands, PORTS, strict=False):
            servers.append(subprocess.Popen(command))
            wait_for(port)
        for _ in range(2):
            with connect(port) as connection, connection.makefile("rb") as reader:
                for number in range(0, 60, 2):
                    connection.sendall(query(number, TYPES[0]) + query(number + 1, TYPES[1]))
                    answers = {read_answer(reader), read_answer(reader)}
                    assert answers == {(number, True), (number + 1, True)}, answers
    finally:
        for server in reversed(servers):
            server.terminate()
            server.wait()


main()
