"""Start uvicorn with the options given, then ask it 30 times on each of two kept-alive connections."""

import http.client
import socket
import subprocess
import sys
import time

PORT = 8000
COMMAND = [
    sys.executable,
    "-m",
    "uvicorn",
    "--loop",
    "asyncio",
    "--port",
    str(PORT),
    *sys.argv[1:],
    "answer:application",
]


def ask(path):
    """Ask 30 times on one connection; http.client sets TCP_NODELAY and sends a GET in one write."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT)
    connection.connect()
    connection.auto_open = False
    for _ in range(30):
        connection.request("GET", path)
        reply = connection.getresponse()
        body = reply.read()
        assert reply.status == 200 and body, (reply.status, body)
    connection.close()


def wait_for(server):
    for _ in range(160):
        try:
            return socket.create_connection(("127.0.0.1", PORT)).close()
        except ConnectionRefusedError:
            if server.poll() is not None:
                break
            time.sleep(0.05)
    sys.exit("the server did not start")


server = subprocess.Popen(COMMAND)
try:
    wait_for(server)
    ask("/")
    ask("/")
finally:
    server.terminate()
    server.wait()
