"""Conversations of a few behaviours in random order, made without sockets: `alternate.py SEED [COUNT]`.

What a program does on one connection can hide what it does at other times, or on its other connections. So each
conversation draws one to three of the behaviours below, for one to four connections, a path and a capture point. It
needs no root, and judges 50 conversations a second. It prints those that are judged wrongly:

    too many   more stalls of an end than its kernel held, by more than a tenth and two
    missed     CLEAN, though three and more were held, in one of twenty exchanges or more

There are no programs that wait for the ACK, and no relays, because their data cannot always be distinguished from
held data. With --disturb each capture is also disturbed: lossy, copied, stamped by a coarse clock, or by two clocks.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from nagle_lab.diagnosis.analysis import analyze
from support.synthetic import MS, SECOND, US, Conversation, Segment, pcap_bytes

OFF, OFF_SHARE = 2, 0.1
STALLS, STALLED_SHARE = 3, 0.05
ROUND_TRIPS = [60 * US, 200 * US, 1 * MS, 5 * MS, 20 * MS]
JITTER = [0, 0, 0.03, 0.15]  # of a round trip, mean of each way
NS_PER_BYTE = [0, 0, 0, 1_000, 8_000, 27_000]  # on links of 8, 1 and 0.3 Mbit/s
THINKING_MS = [(0.05, 0.2), (1, 4), (4, 6), (28, 33), (0.05, 60), (100, 150)]


@dataclass
class Talk:
    """A connection, the speed of its ends, and how often each held data until a delayed ACK came."""

    c: Conversation
    r: Random
    round_trip: int
    jitter: float
    slowness: float
    thinking: tuple[float, float]
    first: int
    second: int
    held: Counter[str]

    def kernel(self) -> int:
        """How soon a kernel sends held data, ns."""
        return int(self.r.uniform(6, 24) * US * self.slowness)

    def woken(self) -> int:
        """How soon a sleeping program answers, ns."""
        return int(max(28, self.r.lognormvariate(4.2, 0.4)) * US * self.slowness)

    def timer(self) -> int:
        """How long a delayed ACK takes, ns."""
        return int(self.r.uniform(40, 44) * MS)

    def asks(self, size: int = 84) -> Segment:
        """The client's request, after some thinking."""
        return self.client(size, int(self.r.uniform(*self.thinking) * MS))

    def client(self, size: int, after: int) -> Segment:
        """Data of the client, or its ACK."""
        self._vary()
        return self.c.client_sends(size, after_ns=after) if size else self.c.client_acks(after_ns=after)

    def server(self, size: int, after: int) -> Segment:
        """Data of the server, or its ACK."""
        self._vary()
        return self.c.server_sends(size, after_ns=after) if size else self.c.server_acks(after_ns=after)

    def _vary(self) -> None:
        more = self.r.expovariate(1) * self.jitter * self.round_trip / 2 if self.jitter else 0
        self.c.one_way_ns = self.round_trip // 2 + int(more)


def held(t: Talk) -> None:
    """The second of two writes waits for the client's delayed ACK."""
    t.asks()
    t.server(t.first, t.woken())
    t.client(0, t.timer())
    t.server(t.second, t.kernel())
    t.held["server"] += 1


def held_twice(t: Talk) -> None:
    """The same, and a third write waits for the next delayed ACK."""
    held(t)
    t.client(0, t.timer())
    t.server(77, t.kernel())
    t.held["server"] += 1


def upload(t: Talk) -> None:
    """The client's second write waits for the server's delayed ACK."""
    t.asks(120)
    t.server(0, t.timer())
    t.client(50, t.kernel())
    t.server(t.first, t.woken())
    t.held["client"] += 1


def one_write(t: Talk) -> None:
    """An answer at once."""
    t.asks()
    t.server(t.first + t.second, t.woken())


def slow(t: Talk) -> None:
    """An answer that takes its time, often longer than the request's ACK."""
    t.asks()
    if t.r.random() < 0.5:
        t.server(0, t.timer())
    t.server(t.first + t.second, int(t.r.uniform(3, 30) * MS))


