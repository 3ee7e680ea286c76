"""What the whole capture shows about each program: how fast it and its peers react, and when it sent without waiting.

A program is an address, with its port if it is the server. Programs without candidates are not looked at. peers.py
decides which of its peers are looked at by themselves.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from nagle_lab.diagnosis.observed.columns import (
    Column,
    Columns,
    chunks,
    groups,
    is_full,
    listed,
    pick,
    rows_where,
    select,
    total,
)
from nagle_lab.diagnosis.observed.connection_columns import Involved
from nagle_lab.diagnosis.observed.paths import Hosts, KnownPaths, hosts_of
from nagle_lab.diagnosis.observed.peers import Peers
from nagle_lab.tcp.connection import LEAST_MSS, LEAST_USUAL
from nagle_lab.tcp.durations import rounded
from nagle_lab.tcp.events import MOST_SAMPLES, MS, Echo, Reaction
from nagle_lab.tcp.tables import Tables

ROWS_AT_ONCE = 1 << 16
GOES_ON = 5 * MS  # data this long after the previous data is not part of the same message
STALE = 2  # ACKs with older timestamps than what they acknowledge; Linux sent none in 1,100 captures
MOST_NOT_HELD = 1_000  # connections of a server with one client


@dataclass
class Reactions:
    """How long an end took to react to the latest segment of its peer, ns, ascending: Reaction in tcp/events.py."""

    handshake: list[int] = field(default_factory=list)
    ack: list[int] = field(default_factory=list)  # includes delayed ones
    data: list[int] = field(default_factory=list)
    release: list[int] = field(default_factory=list)  # with more data, to an early ACK
    no_new_ack: list[int] = field(default_factory=list)  # with data, to data that acknowledged nothing new
    # How much longer than the fastest reaction on the same connection: what the path adds, and the program
    handshake_more: list[int] = field(default_factory=list)
    data_more: list[int] = field(default_factory=list)

    @property
    def by_kernel(self) -> list[int]:
        """Those in which no program has a part: handshakes and pure ACKs."""
        return [*self.handshake, *self.ack]

    def by_kernel_before(self, latest: float) -> list[int]:
        """The same, if they took less than ``latest``, ns: without delayed ACKs, for example."""
        return [ns for ns in self.by_kernel if ns < latest]

    @property
    def after_handshake(self) -> list[int]:
        """Those with pure ACKs and with data."""
        return [*self.ack, *self.data]

    @property
    def fastest(self) -> int:
        """The fastest of its reactions, ns; 0 if not known."""
        return min([*self.handshake, *self.after_handshake], default=0)

    def put_in_order(self) -> None:
        """Sort them: percentiles are asked of them again and again, and sorting what is sorted is fast."""
        for samples in vars(self).values():
            samples.sort()

    def keep(self, kind: Reaction, samples: Column, more: Column) -> None:
        """Keep reaction times (n,), ns, and how much longer they took than the fastest on their connection (n,).

        Up to MOST_SAMPLES of each kind are kept.
        """
        name = kind.name.lower()
        for kept, some in ((getattr(self, name), samples), (getattr(self, f"{name}_more", None), more)):
            if kept is not None:
                kept.extend(listed(some[: MOST_SAMPLES - len(kept)]))


class ToPeer(NamedTuple):
    """A connection of a program, and whom it is with."""

    peer: int  # the number of the peer's program
    connection: int


class NoWait(NamedTuple):
    """A small segment that was sent while a small one was unacknowledged: one or several alike."""

    peer: int  # the number of the peer's program
    connection: int
    echo: int  # an Echo: what its timestamps show
    ms: int  # how long after the unacknowledged one


@dataclass
class Frames:
    """The first and the last of some frames."""

    first: int
    last: int


@dataclass
class NotHeld:
    """Connections of a server with one client on which it sent small segments right behind unacknowledged small ones.

    Attributes
    ----------
    times : how often, on all of these
    began : when each of them began, ns, by its number; of the first MOST_NOT_HELD
    last_ended : after each of these began, a connection of the same two hosts was the first to end, and may have left
        a congestion window to later ones: the last of these times, ns
    """

    times: int = 0
    began: dict[int, int] = field(default_factory=dict)
    last_ended: int = 0


@dataclass
class Program:
    """What the capture shows about one program and one of its peers, or all of its other peers.

    Attributes
    ----------
    reactions, peer_reactions : how fast it reacts, and how fast its peers do
    no_waits : how often it sent a small segment while a small one was unacknowledged
    no_wait_frames : by connection, the frames of these, without those that waited by their timestamps
    not_held_behind_full : by connection, how often it sent a small segment while a full one was unacknowledged: then
        it waits only behind small ones, as Linux does
    peers_went_on : by connection, how often its peers sent a small segment while a small one was unacknowledged,
        after GOES_ON or more: they waited for no answer
    not_held : for a server, what it sent right behind unacknowledged small segments, by its client's program
    stale_echoes : how often its ACKs, to any peer, carried a timestamp older than that of the one segment they
        acknowledged
    """

    reactions: Reactions = field(default_factory=Reactions)
    peer_reactions: Reactions = field(default_factory=Reactions)
    not_held: dict[int, NotHeld] = field(default_factory=dict)
    stale_echoes: int = 0
    no_waits: Counter[NoWait] = field(default_factory=Counter)
    no_wait_frames: dict[int, Frames] = field(default_factory=dict)
    not_held_behind_full: Counter[int] = field(default_factory=Counter)
    peers_went_on: Counter[int] = field(default_factory=Counter)

    @property
    def echoes(self) -> bool:
        """Whether its timestamps show which segment it received last, as RFC 7323 §4.3 asks."""
        return self.stale_echoes < STALE

    def sent_without_waiting(self, at_least: float = 0, *, by_timestamps: bool = False) -> Counter[ToPeer]:
        """How often it sent a small segment while a small one was unacknowledged.

        Counted are only segments that left ``at_least`` ns after that one, unless timestamps say that it had been
        acknowledged; with ``by_timestamps`` only if they say that it had not.
        """
        counts: Counter[ToPeer] = Counter()
        for (peer, connection, echo, ms), count in self.no_waits.items():
            if ms * MS >= at_least and (echo == Echo.BEFORE if by_timestamps else echo != Echo.AFTER):
                counts[ToPeer(peer, connection)] += count
        return counts


def by_connection(counts: Counter[ToPeer]) -> Counter[int]:
    """The same counts by connection alone."""
    found: Counter[int] = Counter()
    for (_, connection), count in counts.items():
        found[connection] += count
    return found


class Programs(dict[int, Program]):
    """Programs and peers, by key: see :meth:`Peers.keys_of`.

    ``earlier_paths`` is what was known of paths before the capture.
    """

    def __init__(self, tables: Tables, earlier_paths: KnownPaths) -> None:
        super().__init__()
        self._paths, self._knows_paths = earlier_paths, False
        self._no_waits, self._connections = tables.no_wait, tables.connection
        self._looked_at = 0  # rows of no_wait
        self.keys_of = Peers(tables).keys_of
        self._not_held: dict[int, dict[int, NotHeld]] = defaultdict(dict)  # by server and client
        self._stale_echoes: Counter[int] = Counter()
        for rows in chunks(tables.connection):
            self._add_not_held(rows)
            self._add_stale_echoes(rows)
        if not_held := [kept for of_clients in self._not_held.values() for kept in of_clients.values()]:
            self._look_for_ends(not_held)
        for rows in chunks(tables.reaction):
            self._add_reactions(rows, Involved(tables.connection, rows["connection"]))
        for program in self.values():
            program.reactions.put_in_order()
            program.peer_reactions.put_in_order()

    def look_at_no_waits(self, until: int | None) -> None:
        """Fill ``no_waits`` and ``peers_went_on`` with what was sent up to frame ``until`` (None: the last).

        It begins after the frame of the previous call: candidates are judged one stretch of the capture at a time,
        and compared with what was sent during the same stretch.
        """
        for program in self.values():
            program.no_waits.clear()
            program.no_wait_frames.clear()
            program.not_held_behind_full.clear()
            program.peers_went_on.clear()
        table, connections = self._no_waits, self._connections
        while self._looked_at < len(table):
            begin, end = self._looked_at, min(self._looked_at + ROWS_AT_ONCE, len(table))
            frames = Columns(table.layout, table.read(begin, end))["release_frame"]
            count = len(frames) if until is None else total(frames <= until)
            if count:
                rows = Columns(table.layout, table.read(begin, begin + count))
                self._add_no_waits(rows, Involved(connections, rows["connection"]))
                self._looked_at += count
            if count < len(frames):
                return

    @property
    def paths(self) -> KnownPaths:
        """How far apart the hosts are; only determined when asked for, because most captures have all handshakes."""
        if not self._knows_paths:
            self._paths.add(self._connections)
            self._knows_paths = True
        return self._paths

    @property
    def without_echoes(self) -> list[int]:
        """The numbers of the programs whose timestamps show nothing: see :attr:`Program.echoes`."""
        return [number for number, count in self._stale_echoes.items() if count >= STALE]

    def __missing__(self, key: int) -> Program:
        number = key >> 32
        self[key] = Program(not_held=self._not_held[number], stale_echoes=self._stale_echoes[number])
        return self[key]

    def _add_reactions(self, rows: Columns, involved: Involved) -> None:
        ns, side = rows["ns"], rows["side"]
        more = ns - involved.fastest_ack(side)
        for whose, end in (("reactions", side), ("peer_reactions", 1 - side)):
            by_kind = self.keys_of(involved, end) * len(Reaction) + rows["kind"]
            for group in groups(by_kind):
                key, kind = divmod(int(by_kind[group[0]]), len(Reaction))
                some = group[:MOST_SAMPLES]
                getattr(self[key], whose).keep(Reaction(kind), pick(ns, some), pick(more, some))

    def _add_not_held(self, connections: Columns) -> None:
        server = 1 - connections["client"]
        program, count = (
            select(server, connections[name, 1], connections[name, 0]) for name in ("program", "not_held")
        )
        client = select(server, connections["program", 0], connections["program", 1])
        some = rows_where((program >= 0) & (count > 0))
        keys = pick(program << 32 | client, some)
        count, connection, began = (
            pick(column, some) for column in (count, connections["number"], connections["first_ts"])
        )
        for group in groups(keys):
            number, its_client = divmod(int(keys[group[0]]), 1 << 32)
            kept = self._not_held[number].setdefault(its_client, NotHeld())
            kept.times += total(pick(count, group))
            for row in group[: MOST_NOT_HELD - len(kept.began)]:
                kept.began[int(connection[row])] = int(began[row])

    def _look_for_ends(self, of_clients: list[NotHeld]) -> None:
        """Find when the last ends came (``last_ended``). If there are very many connections, the last one's beginning
        stands for that.
        """
        table = self._connections
        if len(table) > ROWS_AT_ONCE:
            for kept in of_clients:
                kept.last_ended = max(kept.began.values())
            return
        columns, ends = table.layout.columns, defaultdict[Hosts, list[int]](list)
        hosts = []  # by the number of the connection
        for row in table.layout.struct.iter_unpack(table.read(0, len(table))):
            hosts.append(hosts_of(row[columns["address"]]))
            ends[hosts[-1]].append(row[columns["last_ts"]])
        for ended in ends.values():
            ended.sort()
        for kept in of_clients:
            kept.last_ended = max(_first_from(ends[hosts[number]], began) for number, began in kept.began.items())

    def _add_stale_echoes(self, connections: Columns) -> None:
        for side in (0, 1):
            program, stale = connections["program", side], connections["stale_echoes", side]
            some = rows_where((program >= 0) & (stale > 0))
            for number, count in zip(pick(program, some), pick(stale, some), strict=True):
                self._stale_echoes[int(number)] += int(count)

    def _add_no_waits(self, rows: Columns, involved: Involved) -> None:
        since, side, echo = rows["trigger_to_release"], rows["side"], rows["echo"]
        full = involved.of_side("full_segment", side)
        small = rows_where(_is_small(rows["trigger_bytes"], rows["released_bytes"], full, rows["pushed"]))
        keys = self.keys_of(involved, side)
        shown = (
            keys, self.keys_of(involved, 1 - side), involved.of_side("program", 1 - side), rows["connection"], echo,
            since, rows["release_frame"], rows["owed"],
        )  # fmt: skip
        columns = (listed(pick(column, small)) for column in shown)
        for key, other, peer, connection, what, ns, frame, owed in zip(*columns, strict=True):
            sender = self[key]
            said = what if sender.echoes else Echo.UNKNOWN
            if not owed:  # otherwise it may have waited for that ACK
                sender.no_waits[NoWait(peer, connection, said, rounded(ns, MS))] += 1
                if said != Echo.AFTER:
                    if connection not in sender.no_wait_frames:
                        sender.no_wait_frames[connection] = Frames(frame, frame)
                    sender.no_wait_frames[connection].last = frame
            if ns >= GOES_ON:
                self[other].peers_went_on[connection] += 1
        self._add_not_held_behind_full(rows, keys, full)

    def _add_not_held_behind_full(self, rows: Columns, keys: Column, full: Column) -> None:
        behind = rows_where(_is_small_behind_full(rows["trigger_bytes"], rows["released_bytes"], full, rows["owed"]))
        shown = (listed(pick(column, behind)) for column in (keys, rows["connection"], rows["echo"]))
        for key, connection, echo in zip(*shown, strict=True):
            if not self[key].echoes or echo != Echo.AFTER:
                self[key].not_held_behind_full[connection] += 1


def _first_from(times: list[int], begin: int) -> int:
    """The first of these times, ascending, from ``begin`` on; ``begin`` if there is none: the clock was set back."""
    place = bisect_left(times, begin)
    return times[place] if place < len(times) else begin


def _is_small(trigger: Column, released: Column, full: Column, pushed: Column) -> Column:
    """Whether Linux might have held the data (tcp_minshall_check), because it and the segment before it end in small
    ones.

    If the size of a full segment is not known (0), a segment is surely small below LEAST_MSS, which every host
    accepts, and below LEAST_USUAL if it ends a write (PSH).
    """
    is_known = full > 0
    least = select(is_known, full, select(pushed > 0, LEAST_USUAL, LEAST_MSS))
    tail = trigger % select(is_known, full, trigger + 1)
    return (released < least) & (tail < least) & (tail > 0)


def _is_small_behind_full(trigger: Column, released: Column, full: Column, owed: Column) -> Column:
    """Whether it is less than a full segment, behind one or several full ones, and did not leave with an owed ACK."""
    return is_full(trigger, full) & (released < full) & (owed == 0)
