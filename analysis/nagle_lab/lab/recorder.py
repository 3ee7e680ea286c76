"""One capture: ``record`` runs in a sidecar, its pcap stream is written here, and it answers over its stdin.

The commands and answers are those of ``scenarios/shared/sidecar/record``.
"""

import contextlib
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.interrupts import interruptible, pause
from nagle_lab.lab.containers.process import end, pipe
from nagle_lab.lab.folder import disk_problem
from nagle_lab.lab.witnesses import parse_capture_numbers, parse_lateness
from nagle_lab.runs.witnesses import CaptureNumbers, Lateness

T = TypeVar("T")

_ANSWER_S = 20.0  # an answer takes milliseconds, but a busy machine may need longer
_POLL_S = 0.1
_QUIET_S = 0.25  # longer than an ACK timer, and than the pause after which a connection is closed for good
HANDED_OVER_S = 1.5  # the kernel hands over a ring block that is not full after a second
_SETTLE_S = 5.0


class Recorder:
    """A running capture, the scenario's ``name``, written to ``file`` as packets come.

    Every method but ``abandon`` raises NagleLabError when the capture has failed (tcpdump gone, disk full)
    and KeyboardInterrupt when a signal arrives.
    """

    def __init__(self, name: str, container: str, interface: str, file: Path) -> None:
        self._name = name
        self._interface = interface
        self._file = file
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._lines: list[str] = []
        self._taken = self._answered = 0  # lines read from the queue; and those up to the last answer
        self._early = 0  # packets received before the filter was set, at most: some may be on their way to tcpdump
        self._disk_error: OSError | None = None
        self._stopping = False
        self._capture = file.open("wb", buffering=0)
        self._process = subprocess.Popen(
            ["docker", "exec", "--interactive", container, "record", interface],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self._messages = threading.Thread(target=self._read_messages, daemon=True)
        self._pumps = [threading.Thread(target=self._write_capture, daemon=True), self._messages]
        for pump in self._pumps:
            pump.start()

    def _write_capture(self) -> None:
        stream = pipe(self._process.stdout)
        with self._capture:
            while block := os.read(stream.fileno(), 1 << 20):
                if self._disk_error is None:  # keep reading after an error, so that tcpdump can be stopped properly
                    try:
                        while block:
                            block = block[self._capture.write(block) :]
                    except OSError as error:
                        self._disk_error = error

    def _read_messages(self) -> None:
        for raw in pipe(self._process.stderr):
            line = raw.decode(errors="replace").rstrip("\n")
            self._lines.append(line)
            self._queue.put(line)
        self._queue.put(None)

    def check(self) -> None:
        """Raise NagleLabError if the capture cannot be written, or has ended before ``stop``."""
        if self._disk_error is not None:
            raise disk_problem(self._disk_error, self._file.name, self._file.parent.parent)
        if self._process.poll() is not None and not self._stopping:
            self._messages.join(_ANSWER_S)
            since = self._lines[self._answered :]
            words = [line for line in since if line.strip() and "packet" not in line]  # not its final counts
            raise NagleLabError(f"the capture at the {self._name} ended early: {(words or ['no message'])[-1]}")

    def _await(self, done: Callable[[str], T | None]) -> T:
        """The first result that is not None of ``done(line)`` over the lines the sidecar writes."""
        deadline = time.monotonic() + _ANSWER_S
        while True:
            self.check()
            with interruptible():
                try:
                    line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    raise NagleLabError(f"the {self._name}'s capture sidecar does not answer: run it again") from None
            if line is None:
                self._process.wait()  # its stderr is closed, so it is ending
                continue
            self._taken += 1
            if (result := done(line)) is not None:
                self._answered = self._taken
                return result

    def _send(self, command: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended: _await says why
            pipe(self._process.stdin).write(f"{command}\n".encode())
            pipe(self._process.stdin).flush()

    def _ask(self, command: str) -> list[str]:
        lines: list[str] = []
        self._send(command)
        self._await(lambda line: True if line == f"end {command}" else lines.append(line))
        return lines

    def wait_until_capturing(self) -> None:
        """Wait until tcpdump captures: from here on no packet is missed."""
        self._await(lambda line: True if "listening on" in line else None)
        # Between tcpdump's bind(2) and its filter every packet counts as received, of whatever protocol.
        numbers = self.numbers()
        self._early = numbers.received - numbers.captured

    def listening(self, port: int) -> bool:
        """Whether a socket in the sidecar's namespace listens on TCP ``port``; sends no packet."""
        self._send(f"listening {port}")
        return self._await({"listening yes": True, "listening no": False}.get)

    def describe(self) -> list[str]:
        """The lines of ``record``'s ``describe``."""
        return self._ask("describe")

    def counters(self) -> list[str]:
        """/proc/net/snmp and /proc/net/netstat of the namespace, as lines."""
        return self._ask("counters")

    def watch_lateness(self) -> None:
        """Begin to measure how late the machine of the sidecar and the ends wakes a sleeper."""
        self._send("watch")
        self._await(lambda line: True if line == "watching" else None)

    def lateness(self) -> Lateness:
        """End what ``watch_lateness`` began, and return what was measured."""
        return parse_lateness(self._ask("lateness"))

    def numbers(self) -> CaptureNumbers:
        """What tcpdump itself has counted so far."""
        self._send("stats")
        return self._await(self._parsed)

    def _parsed(self, text: str) -> CaptureNumbers | None:
        numbers = parse_capture_numbers(text)
        if numbers is None:
            return None
        # On loopback the kernel's filter sees every packet twice, outgoing and incoming; libpcap keeps one.
        received = (numbers.received + 1) // 2 if self._interface == "lo" else numbers.received
        early = min(self._early, max(0, received - numbers.captured))
        return replace(numbers, received=received - early, early=early)

    def settle(self, at_most_s: float | None = None) -> None:
        """Wait until tcpdump has written everything it received and nothing has come for some time; at most 5 s.

        The kernel keeps the last block of the ring from tcpdump for up to a second, and stopping tcpdump
        discards it. Whoever reads the numbers judges whether everything arrived. After ``stop`` everything is
        written.
        """
        if self._stopping:
            return
        deadline = time.monotonic() + (at_most_s or _SETTLE_S)
        quiet_s = HANDED_OVER_S if self._early else _QUIET_S  # then the counts become equal too early
        last, since = None, time.monotonic()
        while time.monotonic() < deadline:
            now = self.numbers()
            if now != last:
                last, since = now, time.monotonic()
            elif now.captured == now.received and time.monotonic() - since > quiet_s:
                return
            pause(_POLL_S)

    def stop(self) -> CaptureNumbers:
        """Stop tcpdump, wait until the capture is whole in its file, and return tcpdump's final counts."""
        self._stopping = True
        self._send("stop")
        with interruptible():
            for pump in self._pumps:
                pump.join(_ANSWER_S)
        if any(pump.is_alive() for pump in self._pumps):
            raise NagleLabError(f"the capture at the {self._name} does not stop: run it again")
        self._process.wait()
        self.check()
        rest = list(iter(self._queue.get, None))
        numbers = self._parsed(" ".join(rest))
        if numbers is None:
            said = " / ".join(rest) or "no message"
            raise NagleLabError(f"tcpdump at the {self._name} ended without its counts: {said}: run it again")
        return numbers

    def abandon(self) -> None:
        """End the capture, whatever its state; what was written stays written."""
        end(self._process, self._pumps, within_s=2)
