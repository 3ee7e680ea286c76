"""The processes of this host, as /proc lists them: proc(5)."""

import os
from contextlib import suppress
from pathlib import Path

NAME_KEPT = 15  # bytes of a process's name that the kernel keeps (TASK_COMM_LEN)


def undeleted(path: str) -> str:
    """The path of an open or mapped file, without the kernel's suffix for one that is gone since."""
    return path.removesuffix(" (deleted)")


def every_pid() -> list[int]:
    """The PIDs of all processes."""
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def stat_of(pid: int) -> tuple[str, list[bytes]]:
    """The name of a process, and what follows it in /proc/PID/stat: its state first. Raises OSError if it has
    ended.
    """
    head, _, rest = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")
    return head.partition(b"(")[2].decode(errors="replace"), rest.split()


def status_of(pid: int | str) -> dict[str, str]:
    """The fields of /proc/PID/status, by name; empty if the process has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}
