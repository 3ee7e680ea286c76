"""Run 30 commands on each of two SSH connections, with paramiko."""

import socket
import subprocess
import sys

import paramiko

server = subprocess.Popen([sys.executable, "ssh_server.py"], stdout=subprocess.PIPE)
try:
    port = int(server.stdout.readline())
    for _ in range(2):
        connection = None
        if sys.argv[1] == "nodelay":
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        client.connect("127.0.0.1", port, "user", "secret", sock=connection, allow_agent=False, look_for_keys=False)
        for _ in range(30):
            _, output, _ = client.exec_command("cat battery")
            assert output.read() == b"42\n"
        client.close()
finally:
    server.terminate()
    server.wait()
