"""Candidates of one program, by column: its rows, and what is known about the connections they belong to."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property

from nagle_lab.diagnosis.observed.columns import (
    Column,
    Columns,
    among,
    are_all,
    as_column,
    counts,
    distinct,
    groups,
    in_order,
    least,
    maximum,
    percentile,
    pick,
    replaced,
    rows_where,
    select,
    total,
)
from nagle_lab.diagnosis.observed.connection_columns import Involved
from nagle_lab.diagnosis.observed.enough import CONCLUSIVE, REPEATED
from nagle_lab.diagnosis.observed.paths import FromHost
from nagle_lab.diagnosis.observed.programs import Programs
from nagle_lab.packet.segment import Kernel
from nagle_lab.tcp.connection import NEVER
from nagle_lab.tcp.events import MS

TIMESTAMP_STEP = 2  # ms: timestamps that step by more do not show the time of a segment
CLOCK_SET = 8  # ms: if segments of both ends are late by the same time, the capture's clock was set
CLOCKS_KEEP_STEP = 100_000 * MS  # for this long, an end's clock and the capture's differ by a few ms at most

OfHosts = tuple[FromHost, FromHost]  # what is known of the host at each side of a connection

NOT_RELEASED_AFTER = 5 * MS  # an ACK did not release data that comes this much later than a round trip after it


class Candidates:
    """Some candidates of one program: trigger, ACK and the data that followed, whose sender is that program.

    Every column is (n,), and made when it is first asked for; times are in ns.

    Attributes
    ----------
    row : their numbers among all candidates looked at, in order
    trigger_to_ack : time between them
    ack_to_release : from the ACK to the data that followed, which it may have released
    at : time of that data
    connection, since_host_busy, arrival, since_data, since_full, ahead, under_way, trigger_bytes, released_bytes,
        beyond_full, trigger_frame, ack_frame, release_frame, pure, echo, kept_by, trigger_not_held : see
        ``candidate`` in tcp/engine.h
    peer_program : the number of the peer's program
    peer_fastest_ack : the peer's fastest reaction on that connection, or, where its handshake is not captured, on all
        connections of the same two hosts, by their timestamps (paths.py)
    arrives_every : for the other connection whose data arrived in between (``arrival``), the mean time from one of
        its data segments to the next, ns; NEVER if none arrived, or it has only a few
    is_path_known : whether a handshake of the same two hosts shows how long a round trip takes
    full : payload of a full segment of the sender, bytes; 0 if not known
    full_waits : how many full segments of the sender waited for an ACK on that connection
    two_kernels : whether the SYNs of that connection are those of different kernels
    tsval_delay : how much later than at its fastest the sender sent the data, by timestamps, ms; -1 if not known
    ack_delayed : how much longer than that peer's fastest ACK this one was under way, by its timestamp, ns; -1 if not
        known
    ack_sent_after : for an ACK that the capture lacks, how long after the trigger it was sent, by its timestamp, ns;
        -1 if not known
    peer_unasked : how often on that connection the peer sent data unasked: NOT_RELEASED_AFTER or more after all of
        its own was acknowledged, and with nothing received since
    not_held : how often on that connection the sender sent a small segment right behind an unacknowledged small one
    first_not_held : the frame of the first of these; 0 none
    beside_unacked : how often on that connection it sent data of any size while other data was unacknowledged
    began : when that connection began
    """

    def __init__(self, columns: Mapping[str, Column], row: Column) -> None:
        self._columns = columns
        self.row = row

    def __len__(self) -> int:
        return len(self.row)

    def __getattr__(self, name: str) -> Column:
        of_all = self._columns[name]
        column = of_all if len(self.row) == len(of_all) else pick(of_all, self.row)
        setattr(self, name, column)
        return column

    def __or__(self, other: "Candidates") -> "Candidates":
        """Those that are in either."""
        return Candidates(self._columns, distinct(in_order([self.row, other.row])))

    def __sub__(self, other: "Candidates") -> "Candidates":
        """Those that are not among the others."""
        return self.not_among(self.row, other.row) if len(other) else self

    def only(self, condition: Column) -> "Candidates":
        """Those for which the condition (n,) is true."""
        return self if are_all(condition) else self.picked(rows_where(condition))

    def released_within(self, low: float, high: float) -> "Candidates":
        """Those whose data followed the ACK after ``low`` to ``high`` ns, both included."""
        return self.only((self.ack_to_release >= low) & (self.ack_to_release <= high))

    def on_connections_of(self, others: "Candidates") -> "Candidates":
        """Those on connections with some of the ``others``."""
        return self.among(self.connection, others.connection)

    def on_connections_where(self, condition: Callable[["Candidates"], bool]) -> "Candidates":
        """Those on connections for which the condition is true: it is given all of these candidates on one
        connection.
        """
        met = [group for group in groups(self.connection) if condition(self.picked(group))]
        return self.picked(in_order(met))

    def among(self, column: Column, values: Column) -> "Candidates":
        """Those whose number in this column (n,) is one of the ``values``."""
        return self.only(among(column, values))

    def not_among(self, column: Column, values: Column) -> "Candidates":
        """Those whose number in this column (n,) is none of the ``values``."""
        return self.only(among(column, values) == 0)

    @property
    def none(self) -> "Candidates":
        """None of them."""
        return self.picked([])

    def picked(self, rows: Column) -> "Candidates":
        """Those at these places (m,) among the n, counted from 0, ascending."""
        return Candidates(self._columns, pick(self.row, rows))

    @cached_property
    def usual_wait(self) -> float:
        """The median wait, ns."""
        return percentile(self.trigger_to_ack, 50)

    @cached_property
    def trigger_to_release(self) -> Column:
        """From trigger to release, ns."""
        return self.trigger_to_ack + self.ack_to_release

    def late_by(self, fastest: int) -> Column:
        """How much longer the ACK took than its sender's fastest reaction, ns.

        The fastest reaction is taken to be no less than ``fastest``, that of all of the program's peers, nor than the
        time to a segment of that peer that does not acknowledge the trigger: by then it had not arrived (RFC 9293
        §3.10.7.4). The time that the ACK itself was longer under way, by its timestamp, is not counted; timestamps
        count whole ms.
        """
        late = self.captured_late_by(fastest)
        under_way = select(self.ack_delayed <= late, self.ack_delayed, late)
        return late - select(self.ack_delayed <= late + MS, maximum(under_way, 0), 0)

    def captured_late_by(self, fastest: int) -> Column:
        """The same, including the time that the ACK was under way to the capture point, ns."""
        return self.trigger_to_ack - maximum(self._soonest, fastest)

    @cached_property
    def _soonest(self) -> Column:
        return maximum(self.peer_fastest_ack, self.under_way)


class _Joined(dict[str, Column]):
    """The columns of ``candidate`` rows, and those that are looked up for them in their connections.

    Each is made when it is first asked for: hardly any program needs all of them.
    """

    def __init__(self, rows: Columns, involved: Involved, programs: Programs) -> None:
        super().__init__()
        side = rows["side"]
        peer = 1 - side
        known = cache(lambda: _known_paths(involved, programs))
        self._rows = rows
        self._joined: dict[str, Callable[[], Column]] = {
            "key": lambda: programs.keys_of(involved, side),
            "left_out": lambda: involved.rows("left_out"),
            "peer_program": lambda: involved.of_side("program", peer),
            "full": lambda: involved.of_side("full_segment", side),
            "full_waits": lambda: involved.of_side("full_waits", side),
            "two_kernels": lambda: _are_of_two_kernels(involved),
            "tsval_delay": lambda: _tsval_delay(rows, involved, side),
            "ack_delayed": lambda: _ack_delayed(rows, involved, side),
            "ack_sent_after": lambda: _ack_sent_after(rows, involved, side),
            "peer_unasked": lambda: _times_unasked(rows, involved, peer),
            "not_held": lambda: involved.of_side("not_held", side),
            "first_not_held": lambda: involved.of_side("first_not_held", side),
            "beside_unacked": lambda: involved.of_side("beside_unacked", side),
            "began": lambda: involved.rows("first_ts"),
            "arrives_every": lambda: _arrives_every(rows["arrival"], involved),
            "peer_fastest_ack": lambda: _peer_fastest_ack(involved, peer, programs, known),
            "is_path_known": lambda: _is_path_known(involved, peer, known),
        }
        if without_echoes := programs.without_echoes:
            says_nothing = among(involved.of_side("program", side), without_echoes)
            for name in ("echo", "tsval_delay", "ack_delayed", "ack_sent_after"):
                self[name] = select(says_nothing, -1, self[name])

    def __missing__(self, name: str) -> Column:
        self[name] = self._joined[name]() if name in self._joined else self._rows[name]
        return self[name]


def by_program(
    rows: Columns, involved: Involved, programs: Programs, set_aside: Column
) -> Iterator[tuple[int, Candidates]]:
    """The keys of the ``programs`` that sent the rows, each with its candidates.

    Without rows of a connection that is left out, and without those that are ``set_aside`` (rows, ascending).

    The timestamps of ``programs`` without echoes show nothing (Echo.UNKNOWN).
    """
    columns = _Joined(rows, involved, programs)
    counting = rows_where(columns["left_out"] == 0)
    if len(set_aside):
        counting = pick(counting, rows_where(among(counting, set_aside) == 0))
    keys = pick(columns["key"], counting)
    for group in groups(keys):
        yield int(keys[group[0]]), Candidates(columns, pick(counting, group))


def _peer_fastest_ack(
    involved: Involved, sides: Column, programs: Programs, known_paths: Callable[[], list[OfHosts]]
) -> Column:
    """See ``peer_fastest_ack``; the peers are these sides (n,)."""
    fastest_ack, syns = involved.fastest_ack(sides), involved.rows("syns")
    without = rows_where(syns == 0)
    if not len(without):
        return fastest_ack
    its_peers = pick(programs.keys_of(involved, sides), without)
    of_program = {int(peer): programs[int(peer)].reactions.fastest for peer in distinct(its_peers)}
    of_hosts, found = known_paths(), []
    rows = zip(its_peers, pick(involved.of, without), pick(sides, without), pick(fastest_ack, without), strict=True)
    for peer, connection, side, own in rows:
        host = of_hosts[int(connection)][int(side)]
        found.append(host.fastest if host.fastest < NEVER else int(own) or of_program[int(peer)])
    return replaced(fastest_ack, without, found)


def _known_paths(involved: Involved, programs: Programs) -> list[OfHosts]:
    """What all connections of the same two hosts show, for each connection involved (m,) and each of its sides."""
    columns, table, paths = involved.table.layout.columns, involved.table, programs.paths
    clock = columns["tsval_clock", 0]
    known = []
    for number in involved.numbers:
        row = table.row(int(number))
        address, clocks = row[columns["address"]], row[clock : clock + 2]
        known.append((paths.of(address, clocks, 0), paths.of(address, clocks, 1)))
    return known


def _is_path_known(involved: Involved, sides: Column, known_paths: Callable[[], list[OfHosts]]) -> Column:
    """See ``is_path_known``; the peers are these sides (n,)."""
    own = involved.rows("syns") * (involved.rows("handshake") >= 0)
    if total(own) == len(own):
        return own
    of_hosts = known_paths()
    hosts = [of_hosts[int(connection)][int(side)] for connection, side in zip(involved.of, sides, strict=True)]
    return own | as_column([int(host.has_handshake) for host in hosts])


def _arrives_every(arrival: Column, involved: Involved) -> Column:
    columns, table = involved.table.layout.columns, involved.table
    every = {-1: NEVER}
    for number in map(int, distinct(pick(arrival, rows_where(arrival >= 0)))):
        row = table.row(number)
        segments = max(row[columns["data_segments", 0]], row[columns["data_segments", 1]])
        lasted = max(row[columns["last_ts"]] - row[columns["first_ts"]], 0)
        # What comes seldom does not come by chance.
        every[number] = lasted // segments if segments >= CONCLUSIVE else NEVER
    return as_column([every[int(number)] for number in arrival])


def times_peer_sent_unasked(c: Candidates) -> int:
    """How often the peers sent data unasked, on the connections of these candidates: ``peer_unasked``, summed."""
    connections, count = c.connection, c.peer_unasked
    return sum(int(count[int(group[0])]) for group in groups(connections))


def _times_unasked(rows: Columns, involved: Involved, sides: Column) -> Column:
    """How often these sides (n,) sent data unasked on the connection of each row: see ``peer_unasked``."""
    own = involved.fastest_ack(rows["side"])
    late = rows["ack_to_release"] - own >= NOT_RELEASED_AFTER
    keys = 2 * involved.of + rows["side"]
    by_itself = rows_where(late & (rows["pure"] > 0) & (rows["ack_frame"] > 0))
    counted = counts(pick(keys, by_itself), 2 * len(involved.numbers))
    return pick(counted, 2 * involved.of + sides)


def _ack_delayed(rows: Columns, involved: Involved, side: Column) -> Column:
    """See ``ack_delayed``; the releases are from these sides (n,).

    The step of both clocks is subtracted. Unknown if the clocks may have drifted apart meanwhile, the timestamps do
    not count milliseconds, or segments were stamped out of order; or if the release seems to be late by as much: then
    the capture's clock was set.
    """
    ack, release = (
        _behind(involved.of_side("tsval_clock", of), rows[name])
        for of, name in ((1 - side, "ack_clock"), (side, "release_clock"))
    )
    is_clock_set = (ack > CLOCK_SET) & (ack - release <= TIMESTAMP_STEP) & (release - ack <= TIMESTAMP_STEP)
    swapped = involved.of_side("swapped", side) + involved.of_side("swapped", 1 - side)
    is_known = (ack >= 0) & _counts_milliseconds(involved, 1 - side) & (swapped + is_clock_set == 0)
    ack = select(rows["ack_frame"] > 0, ack, NEVER)
    longer = ack - _behind_at_least(ack, 4 * involved.of + 2 * side + rows["pure"], 4 * len(involved.numbers))
    return select(is_known, maximum((longer - 1) * MS, 0), -1)


def _ack_sent_after(rows: Columns, involved: Involved, side: Column) -> Column:
    """See ``ack_sent_after``; the releases are from these sides (n,), and echo that ACK (RFC 7323)."""
    fastest = involved.of_side("tsval_clock", 1 - side)
    after = (rows["ack_clock"] - fastest) & 0xFFFFFFFF
    after = select(after < 1 << 31, after, 0)  # negative by the step of that clock
    is_known = (fastest >= 0) & _counts_milliseconds(involved, 1 - side) & (rows["ack_frame"] == 0)
    return select(is_known, after * MS, -1)


def _counts_milliseconds(involved: Involved, side: Column) -> Column:
    """Whether the timestamps of these sides (n,) count milliseconds, for no longer than two clocks keep step."""
    lasted = involved.rows("last_ts") - involved.rows("first_ts")
    return (involved.of_side("timestamp_step", side) <= TIMESTAMP_STEP) & (lasted < CLOCKS_KEEP_STEP)


def _behind(fastest: Column, clock: Column) -> Column:
    """How much longer than the fastest segment these were under way, ms, by such clocks; -1 if not known."""
    return select(fastest >= 0, (fastest - clock) & 0xFFFFFFFF, -1)


def _behind_at_least(behind: Column, kinds: Column, count: int) -> Column:
    """By how much at least all of a kind, of REPEATED or more, were longer under way than the fastest segment.

    That is part of each round trip: pure ACKs may be slower than data, as behind a satellite's modem. ``kinds`` (n,)
    are numbers below ``count``.
    """
    soonest = select(counts(kinds, count) >= REPEATED, least(kinds, behind, count), 0)
    return pick(soonest, kinds)


def _are_of_two_kernels(involved: Involved) -> Column:
    """See ``two_kernels``.

    An answer with none of a known kernel's options shows that only if Linux asked, which offers them all.
    """
    client = involved.rows("client")
    asking, answering = involved.of_side("kernel", client), involved.of_side("kernel", 1 - client)
    are_captured = (involved.rows("syns") > 0) & (involved.rows("handshake") >= 0)
    return are_captured & (asking != answering) & ((asking == Kernel.LINUX) | (answering != Kernel.UNKNOWN))


def _tsval_delay(rows: Columns, involved: Involved, side: Column) -> Column:
    """See ``tsval_delay``; the releases are from these sides (n,), the timestamps of both ends (RFC 7323)."""
    fastest, ahead = involved.of_side("ahead", side), rows["ahead"]
    step = maximum(involved.of_side("timestamp_step", side), involved.of_side("timestamp_step", 1 - side))
    is_known = (fastest >= 0) & (ahead >= 0) & (step <= TIMESTAMP_STEP)
    return select(is_known, (fastest - ahead) & 0xFFFFFFFF, -1)
