"""What segments show about the end that sent them: copies, holes, its full segment, clock and reactions.

In the words of RFC 9293 and Linux, for :mod:`nagle_lab.tcp.machine`; connection.h is the C twin of this, too.
"""

from collections.abc import Iterable
from math import gcd

from nagle_lab.packet.ip import V4_MAPPED
from nagle_lab.packet.segment import ACK, FIN, PSH, RST, SYN, Segment
from nagle_lab.tcp.connection import (
    FIRST_NUMBER,
    LARGEST_SCALE,
    LEAST_MSS,
    LONGEST,
    NEVER,
    USUAL_FULL_SIZE,
    Connection,
    Half,
    Samples,
)
from nagle_lab.tcp.events import MS, US, Reaction

TIMESTAMPS_OPTION = 12  # bytes, with its padding
LEAST_LIFE = 100 * MS  # time between timestamps from which their unit can be learned
MOST_TIMESTAMP_STEP = 255  # ms, as a row has it
LEAST_LEARNED = 500  # bytes; shorter segments without PSH say nothing about a full one

# A packet captured again, on another interface of the same host, comes at most COPY later. Where neither the IP
# identification nor a timestamp distinguishes it from a retransmission, it must come too soon to be one. A router's
# queue may take longer: where the hop limit, or a SYN, shows that there are copies, only the RTO is a limit (200 ms).
SURELY_COPY, COPY, LATE_COPY = MS // 5, 5 * MS, 100 * MS
SAME_PLACE = 30 * US  # a smaller distance may be the same capture point
RECENT = 4  # segments of a half-connection of which the next may be a copy
SAMPLES = 8  # of each kind of reaction of a half-connection so many first ones are kept, and the latest


def unwrapped(wire: int, near: int) -> int:
    """The unwrapped sequence number that is ``wire`` modulo 2**32 and closest to ``near`` (RFC 9293 §3.4)."""
    ahead = (wire - near) & 0xFFFFFFFF
    return near + ahead if ahead < 0x80000000 else near + ahead - 0x100000000


def is_copy(s: Segment, recent: Iterable[Segment], *, copied: bool) -> bool:
    """Whether segment ``s`` was captured already, on another interface, as one of the ``recent`` of its sender.

    Where data or a SYN of the connection was ``copied``, parts of one, or several that offload merged, count, too.
    """
    seq, ack = s.seq, s.ack
    for before in recent:
        if before.ack == ack and (
            (before.seq == seq and is_same(s, before, copied=copied)) or (copied and is_part(s, before))
        ):
            return True
    return False


def remember(x: Half, s: Segment) -> None:
    """Keep a segment of ``x`` for :func:`is_copy`, in place of the oldest of RECENT."""
    if x.packets < RECENT:
        x.recent.append(s)
    else:
        x.recent[x.packets % RECENT] = s


def note_copy(x: Half, s: Segment) -> None:
    """Note that the newest packet of ``x`` was captured again (``s``), if its peer has not reacted to it yet.

    Each capture point on a packet's way is nearer to the receiver than the one before. So where both ends of a
    connection are captured, an end's reaction is the time from the last copy of the packet it received to the first
    copy of the packet it sends. But a packet counts as arrived SAME_PLACE before its last copy, because a copy at the
    same capture point may be that late, as with a mirror port that sends everything twice. The limits for a kernel's
    reaction allow for this where everything is captured twice.
    """
    newest, connection = x.recent[(x.packets - 1) % RECENT], x.connection
    is_newest = (s.seq, s.ack, s.length, s.ip_id) == (newest.seq, newest.ack, newest.length, newest.ip_id)
    if is_newest and connection.sender is x and s.ts - newest.ts > SAME_PLACE:
        x.copied, x.arrived = connection.packets - 1, s.ts - SAME_PLACE