def acknowledged_early(t: Talk) -> None:
    """Two writes, and the first is acknowledged at once."""
    t.asks()
    t.server(t.first, t.woken())
    t.client(0, t.kernel())
    t.server(t.second, t.kernel())


def full_segments(t: Talk) -> None:
    """A header and a body with a tail, which waits for a round trip."""
    t.asks()
    t.server(t.first, t.woken())
    t.server(t.c.full_segment, 2 * US)
    t.client(0, t.kernel())
    t.server(100, t.kernel())


def nodelay(t: Talk) -> None:
    """Two writes that wait for nothing."""
    t.asks()
    t.server(t.first, t.woken())
    t.server(t.second, int(t.r.uniform(15, 60) * US))


def nodelay_and_database(t: Talk) -> None:
    """The same, with a few milliseconds in between."""
    t.asks()
    t.server(t.first, t.woken())
    t.server(t.second, int(t.r.uniform(1, 10) * MS))


def nodelay_and_pause(t: Talk) -> None:
    """The same with a pause, before or behind the delayed ACK."""
    t.asks()
    first, pause, timer = t.server(t.first, t.woken()), int(t.r.uniform(15, 60) * MS), t.timer()
    if pause >= timer - MS:
        t.client(0, timer)
    t.c.server_sends(t.second, at_ns=first.ts_ns + pause)


BEHAVIOURS: list[Callable[[Talk], None]] = [
    held, held_twice, upload, one_write, slow, acknowledged_early, full_segments,
    nodelay, nodelay_and_database, nodelay_and_pause,
]  # fmt: skip


