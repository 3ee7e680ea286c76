"""Send a WebSocket server 30 messages on each of two connections, and read the two that answer each."""

import subprocess
import sys

import websocket

server = subprocess.Popen([sys.executable, "server.py", *sys.argv[1:]], stdout=subprocess.PIPE)
try:
    port = int(server.stdout.readline())
    for _ in range(2):
        client = websocket.create_connection(f"ws://127.0.0.1:{port}/")  # sets TCP_NODELAY by itself
        for number in range(30):
            client.send(str(number))
            assert [client.recv(), client.recv()] == ["accepted", str(number)]
        client.close()
finally:
    server.terminate()
    server.wait()
