"""What a segment had waited for, decided from it and from what both ends of its connection sent before.

In the words of RFC 9293 and Linux, for :mod:`nagle_lab.tcp.machine`; machine.c is the C twin of this, too.
"""

from nagle_lab.packet.segment import ACK, PSH, Kernel, Segment
from nagle_lab.tcp.connection import LARGEST_SCALE, LEAST_USUAL, LONGEST, NEVER, Acknowledgement, Half, Sent
from nagle_lab.tcp.events import MS, PROBE, PROBE_JIFFIES, EndedBy, KeptBy
from nagle_lab.tcp.learned import echoes_uncaptured, full_size_of, is_after, leaves_ids_zero

# As plain names: looking up a member of an enumeration takes as long as the rest of a line.
BSD, LINUX = Kernel.BSD, Kernel.LINUX
BY_ACKNOWLEDGEMENT, BY_ANSWER, BY_CONTINUATION, BY_RETRANSMISSION, BY_WINDOW, BY_OTHER, BY_READING = EndedBy
KEPT_BY_NOTHING, KEPT_BY_MSG_MORE, KEPT_BY_WINDOW = KeptBy

# Data that follows other data sooner than this does not show what it waited for.
SHORT = 1 * MS
HEADERS = 66  # approximate bytes of headers: Ethernet, IPv4, and TCP with timestamps
FULL_WAIT = 5 * MS  # how long a full segment waited at least, if the congestion window held it
INITIAL_WINDOW = 10  # segments that a congestion window has room for from the beginning (RFC 6928)


def beyond_full(x: Half, ack: int) -> int:
    """How many bytes beyond a full segment of its peer ``x`` newly acknowledges, up to ``ack``.

    If no SYN shows the size of a full segment, a segment that its peer sent behind unacknowledged data counts as full
    if it is large enough: had it been small, Nagle's algorithm would have held it. 0 if the size is not known, and
    for a BSD, because macOS delays ACKs of several full segments, too. Without its SYN, ``x`` may be a BSD if its
    packets have the identification 0.
    """
    y = x.peer
    if x.kernel == BSD or (x.syn < 0 and leaves_ids_zero(x)):
        return 0
    full = max(y.full_size_by_mss, y.full_size_by_data)
    if not full and y.data.length >= LEAST_USUAL and y.data.start > y.snd_una:
        full = y.data.length
    return max(ack - y.snd_una - full, 0) if full and x.rcv_nxt >= 0 else 0


