"""What does ``guard --trace`` cost? CPU time per write, of a program and of its tracer.

    .venv/bin/python maintenance/true_hold/cost.py [EXCHANGES [RUNS]]

Programs in C and in Python that write three times per exchange, and never stall, run alone, with the interpreters'
hooks, under strace with these hooks, and under strace with native stacks (for a tenth of the exchanges). Their
start-up time is subtracted.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from nagle_lab.guard.tracing import hooking
from nagle_lab.guard.tracing.strace_command import traced

C = """
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static int on = 1;

static void *serve(void *listener) {
    char data[4096];
    int peer = accept(*(int *)listener, 0, 0);
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (read(peer, data, sizeof data) > 0) {
        send(peer, data, 200, 0);
        send(peer, data, 600, 0);
    }
    return 0;
}

int main(int count, char **words) {
    char data[4096];
    struct sockaddr_in at = {AF_INET};
    socklen_t size = sizeof at;
    pthread_t thread;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener, (void *)&at, size);
    listen(listener, 5);
    getsockname(listener, (void *)&at, &size);
    pthread_create(&thread, 0, serve, &listener);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connect(client, (void *)&at, size);
    for (int i = atoi(words[1]); i--;) {
        send(client, data, 100, 0);
        for (int got = 0; got < 800;) got += read(client, data, sizeof data);
    }
    return 0;
}
"""
PYTHON = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", 0))

def serve():
    peer, _ = listener.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while peer.recv(4096):
        peer.sendall(bytes(200))
        peer.sendall(bytes(600))

threading.Thread(target=serve, daemon=True).start()
with socket.create_connection(listener.getsockname()) as client:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(int(sys.argv[1])):
        client.sendall(bytes(100))
        got = 0
        while got < 800:
            got += len(client.recv(4096))
"""
WRITES = 3  # for each exchange


def programs(folder: Path) -> dict[str, list[str]]:
    """The programs' commands, without the number of exchanges."""
    for name, text in (("program.c", C), ("program.py", PYTHON)):
        (folder / name).write_text(text)
    subprocess.run(["cc", "-O2", "-pthread", "-w", "-o", folder / "program", folder / "program.c"], check=True)
    return {"C": [str(folder / "program")], "Python": [sys.executable, str(folder / "program.py")]}


def cpu_s(command: Sequence[str], environment: dict[str, str]) -> float:
    """CPU time of a command and everything it starts."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    # strace -k may end with 1 if a thread ends while its stack is read; the cost is the same.
    subprocess.run(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL, check=False)
    return used() - before


def main(exchanges: int = 3000, runs: int = 5) -> None:
    """Print the medians."""
    hooks, native = (hooking.loading(os.environ, stacks=stacks) for stacks in (False, True))
    with tempfile.TemporaryDirectory(prefix="nagle-lab-cost-") as name:
        file = Path(name) / "strace.txt"
        for language, command in programs(Path(name)).items():
            ways = {
                "alone": (command, {}, exchanges),
                "with hooks": (command, hooks, exchanges),
                "under strace": (traced(command, file), hooks, exchanges),
                "under strace with stacks": (traced(command, file, stacks=True), native, exchanges // 10),
            }
            for way, (words, environment, count) in ways.items():
                each = [
                    (cpu_s([*words, str(count)], environment) - cpu_s([*words, "1"], environment)) / count / WRITES
                    for _ in range(runs)
                ]
                low, middle, high = (1e6 * of(each) for of in (min, median, max))
                print(f"{language} {way}: {middle:.0f} µs of CPU time a write ({low:.0f} to {high:.0f})", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