def is_same(s: Segment, before: Segment, *, copied: bool) -> bool:
    """Whether ``s`` is the packet ``before``, captured once more.

    The IPv4 identification decides. Without it (IPv6; RFC 6864 allows 0) TSval must be equal, and it must come soon:
    within COPY, or SURELY_COPY without timestamps. That may be LATE_COPY, or COPY, if data or a SYN of its connection
    was ``copied``; and LATE_COPY for a SYN, and for what a router passed on, with another hop limit. Pure ACKs may be
    repeated, so they count as copies only if data is ``copied``, or the hop limit differs.
    """
    if s.seq != before.seq or s.length != before.length or s.ack != before.ack:
        return False
    if (s.flags, s.window, s.tsval) != (before.flags, before.window, before.tsval):
        return False
    if s.ip_id and before.ip_id:
        return s.ip_id == before.ip_id
    is_sure = s.flags & SYN or s.ttl != before.ttl
    if not (is_sure or copied or s.length):
        return False
    return 0 <= s.ts - before.ts <= (LATE_COPY if is_sure else _latest_copy(s, copied=copied))


def is_part(s: Segment, before: Segment) -> bool:
    """Whether ``s`` is a part of what was captured as ``before``, or ends with it: offload split or merged them.

    IPv4 identifications count the parts, which are of one size, except the last.
    """
    part, whole = (s, before) if s.length < before.length else (before, s)
    offset = (part.seq - whole.seq) & 0xFFFFFFFF
    rest = whole.length - part.length - offset
    if not part.length or part.length == whole.length or rest < 0 or (rest and part is before):
        return False
    if s.window != before.window or s.tsval != before.tsval or (s.flags ^ before.flags) & ~PSH:
        return False
    if s.ip_id and before.ip_id:
        number = (part.ip_id - whole.ip_id) & 0xFFFF
        is_whole_number = offset % number == 0 if number else offset == 0
        if not is_whole_number or offset < number * LEAST_MSS:
            return False
    return 0 <= s.ts - before.ts <= _latest_copy(s, copied=True)


def _latest_copy(s: Segment, *, copied: bool) -> int:
    """How much later a copy of ``s`` may come, ns."""
    if copied:
        return LATE_COPY if s.timestamps else COPY
    return COPY if s.timestamps else SURELY_COPY


def leaves_ids_zero(x: Half) -> bool:
    """Whether the latest packets of ``x`` are IPv4 and all have the identification 0.

    RFC 6864 allows that, and macOS does it; Linux counts them (ip_select_ident).
    """
    return x.recent[0].src.startswith(V4_MAPPED) and not any(s.ip_id for s in x.recent)


def acknowledged(x: Half, s: Segment) -> int:
    """The acknowledgement number of segment ``s`` of ``x``, without wrap.

    If the peer has not been seen yet, its numbers begin there.
    """
    y = x.peer
    if y.seq < 0:
        y.seq = FIRST_NUMBER + s.ack
    return unwrapped(s.ack, x.rcv_nxt if x.rcv_nxt >= 0 else y.seq)


def learn_syn(x: Half, s: Segment) -> None:
    """Note what a SYN of ``x`` says: MSS, window, window scale, whether there are timestamps, whose kernel."""
    connection = x.connection
    if not s.flags & (ACK | RST):
        if x.side == 0 and connection.packets:
            connection.syn_ts = -1  # sent again: the handshake includes a retransmission timeout
        connection.syn = s.seq
    x.syn, x.syn_window, x.mss, x.scale, x.timestamps = s.seq, s.window, s.mss, s.wscale, bool(s.timestamps)
    x.kernel, x.syn_ttl = s.kernel, s.ttl
    connection.learn_client()
    one, two = connection.halves
    scales = (one.scale, two.scale)
    for half in (one, two):
        half.shift = window_shift(half, scales)
    learn_full_size_by_mss(connection)


