"""Ctrl-C while a capture comes through a pipe."""

import os
import signal
from typing import Self

from nagle_lab.host.signals import handling

LAST_PACKETS_S = 2.0


class CtrlC:
    """A context manager: Ctrl-C ends what the pipe brings (`tcpdump -w - | nagle-lab analyze -`), not the diagnosis.

    The terminal interrupts both programs. The one before the pipe has a while to send its last packets and to end;
    then, or when Ctrl-C is pressed again, standard input is at its end.

    Attributes
    ----------
    pressed : whether it was
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
        """What waits in read(2) on a pipe finds the end of a file there, when the signal is over."""
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
