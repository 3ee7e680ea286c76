"""What this user may do here: tests that need root are skipped, with the reason, where nobody has these rights."""

import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.repository import REPOSITORY

AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
NOBODY = "65534"
CAP_SYS_ADMIN = 1 << 21  # needed by mount(2) and unshare(2); root in an ordinary container lacks it


def sudo_refused() -> str | None:
    """Why nothing can be done as root here; None for root, and for users with sudo without a password."""
    if not AS_ROOT:
        return None
    may = (
        shutil.which("sudo") and subprocess.run([*AS_ROOT, "true"], check=False, capture_output=True).returncode == 0
    )
    return None if may else "it takes root, or sudo without a password"


def mount_refused() -> str | None:
    """Why nothing can be mounted here; None if root, also through sudo, may mount."""
    if refused := sudo_refused():
        return refused
    status = subprocess.run([*AS_ROOT, "cat", "/proc/self/status"], check=True, capture_output=True, text=True).stdout
    (effective,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return None if int(effective, 16) & CAP_SYS_ADMIN else "root here may not mount: it has no CAP_SYS_ADMIN"


def must_look_elsewhere() -> None:
    """Skip a test that looks into namespaces of other processes, if that is not allowed: sudo for the test's child is
    not enough.
    """
    if refused := mount_refused():
        pytest.skip(refused)
    if AS_ROOT:
        pytest.skip("looking into other namespaces takes root")


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user may use: pytest closes the parent of ``tmp_path`` to others whenever it starts."""
    with tempfile.TemporaryDirectory(prefix="nagle-lab-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def reachable() -> list[str]:
    """Shell lines that let another user reach Python and this repository even in a closed home folder."""
    needed = [Path(sys.base_prefix), REPOSITORY]
    closed = {str(parent) for path in needed for parent in path.parents if not parent.stat().st_mode & stat.S_IXOTH}
    outermost = sorted(path for path in closed if not any(Path(other) in Path(path).parents for other in closed))
    if not outermost:
        return []
    lines = ["mount -t tmpfs -o mode=755 tmpfs /mnt"]
    lines += [f"mkdir /mnt/{i} && mount --bind {shlex.quote(str(path))} /mnt/{i}" for i, path in enumerate(needed)]
    lines += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(path)}" for path in outermost]
    for i, path in enumerate(needed):
        if any(Path(home) in path.parents for home in outermost):
            lines.append(f"mkdir -p {shlex.quote(str(path))} && mount --bind /mnt/{i} {shlex.quote(str(path))}")
    return lines


def with_room(folder: Path, kilobytes: int) -> list[str]:
    """A prefix for a command for which ``folder`` is on a small disk of its own with so much room, kB.

    Nobody else sees that disk; it needs the rights of :func:`mount_refused`.
    """
    at = shlex.quote(str(folder))
    fill = f"head -c {(64 - kilobytes) << 10} /dev/zero > {at}/fill"
    script = f'mount -t tmpfs -o size=64k tmpfs {at} && {fill} && exec "$@"'
    return [*AS_ROOT, "unshare", "--mount", "sh", "-c", script, "sh"]
