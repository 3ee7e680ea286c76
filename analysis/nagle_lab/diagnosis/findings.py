"""What a whole capture shows: the stalls proved, and everything counted by connection and in all.

What was put aside window by window is gone through once more, now that the ledger knows every connection: how fast
each end reacts, and whether it waits for acknowledgements at all. Every step takes a chunk, so memory stays bounded.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nagle_lab.diagnosis.distribution import Distribution
from nagle_lab.diagnosis.silences import SILENCE, Cause, Totals, add, causes, explained
from nagle_lab.diagnosis.stalls import LATE_ACK, TRIPLE, Proof, is_before_timer, is_late, is_settled, prove
from nagle_lab.tcp.columns import Bools, Columns, Ints, counted, picked, runs, table
from nagle_lab.tcp.exchanges import ExchangeLog
from nagle_lab.tcp.ledger import Known, Ledger
from nagle_lab.tcp.loops import sort_numbers
from nagle_lab.tcp.shelf import Shelf

ROLES = ("client", "server")
TRIPLES_IN_MEMORY = 24 << 20  # bytes; enough for two million packets where every sixth ends a stall
_EVENTS = np.dtype([("conn", "i8"), ("side", "i1"), ("count", "i4")])
Rows = NDArray[np.void]


class Events:
    """How often something happened on each side of each connection."""

    def __init__(self) -> None:
        self._shelf = Shelf(_EVENTS)

    def add(self, connections: Ints, side: NDArray[np.int8]) -> None:
        """It happened once on each of those sides (n,) of connections (n,)."""
        if len(connections):
            half, counts = counted(2 * connections + side)
            events = np.empty(len(half), _EVENTS)
            events["conn"], events["side"], events["count"] = half // 2, half % 2, counts
            self._shelf.append(events)

    def enter(self, ledger: Ledger, column: str) -> None:
        """Add the counts to a column of the ledger that has one per side."""
        for events in self._shelf.chunks():
            known = ledger.of(events["conn"])
            np.add.at(known.entries[column], (known.of, events["side"]), events["count"])
            ledger.put(known.numbers, known.entries)


@dataclass(frozen=True)
class PutAside:
    """What the windows left for the end."""

    ledger: Ledger = field(default_factory=Ledger)
    triples: Shelf = field(default_factory=lambda: Shelf(TRIPLE, TRIPLES_IN_MEMORY))
    late_acks: Shelf = field(default_factory=lambda: Shelf(LATE_ACK))
    silences: Shelf = field(default_factory=lambda: Shelf(SILENCE))
    totals: Totals = field(default_factory=dict)  # of the silences that are not put aside
    nagle_off: Events = field(default_factory=Events)
    fin_acks: Events = field(default_factory=Events)
    delayed_acks: Events = field(default_factory=Events)  # those that are not put aside
    early_acks: Events = field(default_factory=Events)
    exchanges: ExchangeLog = field(default_factory=ExchangeLog)

    def add_late_acks(self, late: Columns) -> None:
        """Put them aside, but for those of which the end of the capture can say nothing new: count these."""
        settled, (delayed, early) = is_settled(late["wait"], late["reaction"]), _timed(late["wait"], late["reaction"])
        for events, kept in ((self.delayed_acks, delayed & settled), (self.early_acks, early & settled)):
            events.add(late["conn"][kept], late["side"][kept])
        self.late_acks.append(table(LATE_ACK, late, ~settled))

    def add_silences(self, found: Columns) -> None:
        """Put them aside, but for those of which the end of the capture can say nothing new: count these."""
        settled = is_settled(found["gap"], found["reaction"]) & (found["client"] >= 0)
        known = {name: column[settled] for name, column in found.items()}
        add(self.totals, causes(known, known["reaction"], known["client"]))
        self.silences.append(table(SILENCE, found, ~settled))


def _timed(wait: Ints, reaction: Ints) -> tuple[Bools, Bools]:
    """Which ACKs were delayed, and which of these came too early for a timer."""
    delayed = is_late(wait, reaction)
    return delayed, delayed & is_before_timer(wait, reaction)


class Findings:
    """What a whole capture shows; times in ns. ``ledger`` and ``stalls`` hold a row per connection and stall."""

    def __init__(self, aside: PutAside) -> None:
        self.ledger, self.exchanges = aside.ledger, aside.exchanges
        self.stalls = aside.triples  # of which only they are kept
        self.wait, self.release = Distribution(1_000), Distribution(1)
        self.timer = Distribution(1_000)  # waits less the way to the delaying end and back: its delayed-ACK timer
        self.rejected: Counter[str] = Counter(nagle_off=0, not_late=0, later_release=0, coincidence=0)
        self.silences = dict(aside.totals)
        self.held, self.delayed = Ends(), Ends()
        for name in ("nagle_off", "fin_acks", "delayed_acks", "early_acks"):
            getattr(aside, name).enter(self.ledger, name)
        for silences in aside.silences.chunks():
            known = self.ledger.of(silences["conn"])
            reaction = known.side("reaction", silences["side"])
            add(self.silences, causes(silences, reaction, known.column("client")))
        self.stalls.keep(self._proved)
        for late in aside.late_acks.chunks():
            self._count_late(late, self.ledger.of(late["conn"]))
        self.totals = Totalled.of(self.ledger)

    def _proved(self, triples: Rows) -> Rows:
        known = self.ledger.of(triples["conn"])
        # Column by column in a piece: each look at one of a table of rows goes through all of it.
        columns = (np.ascontiguousarray(triples[name]) for name in ("side", "wait", "release", "exchange"))
        side, wait, release, exchange = columns
        proof = prove(side, wait, release, known)
        self.rejected.update({name: getattr(proof, name) for name in self.rejected})
        peer = known.side("reaction", 1 - side)
        self._explain_silences(triples["silence"], peer, proof)
        which = np.flatnonzero(proof.stalls)
        stalls, known, side, wait = picked(triples, which), known.where(which), side[which], wait[which]
        self.wait.add(wait)
        self.release.add(release[which])
        self.timer.add(wait - peer[which])
        self.held.add(known, side)
        self.delayed.add(known, 1 - side)
        self._count_stalls(exchange[which], known)
        return stalls

    def _explain_silences(self, silence: Ints, peer: Ints, proof: Proof) -> None:
        """Before late ACKs (n,); ``peer`` (n,) is how fast the sides that sent these react."""
        for which, cause in ((proof.stalls, Cause.NAGLE_DELAYED_ACK), (proof.round_trips, Cause.NAGLE_ROUND_TRIP)):
            add(self.silences, explained(silence[which], peer[which], cause))

    def _count_stalls(self, exchange: NDArray[np.int32], known: Known) -> None:
        """Stalls and stalled exchanges of each connection; an unanswered exchange counts once it has stalled."""
        if not len(exchange):
            return
        order = sort_numbers(known.of, len(known.numbers))
        of, exchange = known.of[order], exchange[order]
        first, entry = runs(of), known.entries
        one = of[first]
        before = np.concatenate([[-1], exchange[:-1]])
        before[first] = entry["last_stalled"][one]
        fresh = np.flatnonzero(exchange != before)
        entry["first_stalled"][one] = np.where(
            entry["first_stalled"][one] < 0, exchange[first], entry["first_stalled"][one]
        )
        entry["last_stalled"][one] = exchange[np.append(first[1:], len(exchange)) - 1]
        number, owner = exchange[fresh], of[fresh]
        unanswered = (number == entry["open"][owner]) | (entry["greeted"][owner] & (number == 0))
        for name, owners in (
            ("stalls", of),
            ("stalled", owner),
            ("answered", owner[unanswered]),
            ("repeat", owner[unanswered & (number > 0)]),
        ):
            entry[name] += np.bincount(owners, minlength=len(entry)).astype(np.int32)
        self.ledger.put(known.numbers, entry)

    def _count_late(self, late: Rows, known: Known) -> None:
        delayed, early = _timed(late["wait"], known.side("reaction", late["side"]))
        for name, kept in (("delayed_acks", delayed), ("early_acks", early)):
            counts = np.bincount(2 * known.of[kept] + late["side"][kept], minlength=2 * len(known.entries))
            known.entries[name] += counts.reshape(-1, 2).astype(np.int32)
        self.ledger.put(known.numbers, known.entries)


class Ends:
    """Which ends of connections something is said of: their roles, and whether they are all one address and port."""

    def __init__(self) -> None:
        self.roles: set[str] = set()
        self.only: tuple[int, int, int] | None = None  # address in two halves, and port
        self._several = False

    def add(self, known: Known, side: NDArray[np.int8]) -> None:
        """Say it of ``side`` (n,) of those connections."""
        if not len(side):
            return
        there = np.flatnonzero(np.bincount(2 * known.of + side))  # of each end once
        known, side = Known(known.numbers, known.entries, there // 2), (there % 2).astype(np.int8)
        is_server = side != known.column("client")
        self.roles |= {ROLES[int(value)] for value in (is_server.min(), is_server.max())}
        columns = [known.side(name, side) for name in ("hi", "lo", "port")]
        first = (int(columns[0][0]), int(columns[1][0]), int(columns[2][0]))
        one = all(bool((column == column[0]).all()) for column in columns)
        self._several |= not one or (self.only is not None and self.only != first)
        self.only = None if self._several else first

    @property
    def role(self) -> str | None:
        """The role all of them have; "both" when they differ; None when there are none."""
        return "both" if len(self.roles) > 1 else next(iter(self.roles), None)


_SIDED = ("packets", "segments", "payload", "wire", "delayed_acks", "fin_acks")
_WHOLE = ("handshake", "answered", "repeat", "stalls", "stalled")


@dataclass
class Totalled:
    """Sums over the ledger: by column, and by column and role where each side has its own.

    ``round_trip`` is from the capture point to the ends of a role and back, where a handshake shows it.
    """

    whole: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_WHOLE, 0))
    by_role: dict[str, dict[str, int]] = field(default_factory=lambda: {c: dict.fromkeys(ROLES, 0) for c in _SIDED})
    round_trip: dict[str, Distribution] = field(default_factory=lambda: {role: Distribution(100) for role in ROLES})

    @staticmethod
    def of(ledger: Ledger) -> "Totalled":
        """The sums over all connections."""
        totals = Totalled()
        for entry in ledger.chunks():
            for name in _WHOLE:
                totals.whole[name] += int(entry[name].sum())
            n = np.arange(len(entry))
            for role, side in zip(ROLES, (entry["client"], 1 - entry["client"]), strict=True):
                for name in _SIDED:
                    totals.by_role[name][role] += int(entry[name][n, side].sum())
                reaction = entry["reaction"][n, side]
                totals.round_trip[role].add(reaction[entry["handshake"] & (reaction > 0)])
        return totals
