"""How nagle-lab ends: its exit codes, the one error that reaches a person, and text that is safe to show."""

import errno
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit codes of every nagle-lab command (docs/commands.md lists them for users)."""

    OK = 0  # as expected, or diagnosed with nothing expected
    CONTRADICTED = 1  # the verdict contradicts the expectation
    UNUSABLE = 2  # unusable input or set-up, or wrong usage
    INCONCLUSIVE = 3
    INTERRUPTED = 130  # 128 + SIGINT
    NO_READER = 141  # 128 + SIGPIPE: output pipe closed


class NagleLabError(Exception):
    """What went wrong, with which file or setting, and what to do next, in one line.

    The command line prints it on stderr as ``nagle-lab: <message>`` and exits with ``exit_code``.
    """

    def __init__(self, message: str, exit_code: Exit = Exit.UNUSABLE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


_TO_DO = {
    errno.EACCES: "permission denied: give your account access to it, or name another path",
    errno.EPERM: "permission denied: give your account access to it, or name another path",
    errno.EROFS: "read-only file system: name a path on another one",
    errno.ENOSPC: "disk full: make room, or name a path on another disk",
    errno.EDQUOT: "disk quota exceeded: make room, or name a path on another disk",
    errno.ENOENT: "no such file or directory: check the path",
    errno.EFBIG: "too large for this file system, or for `ulimit -f`: name a path on another one, or raise the limit",
    errno.EMFILE: "too many open files: raise `ulimit -n`",
    errno.ENFILE: "too many open files on this machine: close some programs",
    errno.EAGAIN: "no more processes or threads: raise `ulimit -u`, or end some",
}
DISK_FULL = "disk full while writing"  # how the line of such an error begins
_BY_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def os_problem(error: OSError) -> NagleLabError:
    """The error that says what the operating system refused, for which file, and what to do."""
    if "No usable temporary directory" in str(error):
        return NagleLabError("no folder for temporary files can be written: set TMPDIR to one that can")
    to_do = _TO_DO.get(error.errno or 0, f"{error.strerror or error}: check the path and its permissions")
    of = error.filename or ("what this command writes" if error.errno in _BY_WRITING else "")
    return NagleLabError(f"{of}: {to_do}" if of else to_do)


def disk_full(error: OSError, what: str, folder: Path) -> str:
    """A line that says that ``what`` found no room in ``folder``; empty if the error is another one."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return ""
    return f"{DISK_FULL} {what}: make room in {folder}"


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Within the block only ``file`` is written, so an error of the system without a file's name gets that name."""
    try:
        yield
    except OSError as error:
        if error.errno in _BY_WRITING and error.filename is None:
            error.filename = str(file)
        raise


def worst(codes: Iterable[Exit]) -> Exit:
    """The exit code for several: unusable before contradicted before inconclusive; OK if there are none."""
    order = (Exit.OK, Exit.INCONCLUSIVE, Exit.CONTRADICTED, Exit.UNUSABLE, Exit.INTERRUPTED)
    return max(codes, key=order.index, default=Exit.OK)


def printable(text: str) -> str:
    """The text with everything a terminal would act on (escapes, newlines, direction marks) shown as ``\\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(count: int, what: str) -> str:
    """A count of things, in a sentence: "1 packet", "1,000 packets"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def last_line(text: str, otherwise: str = "") -> str:
    """The last nonblank line that a program printed, stripped; ``otherwise`` if there is none."""
    return next(filter(None, map(str.strip, reversed(text.splitlines()))), otherwise)


def tell(message: str) -> None:
    """One line on stderr, whatever is in it."""
    with suppress(OSError):  # nowhere to say it: the exit code does
        print(f"nagle-lab: {printable(message)}", file=sys.stderr, flush=True)
