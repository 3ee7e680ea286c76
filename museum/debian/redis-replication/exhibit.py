"""Two Redis servers, one the replica of the other: write, then wait until the replica has it, 60 times."""

import socket
import subprocess
import sys
import tempfile
import time

SERVER = ["redis-server", "--save", "", "--bind", "127.0.0.1"]


def connect(port):
    for _ in range(100):
        try:
            connection = socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
    raise SystemExit("the server did not start")


def ask(connection, command):
    words = command.split()
    connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    return connection.recv(4096)


def main():
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        primary = subprocess.Popen(
            [*SERVER, "--dir", first, "--port", "7001", "--repl-diskless-sync-delay", "0", *sys.argv[1:]],
            stdout=subprocess.DEVNULL,
        )
        replica = subprocess.Popen(
            [*SERVER, "--dir", second, "--port", "7002", "--replicaof", "127.0.0.1 7001"], stdout=subprocess.DEVNULL
        )
        try:
            connection = connect(7001)
            while b"state=online" not in ask(connection, b"INFO replication"):
                time.sleep(0.05)
            for _ in range(60):
                assert ask(connection, b"SET key value") == b"+OK\r\n"
                assert ask(connection, b"WAIT 1 5000") == b":1\r\n"
            connection.close()
        finally:
            for server in replica, primary:
                server.terminate()
                server.wait()


main()