def conversation(seed: int, number: int) -> tuple[str, list[Segment], Counter[str]]:
    """The conversation of this number: its description, its capture, and how often each end held data."""
    r = Random(seed * 1_000_003 + number)
    round_trip, jitter, at = r.choice(ROUND_TRIPS), r.choice(JITTER), r.choice(["client", "server", "middle"])
    slowness, syn_ns, thinking = r.uniform(0.7, 1.6), int(r.uniform(8, 30) * US), r.choice(THINKING_MS)
    ns_per_byte = r.choice(NS_PER_BYTE)
    connections, exchanges, is_shared = r.choice([1, 1, 2, 4]), r.choice([25, 60, 100]), r.random() < 0.7
    shared = _some(r)
    told, captured, truth = [], [], Counter[str]()
    for port in range(40_000, 40_000 + connections):
        behaviours, weights = shared if is_shared else _some(r)
        told.append(" ".join(f"{one.__name__}×{weight}" for one, weight in zip(behaviours, weights, strict=True)))
        began = 1_700_000_000 * SECOND + r.randrange(50 * MS)
        c = Conversation(("10.0.0.1", port), rtt_ns=round_trip, t0_ns=began, ns_per_byte=ns_per_byte)
        c.handshake(after_ns=syn_ns)
        sizes = r.choice([50, 238, 400]), r.choice([30, 615, 1000])
        talk = Talk(c, r, round_trip, jitter, slowness, thinking, *sizes, truth)
        for _ in range(exchanges // max(1, connections // 2)):
            r.choices(behaviours, weights)[0](talk)
            if r.random() < 0.3:
                talk.client(0, int(r.uniform(10, 30) * US))
        captured.append([s for s in c.seen_at(at) if isinstance(s, Segment)])
    path = f"{round_trip // US} µs, jitter {jitter}, {ns_per_byte} ns a byte"
    what = f"{path}, at {at}: {'; '.join(told[:1] if is_shared else told)}"
    return what, in_time(s for each in captured for s in each), truth


# ---------------------------------------------------------------------------------------------- poor captures


Disturbance = Callable[[list[Segment], Random], list[Segment]]


def in_time(segments: Iterable[Segment]) -> list[Segment]:
    """In the order of their stamps."""
    return sorted(segments, key=lambda s: s.ts_ns)


def later(by: Callable[[Segment, Random], float]) -> Disturbance:
    """Stamped so much later, ns, and in that order."""
    return lambda segments, r: in_time(replace(s, ts_ns=s.ts_ns + int(by(s, r))) for s in segments)


def coarse(step: int) -> Disturbance:
    """Stamped by a clock with steps of so many ns."""
    return later(lambda s, _: -(s.ts_ns % step))


def lossy(share: float) -> Disturbance:
    """This share of packets is not captured."""
    return lambda segments, r: [s for s in segments if r.random() >= share]


def fast_clock(segments: list[Segment], _: Random) -> list[Segment]:
    """The clock of the server's timestamps gains 3 ms in 10 s."""
    drifted = []
    for s in segments:
        if s.timestamps:
            own, echoed = s.timestamps
            gained = (own * 10_003 // 10_000, echoed) if s.sport == 80 else (own, echoed * 10_003 // 10_000)
            s = replace(s, timestamps=gained)  # noqa: PLW2901 - one of a list that is copied
        drifted.append(s)
    return drifted


DISTURBANCES: dict[str, Disturbance] = {
    "lossy 0.2%": lossy(0.002),
    "lossy 2%": lossy(0.02),
    "no handshakes": lambda segments, _: [s for s in segments if "S" not in s.flags],
    "no timestamps": lambda segments, _: [replace(s, timestamps=None) for s in segments],
    "10 µs": coarse(10 * US),
    "100 µs": coarse(100 * US),
    "1 ms": coarse(MS),
    "4 ms": coarse(4 * MS),
    "twice": lambda segments, r: in_time(segments + later(lambda _, r: r.uniform(1, 15) * US)(segments, r)),
    "timestamps drift": fast_clock,
    "10% late": later(lambda _, r: r.expovariate(1) * 200 * US if r.random() < 0.1 else 0),
    "server 3 ms late": later(lambda s, _: 3 * MS if s.sport == 80 else 0),
}


def _some(r: Random) -> tuple[list[Callable[[Talk], None]], list[int]]:
    behaviours = r.sample(BEHAVIOURS, r.randint(1, 3))
    return behaviours, [r.choice([1, 1, 3, 8]) for _ in behaviours]


def mistakes(capture: Path, truth: Counter[str]) -> tuple[str, list[str]]:
    """The verdict, and what is wrong with it."""
    result = analyze(capture)
    said: Counter[str] = Counter()
    for end in result.summary.held_ends:
        said[end.role] += end.stalls
    wrong = [
        f"too many: {said[role]} of the {role}, which held {truth[role]}"
        for role in said
        if said[role] > truth[role] * (1 + OFF_SHARE) + OFF
    ]
    held_in_all = truth.total()
    if result.verdict == "CLEAN" and held_in_all >= max(STALLS, STALLED_SHARE * result.summary.exchanges):
        wrong.append(f"missed: {held_in_all} held, in {result.summary.exchanges} exchanges")
    return str(result.verdict), wrong


def main() -> None:
    """Make so many conversations, judge each, and print those that are judged wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1500)
    parser.add_argument("--disturb", action="store_true", help="make each a poor capture")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the captures that are judged wrongly")
    asked = parser.parse_args()
    counts, r = Counter[str](), Random(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(asked.count):
            what, segments, truth = conversation(asked.seed, number)
            if asked.disturb:
                name = r.choice(sorted(DISTURBANCES))
                what, segments = f"{name}; {what}", DISTURBANCES[name](segments, r)
            capture = Path(folder, f"{asked.seed}-{number}.pcap")
            capture.write_bytes(pcap_bytes(segments))
            verdict, wrong = mistakes(capture, truth)
            counts[verdict] += 1
            counts["judged wrongly"] += bool(wrong)
            if wrong:
                print(f"{number}: {'; '.join(wrong)} ({verdict}; {what})", flush=True)
            if wrong and asked.keep:
                asked.keep.mkdir(parents=True, exist_ok=True)
                (asked.keep / capture.name).write_bytes(capture.read_bytes())
            capture.unlink()
    print(", ".join(f"{count} {name}" for name, count in counts.most_common()))


if __name__ == "__main__":
    main()
