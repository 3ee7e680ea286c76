"""How much too long is the true hold that ``guard --trace`` reports? Compares its times of calls with socket
timestamps.

    .venv/bin/python maintenance/true_hold/measure.py [EXCHANGES [RUNS]]

The true hold begins at strace's time of the held write, and ends at the release's in the capture. strace stamps a
call before the kernel begins with it. Triggers show the difference, because they are not held: a trigger leaves
within its own send(), and the kernel's software timestamp (SO_TIMESTAMPING) says when. So strace's time of each
trigger lies between the program's own clock right before send() and that timestamp. Its distance from the timestamp
is the error of the hold, plus the kernel's own work for the segment, a few µs. nagle-lab subtracts the median
distance, by the capture's times of the triggers, from each hold; what remains is the error.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from nagle_lab.diagnosis.result.spread import nearest_rank
from nagle_lab.experiments.software.guarded import Selection, guard
from nagle_lab.experiments.writes.traced import with_writes

HERE = Path(__file__).parent


def measured(exchanges: int, folder: Path) -> tuple[list[float], list[float], list[float], list[float]]:
    """Of each stall the µs from strace's time, as it is and corrected, and from the program's clock to the timestamp;
    and true holds, ms.
    """
    program, times = folder / "server", folder / "times.txt"
    subprocess.run(["cc", "-O2", "-pthread", "-o", program, HERE / "server.c"], check=True)
    command = [str(program), str(exchanges)]
    (folder / "recorded").mkdir()
    place = {"environment": {"TIMES": str(times)}}
    run = with_writes(guard(command, folder / "recorded", Selection(), **place), command, **place)
    if not run.writes or not run.writes.pairs:
        raise SystemExit(f"nothing was traced: {run.writes.problem if run.writes else run.result.reason}")
    stamps = [tuple(map(int, line.split())) for line in times.read_text().splitlines()]
    by_strace, by_program = [], []
    for pair in run.writes.pairs:
        at = int(pair.trigger.at.replace(".", "")) * 1000
        before, left = min(stamps, key=lambda stamp: abs(stamp[1] - at))
        if abs(left - at) < 5_000_000:
            by_strace.append((left - at) / 1000)
            by_program.append((left - before) / 1000)
    corrected = [us - run.writes.early_us for us in by_strace]
    return by_strace, corrected, by_program, [pair.true_hold_ms for pair in run.writes.pairs]


def main(exchanges: int = 200, runs: int = 3) -> None:
    """Print the figures of so many runs."""
    strace: list[float] = []
    corrected: list[float] = []
    program: list[float] = []
    holds: list[float] = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="nagle-lab-true-hold-") as folder:
            by_strace, less, by_program, held = measured(exchanges, Path(folder))
        strace, corrected = strace + by_strace, corrected + less
        program, holds = program + by_program, holds + held
    print(f"{len(strace)} triggers, {len(holds)} stalls, true hold p50 {nearest_rank(sorted(holds), 50):.1f} ms")
    named = {"strace's time": strace, "strace's time, corrected": corrected, "the program's clock": program}
    for name, values in named.items():
        figures = ", ".join(f"p{percent} {nearest_rank(sorted(values), percent):.0f}" for percent in (50, 95, 99))
        print(f"from {name} to the socket timestamp, µs: {figures}, min {min(values):.0f}, max {max(values):.0f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
