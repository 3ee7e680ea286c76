"""How often is the guard wrong? Guarded runs of a stalling and of a clean program, half of them on a busy machine.

    .venv/bin/python maintenance/guard_soak.py 2000 docs/guard-soak.md ["What else the machine did."]

The busy half runs four at once, with a busy loop on each core. Then half as many tests of one suite follow, with
`pytest --nagle` and four workers.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

GUARD = [sys.executable, "-m", "nagle_lab", "guard"]
EXCHANGES = 15
PROGRAMS = {"two-writes": "STALL", "nodelay": "CLEAN"}
# A server that answers in two writes, and a client that asks in one; both in one process.
PROGRAM = textwrap.dedent("""
    import socket, sys, threading
    how, count = sys.argv[1], int(sys.argv[2])
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        peer, _ = listener.accept()
        if how == "nodelay":
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while peer.recv(4096):
            peer.sendall(bytes(200))
            peer.sendall(bytes(600))

    threading.Thread(target=serve, daemon=True).start()
    with socket.create_connection(listener.getsockname()) as client:
        for _ in range(count):
            client.sendall(bytes(100))
            got = 0
            while got < 800:
                got += len(client.recv(4096))
""")
SUITE = textwrap.dedent("""
    import subprocess

    import pytest


    @pytest.mark.nagle(expect="any")
    @pytest.mark.parametrize("number", range({each}))
    @pytest.mark.parametrize(("how", "command"), {commands})
    def test_it(how, command, number):
        subprocess.run(command, check=True)
""")
PYTEST = "`pytest --nagle -n 4`, busy"
Verdicts = dict[tuple[str, str], Counter[str]]  # by program and machine
CODES = {"STALL": 1, "CLEAN": 0, "INCONCLUSIVE": 3, "INVALID": 2}


def command(how: str) -> list[str]:
    """What runs the program."""
    return [sys.executable, "-c", PROGRAM, how, str(EXCHANGES)]


def guarded(how: str) -> tuple[str, float]:
    """One run: its verdict, and how long it took, s; the exit code is checked against the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        started = time.monotonic()
        done = subprocess.run(
            [*GUARD, f"--json={report}", f"--keep={folder}/kept", "--", *command(how)],
            capture_output=True, check=False,
            env={"TMPDIR": folder, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
        took = time.monotonic() - started
        verdict = json.loads(report.read_text())["verdict"] if report.exists() else f"none: {done.stderr[-200:]!r}"
        if CODES.get(verdict) != done.returncode:
            verdict = f"{verdict}, exit code {done.returncode}"
        if verdict != PROGRAMS[how]:
            kept = shutil.copytree(folder, tempfile.mkdtemp(prefix="guard-soak-"), dirs_exist_ok=True)
            print(f"{how}: {verdict}, kept in {kept}", file=sys.stderr, flush=True)
        return verdict, took


def tested(runs: int) -> list[tuple[str, str]]:
    """The program and the verdict of each test in a suite that tests each program ``runs`` times."""
    with tempfile.TemporaryDirectory() as folder:
        suite, junit = Path(folder) / "test_soak.py", Path(folder) / "junit.xml"
        suite.write_text(SUITE.format(each=runs, commands=[(how, command(how)) for how in PROGRAMS]))
        pytest = [sys.executable, "-m", "pytest", "-q", "--nagle", "-n", "4", f"--junitxml={junit}", suite.name]
        done = subprocess.run(pytest, cwd=folder, capture_output=True, text=True, check=False)
        print(*done.stdout.splitlines()[-8:], sep="\n", file=sys.stderr)
        if done.returncode:
            sys.exit(f"pytest ended with {done.returncode}")
        outcomes = []
        for case in ElementTree.parse(junit).iter("testcase"):
            verdicts = [each.get("value") for each in case.iter("property") if each.get("name") == "nagle.verdict"]
            how = next((how for how in PROGRAMS if how in case.get("name", "")), "")
            if how:  # the session has a case of its own
                outcomes.append((how, (verdicts or ["none"])[0] or "none"))
        return outcomes


def bare(how: str) -> float:
    """How long the command takes by itself, s."""
    started = time.monotonic()
    subprocess.run(command(how), capture_output=True, check=True)
    return time.monotonic() - started


@contextmanager
def busy_cores() -> Iterator[None]:
    """A busy loop for each."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(runs: int, page: Path, *notes: str) -> None:
    """Make all runs, and write the page."""
    quarter = runs // 4
    orders = list(PROGRAMS) * quarter
    overheads = [guarded("nodelay")[1] - bare("nodelay") for _ in range(min(30, runs))]
    verdicts: Verdicts = {}
    with ThreadPoolExecutor(1) as pool:
        count(verdicts, "alone", zip(orders, pool.map(verdict_of, orders), strict=True))
    with busy_cores(), ThreadPoolExecutor(4) as pool:
        count(verdicts, "busy", zip(orders, pool.map(verdict_of, orders), strict=True))
    with busy_cores():
        count(verdicts, PYTEST, tested(quarter))
    lines = [*_page(verdicts, overheads, notes)]
    page.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def verdict_of(how: str) -> str:
    """Of one run."""
    return guarded(how)[0]


def count(verdicts: Verdicts, machine: str, outcomes: Iterable[tuple[str, str]]) -> None:
    """Add what was said of each program on such a machine, as it comes."""
    for how, verdict in outcomes:
        verdicts.setdefault((how, machine), Counter())[verdict] += 1
        if verdict != PROGRAMS[how]:
            print(f"{how}, {machine}: {verdict}", file=sys.stderr, flush=True)
    print({key: dict(counts) for key, counts in verdicts.items()}, file=sys.stderr, flush=True)


def _page(verdicts: Verdicts, overheads: list[float], notes: tuple[str, ...]) -> Iterator[str]:
    total = sum(sum(counts.values()) for counts in verdicts.values())
    of_tests = sum(sum(counts.values()) for (_, machine), counts in verdicts.items() if machine == PYTEST)
    wrong = sum(
        number
        for (how, _), counts in verdicts.items()
        for verdict, number in counts.items()
        if verdict not in (PROGRAMS[how], "INCONCLUSIVE")
    )
    unsure = sum(counts["INCONCLUSIVE"] for counts in verdicts.values())
    yield "# How often the guard was wrong"
    yield ""
    yield (
        f"{total - of_tests:,} guarded runs and {of_tests:,} tests under `pytest --nagle`, of "
        f"{datetime.now(UTC):%Y-%m-%d}: **{wrong} wrong verdicts**, {unsure} INCONCLUSIVE ({unsure / total:.2%}). "
        f"The program under guard answers {EXCHANGES} requests in two writes each, with TCP_NODELAY or without it. "
        "Half of the runs were one at a time; the others ran four at once, and so did the tests, in four workers of "
        f"one session, beside a busy loop on each of the machine's {os.cpu_count()} cores."
    )
    yield ""
    yield "| program | machine | runs | verdicts |"
    yield "|---|---|---:|---|"
    for (how, machine), counts in verdicts.items():
        said = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
        yield f"| {how}, expected {PROGRAMS[how]} | {machine} | {sum(counts.values())} | {said} |"
    yield ""
    yield (
        f"The guard adds to the command's own time: {statistics.median(overheads):.2f} s (median of "
        f"{len(overheads)} pairs). `maintenance/guard_soak.py` runs this again."
    )
    for note in notes:
        yield f"\n{note}"


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
