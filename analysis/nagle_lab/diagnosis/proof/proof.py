"""Candidate → stall: which segments Nagle's algorithm held until a delayed ACK arrived (:func:`prove`).

A stall is three segments of one connection, named by frame:

    trigger   X sends a segment; it stays unacknowledged, so Nagle holds X's next small one (RFC 896; RFC 9293 §3.7.4;
              Linux holds only behind a *small* one, tcp_minshall_check)
    late ACK  Y acknowledges it only when its delayed-ACK timer fires (RFC 1122 §4.2.3.2)
    release   X sends what it held, at once: no slower than X's TCP reacts at this capture point

The machine (:mod:`nagle_lab.tcp.machine`) collects such triples, the *candidates*. Something else may have come
between ACK and release: a program that pauses, that waits for the ACK itself, or for a database. So the candidates of
one program are judged together, and what cannot be told is counted as unresolved. docs/proof.md has the explanations,
the evidence for each, and where the limits were measured.
"""

from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import (
    Column,
    among,
    chosen,
    counts,
    distinct,
        groups,
    highest,
    in_order,
    lowest,
    percentile,
    pick,
    ranks,
    total,
    where,
)  # fmt: skip
from nagle_lab.diagnosis.observed.enough import FEW, HARDLY_ANY, MANY, MOST_LOOKED_AT, SOME
from nagle_lab.diagnosis.observed.observed import LATE_NEAR, NEAR, US, Observed, Setting, around, observe
from nagle_lab.diagnosis.observed.programs import Program
from nagle_lab.diagnosis.proof.away_from_sender import held_far
from nagle_lab.diagnosis.proof.kernel_evidence import is_denied, split_by_kernel
from nagle_lab.diagnosis.proof.late_acks import late_candidates
from nagle_lab.diagnosis.proof.near_sender import COARSE, held_near
from nagle_lab.diagnosis.proof.outcomes import Ground, Hold, Judged, Obstacle, Rejected
from nagle_lab.diagnosis.proof.pauses import PAUSE, PAUSES_VARY, middle_half  # fmt: skip
from nagle_lab.diagnosis.proof.piggybacked import judge_piggybacked
from nagle_lab.tcp.events import MS, PROBE, Echo

BLIND = 100 * US  # step of a clock by which distances say nothing
# Later behind the trigger it may be a loss probe, which sends what is held (RFC 8985 §7.3): it shows nothing.
NO_PROBE = PROBE * 9 // 10
TURNS = 3  # from connections that hold data to some that do not, or back
SURELY_HELD = 0.9  # of the late candidates: where more came too late to be held, its pauses vary
OFTEN = 0.5  # data that did not wait, beside candidates: a connection with more is seen not to wait for ACKs
MOST_SWAPPED = (
    0.1  # data captured after its ACK: where there is more, the two directions are not stamped by one clock
)
IN_DISORDER = 0.3  # the same of a program, where the capture lost or swapped packets and timestamps do not tell which


def prove(c: Candidates, program: Program, setting: Setting, judged: Judged) -> None:
    """Judge the candidates of one program.

    Parameters
    ----------
    c : those candidates, ACKs in time and late, pure and piggybacked
    program : what the whole capture shows of it
    setting : what holds for the whole capture
    judged : where the outcome is added: stalls, holds for a round trip, rejected and unresolved candidates
    """
    c = c.only(_may_be_held(c.trigger_bytes, c.released_bytes, c.full, c.full_waits))
    without_ack = c.only(c.ack_frame == 0)  # their ACKs are not in the capture
    c = c.only(c.ack_frame > 0)
    c = _without_corked(c, judged)
    observed = observe(program, setting, c)
    _find_round_trips(observed, judged)
    late = _without_unread(late_candidates(c, observed, judged), judged)
    if not len(late):
        judged.leave_open(
            without_ack.only(without_ack.trigger_to_ack >= LATE_NEAR),
            Obstacle.CAPTURE_INCOMPLETE,
        )
        return
    usual = late.usual_wait
    waiting, at_least, rest = split_by_kernel(late, observed, judged)
    if len(waiting):
        hold = _hold(waiting, waiting | rest, observed)
        judged.accept(waiting, Ground.SEEN_WAITING, replace(hold, low=max(hold.low, min(at_least, hold.high))))
    if len(rest):
        _judge_by_timing(rest, waiting, c, without_ack, observed, judged)
    else:
        _judge_without_ack(without_ack, waiting, observed, judged, usual)