def window_shift(x: Half, scales: tuple[int, int]) -> int:
    """The window scale of ``x``: used only when both ends offered the option (RFC 7323 §2.3).

    A SYN/ACK offers only what its SYN offered. LARGEST_SCALE if the capture lacks that SYN or its options.
    """
    if min(scales) < -1:
        return LARGEST_SCALE
    are_there = x.syn >= 0, x.peer.syn >= 0
    if all(are_there):
        return min(x.scale, LARGEST_SCALE) if min(scales) >= 0 else 0
    if any(are_there) and max(scales) < 0:
        return 0
    return min(x.scale, LARGEST_SCALE) if are_there[0] and x.side == 1 else LARGEST_SCALE


def learn_full_size_by_mss(connection: Connection) -> None:
    """Set the size of a full segment, in bytes of payload, by the MSS in the SYNs.

    Sets ``Connection.least_full_segment`` of both ends; for each end ``Half.full_size_by_mss``, the MSS that its peer
    announced less the options in use (RFC 6691); and ``Half.surely_small_below``, below which a segment surely is not
    full.
    """
    one, two = connection.halves
    options = TIMESTAMPS_OPTION * (one.timestamps and two.timestamps)
    mss = min(one.mss, two.mss) or max(one.mss, two.mss)
    surely_full = max(mss - options, 1) if mss else LEAST_MSS
    connection.least_full_segment = surely_full if mss else USUAL_FULL_SIZE
    for half in (one, two):
        half.full_size_by_mss = max(half.peer.mss - options, 1) if half.peer.mss else 0
        window = half.peer.syn_window
        half_window = window // 2 if window > LEAST_MSS else window
        half.surely_small_below = min(surely_full, half_window) if window >= 0 else surely_full


def learn_full_size_by_data(x: Half, s: Segment) -> None:
    """Learn how large a full segment of ``x`` is from new data ``s``: a length sent twice in a row without PSH.

    A path MTU, and options that the handshake does not show, make it less than the MSS says. Segments that are full
    only until the window grows are not used. If ``x`` never sets PSH (ns-3), only what it sends while other data is
    unacknowledged counts; not if it echoes an ACK that the capture lacks.
    """
    length = s.length
    if s.flags & PSH:
        x.pushes = True
        return
    exceeds_mss = x.full_size_by_mss and length > x.full_size_by_mss
    if length < LEAST_LEARNED or length <= x.full_size_by_data or exceeds_mss:
        return
    if is_half_of_window(x, length):
        return
    if not x.pushes and (x.snd_una >= x.data.end or echoes_uncaptured(x.peer, s)):
        return
    if length == x.last_unpushed:
        x.full_size_by_data = length
    x.last_unpushed = length


def echoes_uncaptured(y: Half, s: Segment) -> bool:
    """Whether ``s`` echoes a timestamp of ``y`` that the capture lacks, or has only later, such as that of an ACK."""
    return bool(s.timestamps) and y.tsval >= 0 and is_after(s.tsecr, y.tsval)


def is_half_of_window(x: Half, length: int) -> bool:
    """Whether a segment of ``x`` has at least half of the peer's window: it is full if that window was the largest so
    far.

    Linux sends no larger segment, unless the window has less than 536 bytes (tcp_bound_to_half_wnd).
    """
    return x.peer.rcv_nxt >= 0 and 2 * length >= x.peer.rcv_wnd


def note_hole(x: Half, start: int) -> None:
    """Count data of ``x`` that follows a hole (data missing in the capture); or undo that, if this data fills the
    hole.

    Data at the hole's ``start`` that the peer has not acknowledged fills it: then the path lost or reordered the
    data, not the capture.
    """
    if x.seq >= 0 and start > x.snd_nxt:
        x.lost += 1
        if x.hole < x.snd_una:
            x.hole = x.snd_nxt
    elif start == x.hole >= x.snd_una:
        x.lost -= 1
        x.hole = -1


def full_size_of(x: Half) -> int:
    """The payload of a full segment of ``x``, bytes, learned from its data or by the MSS; 0 not known."""
    return x.full_size_by_data or x.full_size_by_mss


def is_small(x: Half, s: Segment) -> bool:
    """Whether data ``s`` of ``x`` is no full segment, nor several (segmentation offload): see tcp_minshall_update."""
    return not s.flags & (SYN | FIN | RST) and s.length % (full_size_of(x) or x.connection.least_full_segment) != 0


