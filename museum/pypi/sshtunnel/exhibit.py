"""Ask for 2000 bytes through an SSH tunnel, 30 times on each of two connections, with sshtunnel."""

import socket
import subprocess
import sys
import threading

from sshtunnel import SSHTunnelForwarder

ANSWER = b"x" * 2000


def answer(listener):
    """Stand in for the service behind the tunnel: one write per answer."""
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer_on, args=[connection], daemon=True).start()


def answer_on(connection):
    with connection:
        while connection.recv(4, socket.MSG_WAITALL):
            connection.sendall(ANSWER)


def ask(address):
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(30):
            connection.sendall(b"more")
            assert connection.recv(len(ANSWER), socket.MSG_WAITALL) == ANSWER


listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=answer, args=[listener], daemon=True).start()
server = subprocess.Popen([sys.executable, "ssh_server.py"], stdout=subprocess.PIPE)
try:
    ssh_address = "127.0.0.1", int(server.stdout.readline())
    ssh_connection = socket.socket()  # sshtunnel will connect it; with the option on it, this one does not wait
    ssh_connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with SSHTunnelForwarder(
        ssh_address,
        ssh_username="user",
        ssh_password="secret",
        ssh_proxy=ssh_connection,
        remote_bind_address=listener.getsockname(),
        allow_agent=False,
        host_pkey_directories=[],
    ) as tunnel:
        ask(("127.0.0.1", tunnel.local_bind_port))
        ask(("127.0.0.1", tunnel.local_bind_port))
finally:
    server.terminate()
    server.wait()