def _judge_by_timing(
    late: Candidates, shown: Candidates, c: Candidates, without_ack: Candidates, observed: Observed, judged: Judged
) -> None:
    """Judge the late candidates of which the kernel did not say whether their data waited.

    ``shown`` are those that it proved, ``c`` all of the program, ``without_ack`` those whose ACK is not captured.
    """
    program, usual = observed.program, late.usual_wait
    if observed.setting.swapped > MOST_SWAPPED:
        judged.leave_open(late, Obstacle.CAPTURE_INCOMPLETE)
        return
    no_waits = program.sent_without_waiting(usual / 2, (Echo.BEFORE, Echo.UNKNOWN))
    late, no_waits = _without_nagle_off(late, no_waits, observed, judged)
    if not len(late):
        return
    late = _without_held_behind_full(late, observed, judged)
    observed = replace(observed, sent_before=_sent_before(late, observed, no_waits))
    late = late.only(late.echo != Echo.BEFORE)
    pure, piggybacked = late.only(late.pure), late.only(late.pure == 0)
    if _is_blind(pure, observed):
        _judge_by_own_clock(pure, observed, judged)
        judge_piggybacked(piggybacked, pure.picked([]), c, observed, judged)
        return
    held = held_far(pure, observed, judged) if observed.is_far else held_near(pure, observed, judged)
    held = _without_pauses(held, pure)
    held = _without_triggers_not_held(held, judged)
    held = _without_window_of_one(held, c, observed, judged)
    if len(held):
        repetition = Ground.REPETITION_ON_PATH if observed.is_far else Ground.REPETITION_AT_SENDER
        judged.accept(held, repetition if len(held) >= FEW else Ground.PROMPTNESS, _hold(held, pure, observed))
    if len(shown):
        held = held | shown
    _judge_without_ack(without_ack, held, observed, judged, usual)
    judge_piggybacked(piggybacked, held, c, observed, judged)


def _may_be_held(trigger: Column, released: Column, full: Column, full_waits: Column) -> Column:
    """Whether Nagle's algorithm may have held a segment of ``released`` bytes behind one of ``trigger`` bytes.

    Not a full one (``full`` bytes; 0 not observed), nor one behind a full one where the congestion window is seen to
    hold full ones (``full_waits``).
    """
    divisor = chosen(full > 0, full, 1 << 40)
    is_small = (released < divisor) & (released % divisor > 0)
    return is_small & ((trigger % divisor > 0) | (full_waits < 2))


def _without_corked(c: Candidates, judged: Judged) -> Candidates:
    """Without those whose sender had announced more (MSG_MORE, TCP_CORK): what Nagle's algorithm holds has PSH."""
    late = (c.announced > 0) & (c.trigger_to_ack >= LATE_NEAR)
    judged.reject(total(late), Rejected.CORKED)
    return c.only(c.announced == 0)


def _without_unread(late: Candidates, judged: Judged) -> Candidates:
    """Without those whose pure ACK acknowledges more than a full segment.

    No timer delays that (RFC 1122 §4.2.3.2). Linux does while the program does not read (__tcp_ack_snd_check), and
    acknowledges when it does (tcp_cleanup_rbuf): so that program is what the exchange waits for.
    """
    unread = (late.beyond_full > 0) & (late.pure > 0)
    judged.reject(total(unread), Rejected.NOT_READ)
    return late.only(unread == 0)


def _without_nagle_off(
    late: Candidates, no_waits: Counter[tuple[int, int]], observed: Observed, judged: Judged
) -> tuple[Candidates, Counter[tuple[int, int]]]:
    """Without the connections that are seen not to wait for ACKs; the program's other connections are judged.

    On these, only what may have been held before TCP_NODELAY was set. What ``no_waits`` says of where that is so is
    left out.
    """
    by_connection: Counter[int] = Counter()
    for (_, connection), count in no_waits.items():
        by_connection[connection] += count
    if not by_connection:
        return late, no_waits
    connections = late.connection
    held = {int(connections[group[0]]): len(group) for group in groups(connections)}
    off = sorted(connection for connection, count in by_connection.items() if count > OFTEN * held.get(connection, 0))
    on_those = late.among(connections, off)
    before = _before_nodelay(on_those, observed)
    others = (late - on_those) | before
    judged.reject(len(late) - len(others), Rejected.NAGLE_OFF)
    set_later = set(map(int, before.connection))
    return others, Counter({key: count for key, count in no_waits.items() if key[1] not in set_later})


