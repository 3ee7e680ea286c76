"""The TCP machine: one connection, one segment at a time, → events, in the words of RFC 9293 and Linux.

What an end of a connection has sent and had acknowledged, as far as the capture shows, decides what the next segment
means: an answer to an earlier one, the end of an idle gap, data that follows an ACK (a *candidate*:
:meth:`Machine._new_data`). Nothing is judged here: whether the ACK was late, and caused what followed, is for the
proof (:mod:`nagle_lab.diagnosis.proof`). :meth:`Machine.follow` takes segments, and its findings leave at once as
rows of the tables that engine.h declares; the row of a connection leaves when the connection is over. machine.c does
the same, to the last bit. Throughout, ``x`` is the end that sends, ``y`` its peer, and ``s`` the segment.
"""

# ruff: noqa: PLR1730  (comparisons instead of max(): in Python 3.11 a call takes as long as many comparisons)

from collections import Counter, deque
from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple

from msgspec.structs import replace

from nagle_lab.packet.segment import ACK, FIN, PSH, RST, SYN, Segment
from nagle_lab.tcp.connection import (
    FIRST_NUMBER,
    LONGEST,
    NEVER,
    NO_ACK,
    TIME_WAIT,
    Acknowledgement,
    Connection,
    Half,
    Sent,
)
from nagle_lab.tcp.durations import DURATIONS, Durations
from nagle_lab.tcp.events import DELAYED, IDLE, MOST_SAMPLES, MS, NO_TIMESTAMPS, Echo, EndedBy, Reaction
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.learned import (
    acknowledged,
    clock_of,
    echoes_uncaptured,
    forget_syn_proxy,
    full_size_of,
    is_after,
    is_copy,
    is_half_of_window,
    is_small,
    keep_sample,
    learn_full_size_by_data,
    learn_syn,
    learn_timestamps,
    note_copy,
    note_hole,
    remember,
    timestamp_step,
    unwrapped,
)
from nagle_lab.tcp.tables import Tables
from nagle_lab.tcp.waited import (
    BSD,
    BY_ACKNOWLEDGEMENT,
    SHORT,
    beyond_full,
    echoes_older,
    ended_by,
    had_received_no_data,
    is_announced,
    is_behind_small,
    is_full_segment_waiting,
    is_released_by,
    is_small_behind_small,
    is_sooner_than_reactions,
    kept_by,
    may_be_probe,
    note_beside_unacked,
    note_offloaded,
    serialization_delay,
    time_under_way,
)

CONTROL = SYN | FIN | RST
# As plain names: looking up a member of an enumeration takes as long as the rest of a line.
HANDSHAKE, BY_ACK, BY_DATA, RELEASE, NO_NEW_ACK = Reaction
ECHO_UNKNOWN, ECHO_BEFORE, ECHO_AFTER = Echo


class IdleGap(NamedTuple):
    """An idle gap, as in its row."""

    gap: int  # ns
    ended_by: EndedBy
    small: bool
    reply: bool


NO_GAP = IdleGap(0, BY_ACKNOWLEDGEMENT, False, False)

# A piggybacked ACK may have released data that follows it within this time plus a round trip; later data is an
# answer.
PIGGYBACKED_RELEASE = 1 * MS

# Memory: every SWEEP segments connections that are over are dropped. Beyond MANY live ones, closed ones and
# unanswered SYNs (a flood) are dropped early, and so are connections seen from one side only, the oldest first.
SWEEP = 1 << 15
MANY = 1 << 15

SURELY = 2  # a handshake counts as so many connections for the port of its server
ASKING = 128  # a SYN-ACK from another address may answer one of so many latest connections
REMEMBERED = 128  # latest segments of all connections, kept as possible causes of what a host sends next


