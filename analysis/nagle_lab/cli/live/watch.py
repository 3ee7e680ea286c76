"""nagle-lab watch: what stalls now, live; and at the end the report of `analyze`."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from nagle_lab.cli.live.live_screen import Terminal
from nagle_lab.cli.shared.options import require_only_one
from nagle_lab.diagnosis.left_out import Wanted
from nagle_lab.diagnosis.proof.outcomes import Obstacle
from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import Verdict, exit_code
from nagle_lab.errors import Exit, NagleLabError, tell
from nagle_lab.evidence.examples import Examples
from nagle_lab.evidence.ladder import Ladder, ladder_of
from nagle_lab.evidence.software import NodelaySetting, setting_by_name
from nagle_lab.guard.recording.job import Target
from nagle_lab.live.watch.live_findings import SCHEMA, Event, Finding, Note, Report, now
from nagle_lab.live.watch.metrics import Metrics
from nagle_lab.live.watch.periods import PeriodSums
from nagle_lab.live.watch.pods import pod_stream
from nagle_lab.live.watch.program_names import ProgramNames
from nagle_lab.live.watch.recording import Recording
from nagle_lab.live.watch.view import View
from nagle_lab.live.watch.watching import Spectator, Watcher
from nagle_lab.reports.screens.terminal import console, show_capture, whole_console
from nagle_lab.reports.screens.watch import Screen, line, show_periods
from nagle_lab.reports.words.next_steps import commands
from nagle_lab.reports.words.reported import ReportedCapture


@dataclass(frozen=True)
class WatchOptions:
    """The options of nagle-lab watch. NagleLabError if some exclude each other, or standard input is not a pipe."""

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
        """What to record, if that is on this host."""
        return Target(self.pid, self.container, self.service, self.interface, sorted(set(self.ports)))

    @property
    def name(self) -> str:
        """The target, in words."""
        if self.source:
            return "standard input"
        return f"pod {self.pod}" if self.pod else str(self.target)

    @property
    def nothing_passed(self) -> str:
        """What to say if there was no packet at all."""
        ports = f" with port {' or '.join(map(str, sorted(set(self.ports))))}" if self.ports else ""
        on = self.name.replace("all interfaces", "any interface")
        return f"no TCP packet{ports} was seen on {on}; watch for longer, or another port, or elsewhere"

    @property
    def is_on_screen(self) -> bool:
        """Whether the view is shown on a terminal instead of line by line."""
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


def command(**options: Any) -> Exit:
    """Watch until Ctrl-C, the end of the stream, or for some seconds; then report."""
    asked = WatchOptions(**options)
    counting = closing(Metrics(asked.prometheus)) if asked.prometheus else nullcontext()
    with counting as metrics, _packets(asked) as (opened, names):
        with _spectator(asked) as spectator:
            watcher = Watcher(
                opened, asked.name, spectator, names, window_s=asked.window_s, seconds=asked.seconds,
                only=asked.only, period_s=asked.period_s, metrics=metrics,
            )  # fmt: skip
            sums = watcher.run()
        ladder = _typical(sums, watcher)
        if sums.worst:
            sums.worst = msgspec.structs.replace(sums.worst, processes=names.processes(sums.worst.connections))
            if not sums.packets and not asked.source:
                sums.worst = msgspec.structs.replace(sums.worst, reason=asked.nothing_passed)
    code = _report(sums, ladder, watcher, asked)
    if asked.is_on_screen:  # the screen that said so is gone
        for text in names.unseen:
            tell(text)
    is_here = not asked.source and not asked.pod and not asked.as_json
    if is_here and sums.worst and not names.unseen and (step := nearer(sums.worst, asked.target)):
        tell(step)
    return code


def nearer(result: Result, target: Target) -> str:
    """Where to record instead, if the packets of this host's interfaces do not decide; else empty."""
    if target.pid or target.container or target.service:
        return ""
    if result.verdict is Verdict.CLEAN:
        return (
            f"nothing stalled in these {result.source.duration_s:.0f} s; what passes inside a container alone is not "
            "seen here: nagle-lab sockets looks into every container"
        )
    if result.verdict is Verdict.INCONCLUSIVE and result.quality.unresolved.get(Obstacle.LIKE_A_PROGRAM, 0):
        return (
            "seen from outside, a container's kernel looks as slow as a program: nagle-lab sockets says who holds "
            "data, watch --container NAME (or --pid N) proves it"
        )
    return ""