def serialization_delay(x: Half, newly_acked: int) -> int:
    """The serialization delay, on a slow link, of the bytes that ``x`` acknowledges now, ns, at the pace of its ACK
    clock.

    That pace is the time from the previous packet of ``x`` to its latest, per byte that the latest acknowledged; 0
    not known.
    """
    if not x.newly_acked:
        return 0
    return min(x.ack_spacing * (min(max(newly_acked, 0), LONGEST) + HEADERS) // (x.newly_acked + HEADERS), LONGEST)


def time_under_way(trigger: Sent, ack: Acknowledgement) -> int:
    """From the trigger to its receiver's latest segment that did not acknowledge it, ns, and the ACK's own
    serialization delay.

    That is ``under_way`` in engine.h: for this long the trigger had surely not arrived.
    """
    way = max(ack.before - trigger.ts, 0)
    if way and ack.paced_since >= trigger.ts:
        way += ack.serialization_delay
    return min(way, max(ack.ts - trigger.ts, 0))


def is_full_segment_waiting(x: Half, s: Segment, before: Sent, ack: Acknowledgement) -> bool:
    """Whether a full segment waited for an ACK: Nagle's algorithm never holds one, so the congestion window was
    full.
    """
    has_waited = ack.number > before.number and ack.ts - before.ts >= FULL_WAIT and s.ts - ack.ts < SHORT
    return has_waited and is_released_by(x, before, ack, s)


def had_received_no_data(y: Half, ack: int, latest: Acknowledgement) -> bool:
    """Whether the sender of an acknowledgement up to ``ack`` had received no data of ``y`` since its ``latest`` pure
    ACK.

    A segment acknowledges everything that has arrived in order when it leaves (RFC 9293 §3.10.7.4); later data
    crosses it.
    """
    return y.data.number < latest.number or ack <= latest.seq


def is_sooner_than_reactions(x: Half, ts: int, ack: Acknowledgement) -> bool:
    """Whether ``x`` sent the packet captured at ``ts`` (ns) before ``ack`` arrived: it came an eighth sooner than its
    fastest reaction.
    """
    return x.fastest_ack != NEVER and ts - x.peer.arrival_of(ack) < x.fastest_ack - x.fastest_ack // 8


def is_released_by(x: Half, trigger: Sent, ack: Acknowledgement, s: Segment) -> bool:
    """Whether ``ack`` may have released new data ``s`` of ``x``, which makes the three segments a candidate.

    Before the ACK the trigger was outstanding, after it at most full segments are; and no window held the data back.
    Whether the ACK was late, and *caused* the release, is for the proof (:mod:`nagle_lab.diagnosis.proof`).
    """
    return (
        ack.acked_before < trigger.end <= ack.ack  # until this ACK the trigger was outstanding
        and ack.ack <= x.snd_nxt  # otherwise it was captured before the data that it acknowledges: ``s`` itself
        and ack.had_room
        and (trigger.edge < 0 or max(trigger.edge, ack.edge_before) >= x.snd_nxt + s.length)  # the window had room
    )


def is_behind_small(x: Half, s: Segment, before: Sent, latest: Acknowledgement) -> bool:
    """Whether new data ``s`` waited for the ACK of a small segment, behind which full ones left; ``before`` is the
    last of these.

    Linux holds small data until the latest small segment is acknowledged, even if other data is not
    (tcp_minshall_check). False if the full segments may have filled the congestion window, or left after that ACK had
    arrived. Also false if ``latest`` acknowledged them, too, so the data may have waited for that, as other stacks do
    (RFC 896).
    """
    small, ack = x.small, x.small_ack
    if small.number == before.number or not small.is_new or small.epoch != s.epoch or ack.number <= small.number:
        return False
    full = full_size_of(x) or x.connection.least_full_segment
    if x.snd_nxt - small.end > (INITIAL_WINDOW - 2) * full or x.peer.data.number > ack.number:
        return False
    if before.number > ack.number and not is_sooner_than_reactions(x, before.ts, ack):
        return False
    is_all_acked = latest.ack == x.snd_nxt and latest.number > before.number
    return not is_all_acked or latest.ts - ack.ts < SHORT or is_sooner_than_reactions(x, s.ts, latest)


def note_beside_unacked(x: Half, s: Segment, before: Sent, *, is_owed: bool) -> None:
    """Count new data ``s`` of ``x`` that was sent while the data ``before`` it was unacknowledged.

    If it carries an ACK that a BSD owed (``is_owed``), it does not count as sent without waiting (``not_held``).
    """
    x.beside_unacked += 1
    if not is_owed and is_small_behind_small(x, s, before):
        x.first_not_held = x.first_not_held or s.frame
        x.not_held += 1
        x.not_held_end = before.end + s.length


def note_offloaded(x: Half, s: Segment) -> None:
    """Count each full segment of an offloaded packet of ``x`` after the first as sent beside unacknowledged data."""
    usual = x.full_size_by_mss or x.peer.full_size_by_mss
    if usual and s.length > usual:
        x.beside_unacked += (s.length - 1) // usual


def may_be_probe(x: Half, s: Segment, before: Sent) -> bool:
    """Whether new data ``s`` of ``x`` may be a loss probe, which sends what is held (RFC 8985 §7.3), because the data
    ``before`` it stayed unacknowledged.

    Linux waits for less where more than one segment is unacknowledged (tcp_schedule_loss_probe): see PROBE.
    """
    took = s.ts - before.ts
    if took >= PROBE:
        return True
    are_several = before.end - x.snd_una > (full_size_of(x) or x.connection.least_full_segment)
    return are_several and took >= 2 * x.round_trip + PROBE_JIFFIES


def is_small_behind_small(x: Half, s: Segment, before: Sent) -> bool:
    """Whether new data and the data before it are both smaller than full segments: then that sender's Nagle is off.

    On Linux a full segment has half of the largest window offered, if that is less than the MSS
    (tcp_bound_to_half_wnd), so both must be smaller than that, too. A segment without PSH is continued by the next
    one: it is no small write, but full because of a path MTU or options that nothing else shows.
    """
    if x.pushes and not before.flags & PSH:
        return False
    least, full = x.surely_small_below, x.connection.least_full_segment
    if not x.full_size_by_mss and x.pushes and s.flags & PSH:
        least = LEAST_USUAL
    # With segmentation offload one packet can be several full segments and a small one.
    tail = before.length % full if least == full else before.length
    return s.length < least and 0 < tail < least


def echoes_older(x: Half, s: Segment, answered: Sent) -> bool:
    """Whether ``s`` of ``x`` echoes an older timestamp than that of ``answered``, the only new segment it
    acknowledges.

    RFC 7323 §4.3 requires the timestamp of ``answered``. The echoes of a stack that does otherwise (ns-3 with
    piggybacked ACKs) show nothing.
    """
    is_one = answered.start == x.peer.snd_una and answered.tsval >= 0 and bool(s.timestamps)
    return is_one and is_after(answered.tsval, s.tsecr)


def kept_by(x: Half, trigger: Sent, ack: Acknowledgement, s: Segment) -> KeptBy:
    """What else may have kept new data ``s`` of ``x`` until ``ack``.

    A window of unknown scale, without which it would be full, is scaled if ``s`` takes more than it offers then.
    """
    if is_announced(x, trigger, s):
        return KEPT_BY_MSG_MORE
    if x.peer.shift != LARGEST_SCALE or x.snd_nxt - ack.ack + s.length > ack.window:
        return KEPT_BY_NOTHING
    offered = (ack.edge_before - ack.acked_before) >> LARGEST_SCALE
    return KEPT_BY_WINDOW if x.snd_nxt - ack.acked_before == offered else KEPT_BY_NOTHING


def is_announced(x: Half, trigger: Sent, s: Segment) -> bool:
    """Whether the release lacks the PSH that ends a write: its sender announced more data (MSG_MORE).

    If the trigger is a full segment of such a write, it has no PSH, either. Linux sets PSH at the end of every other
    write (tcp_push), so in that case no segment of that end may have it. Where its peer's data has none, either,
    something on the path cleared it.
    """
    if s.flags & PSH:
        return False
    sets_it = x.kernel == LINUX and (x.peer.pushes or not x.peer.data_segments)
    return x.pushes or sets_it or bool(trigger.flags & PSH)


def ended_by(x: Half, s: Segment, start: int, ack: int, idle: int) -> EndedBy:
    """What ended an idle gap of ``idle`` ns: segment ``s`` of ``x``, from ``start`` on, which acknowledges ``ack``.

    New data after PROBE while older data is unacknowledged is a loss probe (RFC 8985 §7.3).
    """
    y = x.peer
    if not s.length:
        return ended_without_data(x, s, ack)
    if y.rcv_nxt >= 0 and x.data.number >= 0 and x.snd_nxt >= y.rcv_nxt + y.rcv_wnd:
        return BY_WINDOW  # there was no room for even one more byte
    if start < x.snd_nxt:
        return BY_RETRANSMISSION
    if x.data.number <= y.data.number:
        return BY_ANSWER
    is_probe = idle >= PROBE and 0 < x.snd_una < x.data.end and not echoes_uncaptured(y, s)
    return BY_RETRANSMISSION if is_probe else BY_CONTINUATION


def ended_without_data(x: Half, s: Segment, ack: int) -> EndedBy:
    """What ended an idle gap whose last packet has no data: ``x`` sent it, and ``ack`` is its acknowledgement."""
    if x.rcv_nxt >= 0 and (x.rcv_wnd == 0 or x.peer.snd_nxt >= x.rcv_nxt + x.rcv_wnd):
        return BY_WINDOW  # a window update, the answer to a probe, or the ACK of data that filled the window
    if not (s.flags & ACK and ack > x.peer.snd_una):
        return BY_OTHER
    return BY_READING if beyond_full(x, ack) else BY_ACKNOWLEDGEMENT
