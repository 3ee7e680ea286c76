"""Programs that stall, run under `guard --trace`, and where their two writes are."""

import textwrap
from pathlib import Path
from typing import Any

from nagle_lab.diagnosis.result.writes import Writes
from nagle_lab.experiments.software.guarded import JudgedCommand, Selection, guard
from nagle_lab.experiments.writes.traced import with_writes

C = """
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <fcntl.h>
#include <unistd.h>

static char buffer[4096];
static int file;

static void reply(int peer) {
    send(peer, buffer, 200, 0);
#ifdef SENDFILE
    off_t at = 0;
    sendfile(peer, file, &at, 600);
#else
    write(peer, buffer, 600);
#endif
}

static void *serve(void *listener) {
    int peer = accept(*(int *)listener, 0, 0);
    while (read(peer, buffer, sizeof buffer) > 0)
        reply(peer);
    return 0;
}

int main(int count, char **name) {
    struct sockaddr_in at = {AF_INET};
    socklen_t size = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    file = open(name[0], O_RDONLY);
    int listener = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (void *)&at, size);
    listen(listener, 5);
    getsockname(listener, (void *)&at, &size);
    pthread_t thread;
    pthread_create(&thread, 0, serve, &listener);
    setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &count, sizeof count);
    connect(c, (void *)&at, size);
    for (int i = 0; i < 30; i++) {
        write(c, buffer + 2048, 100);
        for (int n = 0; n < 800;)
            n += read(c, buffer + 2048, 2048);
    }
    return 0;
}
"""
# The second half of a program in Node.js whose `server` answers in 800 bytes: it asks that 30 times.
NODE_ASKS = """
server.listen(0, "127.0.0.1", () => {
  let left = 30, got = 0;
  const client = net.connect(server.address().port, "127.0.0.1", () => client.write(Buffer.alloc(100)));
  client.on("data", (data) => {
    got += data.length;
    if (got < 800) return;
    got = 0;
    if (--left) client.write(Buffer.alloc(100));
    else { client.end(); server.close(); }
  });
});
"""


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text).strip() + "\n")
    return path


def traced(tmp_path: Path, command: list[str], **place: Any) -> JudgedCommand:
    folder = tmp_path / "recorded"
    folder.mkdir()
    run = guard(command, folder, Selection(), **place)
    return with_writes(run, **place)


def writes_of(tmp_path: Path, command: list[str], **place: Any) -> Writes:
    run = traced(tmp_path, command, **place)
    assert run.writes, run.result.reason
    assert run.writes.problem == "" and run.writes.named == run.writes.stalls >= 15, run.writes
    return run.writes


def line(path: Path, text: str) -> int:
    return next(i for i, one in enumerate(path.read_text().splitlines(), 1) if text in one)


def lines(writes: Writes) -> list[tuple[int, str, str, int]]:
    """Of the most frequent pair: line, function, call and bytes of each."""
    group = writes.groups[0]
    ends = [(one.program, one) for one in (group.trigger, group.held)]
    return [(at.line, at.function, one.by or one.call, one.bytes) for at, one in ends if at]