@contextmanager
def _packets(asked: WatchOptions) -> Iterator[tuple[Recording | int, ProgramNames]]:
    """The source of the packets, and the names of their ends.

    There are no names for a pod, which is on another host, or for a pipe, which may be.
    """
    target = asked.target
    if asked.pod:
        tell(f"asking for an ephemeral container in pod {asked.pod}: once it is there, it stays until the pod ends")
        with pod_stream(asked.pod, asked.image, target.ports, asked.seconds) as fd:
            yield fd, ProgramNames()
    elif asked.source:
        yield 0, ProgramNames()
    else:
        with (
            closing(Recording(target)) as recording,
            ProgramNames(recording.pid, looks_elsewhere=not target.interface) as names,
        ):
            yield recording, names


def _spectator(asked: WatchOptions) -> AbstractContextManager[Spectator]:
    if asked.is_on_screen:
        return Terminal(Screen(asked.name, asked.window_s), whole_console())
    return nullcontext(_Lines(asked.as_json))


class _Lines(Spectator):
    """A line for each finding, without a terminal."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._dropped = 0

    def show(self, view: View | None, said: Sequence[Finding], watcher: Watcher) -> None:
        """Print findings that are new."""
        if watcher.dropped > self._dropped:
            self.note(f"{watcher.dropped - self._dropped:,} packets were lost while recording")
            self._dropped = watcher.dropped
        for finding in said:
            _say(finding, self._as_json, line(finding))
        if view:
            view.snapshot.close()

    def note(self, text: str) -> None:
        """Print a message: on stderr, or in JSON among the findings."""
        if self._as_json:
            _say(Note(SCHEMA, now(), text), True, "")
        else:
            tell(text)


def _say(event: Event, as_json: bool, text: str) -> None:
    print(json_text(event) if as_json else text, flush=True)


def _typical(sums: PeriodSums, watcher: Watcher) -> Ladder | None:
    """The ladder of a typical stall, if all its packets are still in the ring."""
    result = sums.worst
    if sums.periods != 1 or not result or not result.stalls:
        return None
    with watcher.ring.snapshot() as snapshot:
        if snapshot.first != 1:
            return None
        return replace(ladder_of([snapshot.path], result, result.stalls.typical()), file=result.source.file)


def _report(sums: PeriodSums, ladder: Ladder | None, watcher: Watcher, asked: WatchOptions) -> Exit:
    assert sums.worst
    expected = Verdict(asked.expect.upper()) if asked.expect else None
    verdict, reason = sums.verdict()
    code = exit_code(verdict, expected)
    if asked.as_json:
        report = Report(
            SCHEMA, now(), verdict, reason, sums.periods, sums.packets, watcher.dropped, sums.exchanges, sums.stalled,
            sums.stalls, round(sums.lost_ms, 3), sums.worst.summary.remedy,
        )  # fmt: skip
        _say(report, True, "")
    else:
        screen = console()
        if sums.periods > 1:
            show_periods(sums, verdict, reason, asked.name, screen)
        software, known_by = _software(sums.worst), "by the name of the process"
        to_paste = commands(sums.worst, software, here=True, known_by=known_by, unknown="is not known")
        reported = ReportedCapture(sums.worst, Examples(ladder), title=asked.name, to_paste=to_paste)
        show_capture(reported, screen, _about(sums, watcher, ladder))
    if code is Exit.CONTRADICTED and not asked.as_json:
        tell(f"{asked.name}: expected {expected}, found {verdict}")
    return code


def _about(sums: PeriodSums, watcher: Watcher, ladder: Ladder | None) -> list[tuple[str, str]]:
    """Why the final report differs from what was on the screen."""
    rows = []
    live = watcher.findings.stalls
    if live != sums.stalls:
        found = f"{live:,} stalls were found window by window, and {sums.stalls:,} in all packets together"
        rows.append(("live", f"{found}: that is the report, because it knows more of each program"))
    if sums.stalls and not ladder:
        rows.append(("ladder", "none: those packets are no longer in memory; on the screen `w` writes the latest"))
    return rows


def _software(result: Result) -> NodelaySetting | None:
    """The software that holds data back, by the name of its process."""
    holders = (one for one in result.processes or [] if one.role == result.summary.held_by)
    return next((setting for one in holders if (setting := setting_by_name(one.command))), None)
