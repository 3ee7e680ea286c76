"""Make a call without an answer and one with an answer, 30 times on each of two connections, with Pyro5."""

import subprocess
import sys

import Pyro5.api

Pyro5.config.SOCK_NODELAY = sys.argv[1] == "nodelay"
server = subprocess.Popen([sys.executable, "server.py"], stdout=subprocess.PIPE, text=True)
try:
    address = server.stdout.readline().strip()
    for _ in range(2):
        with Pyro5.api.Proxy(address) as log:
            for number in range(30):
                log.write(f"line {number}")
                assert log.size() > number
finally:
    server.terminate()
    server.wait()
