"""Docker, and a pair that stalls in a container, as a program and as a Compose project."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
REPOSITORY = Path(__file__).parents[2]


def docker(*arguments: object) -> str:
    """What one docker command prints; paths are those of the repository."""
    command = ["docker", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY).stdout.strip()


def read_in(container: str, file: str) -> str:
    """A file in a container that runs; empty where there is none."""
    shown = ["docker", "exec", container, "cat", file]
    return subprocess.run(shown, capture_output=True, text=True, check=False).stdout


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