class Machine:
    """Every connection of a capture."""

    def __init__(self, *, exchanges: bool = True, in_place: bool = True) -> None:
        self.tables = Tables(in_place=in_place)  # the rows that have left so far
        self.connections = self.segments = 0  # so far, copies included
        self.copies = 0  # segments left out: the same packet, captured on another interface
        self.pure_acks = 0  # how many of the others only acknowledge
        self.first_ts: int | None = None  # ns
        self.last_ts = 0
        self.resolution = 0  # of the clock, ns: the greatest common divisor of the times between segments
        self.durations = {name: Durations() for name in DURATIONS}  # of all answered exchanges
        self._list_exchanges = exchanges
        # Of live connections, by the addresses they send from and to.
        self._halves: dict[tuple[bytes, int, bytes, int], Half] = {}
        self._live: dict[int, Connection] = {}
        self._programs: dict[tuple[bytes, int], int] = {}  # by address, and port where it is the server
        # By port: how many connections have it, and the first of them; used where ports do not show the server. Not
        # by address: a client may use one port for two servers of a mesh, each with one connection.
        self._ends: dict[int, tuple[int, int]] = {}
        self._own_samples: Counter[tuple[int, int]] = Counter()  # rows of reactions, of each program and kind,
        self._peer_samples: Counter[tuple[int, int]] = Counter()  # and of its peers
        self._until_sweep = SWEEP
        self._latest_asking = -1  # number of the latest connection that began with a SYN
        self._latest: deque[tuple[Segment, int]] = deque(maxlen=REMEMBERED)  # segments, and their connections

    def follow(self, segments: Sequence[Segment]) -> None:
        """Take the next segments of the capture."""
        if not segments:
            return
        if self.first_ts is None:
            self.first_ts = self.last_ts = segments[0].ts
        self.segments += len(segments)
        halves, latest, resolution, last_ts = self._halves, self._latest, self.resolution, self.last_ts
        for s in segments:
            if resolution != 1:
                resolution, last_ts = gcd(resolution, s.ts - last_ts), s.ts
            x = halves.get((s.src, s.sport, s.dst, s.dport))
            if x is None or ((s.flags & SYN or x.closed) and self._begins_anew(x.connection, s)):
                x = self._open(s, x)
            connection = x.connection
            if connection.answers_as is not None and x.side:
                s = with_own_address(connection, s)  # noqa: PLW2901
            if is_copy(s, x.recent, copied=connection.is_copied):
                self.copies += 1
                note_copy(x, s)
                connection.is_copied = connection.is_copied or bool(s.length or s.flags & SYN)
                continue
            remember(x, s)
            if s.flags & SYN:
                learn_syn(x, s)
            self._take(x, s)
            latest.append((s, connection.number))
            self._until_sweep -= 1
            if not self._until_sweep:
                self._sweep(s.ts)
        self.resolution, self.last_ts = resolution, segments[-1].ts

    def finish(self) -> None:
        """End the capture: add the row of every connection that is still open."""
        for connection in self._live.values():
            self._close(connection)
        self._live.clear()
        self._halves.clear()

    @property
    def state(self) -> dict[str, object]:
        """The whole state without the rows, by attribute; a new machine that is given it continues from here."""
        return {name: value for name, value in vars(self).items() if name not in ("tables", "_list_exchanges")}

    # One segment ------------------------------------------------------------------------------------

    def _take(self, x: Half, s: Segment) -> None:
        """Follow one segment ``s`` that ``x`` sent."""
        connection = x.connection
        flags, length = s.flags, s.length
        start = unwrapped(s.seq, x.seq) if x.seq >= 0 else FIRST_NUMBER + s.seq
        end = start + length
        is_control = flags & CONTROL
        if is_control:
            end += bool(flags & SYN) + bool(flags & FIN)
        ack = acknowledged(x, s) if flags & ACK else -1
        idle = s.ts - connection.last_ts
        if not idle:
            connection.at_once += connection.packets > 0
        elif 0 < idle < connection.least_apart:
            connection.least_apart = idle
        gap = NO_GAP
        if idle >= IDLE and connection.latest_data is not None and (length or not is_control):
            ended_small, is_reply = length % connection.least_full_segment != 0, connection.sender is not x
            gap = IdleGap(idle, ended_by(x, s, start, ack, idle), ended_small, is_reply)
            self.tables.idle_gap.add(gap.gap, connection.number, x.side, gap.ended_by, gap.small, gap.reply)
        exchange = -1
        if length:
            if end > x.snd_nxt:
                exchange = self._exchange_of(x, s.ts)
            note_hole(x, start)
            if start >= x.snd_nxt:
                self._new_data(x, s, start, ack, gap, exchange)
        if flags & ACK:
            self._acknowledge(x, s, ack, gap, start)
        if end > start:
            self._send(x, s, start, end, exchange)
        x.seq = start
        if end > x.snd_nxt:
            x.snd_nxt = end
        if s.timestamps:
            learn_timestamps(x, s)
        if is_control:
            x.close(flags)
        x.packets += 1
        x.last_ts = s.ts
        x.wire += s.wire
        connection.packets += 1
        connection.last_ts = s.ts
        connection.sender = x

    def _acknowledge(self, x: Half, s: Segment, ack: int, gap: IdleGap, start: int) -> None:
        """Note that ``x`` acknowledges up to ``ack``, an unwrapped number, and ends the idle ``gap``."""
        y, connection, flags = x.peer, x.connection, s.flags
        is_pure = not (s.length or flags & CONTROL)
        self.pure_acks += is_pure
        is_new = ack > y.snd_una
        if is_new:
            answered = y.latest_sent
            if answered.end == ack and answered.is_new and answered.epoch == s.epoch:
                self._answer(x, s, answered, is_pure)
        if is_pure or (is_new and s.length):
            had_room = s.window > 0 and (x.rcv_nxt < 0 or x.rcv_wnd > 0)
            tsval = s.tsval if s.timestamps else -1
            is_echoed = start <= x.snd_una
            edge_before = x.rcv_nxt + x.rcv_wnd if x.rcv_nxt >= 0 else -1
            this = Acknowledgement(
                connection.packets, s.ts, s.frame,
                start, ack, y.snd_una,
                had_room,
                tsval, x.tsval, is_echoed,
                s.window,
                x.last_ts, x.last_ts - x.ack_spacing, serialization_delay(x, ack - y.snd_una),
                beyond_full(x, ack),
                *gap,
                edge_before,
            )  # fmt: skip
            if is_pure:
                x.pure_ack = this
                if y.snd_una < y.small.end <= ack:
                    y.small_ack = this
            else:
                x.data_ack = this
        if connection.syn_ts >= 0 and x.side == 0 and not flags & SYN:
            if y.syn >= 0:  # otherwise its answer is not captured, or only later, by another clock
                connection.handshake = s.ts - connection.syn_ts
            connection.syn_ts = -1
        x.rcv_nxt = ack
        x.rcv_wnd = s.window if flags & SYN else s.window << x.shift
        x.ack_spacing = min(max(s.ts - x.last_ts, 0), LONGEST)
        x.newly_acked = min(max(ack - y.snd_una, 0), LONGEST)
        if is_new:
            y.snd_una = ack

    def _send(self, x: Half, s: Segment, start: int, end: int, exchange: int) -> None:
        """Note what ``x`` sends from ``start`` to ``end`` in sequence space: data, SYN or FIN."""
        y, connection, length = x.peer, x.connection, s.length
        is_new, edge = start >= x.snd_nxt, y.rcv_nxt + y.rcv_wnd if y.rcv_nxt >= 0 else -1
        tsval = s.tsval if s.timestamps else -1
        since = min(max(s.ts - x.data.ts, 0), LONGEST) if x.data.number >= 0 else -1
        x.latest_sent = sent = Sent(
            connection.packets, s.ts, s.frame, start, end, length, s.flags, is_new, s.epoch, exchange, edge, tsval,
            since,
        )  # fmt: skip
        if length:
            x.data = sent
            if is_small(x, s):
                x.small, x.small_ack = sent, NO_ACK
            x.payload += length
            if length > connection.least_full_segment:
                x.offloaded += (length - 1) // connection.least_full_segment
            connection.latest_data = x
            if connection.opener < 0:
                connection.opens(x)

    def _answer(self, x: Half, s: Segment, answered: Sent, is_pure: bool) -> None:
        """Note how long ``x`` took to acknowledge the latest segment of its peer: a reaction, perhaps a late ACK."""
        connection = x.connection
        wait = s.ts - x.peer.arrival_of(answered)
        if wait < x.fastest_ack:
            x.fastest_ack = max(wait, 0)
        x.stale_echoes += echoes_older(x, s, answered)
        if answered.flags & SYN or s.flags & SYN:
            keep_sample(x, HANDSHAKE, wait)
        elif is_pure:
            keep_sample(x, BY_ACK, wait)
        elif s.length:
            keep_sample(x, BY_DATA, wait)
        if is_pure and wait >= DELAYED:
            self.tables.delayed_ack.add(connection.number, min(wait, LONGEST), x.side)
        elif is_pure and answered.flags & FIN and not answered.length:
            x.fin_acks += 1
        asks = answered.length and x.peer.side == connection.client
        if asks and 0 <= answered.exchange == connection.exchange and s.ts > connection.request_acked:
            connection.request_acked = s.ts

    # Candidates -------------------------------------------------------------------------------------

    def _new_data(self, x: Half, s: Segment, start: int, ack: int, gap: IdleGap, exchange: int) -> None:
        """Decide what new data of ``x`` had waited for, and add a row if it may be a candidate.

        The trigger is the data segment ``before`` it, or the small one before full ones. The new data was sent in one
        of these ways:

        - less than SHORT after the trigger, or as a full segment that waited: it is only counted;
        - in answer to data that is not captured yet: no row;
        - after a pure ACK of the trigger (``candidate``), since which no data of the peer had arrived;
        - after data that acknowledged the trigger (a piggybacked ACK);
        - while the trigger was unacknowledged: it waited for nothing (``no_wait``), or its ACK is not captured.

        If it acknowledges more (up to ``ack``) than ``x`` did before, it may have been held until then, too: BSD
        sends waiting data with every ACK that it owes (tcp_output, TF_ACKNOW). It ends the idle ``gap``.
        """
        y, before, is_owed = x.peer, x.data, x.kernel == BSD and ack > x.peer.snd_una
        if not self._learn_by_new_data(x, s, start, is_owed=is_owed):
            return
        is_acked = y.pure_ack.number > before.number and had_received_no_data(y, ack, y.pure_ack)
        if s.ts - before.ts < SHORT:
            if is_acked and is_released_by(x, before, y.pure_ack, s):
                keep_sample(x, RELEASE, s.ts - y.arrival_of(y.pure_ack))
                x.connection.followed += is_small_behind_small(x, s, before)
        elif x.full_size_by_mss and s.length >= x.full_size_by_mss:
            # Data that follows the peer's data answers it.
            x.full_waits += is_acked and is_full_segment_waiting(x, s, before, y.pure_ack)
        elif y.snd_nxt < ack:
            return  # an answer to data that the capture lacks, or has only later
        elif is_behind_small(x, s, before, y.pure_ack) and is_released_by(x, x.small, x.small_ack, s):
            self._add_candidate(x, s, x.small, x.small_ack, is_pure=True, exchange=exchange)
        elif x.snd_una < before.end:
            self._before_the_ack(x, s, before, gap, exchange, is_owed=is_owed)
        elif is_acked:
            is_owed_only = is_owed and is_sooner_than_reactions(x, s.ts, y.pure_ack)
            if not is_owed_only and is_released_by(x, before, y.pure_ack, s):
                self._add_candidate(x, s, before, y.pure_ack, is_pure=True, exchange=exchange)
        else:
            self._after_data(x, s, before, exchange)

    def _learn_by_new_data(self, x: Half, s: Segment, start: int, *, is_owed: bool) -> bool:
        """Learn what new data of ``x`` shows by itself. Returns whether the data of ``x`` before it has a known time
        of departure: it was sent once, and is next in sequence.
        """
        before = x.data
        forget_syn_proxy(x, s)
        x.data_segments += 1
        if start + s.length <= x.snd_una:
            x.swapped += 1
        learn_full_size_by_data(x, s)
        if before.number < 0 or not before.is_new or before.epoch != s.epoch or start != x.snd_nxt:
            return False
        is_beside = x.snd_una < before.end and not may_be_probe(x, s, before)
        if is_beside and not s.flags & FIN and not echoes_uncaptured(x.peer, s):
            note_beside_unacked(x, s, before, is_owed=is_owed)
        note_offloaded(x, s)
        return not (before.flags | s.flags) & CONTROL

    def _after_data(self, x: Half, s: Segment, before: Sent, exchange: int) -> None:
        """Add a candidate if the last packet was data of the peer that acknowledged everything: its ACK was
        piggybacked.
        """
        y = x.peer
        if y.data_ack.number > before.number and s.ts - y.data_ack.ts < PIGGYBACKED_RELEASE + x.round_trip:
            if is_released_by(x, before, y.data_ack, s):
                self._add_candidate(x, s, before, y.data_ack, is_pure=False, exchange=exchange)
        elif y.data.number > max(before.number, y.data_ack.number):
            keep_sample(x, NO_NEW_ACK, s.ts - y.arrival_of(y.data))

    def _before_the_ack(
        self, x: Half, s: Segment, before: Sent, gap: IdleGap, exchange: int, *, is_owed: bool
    ) -> None:
        """Add a row for new data behind data that is not acknowledged, or whose ACK the capture lacks."""
        if echoes_uncaptured(x.peer, s):
            self._add_candidate_without_ack(x, s, before, gap, exchange)
        else:
            self._add_no_wait(x, s, before, is_owed=is_owed)

    def _add_candidate_without_ack(self, x: Half, s: Segment, before: Sent, gap: IdleGap, exchange: int) -> None:
        """Add a candidate whose ACK the capture lacks, or has only later, but the new data's timestamp echoes that
        ACK.
        """
        x.connection.needs_programs = True
        self.tables.candidate.add_named(
            connection=x.connection.number,
            trigger_frame=before.frame,
            release_frame=s.frame,
            at=s.ts,
            trigger_to_ack=s.ts - before.ts,
            gap=gap.gap,
            ahead=NO_TIMESTAMPS,
            arrival=-1,
            since_full=-1,
            exchange=exchange,
            trigger_bytes=before.length,
            released_bytes=s.length,
            side=x.side,
            pure=True,
            echo=ECHO_AFTER,
            kept_by=is_announced(x, before, s),
            gap_ended_by=gap.ended_by,
            gap_small=gap.small,
            gap_reply=gap.reply,
            ack_clock=clock_of(s.tsecr, before.ts),
            trigger_end=before.end & 0xFFFFFFFF,
            release_seq=s.seq,
        )

    def _add_no_wait(self, x: Half, s: Segment, before: Sent, *, is_owed: bool) -> None:
        """Add a ``no_wait`` row: the data before it is not acknowledged.

        No row if it may be a loss probe, or if one of the two segments may be full because of the window.
        """
        x.connection.needs_programs = True
        if may_be_probe(x, s, before) or is_half_of_window(x, max(before.length, s.length)):
            return
        self.tables.no_wait.add_named(
            connection=x.connection.number,
            release_frame=s.frame,
            trigger_to_release=s.ts - before.ts,
            trigger_bytes=before.length,
            released_bytes=s.length,
            side=x.side,
            echo=ECHO_BEFORE if s.timestamps and x.peer.tsval >= 0 else ECHO_UNKNOWN,
            pushed=bool(before.flags & s.flags & PSH),
            owed=is_owed,
            release_seq=s.seq,
        )

    def _add_candidate(
        self, x: Half, s: Segment, trigger: Sent, ack: Acknowledgement, *, is_pure: bool, exchange: int
    ) -> None:
        """Add a candidate: new data of ``x`` that ``ack`` may have released (:func:`is_released_by`)."""
        # Where both ends are captured, measured from the trigger's arrival, as other reactions of the peer are.
        since_full, sent, acked = -1, x.arrival_of(trigger), x.peer.arrival_of(ack)
        if x.data.number != trigger.number:
            since_full = min(max(s.ts - x.data.ts, 0), LONGEST)
            if ack.ack > trigger.end:
                sent = min(x.data.ts, ack.ts)
        echo = ECHO_UNKNOWN
        if s.timestamps and ack.tsval_before >= 0 and ack.tsval != ack.tsval_before:
            if s.tsecr == ack.tsval:
                echo = ECHO_AFTER
            elif ack.is_echoed and is_after(ack.tsval, s.tsecr):
                echo = ECHO_BEFORE  # of several segments acknowledged together, the first is echoed
        # Packets may be out of order, or the clock set back.
        since_host_busy = max(s.ts - self._busy_since(acked, s.src), 0)
        x.connection.needs_programs = True
        self.tables.candidate.add_named(
            connection=x.connection.number,
            trigger_frame=trigger.frame,
            ack_frame=ack.frame,
            release_frame=s.frame,
            at=s.ts,
            trigger_to_ack=ack.ts - sent,
            ack_to_release=s.ts - acked,
            gap=ack.gap,
            # Without timestamps NO_TIMESTAMPS; or OPTIONS_CUT, then also the value of the window scale
            ahead=(s.tsecr - s.tsval) & 0xFFFFFFFF if s.timestamps else min(s.wscale, NO_TIMESTAMPS),
            under_way=time_under_way(trigger, ack),
            since_host_busy=min(since_host_busy, LONGEST),
            arrival=self._arrived_since(acked, s.src, x.connection.number),
            since_data=trigger.since_data,
            since_full=since_full,
            exchange=exchange,
            trigger_bytes=trigger.length,
            released_bytes=s.length,
            beyond_full=ack.beyond_full,
            side=x.side,
            pure=is_pure,
            echo=echo,
            kept_by=kept_by(x, trigger, ack, s),
            gap_ended_by=ack.gap_ended_by,
            gap_small=ack.gap_small,
            gap_reply=ack.gap_reply,
            trigger_not_held=trigger.end == x.not_held_end,
            ack_clock=clock_of(ack.tsval, ack.ts) if ack.tsval >= 0 else 0,
            release_clock=clock_of(s.tsval, s.ts) if s.timestamps else 0,
            trigger_end=trigger.end & 0xFFFFFFFF,
            release_seq=s.seq,
        )

    def _arrived_since(self, ts: int, host: bytes, connection: int) -> int:
        """The number of another connection whose data arrived at ``host`` after ``ts``, ns; -1 none."""
        for before, number in reversed(self._latest):
            if before.ts <= ts:
                break
            if before.length and before.dst == host and number != connection:
                return number
        return -1

    def _busy_since(self, ts: int, host: bytes) -> int:
        """When ``host`` last sent data, or received a segment without data, after ``ts``; otherwise ``ts``. Both in
        ns.
        """
        for before, _ in reversed(self._latest):
            if before.ts <= ts:
                break
            if host == (before.src if before.length else before.dst):
                return before.ts
        return ts

    # Exchanges --------------------------------------------------------------------------------------

    def _exchange_of(self, x: Half, ts: int) -> int:
        """The number of the exchange that new data of ``x`` belongs to."""
        connection = x.connection
        if connection.opener < 0:
            connection.opens(x)
        asks = x.side == connection.client
        if connection.exchange < 0 or (asks and not connection.asking):
            self._end_exchange(connection)
            connection.exchange += 1
        connection.asking = asks
        if asks:
            if ts < connection.request_began:
                connection.request_began = ts
            if ts > connection.request_ended:
                connection.request_ended = ts
        else:
            if ts < connection.response_began:
                connection.response_began = ts
            if ts > connection.response_ended:
                connection.response_ended = ts
        return connection.exchange

    def _end_exchange(self, connection: Connection) -> bool:
        """End the open exchange, and add its row. Returns whether it has request and answer."""
        request_began, request_ended = connection.request_began, connection.request_ended
        response_began, response_ended = connection.response_began, connection.response_ended
        acked, number = connection.request_acked, connection.exchange
        connection.forget_exchange()
        if request_began == NEVER:
            connection.server_first = connection.server_first or number == 0
            return False
        if response_began == NEVER:
            return False
        connection.exchanges += 1
        connection.repeat_exchanges += number > 0
        gaps = (
            duration(request_ended, acked),
            duration(request_ended, response_began),
            duration(request_began, response_ended),
        )
        for durations, gap in zip(self.durations.values(), gaps, strict=True):
            if gap >= 0:
                durations.add(gap)
        if self._list_exchanges:
            self.tables.exchange.add(connection.number, request_began, *gaps, number)
        return True

    # Connections ------------------------------------------------------------------------------------

    def _begins_anew(self, connection: Connection, s: Segment) -> bool:
        """Whether a segment between the ends of a connection is the first segment of a new connection."""
        if s.flags & (SYN | ACK | RST) == SYN:
            return s.seq != connection.syn
        is_translated = connection.answers_as is not None
        if is_translated and s.flags & (SYN | ACK) == SYN | ACK and s.ack != next_to_syn(connection):
            return True  # the client reuses its port for the same server, and is redirected to another one
        return connection.is_closed and s.ts - connection.last_ts > TIME_WAIT

    def _open(self, s: Segment, x: Half | None) -> Half:
        """Open a connection with ``s``, replacing that of ``x``, if any; returns the half that sent ``s``.

        If ``s`` answers another connection (:meth:`_asked_by`), none is opened.
        """
        if x is not None:
            self._forget(x.connection)
        key = (s.src, s.sport, s.dst, s.dport)
        back = (s.dst, s.dport, s.src, s.sport)
        is_answer = s.flags & (SYN | ACK) == SYN | ACK  # its receiver opened the connection
        asked_by = self._asked_by(s) if is_answer else None
        if asked_by is not None:
            asked_by.answers_as = s.src, s.sport
            self._halves[key] = asked_by.halves[1]
            return asked_by.halves[1]
        connection = Connection(self.connections, s, back if is_answer else key)
        self.connections += 1
        if s.flags & (SYN | ACK | RST) == SYN:
            connection.syn_ts = s.ts
            self._latest_asking = connection.number
        self._live[connection.number] = connection
        src, sport, dst, dport = connection.key
        self._halves[dst, dport, src, sport] = connection.halves[1]
        self._halves[connection.key] = connection.halves[0]  # last: an end that talks to itself has one key for both
        if s.flags & SYN:
            self._note_end(connection, 1, SURELY)
        elif connection.side_by_port < 0:
            for side in (0, 1):
                self._note_end(connection, side, 1)
            self._compare_ends(connection)
        return self._halves[key]

    def _asked_by(self, s: Segment) -> Connection | None:
        """The connection that a SYN-ACK between other ends answers; None: none.

        If a host redirects what its own programs send (REDIRECT in OUTPUT: a pod with a sidecar), the client's
        segments are captured after that translation, the server's after its reversal, so their addresses differ.
        """
        client, first = (s.dst, s.dport), self.connections - ASKING
        if self._latest_asking < first:  # so that a flood of SYN-ACKs costs no search
            return None
        for connection in reversed(self._live.values()):
            if connection.number < first:
                break
            is_next = connection.syn >= 0 and s.ack == next_to_syn(connection)
            if is_next and connection.key[:2] == client and not connection.halves[1].packets:
                return connection
        return None

    def _note_end(self, connection: Connection, side: int, count: int) -> None:
        """Count a ``connection`` for the port at its ``side``; a port's second connection may show the server of its
        first one.
        """
        _, sport, _, dport = connection.key
        port = dport if side else sport
        before, first = self._ends.get(port, (0, connection.number))
        self._ends[port] = before + count, first
        if before == 1 and first in self._live:
            self._compare_ends(self._live[first])

    def _compare_ends(self, connection: Connection) -> None:
        """Learn which end of a connection is the server: the one whose port more connections have."""
        _, sport, _, dport = connection.key
        (one, _), (two, _) = self._ends.get(sport, (0, 0)), self._ends.get(dport, (0, 0))
        if one != two:
            connection.shared = int(two > one)
            connection.learn_client()

    def _forget(self, connection: Connection) -> None:
        src, sport, dst, dport = connection.key
        self._halves.pop((src, sport, dst, dport), None)
        self._halves.pop((dst, dport, src, sport), None)
        if connection.answers_as is not None:
            other = (*connection.answers_as, src, sport)
            if self._halves.get(other) is connection.halves[1]:  # otherwise a later connection has these ends
                del self._halves[other]
        del self._live[connection.number]
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        """Add the row of a connection that is over."""
        one, two = connection.halves
        number = connection.exchange
        is_complete = self._end_exchange(connection)
        programs = -1, -1
        if connection.needs_programs or one.not_held or two.not_held:
            src, sport, dst, dport = connection.key
            client = connection.client
            programs = self._program(src, sport if client else 0), self._program(dst, 0 if client else dport)
        if connection.needs_programs:
            self._add_reactions(connection, programs)
        self.tables.put_connection(row_of(connection, programs, -1 if is_complete else number))

    def _program(self, address: bytes, port: int) -> int:
        return self._programs.setdefault((address, port), len(self._programs))

    def _add_reactions(self, connection: Connection, programs: tuple[int, int]) -> None:
        """Add the reactions on a connection whose ends are ``programs``, until both programs have MOST_SAMPLES."""
        for half in connection.halves:
            own, of_peers = programs[half.side], programs[1 - half.side]
            for kind, samples in enumerate(half.reactions or ()):
                if min(self._own_samples[own, kind], self._peer_samples[of_peers, kind]) >= MOST_SAMPLES:
                    continue
                self._own_samples[own, kind] += len(samples.kept)
                self._peer_samples[of_peers, kind] += len(samples.kept)
                for ns in samples.kept:
                    self.tables.reaction.add(connection.number, ns, half.side, kind, 0)

    def _sweep(self, now: int) -> None:
        """Drop connections that are over; if more than MANY are live, also those seen in one direction only, oldest
        first.
        """
        self._until_sweep = SWEEP
        silent = [c for c in self._live.values() if c.is_over and now - c.last_ts > TIME_WAIT]
        for connection in silent:
            self._forget(connection)
        too_many = len(self._live) - MANY
        if too_many > 0:
            idle = [c for c in self._live.values() if c.is_over or c.is_one_way]
            for connection in sorted(idle, key=lambda c: (c.last_ts, c.number))[:too_many]:
                self._forget(connection)