def is_after(one: int, other: int) -> bool:
    """Whether a timestamp is newer than another, modulo 2**32 (RFC 7323 §5.2)."""
    return 0 < (one - other) & 0xFFFFFFFF < 0x80000000


def clock_of(tsval: int, ts: int) -> int:
    """A TSval less its time of capture, ms, modulo 2**32: the greater, the shorter the segment was under way."""
    return (tsval - ts // MS) & 0xFFFFFFFF


def learn_timestamps(x: Half, s: Segment) -> None:
    """Note the timestamp of a segment of ``x``, and how far TSecr is ahead of TSval at its fastest (RFC 7323).

    That is the least time from the peer's segment to this one by the ends' clocks, plus the difference of these
    clocks. Also notes how far its clock is ahead of the capture's, by the segment that was under way for the shortest
    time.
    """
    if x.timestamp_step != 1 and x.tsval >= 0:
        x.timestamp_step = gcd(x.timestamp_step, s.tsval - x.tsval)
    if x.tsval < 0:
        x.first_tsval, x.first_tsval_ts = s.tsval, s.ts
    x.tsval = s.tsval
    clock = clock_of(s.tsval, s.ts)
    if clock != x.tsval_clock and (x.tsval_clock < 0 or is_after(clock, x.tsval_clock)):
        x.tsval_clock = clock
    ahead = (s.tsecr - s.tsval) & 0xFFFFFFFF
    if ahead != x.ahead and s.flags & (ACK | SYN) == ACK and (x.ahead < 0 or is_after(ahead, x.ahead)):
        x.ahead = ahead


def timestamp_step(x: Half) -> int:
    """The least distance between timestamps of ``x``, ms: by their differences, and by how long a unit of them takes.

    RFC 7323 §5.4 allows units of 1 ms to 1 s: 4 or 10 in Linux before 4.13, 100 in Windows XP, 500 in NetBSD of 2016.
    0 if nothing is known; at most MOST_TIMESTAMP_STEP, which is also the value for shorter units (Linux 6.7:
    tcp_usec_ts).
    """
    life, moved = x.last_ts - x.first_tsval_ts, (x.tsval - x.first_tsval) & 0xFFFFFFFF
    step = x.timestamp_step
    if x.tsval >= 0 and life >= LEAST_LIFE:
        is_shorter = 2 * (life // MS + 1) < moved < 1 << 31  # a larger difference came out of order
        step = MOST_TIMESTAMP_STEP if is_shorter else max(step, life // MS // (moved + 1))
    return min(step, MOST_TIMESTAMP_STEP)


def forget_syn_proxy(x: Half, s: Segment) -> None:
    """Forget how soon ``x`` answered in the handshake if its first data ``s`` has another TTL than its SYN.

    Then a SYN proxy answered, which is nearer or further away than ``x`` (a middlebox that protects from SYN floods:
    RFC 4987 §3.8). TTLs may be forged, but different TTLs mean two senders or two paths.
    """
    if not x.data_segments and x.syn_ttl and s.ttl != x.syn_ttl:
        x.fastest_ack = NEVER
        x.tsval_clock = -1
        x.connection.handshake = -1
        if x.reactions is not None:
            x.reactions[Reaction.HANDSHAKE] = Samples()


def keep_sample(x: Half, kind: Reaction, ns: int) -> None:
    """Keep how long ``x`` took for a reaction, ns: the first SAMPLES of each kind, and the latest."""
    if x.reactions is None:
        x.reactions = [Samples() for _ in Reaction]
    samples = x.reactions[kind]
    if not 0 <= ns <= LONGEST:
        ns = min(max(ns, 0), LONGEST)
    if samples.count < 2 * SAMPLES:
        samples.kept.append(ns)
    else:
        samples.kept[SAMPLES + samples.count % SAMPLES] = ns
    samples.count += 1
