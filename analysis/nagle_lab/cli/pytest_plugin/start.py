"""Start this program again, as a guarded command, and end with its exit code."""

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from nagle_lab.cli.pytest_plugin import AGAIN
from nagle_lab.errors import Exit, NagleLabError, os_problem, tell

PREFIX = "nagle-lab-pytest-"  # of the folder in which captures are kept


def start_again(keep: str | None) -> NoReturn:
    """Run pytest again in a namespace, and exit with its exit code; like exec, this ends nothing here, as coverage.

    ``keep`` is the folder in which captures are kept; None: one is made.
    """
    base = None
    try:
        base = folder_for_captures()
        code = _run(base, Path(keep).absolute() if keep else base)
    except NagleLabError as error:
        tell(f"--nagle: {error}")
        code = error.exit_code
    except OSError as error:  # a folder that was removed or closed to us meanwhile
        tell(
            f"--nagle: {error.filename or base}: {error.strerror}: check that the folder exists and the disk has room"
        )
        code = Exit.UNUSABLE
    finally:
        if base:
            forget(base)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(base: Path, kept: Path) -> int:
    require_linux()
    from nagle_lab.cli.pytest_plugin.recording import recorded_so_far  # noqa: PLC0415 - Linux only
    from nagle_lab.guard.recording.run_command import HowToRun, run  # noqa: PLC0415 - Linux only
    from nagle_lab.guard.recording.stand_in import PREFIX as GUARD  # noqa: PLC0415 - Linux only

    folder = Path(tempfile.mkdtemp(prefix=GUARD, dir=base))
    command = [sys.executable, *sys.orig_argv[1:]]
    environment: dict[str, str] = {}
    limit_s: float | None = None
    if AGAIN:
        from nagle_lab.cli.pytest_plugin.again import ordered  # noqa: PLC0415 - only of a test that is traced

        command, environment, limit_s = ordered(AGAIN, command)
    try:
        how = HowToRun(parts=True, limit_s=limit_s, environment=environment, under_strace=bool(AGAIN))
        outcome = run(command, folder, **how).outcome
    finally:
        if AGAIN:
            from nagle_lab.guard.tracing.hooking import remove_copies  # noqa: PLC0415 - likewise

            remove_copies()  # os._exit does not
    if outcome.status is None:
        raise NagleLabError(f"pytest could not be started in a namespace: {outcome.problem}")
    if outcome.signal and outcome.captured:
        kept.mkdir(parents=True, exist_ok=True)
        crashed = kept / "crashed.pcapng"
        crashed.write_bytes(b"".join(map(Path.read_bytes, recorded_so_far(folder))))
        tell(f"--nagle: pytest was ended by signal {outcome.signal}; what passed is in {crashed}")
    return outcome.status


def require_linux() -> None:
    """Raise NagleLabError on systems other than Linux."""
    if sys.platform != "linux":
        raise NagleLabError("network namespaces exist on Linux only: leave out --nagle here")


def folder_for_captures() -> Path:
    """A new folder for the recording. Raises NagleLabError if it cannot be made."""
    try:
        return Path(tempfile.mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise os_problem(error) from error


def forget(base: Path) -> None:
    """Remove everything except the kept captures."""
    for folder in base.glob(".*"):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        base.rmdir()
