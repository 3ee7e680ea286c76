"""Calls matched with segments, by the addresses of a connection, and by the position of each byte in what its sender
wrote.

If trace and capture both begin before the connection, both count its bytes from the first one. Otherwise their counts
differ by an offset that has to be found. No byte is sent before it is written, and whenever a sender has nothing left
to send, it has sent as much as was written. So the offset is the most by which segments have been ahead of calls so
far. It is valid for a stall if it is the same from before the trigger to the release, and was reached often enough.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path

from nagle_lab.diagnosis.ends import ROLES
from nagle_lab.diagnosis.result.result import Connection, Result, Role, Stall
from nagle_lab.evidence.excerpt import PacketWindow, Step, excerpts, require_frames
from nagle_lab.guard.tracing.calls import Call, Direction, Stream, Trace
from nagle_lab.tcp.learned import unwrapped

_OFTEN = 3  # how many times a sender must have had nothing left to send, for its bytes to be counted from there
_MOST_ELSEWHERE = 10  # most settings of other sockets, per stall
_APART_NS = 1_000_000  # the most by which clocks may differ

# Why the calls of a stall are not known.
NOT_SEEN = "strace did not see them"
BEFORE = "they were made before the trace began, or after it ended"
NOT_ALL = "bytes were sent that no call in the trace wrote, so it is not known which call wrote which"
UNSURE = "the connection began before the trace, and its bytes cannot be counted for sure"
UNORDERED = "two threads wrote at once, and it is not known which came first"


@dataclass(frozen=True)
class CallPair:
    """The two calls of a stall."""

    stall: Stall
    stream: Stream
    other: Stream | None
    trigger: Call
    held: Call
    held_writes: int
    trigger_ts: int
    release_ts: int
    elsewhere: tuple[Call, ...] = ()  # calls that set TCP_NODELAY on other sockets of the process, in order

    def hold_ms(self, early_us: float) -> float:
        """From the write to its release, ms, if calls are stamped so early."""
        return max((self.release_ts - self.held.at) / 1e6 - early_us / 1e3, 0.0)

    @property
    def between_ms(self) -> float:
        """The time from one write to the other, ms."""
        return (self.held.at - self.trigger.at) / 1e6


@dataclass(frozen=True)
class Joined:
    """The two calls of each stall, where they are known."""

    pairs: list[CallPair]
    missing: Counter[str]  # for the other stalls: why


def join(files: Sequence[Path], result: Result, trace: Trace) -> Joined:
    """The two calls of each stall; ``files`` are the capture, which was recorded together with the trace.

    Raises NagleLabError if the capture changed since it was judged.
    """
    by_connection: dict[int, list[Stall]] = defaultdict(list)
    for stall in result.stalls:
        by_connection[stall.connection].append(stall)
    connections = [result.connections[number] for number in by_connection]
    windows = [
        PacketWindow(one, one.first_frame, max(s.release_frame for s in by_connection[one.id])) for one in connections
    ]
    pairs: list[CallPair] = []
    missing: Counter[str] = Counter()
    if windows:
        for excerpt in excerpts(files, windows):
            stalls = by_connection[excerpt.connection.id]
            require_frames(excerpt, [frame for one in stalls for frame in (one.trigger_frame, one.release_frame)])
            for found in _of_connection(excerpt.connection, excerpt.steps, stalls, trace):
                if isinstance(found, CallPair):
                    pairs.append(found)
                else:
                    missing[found] += 1
    return Joined(sorted(pairs, key=lambda pair: pair.stall.release_frame), missing)


def _of_connection(
    connection: Connection, steps: Sequence[Step], stalls: Sequence[Stall], trace: Trace
) -> Iterator[CallPair | str]:
    """The two calls of each of its stalls, or why they are not known."""
    ways: dict[Role, Direction] = dict(zip(ROLES, connection.sockets, strict=True))
    sent = {role: _Sent([step for step in steps if step.from_client is (role == "client")]) for role in ways}
    counts: dict[Stream, _Count] = {}
    elsewhere: dict[tuple[Stream, int], tuple[Call, ...]] = {}  # by process, too
    for stall in stalls:
        role = stall.held_by.role
        way, back = ways[role], ways["server" if role == "client" else "client"]
        trigger, release = sent[role].steps[stall.trigger_frame], sent[role].steps[stall.release_frame]
        stream = trace.stream(way, release.ts)
        if not stream or not stream.writes or trigger.frame not in sent[role].offsets:
            yield NOT_SEEN
        else:
            if stream not in counts:
                counts[stream] = _Count(sent[role], stream)
            found = _pair(stall, trigger, release, counts[stream], trace.stream(back, release.ts))
            if isinstance(found, CallPair):
                if (stream, found.held.process) not in elsewhere:
                    elsewhere[stream, found.held.process] = _elsewhere(found, trace)
                found = replace(found, elsewhere=elsewhere[stream, found.held.process])
            yield found


def _elsewhere(pair: CallPair, trace: Trace) -> tuple[Call, ...]:
    """The first calls that set TCP_NODELAY in the process that held, on neither end of the connection."""
    theirs = {call for stream in (pair.stream, pair.other) if stream for call in stream.calls()}

    def sets_nodelay_elsewhere(call: Call) -> bool:
        sets_it = call.option == "TCP_NODELAY" and bool(call.value) and not call.error
        return sets_it and call.process == pair.held.process and call not in theirs and call.at < pair.release_ts

    others = filter(sets_nodelay_elsewhere, trace.options)
    return tuple(islice(others, _MOST_ELSEWHERE))


def _pair(stall: Stall, trigger: Step, release: Step, count: "_Count", other: Stream | None) -> CallPair | str:
    """The two calls, or why they are not known."""
    stream = count.stream
    if release.ts < stream.writes[0].at:
        return BEFORE
    ahead = count.ahead(trigger.frame, release.frame)
    if isinstance(ahead, str):
        return BEFORE if trigger.ts > stream.writes[-1].at else ahead
    start = count.offsets[release.frame] - ahead
    first, held = stream.covering(count.offsets[trigger.frame] - ahead + trigger.length - 1), stream.covering(start)
    if not first or not held:
        return BEFORE
    if held.at > release.ts + _APART_NS:
        return NOT_ALL
    if first.at_once or held.at_once:
        return UNORDERED
    writes = stream.within(start, start + release.length)
    return CallPair(stall, stream, other, first, held, writes, trigger.ts, release.ts)


class _Sent:
    """What one end of a connection sent: where each segment begins, counted from the first byte seen."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = {step.frame: step for step in steps}
        self.offsets: dict[int, int] = {}  # by frame
        self.from_start = False  # whether the first byte seen is the first one sent
        first = latest = None
        for step in steps:
            if first is None or latest is None:
                self.from_start = "SYN" in step.flags
                first, latest = step.seq + self.from_start, 0
                if self.from_start:
                    continue
            elif "SYN" in step.flags:
                continue
            self.offsets[step.frame] = latest = unwrapped(step.seq, first + latest) - first


