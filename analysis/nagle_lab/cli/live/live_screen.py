"""The terminal of a live view: the screen, and its keys."""

import os
import re
import termios
import time
import tty
from contextlib import suppress
from pathlib import Path
from typing import Self

from rich.console import Console, ConsoleDimensions
from rich.live import Live

from nagle_lab.live.watch.live_findings import Finding
from nagle_lab.live.watch.view import View, write_packets
from nagle_lab.live.watch.watching import Spectator, Watcher
from nagle_lab.reports.screens.watch import ORDERS, Screen, final, identity, render, since_start

_UP, _DOWN, _ESCAPE, _ENTER = b"\x1b[A", b"\x1b[B", b"\x1b", b"\r"
_SAME = {b"\n": _ENTER, b"k": _UP, b"j": _DOWN, b"\x1bOA": _UP, b"\x1bOB": _DOWN, b" ": b"f"}
_KEY = re.compile(rb"\x1b(?:[\[O][A-Z])?|[\x80-\xff]+|.", re.DOTALL)
_MESSAGE_S = 10.0
_USUAL = ConsoleDimensions(80, 24)  # if a terminal, such as a serial console, does not say its size


class Terminal(Spectator):
    """A terminal that shows the live view; a context manager."""

    def __init__(self, screen: Screen, console: Console) -> None:
        self._screen, self._console = screen, console
        self._live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False)
        self._newest: View | None = None
        self._said_at = 0.0

    def __enter__(self) -> Self:
        self._tty = -1
        with suppress(OSError):  # started without a terminal for input
            self._tty = os.open("/dev/tty", os.O_RDONLY)
            self._mode = termios.tcgetattr(self._tty)
            tty.setcbreak(self._tty)
        self._live.start()
        self.redraw()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._tty >= 0:
            termios.tcsetattr(self._tty, termios.TCSADRAIN, self._mode)
            os.close(self._tty)

    def key_fd(self) -> int:
        """The file descriptor that keys come from."""
        return self._tty

    def show(self, view: View | None, said: list[Finding], watcher: Watcher) -> None:
        """Show a new view, unless the screen is frozen."""
        del said  # it is on the screen
        screen = self._screen
        screen.packets, screen.dropped = watcher.ring.frames, watcher.dropped
        screen.counted = since_start(watcher.findings.stalls, watcher.findings.lost_ms)
        screen.final = final(watcher.sums.verdicts)
        if time.monotonic() - self._said_at > _MESSAGE_S:
            screen.message = ""
        before, self._newest = self._newest, view
        if before and before is not screen.view:
            before.snapshot.close()
        if not screen.frozen:
            self._take_newest()
        self.redraw()

    def note(self, text: str) -> None:
        """Show a message for a while."""
        self._screen.message, self._said_at = text, time.monotonic()
        self.redraw()

    def redraw(self) -> None:
        """Draw the screen at the terminal's present size."""
        width, height = os.get_terminal_size(1)  # regardless of COLUMNS
        width, height = self._console.size = ConsoleDimensions(width or _USUAL.width, height or _USUAL.height)
        self._live.update(render(self._screen, width, height), refresh=True)

    def keys(self, watcher: Watcher) -> None:
        """Act on the keys that were pressed."""
        for key in _KEY.findall(os.read(self._tty, 64)):
            if self._screen.typing:
                self._type(key)
            else:
                self._do(_SAME.get(key, key), watcher)
        self.redraw()

    def _take_newest(self) -> None:
        before, self._screen.view = self._screen.view, self._newest
        if before and before is not self._newest:
            before.snapshot.close()

    def _type(self, key: bytes) -> None:
        screen = self._screen
        if key in (_ENTER, b"\n", _ESCAPE):
            screen.typing = False
            if key == _ESCAPE:
                screen.filter = ""
        elif key in (b"\x7f", b"\b"):
            screen.filter = screen.filter[:-1]
        else:
            screen.filter += "".join(c for c in key.decode(errors="ignore") if c.isprintable())

    def _do(self, key: bytes, watcher: Watcher) -> None:
        screen, rows = self._screen, self._screen.rows()
        if key == b"q":
            watcher.end()
        elif key == b"s":
            names = list(ORDERS)
            screen.order = names[(names.index(screen.order) + 1) % len(names)]
        elif key == b"/":
            screen.typing, screen.filter = True, ""
        elif key == b"c":
            screen.single, screen.opened, screen.selected = not screen.single, None, 0
        elif key == b"f":
            if not screen.view:
                self.note("there is nothing to freeze yet")
                return
            screen.frozen = not screen.frozen
            if not screen.frozen:
                self._take_newest()
        elif key in (_UP, _DOWN):
            step = -1 if key == _UP else 1
            screen.selected = max(0, min(screen.selected + step, len(rows) - 1))
        elif key == _ENTER and (row := screen.row()):
            screen.opened = identity(row)
        elif key == _ESCAPE:
            screen.opened = None
        elif key == b"w":
            self._write()

    def _write(self) -> None:
        screen = self._screen
        row = screen.opened_row() if screen.opened else screen.row()
        if not row or not screen.view:
            self.note("there are no packets to write")
            return
        out = Path(f"nagle-lab-watch-{time.strftime('%H%M%S')}.pcapng")
        try:
            count = write_packets(screen.view.snapshot.path, screen.view.connections_of(row), out)
            self.note(f"wrote {count:,} packets to {out}")
        except OSError as error:
            self.note(f"{out} could not be written: {error.strerror}")
