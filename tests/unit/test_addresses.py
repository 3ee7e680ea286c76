"""Addresses in binaries as lines of source, where debug information is in a file of its own."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nagle_lab.guard.tracing import addresses
from support.rights import AS_ROOT, mount_refused

SOURCE = """
#include <unistd.h>
__attribute__((noinline)) static long reply(int fd) {
    return write(fd, "x", 1) + 1;
}
int main(void) { return reply(1) > 5; }
"""
DEBUG = Path("/usr/lib/debug")

pytestmark = [
    pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler"),
    pytest.mark.skipif(not shutil.which("objcopy") or not shutil.which("addr2line"), reason="there are no binutils"),
]


class Split:
    """A program, stripped of its debug information, and that."""

    def __init__(self, folder: Path) -> None:
        self.source, self.program, self.debug = (folder / name for name in ("server.c", "server", "server.debug"))
        self.source.write_text(SOURCE)
        self.run("cc", "-g", "-O1", "-Wl,--build-id", "-o", self.program, self.source)
        rows = (line.split() for line in self.run("nm", self.program).splitlines())
        self.address = next(int(row[0], 16) for row in rows if row[-1] == "reply") + 1
        assert self.lines() == [("server.c", 3, "reply")]
        self.run("objcopy", "--only-keep-debug", self.program, self.debug)
        self.run("strip", self.program)
        self.run("objcopy", "-O", "binary", "--only-section=.note.gnu.build-id", self.program, folder / "note")
        self.build_id = (folder / "note").read_bytes()[16:].hex()  # behind three sizes and "GNU"

    def run(self, *command: str | Path) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def lines(self) -> list[tuple[str, int, str]]:
        found = addresses.lines(str(self.program), {self.address}).get(self.address, [])
        return [(Path(file).name, line, function) for file, line, function in found]


@pytest.fixture
def split(tmp_path: Path) -> Split:
    return Split(tmp_path)


def test_without_it_there_is_no_line(split):
    split.debug.unlink()
    assert not any(line for _, line, _ in split.lines())


def test_beside_the_program(split):
    split.run("objcopy", f"--add-gnu-debuglink={split.debug}", split.program)
    assert split.lines() == [("server.c", 3, "reply")]


@pytest.mark.skipif(not DEBUG.is_dir(), reason="there is no /usr/lib/debug")
@pytest.mark.skipif(bool(why := mount_refused()), reason=str(why))
def test_where_a_debug_package_has_it(split, tmp_path):
    """As Debian's -dbgsym packages install it: by the program's build ID."""
    file = tmp_path / "debug" / ".build-id" / split.build_id[:2] / f"{split.build_id[2:]}.debug"
    file.parent.mkdir(parents=True)
    shutil.copy(split.debug, file)
    asked = f"lines({str(split.program)!r}, {{{split.address}}})"
    code = f"from nagle_lab.guard.tracing.addresses import lines; print({asked})"
    mounted = f'mount --bind "{tmp_path / "debug"}" {DEBUG} && exec "$@"'
    found = split.run(*AS_ROOT, "unshare", "--mount", "sh", "-ec", mounted, "sh", sys.executable, "-c", code)
    assert "server.c', 3, 'reply')" in found


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a web server that has the folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(not shutil.which("eu-addr2line"), reason="there is no eu-addr2line: install elfutils")
def test_from_a_debuginfod_server(split, tmp_path, monkeypatch):
    there = tmp_path / "served" / "buildid" / split.build_id / "debuginfo"
    there.parent.mkdir(parents=True)
    shutil.move(split.debug, there)
    with served(tmp_path / "served") as url:
        monkeypatch.setitem(os.environ, "DEBUGINFOD_URLS", url)
        monkeypatch.setitem(os.environ, "DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
        assert split.lines() == [("server.c", 3, "reply")]
