"""What nagle-lab watch is asked to do."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from nagle_lab.cli.shared.options import require_only_one
from nagle_lab.diagnosis.left_out import Wanted
from nagle_lab.errors import NagleLabError
from nagle_lab.guard.recording.target import Target


@dataclass(frozen=True)
class WatchOptions:
    """The options of nagle-lab watch.

    Raises
    ------
    NagleLabError
        Some of them do not go together, or standard input is no pipe.
    """

    source: str | None  # "-": standard input
    interface: str
    container: str
    pid: int | None
    service: str
    pod: str
    image: str
    ports: Sequence[int]
    seconds: float | None
    window_s: float
    period_s: float
    as_json: bool
    prometheus: str | None
    expect: str | None

    @property
    def target(self) -> Target:
        """What is recorded, where that is on this host."""
        return Target(self.pid, self.container, self.service, self.interface, sorted(set(self.ports)))

    @property
    def name(self) -> str:
        """What is watched, in words."""
        if self.source:
            return "standard input"
        return f"pod {self.pod}" if self.pod else str(self.target)

    @property
    def nothing_passed(self) -> str:
        """What to say where there was no packet at all."""
        ports = f" with port {' or '.join(map(str, sorted(set(self.ports))))}" if self.ports else ""
        return f"no TCP packet{ports} passed on {self.name}; watch for longer, or another port or place"

    @property
    def is_on_screen(self) -> bool:
        """Whether it is shown on a terminal, not line by line."""
        return sys.stdout.isatty() and not self.as_json

    @property
    def only(self) -> Wanted | None:
        """Which connections are judged; None: all."""
        ports = frozenset(self.ports)
        return (lambda _client, server: server[1] in ports) if ports else None

    def __post_init__(self) -> None:
        if self.source and self.source != "-":
            raise NagleLabError(
                f"{self.source}: watch follows live traffic: use nagle-lab analyze for a file, or - for a pipe"
            )
        values = {
            "-": self.source,
            "--interface": self.interface,
            "--container": self.container,
            "--pid": self.pid,
            "--compose-service": self.service,
            "--pod": self.pod,
        }
        named = [option for option, value in values.items() if value]
        require_only_one(named)
        if bool(self.pod) != bool(self.image):
            raise NagleLabError("--pod and --image go together: which pod, and an image that has tcpdump in it")
        if self.source and sys.stdin is None:
            raise NagleLabError("standard input is closed: pipe a capture in (tcpdump -U -s 128 -w - tcp | …)")
        if self.source and os.isatty(0):
            raise NagleLabError("standard input is a terminal: pipe a capture in (tcpdump -U -s 128 -w - tcp | …)")