class _Count:
    """How far a capture's count of the bytes of a stream is ahead of that of the trace, over time."""

    def __init__(self, sent: _Sent, stream: Stream) -> None:
        self.stream, self.offsets = stream, sent.offsets
        self._is_whole = sent.from_start and bool(stream.began)
        self._at: dict[int, int] = {}  # by frame
        self._before: dict[int, int | None] = {}  # the value without that frame
        self._met: dict[int, set[int]] = defaultdict(set)  # value → numbers of calls before it
        times, written = [call.at for call in stream.writes], [0, *accumulate(call.wrote for call in stream.writes)]
        most: int | None = 0 if self._is_whole else None
        before, end = most, 0
        for frame, offset in sent.offsets.items():
            step = sent.steps[frame]
            end = max(end, offset + step.length)
            calls = bisect_right(times, step.ts)
            ahead = end - written[calls]
            if most is None or ahead >= most:
                most = ahead
                if step.length:
                    self._met[ahead].add(calls)
            self._at[frame], self._before[frame] = most, before
            before = most

    def ahead(self, trigger: int, release: int) -> int | str:
        """How many bytes it is ahead, at the frames of a stall; or why that is not known."""
        ahead = self._at[release]
        is_the_same_throughout = ahead == self._at[trigger] == self._before[trigger]
        if not is_the_same_throughout:
            return NOT_ALL if self._is_whole else UNSURE
        if (self._is_whole and not ahead) or len(self._met[ahead]) >= _OFTEN:
            return ahead
        return NOT_ALL if self._is_whole else UNSURE
