"""Test suites run by pytest --nagle: written to a folder, run, and read from their JUnit XML."""

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from lxml import etree

# The module that the suites' tests import: a server that answers in two writes, or as configured, and its clients.
NET = textwrap.dedent("""
    import socket, sys, threading

    def serve(how="two-writes", port=0):
        listener = socket.create_server(("127.0.0.1", port))
        def answer(peer):
            if "nodelay" in how:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with peer:
                while peer.recv(4096):
                    if "one-write" in how:
                        peer.sendall(bytes(800))
                    else:
                        peer.sendall(bytes(200))
                        peer.sendall(bytes(600))
        def loop():
            while True:
                peer, _ = listener.accept()
                threading.Thread(target=answer, args=(peer,), daemon=True).start()
        threading.Thread(target=loop, daemon=True).start()
        return listener.getsockname()

    def ask(s, times=12):
        for _ in range(times):
            s.sendall(bytes(100))
            got = 0
            while got < 800:
                got += len(s.recv(4096))

    def talk(how="two-writes", times=12, port=0):
        with socket.create_connection(serve(how, port)) as s:
            ask(s, times)
            s.shutdown(socket.SHUT_WR)
            s.recv(1)  # the server has closed, too: no packet of it comes during the next test

    if __name__ == "__main__":
        print(serve(sys.argv[1])[1], flush=True)
        threading.Event().wait()
""")


@dataclass
class Case:
    """A test of the suite."""

    outcome: str = "passed"
    said: str = ""  # text of its failure
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return self.properties.get("nagle.verdict", "")


@dataclass(frozen=True)
class PytestEnded:
    """How pytest ended."""

    code: int
    out: str
    err: str
    cases: dict[str, Case]


class Suite:
    """A folder of tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "suite"
        self.temporary = folder / "temporary"  # where pytest keeps its files and captures
        self.folder.mkdir()
        self.temporary.mkdir()
        self.write("pytest.ini", "[pytest]\naddopts = --strict-markers\n")
        self.write("net.py", NET)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(textwrap.dedent(text))

    def command(self, *options: str) -> list[str]:
        """The command without plugins that the suites do not use: Hypothesis takes four times as long as everything
        else.
        """
        unused = ["cacheprovider", "hypothesispytest", "timeout"]
        if not any(option.startswith(("-n", "--dist")) and not option.startswith("--nagle") for option in options):
            unused.append("xdist")
        return [sys.executable, "-m", "pytest", *(f"-pno:{name}" for name in unused), *options]

    @property
    def environment(self) -> dict[str, str]:
        """Our environment, without what the outer pytest has added."""
        rest = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return rest | {"TMPDIR": str(self.temporary)}

    def run(self, *options: str, before: tuple[str, ...] = ()) -> PytestEnded:
        """Run it; ``before`` is the command that starts pytest."""
        junit = self.folder / "junit.xml"
        junit.unlink(missing_ok=True)
        done = subprocess.run(
            [*before, *self.command(*options, f"--junitxml={junit}")],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        return PytestEnded(done.returncode, done.stdout, done.stderr, _cases(junit) if junit.exists() else {})

    def kept(self) -> list[str]:
        """The files left in our temporary folders, including hidden ones."""
        folders = self.temporary.glob("nagle-lab-*")
        return sorted(path.name for folder in folders for path in [*folder.rglob("*"), folder] if path != folder)


def _cases(junit: Path) -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for element in etree.parse(junit).iter("testcase"):
        case = cases.setdefault(element.get("name"), Case())
        for kind in ("failure", "error", "skipped"):
            for found in element.findall(kind):
                case.outcome, case.said = kind, case.said + (found.text or "")
        case.properties |= {one.get("name"): one.get("value") for one in element.iter("property")}
    return cases
