"""Docker, and what stalls in a container: a pair, as a program and as a Compose project, and nginx under a load."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.namespaces import LISTEN, sockets
from support.repository import REPOSITORY
from support.waiting import within

PERL = r"""
use Socket; use IO::Socket::INET;
my $port = $ENV{PORT} || 8080;
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 5) or die;
if (!fork) {
  while (my $peer = $listener->accept) {
    while (sysread $peer, my $request, 4096) { syswrite $peer, 'h' x 200; syswrite $peer, 'b' x 600; }
  }
  exit;
}
while (1) {
  my $s = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or die;
  for (1 .. 20) {
    syswrite $s, 'q' x 100;
    my $got = 0;
    while ($got < 800) { $got += sysread $s, my $part, 4096; }
  }
}
"""
IMAGE = "nagle-lab/base:latest"


def docker(*arguments: object) -> str:
    """What one docker command prints; paths are those of the repository."""
    command = ["docker", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY).stdout.strip()


def read_in(container: str, file: str) -> str:
    """A file in a running container; empty if there is none."""
    shown = ["docker", "exec", container, "cat", file]
    return subprocess.run(shown, capture_output=True, text=True, check=False).stdout


@contextmanager
def nginx_that_stalls(name: str, *options: object) -> Iterator[Callable[..., None]]:
    """A container of that name with nginx, tcp_nodelay off, and a function that starts a load of ten connections.

    Further ``options`` are for its ``docker run``; the function takes options for ab.
    """
    build = ("build", "--quiet", "--build-arg", "BASE=nagle-lab/base")
    server, client = (docker(*build, folder) for folder in ("nginx", "client"))
    docker("network", "create", "--internal", name)
    loads: list[str] = []

    def load(*of_ab: object) -> None:
        loads.append(f"{name}-load-{len(loads)}")
        run = ["--detach", "--rm", f"--network={name}", f"--name={loads[-1]}", "--entrypoint=ab"]
        docker("run", *run, client, "-k", "-c", 10, "-t", 600, "-n", 10**8, *of_ab, f"http://{name}:8080/")

    try:
        folders = ["--tmpfs=/tmp", "--tmpfs=/etc/nginx/conf.d:uid=10001,gid=10001,mode=755"]
        settings = ["--env=TCP_NODELAY=off", "--env=PAGE_BYTES=615"]
        docker("run", "--detach", f"--network={name}", f"--name={name}", *settings, *folders, *options, server)
        assert within(60, lambda: sockets(read_in(name, "/proc/net/tcp"), 8080, LISTEN))
        yield load
    finally:
        subprocess.run(["docker", "rm", "--force", name, *loads], check=False, capture_output=True)
        docker("network", "rm", name)


@contextmanager
def compose_project(folder: Path) -> Iterator[tuple[Path, Callable[..., None]]]:
    """A Compose project in a new folder, whose one service stalls, and a function that calls Compose there."""
    folder.mkdir()
    (folder / "stall.pl").write_text(PERL)
    (folder / "compose.yaml").write_text(
        f"services:\n  stalling:\n    image: {IMAGE}\n    command: [perl, /code/stall.pl]\n"
        "    volumes: ['.:/code:ro']\n    environment: [PORT=8080]\n"
    )
    command = ["docker-compose", "-f", "compose.yaml"]
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        command = ["docker", "compose"]

    def compose(*arguments: str) -> None:
        subprocess.run([*command, *arguments], cwd=folder, check=True, capture_output=True)

    try:
        compose("up", "--detach")
        yield folder, compose
    finally:
        compose("down", "--timeout", "1")
