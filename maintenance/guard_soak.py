"""How often is the guard wrong? Guarded runs of a stalling and of a clean program, half of them on a busy machine.

    .venv/bin/python maintenance/guard_soak.py 2000 docs/guard-soak.md

The busy half runs four at once beside a busy loop on each core.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from os import cpu_count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.guarded import GUARD, server

EXCHANGES = "15"
PROGRAMS = {"two-writes": "STALL", "nodelay": "CLEAN"}
CODES = {"STALL": 1, "CLEAN": 0, "INCONCLUSIVE": 3, "INVALID": 2}


def guarded(how: str) -> tuple[str, float]:
    """One run: its verdict, and how long it took, s; the exit code is held against the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        started = time.monotonic()
        done = subprocess.run(
            [*GUARD, f"--json={report}", "--", *server(how, EXCHANGES)], capture_output=True, check=False,
            env={"TMPDIR": folder, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )  # fmt: skip
        took = time.monotonic() - started
        verdict = json.loads(report.read_text())["verdict"] if report.exists() else f"none: {done.stderr[-200:]!r}"
        if CODES.get(verdict) != done.returncode:
            verdict = f"{verdict}, exit code {done.returncode}"
        return verdict, took


def bare(how: str) -> float:
    """How long the command takes by itself, s."""
    started = time.monotonic()
    subprocess.run(server(how, EXCHANGES), capture_output=True, check=True)
    return time.monotonic() - started


@contextmanager
def busy_cores() -> Iterator[None]:
    """A busy loop for each."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(runs: int, page: Path) -> None:
    """Run them all, and write the page."""
    quarter = runs // 4
    orders = [how for pair in zip(*([how] * quarter for how in PROGRAMS), strict=True) for how in pair]
    overheads = [guarded("nodelay")[1] - bare("nodelay") for _ in range(min(30, runs))]
    verdicts: dict[tuple[str, str], Counter[str]] = {}
    for machine, workers in (("alone", 1), ("busy", 4)):
        with ThreadPoolExecutor(workers) as pool:
            if machine == "busy":
                with busy_cores():
                    outcomes = list(pool.map(guarded, orders))
            else:
                outcomes = list(pool.map(guarded, orders))
        for how, (verdict, _) in zip(orders, outcomes, strict=True):
            verdicts.setdefault((how, machine), Counter())[verdict] += 1
    lines = [*_page(verdicts, overheads)]
    page.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def _page(verdicts: dict[tuple[str, str], Counter[str]], overheads: list[float]) -> Iterator[str]:
    total = sum(sum(counts.values()) for counts in verdicts.values())
    wrong = sum(
        count
        for (how, _), counts in verdicts.items()
        for verdict, count in counts.items()
        if verdict not in (PROGRAMS[how], "INCONCLUSIVE")
    )
    unsure = sum(counts["INCONCLUSIVE"] for counts in verdicts.values())
    yield "# How often the guard was wrong"
    yield ""
    yield (
        f"{total:,} guarded runs of {datetime.now(UTC):%Y-%m-%d}: **{wrong} wrong verdicts**, {unsure} INCONCLUSIVE "
        f"({unsure / total:.2%}). The program under guard answers {EXCHANGES} requests in two writes each, "
        "with TCP_NODELAY or without it. Half of the runs were one at a time; the others ran four at once beside a "
        f"busy loop on each of the machine's {cpu_count()} cores."
    )
    yield ""
    yield "| program | machine | runs | verdicts |"
    yield "|---|---|---:|---|"
    for (how, machine), counts in verdicts.items():
        said = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        yield f"| {how}, expected {PROGRAMS[how]} | {machine} | {sum(counts.values())} | {said} |"
    yield ""
    yield (
        f"The guard adds to the command's own time: {statistics.median(overheads):.2f} s (median of "
        f"{len(overheads)} pairs). `maintenance/guard_soak.py` runs this again."
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