def row_of(connection: Connection, programs: tuple[int, int], unanswered: int) -> list[Any]:
    """The row of a connection that is over; ``unanswered`` is the number of its exchange without an answer, -1
    none.
    """
    one, two = halves = connection.halves
    src, sport, dst, dport = connection.key
    answers_as, answers_as_port = connection.answers_as or (bytes(16), 0)
    return LAYOUTS["connection"].row(
        number=connection.number,
        first_frame=connection.first_frame,
        first_ts=connection.first_ts,
        last_ts=connection.last_ts,
        packets=(one.packets, two.packets),
        segments=(one.packets + one.offloaded, two.packets + two.offloaded),
        payload=(one.payload, two.payload),
        wire=(one.wire, two.wire),
        fastest_ack=[-1 if half.fastest_ack == NEVER else half.fastest_ack for half in halves],
        handshake=connection.handshake,
        syn=(one.syn, two.syn),
        next_seq=[half.seq % (1 << 32) if half.seq >= 0 else -1 for half in halves],
        ahead=(one.ahead, two.ahead),
        tsval_clock=[half.tsval_clock for half in halves],
        first_not_held=(one.first_not_held, two.first_not_held),
        not_held=(one.not_held, two.not_held),
        fin_acks=(one.fin_acks, two.fin_acks),
        program=programs,
        data_segments=(one.data_segments, two.data_segments),
        lost=(one.lost, two.lost),
        swapped=(one.swapped, two.swapped),
        full_waits=(one.full_waits, two.full_waits),
        beside_unacked=[min(half.beside_unacked, LONGEST) for half in halves],
        full_segment=(full_size_of(one), full_size_of(two)),
        least_full_segment=connection.least_full_segment,
        exchanges=connection.exchanges,
        repeat_exchanges=connection.repeat_exchanges,
        open_exchange=unanswered,
        first_stalled=-1,
        last_stalled=-1,
        stale_echoes=(one.stale_echoes, two.stale_echoes),
        followed=connection.followed,
        port=(sport, dport),
        address=src + dst,
        answers_as=answers_as,
        answers_as_port=answers_as_port,
        client=connection.client,
        syns=one.syn >= 0 and two.syn >= 0,
        server_first=connection.server_first,
        kernel=(one.kernel, two.kernel),
        timestamp_step=[timestamp_step(half) for half in halves],
        clock_step=connection.clock_step,
    )


def next_to_syn(connection: Connection) -> int:
    """The acknowledgement number of an answer to its SYN."""
    return (connection.syn + 1) & 0xFFFFFFFF


def with_own_address(connection: Connection, s: Segment) -> Segment:
    """A segment of side 1 with its own address and port, as before translation."""
    _, _, address, port = connection.key
    return replace(s, src=address, sport=port)


def duration(begin: int, end: int) -> int:
    """From one time to the other, ns; -1 where one is missing, or the clock was set back."""
    return end - begin if end >= begin else -1
