"""How nagle-lab ends: its exit codes, and the one error that reaches a person."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of every nagle-lab command (the README lists them for users)."""

    OK = 0  # as expected, or diagnosed with nothing expected
    CONTRADICTED = 1  # the verdict contradicts the expectation
    UNUSABLE = 2  # unusable input or set-up, or wrong usage
    INCONCLUSIVE = 3
    INTERRUPTED = 130  # 128 + SIGINT


class NagleLabError(Exception):
    """What went wrong, with which file or setting, and what to do next, in one line.

    The command line prints it on stderr as ``nagle-lab: <message>`` and exits with ``exit_code``.
    """

    def __init__(self, message: str, exit_code: Exit = Exit.UNUSABLE) -> None:
        super().__init__(message)
        self.exit_code = exit_code
