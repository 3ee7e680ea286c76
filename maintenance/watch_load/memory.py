"""The peak memory of `nagle-lab watch -` on captures of several sizes: the table in docs/watch.md.

    .venv/bin/python maintenance/watch_load/memory.py FILE...      # from bench/enlarge.py

Read from /proc while it runs: the process's resident memory, and the copy of the ring that a view is judged from,
which is a file in memory (memfd).
"""

import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

NAGLE_LAB = Path(__file__).parents[2] / ".venv/bin/nagle-lab"


def most(file: Path) -> tuple[int, int, int]:
    """Peak MB of the process, of copies of the ring, and of both together."""
    with subprocess.Popen(["cat", file], stdout=subprocess.PIPE) as packets:
        running = subprocess.Popen([NAGLE_LAB, "watch", "-"], stdin=packets.stdout, stdout=subprocess.DEVNULL)
        assert packets.stdout
        packets.stdout.close()
        found = (0, 0, 0)
        while running.poll() is None:
            with suppress(OSError):
                now = resident(running.pid), in_files(running.pid)
                found = max(found[0], now[0]), max(found[1], now[1]), max(found[2], sum(now))
            time.sleep(0.02)
    return found


def resident(pid: int) -> int:
    """MB of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    said = re.search(r"VmRSS:\s+(\d+)", status)
    return int(said[1]) // 1024 if said else 0


def in_files(pid: int) -> int:
    """MB of files in memory that a process has open, each once."""
    opened = [path for path in Path(f"/proc/{pid}/fd").iterdir() if "memfd" in str(path.readlink())]
    return sum({path.stat().st_ino: path.stat().st_blocks for path in opened}.values()) // 2048


if __name__ == "__main__":
    for name in sys.argv[1:]:
        process, copies, both = most(Path(name))
        print(f"{name}: {process} MB, copies of the ring {copies} MB, together {both} MB", flush=True)
