"""What analyze was asked for, and Ctrl-C while it reads a pipe."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nagle_lab.cli.shared.exports import Exports
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.host.signals import LAST_PACKETS_S, handling


class CtrlC:
    """A context manager: Ctrl-C ends the input from a pipe (`tcpdump -w - | nagle-lab analyze -`), not the diagnosis.

    The terminal interrupts both programs. The writer of the pipe gets some time to send its last packets and to end;
    after that, or when Ctrl-C is pressed again, standard input counts as ended. ``pressed``: whether it was pressed.
    """

    def __init__(self, is_piped: bool) -> None:
        self.pressed = False
        self._is_taken = is_piped and not os.isatty(0)
        handlers = {signal.SIGINT: self._interrupt, signal.SIGALRM: self._end_input}
        self._handling = handling(handlers if self._is_taken else {})

    def __enter__(self) -> Self:
        self._handling.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_taken:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._handling.__exit__(None, None, None)

    def _interrupt(self, *_: object) -> None:
        if self.pressed:
            self._end_input()
        self.pressed = True
        signal.setitimer(signal.ITIMER_REAL, LAST_PACKETS_S)

    def _end_input(self, *_: object) -> None:
        """A read(2) that waits on the pipe finds the end of a file after the signal."""
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


@dataclass(frozen=True)
class AnalyzeOptions:
    """The options for every capture, and the files to write."""

    expected: Verdict | None
    as_json: bool
    ports: frozenset[int]  # of the servers whose connections are judged; empty: all
    strace: Path | None
    exports: Exports
    ctrl_c: CtrlC