def _without_held_behind_full(late: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Without those behind full segments, on connections seen not to wait behind these: Linux does not (Minshall)."""
    is_behind = (late.full > 0) & (late.trigger_bytes % chosen(late.full > 0, late.full, 1) == 0)
    behind, times = late.only(is_behind), observed.program.behind_full
    held = Counter(map(int, behind.connection)) if times else Counter()
    off = sorted(connection for connection, count in held.items() if times[connection] > OFTEN * count)
    unlikely = behind.among(behind.connection, off)
    judged.reject(len(unlikely), Rejected.NAGLE_OFF)
    return late - unlikely


def _before_nodelay(off: Candidates, observed: Observed) -> Candidates:
    """Those near the sender that came before the first data that did not wait, and right behind the ACK.

    TCP_NODELAY may have been set then: OpenSSH does it when a session begins. But not those as long after the trigger
    as data that did not wait: that is the program's pause.
    """
    if observed.is_far:
        return off.picked([])
    first, paused = observed.program.first_no_wait, {key[3] for key in observed.program.no_waits}
    rows = zip(off.connection, off.release_frame, off.ack_to_release, off.trigger_to_release, strict=True)
    return off.picked(
        [
            row
            for row, (connection, frame, release, since) in enumerate(rows)
            if frame < first.get(int(connection), 0)
            and release < PAUSE
            and not any(abs(since - ms * MS) <= PAUSES_VARY * since for ms in paused)
        ]
    )


def _sent_before(late: Candidates, observed: Observed, no_waits: Counter[tuple[int, int]]) -> Counter[int]:
    """How often data was sent before its ACK could arrive, as long after the trigger: its sender waits for no ACK.

    By connection; to the same peers, or, where connections are long, on the same connections. Empty where ACKs that
    the capture lost or swapped may explain it.
    """
    peers, connections = (set(map(int, distinct(column))) for column in (late.peer, late.connection))
    are_long = len(late) >= FEW * len(connections)
    soon = late.only((late.echo == Echo.BEFORE) & (late.trigger_to_release < NO_PROBE))
    found = Counter(map(int, soon.connection))
    for (peer, connection), times in no_waits.items():
        if connection in connections if are_long else peer in peers:
            found[connection] += times
    disorder, count = observed.setting.disorder, found.total()
    if not disorder:
        return found
    if observed.program.sent_without_waiting():  # timestamps tell most of the lost ones
        return found if count > disorder * (len(late) + count) else Counter()
    return found if count > max(IN_DISORDER * len(late), 3 * disorder * (len(late) + count) + 1) else Counter()


def _find_round_trips(observed: Observed, judged: Judged) -> None:
    """Add what followed early ACKs at once: Nagle's algorithm held it for a round trip of the path."""
    early, base = observed.early, observed.own if observed.is_far and observed.own else 0
    soonest, latest = around(base)
    prompt = where((early.ack_to_release >= soonest) & (early.ack_to_release <= latest))
    if len(early) >= MANY and observed.program.sent_without_waiting().total() <= HARDLY_ANY * len(early):
        judged.round_trips.append(pick(early.row, prompt))


def _hold(held: Candidates, late: Candidates, observed: Observed) -> Hold:
    """Bounds of how long data was held in the median stall; ``late`` are all candidates that ``held`` is chosen from.

    The hold begins with the write. What left with an early ACK had been written by then; what left later than that
    was written when it left. So early ACKs show when the program writes, behind a trigger of the usual size. Pauses
    longer than the wait are left out, as their data would not have been held. Where waits differ much, the data had
    been written by the end of the shorter ones. Where more than a few releases came too late to have been held, the
    program's pauses vary, and only the upper bound is known.
    """
    hold = _hold_in_packets(held, late, observed)
    return replace(hold, low=0) if is_denied(hold.low, held, observed.setting.kernel) else hold


def _hold_in_packets(held: Candidates, late: Candidates, observed: Observed) -> Hold:
    """The same by the packets alone, without what the kernel said."""
    at_once = percentile(held.ack_to_release, 90)  # as the path makes it
    waits = (
        held.trigger_to_release if observed.is_far else held.trigger_to_ack
    )  # away from it, trigger and ACK were under way besides
    usual, holding = percentile(waits, 50), distinct(held.connection)  # on others that program may do something else
    late, early = (some.among(some.connection, holding) for some in (late, observed.early))
    if len(held) < SURELY_HELD * len(late):
        return Hold(len(held), 0, usual)
    early = early.only(early.trigger_to_release <= usual)
    size, _ = Counter(map(int, held.trigger_bytes[:MOST_LOOKED_AT])).most_common(1)[0]
    early = early.only(early.trigger_bytes == size)
    written_by = [*map(int, early.trigger_to_release[:MOST_LOOKED_AT]), *([NEAR] * len(observed.program.own.release))]
    latest = percentile(written_by, 90) if len(written_by) >= FEW else usual
    shorter = percentile(waits, 10)
    if len(held) >= MANY and shorter <= usual / 2:
        latest = min(latest, shorter)
    paused = early.only(early.ack_to_release > NEAR + at_once)
    shortest = (
        percentile(paused.trigger_to_release, 10) if len(paused) >= FEW and 2 * len(paused) > len(written_by) else 0
    )
    return Hold(len(held), max(usual - max(latest, shortest), 0), usual - shortest)


def _without_pauses(held: Candidates, pure: Candidates) -> Candidates:
    """Without the few of a connection that come as long after the trigger as the many that are not held.

    They are pauses that happened to end with the ACK: their data was held for next to nothing.
    """
    if not len(held):
        return held
    numbers = distinct(pure.connection)
    of_all = counts(ranks(pure.connection, numbers), len(numbers))
    of_held = counts(ranks(held.connection, numbers), len(numbers))
    mostly_not = where((of_held < of_all / 2) & (of_all - of_held >= FEW) & (of_held > 0))
    dropped: set[int] = set()
    for number in pick(numbers, mostly_not):
        its_own = pure.only(pure.connection == number)
        is_held = among(its_own.row, held.row)
        rest = its_own.picked([row for row, one in enumerate(is_held) if not one])
        if middle_half(rest.trigger_to_release) < 3 * MS:
            earliest = percentile(rest.trigger_to_release, 25) - MS
            some = its_own.only(is_held)
            dropped |= {
                int(row) for row, since in zip(some.row, some.trigger_to_release, strict=True) if since >= earliest
            }
    return held.picked([place for place, row in enumerate(held.row) if int(row) not in dropped]) if dropped else held


def _without_triggers_not_held(held: Candidates, judged: Judged) -> Candidates:
    """Without connections on which most triggers had not waited themselves, small ones behind small ones.

    Nagle's algorithm was off when these left. So what follows them waits for something else: room in the send buffer,
    or the program.
    """
    if not total(held.trigger_not_held):
        return held
    numbers = distinct(held.connection)
    of_all = ranks(held.connection, numbers)
    of_not_held = pick(of_all, where(held.trigger_not_held > 0))
    mostly = 2 * counts(of_not_held, len(numbers)) > counts(of_all, len(numbers))
    unsure = held.among(held.connection, pick(numbers, where(mostly)))
    judged.leave_open(unsure, Obstacle.OWN_PACE)
    return held - unsure


def _without_window_of_one(held: Candidates, c: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Without what a congestion window of one segment may have held, where other connections wait for no ACK.

    Such a window is set for a destination (a route's cwnd lock, a cached metric), so all later connections to it have
    it. Or it is the window a connection begins with, which grows with the first ACK (RFC 5681 §3.1). ``c`` are all
    candidates of the program.
    """
    not_held = sum(observed.program.not_held[int(peer)] for peer in distinct(held.peer)) * observed.setting.part
    if not len(held) or 2 * not_held < len(held):
        return held
    by_turns, with_free = _set_by_turns(held, observed), _began_with_free_ones(held, observed)
    connections = held.connection
    surely = [
        group
        for group in groups(connections)
        if (number := int(connections[group[0]])) in by_turns
        or (
            (held.beside[group[0]] >= FEW or number in with_free)
            and _outlasts_growth(held.picked(group), c.only(c.connection == number))
        )
    ]
    sure = held.picked(in_order(surely))
    if len(sure):  # TCP_NODELAY on some connections only: that explains the others, too
        return held
    judged.leave_open(held, Obstacle.NAGLE_OFF_ELSEWHERE)
    return sure


def _set_by_turns(held: Candidates, observed: Observed) -> set[int]:
    """Connections on which data is held, where connections of the two ends that hold and that do not begin by turns.

    TURNS changes and more: nobody changes what applies to a destination so often.
    """
    connections, peers = held.connection, held.peer
    found: set[int] = set()
    for group in groups(peers):
        holding = set(map(int, pick(connections, group)))
        free = set(observed.program.not_held_on.get(int(peers[group[0]]), ()))
        both = holding & free
        order = [number in free for number in sorted((holding | free) - both)]
        if sum(one != other for one, other in pairwise(order)) >= TURNS:
            found |= holding - both
    return found


def _began_with_free_ones(held: Candidates, observed: Observed) -> set[int]:
    """Connections on which data is held, and to which no window was left that one to the same peer does not have.

    The first connection that ends leaves its window to all that begin later, for an hour (Linux, tcp_metrics.c). So
    one that waits for no ACK would have it, too, if it began later; or before, if none ended in between.
    """
    found: set[int] = set()
    for number, peer, began in zip(held.connection, held.peer, held.began, strict=True):
        free = observed.program.not_held_on.get(int(peer), {})
        if int(number) not in free and any(int(began) < ended for _, ended in free.values()):
            found.add(int(number))
    return found


def _outlasts_growth(held: Candidates, c: Candidates) -> bool:
    """Whether data was held again and again so soon after other data that the window cannot have begun anew.

    It does after an RTO without data (RFC 5681 §4.1), and grows with the first ACK after that. ``held`` and all
    candidates, ``c``, are of one connection.
    """
    sent = sorted(map(int, c.at))
    triggers = [int(at) - int(since) for at, since in zip(held.at, held.trigger_to_release, strict=True)]
    before = [bisect_right(sent, at) - 1 for at in triggers]
    return sum(place >= 0 and at - sent[place] < PROBE for at, place in zip(triggers, before, strict=True)) >= FEW


def _judge_without_ack(
    without_ack: Candidates, held: Candidates, observed: Observed, judged: Judged, usual: float
) -> None:
    """Judge the candidates whose ACK the capture lacks, and whose release echoes it (RFC 7323).

    Those that came as long after the trigger as proved stalls (``held``) are stalls, too. Without such stalls, those
    after half of the ``usual`` wait, ns, and more are left open.
    """
    if len(held):
        low, high = 0.8 * lowest(held.trigger_to_release), 1.2 * highest(held.trigger_to_release)
        alike = without_ack.only((without_ack.trigger_to_ack >= low) & (without_ack.trigger_to_ack <= high))
        if len(alike):
            judged.accept(alike, Ground.TIMESTAMPS, _hold(alike, alike, observed))
        return
    late = without_ack.only(without_ack.trigger_to_ack >= usual / 2)
    if len(late) >= FEW:
        judged.leave_open(late, Obstacle.CAPTURE_INCOMPLETE)


def _is_blind(pure: Candidates, observed: Observed) -> bool:
    """Whether the steps of the capture's clock are too large to measure the time from ACK to release."""
    step, own = observed.setting.step, observed.own
    if observed.is_far:
        return step > BLIND and not (own is not None and step <= own / 8)
    return step > BLIND or (step > COARSE and len(pure) < 30)


def _judge_by_own_clock(pure: Candidates, observed: Observed, judged: Judged) -> None:
    """By a coarse capture clock: reject pauses that the ends' timestamps show, leave open what may be releases."""
    paces = pure.only(pure.pace >= 0).pace
    limit = (observed.own or 0) + 2 * observed.setting.step + MS
    soon = pure.only(pure.ack_to_release <= limit)
    if len(paces) >= SOME and len(paces) > len(pure) / 2:
        at_once = pure.only((pure.pace >= 0) & (pure.pace < 2))
        not_known = soon.only(soon.pace < 0)
        unsure = at_once | not_known
    else:
        unsure = soon
    judged.leave_open(unsure, Obstacle.COARSE_CLOCK)
    judged.reject(len(pure) - len(unsure), Rejected.LATER_RELEASE)
