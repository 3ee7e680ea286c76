"""Candidate → stall: which segments Nagle's algorithm held until a delayed ACK arrived (:func:`prove`).

A stall is three segments of one connection, named by frame:

    trigger   X sends a segment; it stays unacknowledged, so Nagle holds X's next small one (RFC 896; RFC 9293 §3.7.4;
              Linux holds only behind a *small* one, tcp_minshall_check)
    late ACK  Y acknowledges it only when its delayed-ACK timer fires (RFC 1122 §4.2.3.2)
    release   X sends what it held, at once: no slower than X's TCP reacts at this capture point

The machine (:mod:`nagle_lab.tcp.machine`) collects such triples, the *candidates*. Something else may have come
between ACK and release: a program that pauses, that waits for the ACK itself, or for a database. So the candidates of
one program are judged together, and what the evidence does not decide is counted as unresolved. docs/proof.md has the
explanations, the evidence for each, and where the limits were measured.
"""

from collections import Counter
from dataclasses import replace

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import (
    Column,
    groups,
    highest,
    how_often,
    in_order,
    lowest,
    median,
    percentile,
    pick,
    rows_where,
    select,
    total,
)
from nagle_lab.diagnosis.observed.enough import COMPARABLE, CONCLUSIVE, MOST_LOOKED_AT, REPEATED
from nagle_lab.diagnosis.observed.observed import NEAR, Observed, Setting, observe
from nagle_lab.diagnosis.observed.paths import round_trip_bounds, slack
from nagle_lab.diagnosis.observed.peers import LEAST_DELAY
from nagle_lab.diagnosis.observed.programs import Program
from nagle_lab.diagnosis.proof.away_from_sender import held_away
from nagle_lab.diagnosis.proof.kernel_evidence import is_denied, split_by_kernel
from nagle_lab.diagnosis.proof.late_acks import late_candidates, set_aside_sooner_than_any_timer
from nagle_lab.diagnosis.proof.nagle_off import sent_before, set_aside_held_behind_full, set_aside_nagle_off
from nagle_lab.diagnosis.proof.near_sender import held_near
from nagle_lab.diagnosis.proof.outcomes import Ground, Hold, Judged, Obstacle, Rejected
from nagle_lab.diagnosis.proof.pauses import PAUSES_SPREAD, PAUSES_VARY, middle_half
from nagle_lab.diagnosis.proof.piggybacked import judge_piggybacked
from nagle_lab.diagnosis.proof.release_times import ALIKE, BLIND, COARSE, HELD, SOONEST_WOKEN
from nagle_lab.diagnosis.proof.window_of_one import set_aside_window_of_one
from nagle_lab.tcp.events import DELAYED, MS, Echo, KeptBy
from nagle_lab.tcp.waited import SHORT

MEAN_OF = 30  # releases: with a COARSE clock the mean of this many still tells
AS_LONG_AS_STALLS = 0.8, 1.2  # times the shortest and the longest proved wait: limits for one without its ACK
FAR = 10 * MS  # so far away a path varies by more than a program takes for an answer
SURELY_HELD = 0.9  # of the late candidates: if fewer were held, the program's pauses vary
OUT_OF_ORDER = 1 * MS  # one clock's stamps are out of order by microseconds
# Share of the data captured after its ACK: if it is larger, one clock did not stamp both directions.
MOST_SWAPPED = 0.1


def prove(c: Candidates, program: Program, setting: Setting) -> Judged:
    """What is decided about the candidates of one program: stalls, holds for a round trip, rejected and unresolved
    ones.

    Parameters
    ----------
    c : those candidates, ACKs in time and late, pure and piggybacked
    program : what the whole capture shows of it
    setting : what holds for all candidates that are judged with them: see ``Setting``
    """
    judged = Judged()
    c = c.only(_may_be_held(c.trigger_bytes, c.released_bytes, c.full, c.full_waits))
    without_ack = _without_early_acks(c.only(c.ack_frame == 0))  # their ACKs are not in the capture
    c = c.only(c.ack_frame > 0)
    c = _set_aside_announced(c, judged)
    observed = observe(program, setting, c)
    late = _set_aside_unread(late_candidates(c, observed, judged), judged)
    late = _leave_open_behind_full_window(late, judged)
    late = _leave_open_stamped_before(late, judged)
    if not len(late):
        may_be_late = without_ack.only(without_ack.trigger_to_ack >= LEAST_DELAY)
        judged.leave_open(may_be_late, Obstacle.CAPTURE_INCOMPLETE)
        return judged
    usual = late.usual_wait
    waiting, at_least, rest = split_by_kernel(late, observed, judged)
    if len(waiting):
        hold = _hold(waiting, waiting | rest, observed)
        judged.accept(waiting, Ground.SEEN_WAITING, hold.at_least(at_least))
    if len(rest):
        _judge_by_timing(rest, waiting, c, without_ack, observed, judged)
    else:
        _judge_without_ack(without_ack, waiting, observed, judged, usual)
    return judged


def _judge_by_timing(
    late: Candidates, shown: Candidates, c: Candidates, without_ack: Candidates, observed: Observed, judged: Judged
) -> None:
    """Judge the late candidates if the kernel did not say whether their data waited.

    ``shown`` are the stalls that the kernel proved, ``c`` all candidates of the program, ``without_ack`` those whose
    ACK is not captured.
    """
    program, usual = observed.program, late.usual_wait
    if observed.setting.swapped_share > MOST_SWAPPED:
        judged.leave_open(late, Obstacle.CAPTURE_INCOMPLETE)
        _judge_without_ack(without_ack, shown, observed, judged, usual)
        return
    no_waits = program.sent_without_waiting(usual / 2)
    late, no_waits = set_aside_nagle_off(late, no_waits, observed, judged)
    if not len(late):
        # If a filter left out all pure ACKs, what seems sent beside unacknowledged data need not have been.
        if not program.peer_reactions.ack:
            _judge_without_ack(without_ack, late, observed, judged, usual)
        return
    late = set_aside_held_behind_full(late, observed, judged)
    observed = replace(observed, sent_before=sent_before(late, observed, no_waits))
    late = _set_aside_sent_before(late, judged)
    pure, piggybacked = late.only(late.pure), late.only(late.pure == 0)
    if _is_blind(pure, observed):
        _judge_by_timestamps(pure, observed, judged)
        held = shown
    else:
        held = _judge_by_distance(pure, observed, judged) | shown
    _judge_without_ack(without_ack, held, observed, judged, usual)
    judge_piggybacked(piggybacked, held, c, observed, judged)


def _judge_by_distance(pure: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Judge late candidates with pure ACKs by the time from ACK to release; returns the stalls."""
    held = _set_aside_pauses(_released_by_time(pure, observed, judged), pure, judged)
    held = _set_aside_triggers_not_held(held, judged)
    held = set_aside_window_of_one(held, observed, judged)
    held = set_aside_sooner_than_any_timer(held, observed, judged)
    if len(held):
        judged.accept(held, _ground(held, observed), _hold(held, pure, observed))
    return held


def _released_by_time(pure: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Those whose data the ACK released, by the time when it came; the others are added to ``judged``."""
    timed = Judged()
    released = held_away(pure, observed, timed) if observed.is_away else held_near(pure, observed, timed)
    _leave_open_as_late_as_kernel(pure - released, observed, timed)
    judged += timed
    return released


def _leave_open_as_late_as_kernel(others: Candidates, observed: Observed, timed: Judged) -> None:
    """Leave open those of ``others`` that ``timed`` rejects as pauses though that kernel's answers are as late.

    If a quarter of its ACKs and handshakes or more are later than the fastest, the path became longer, or varies.
    """
    for _, rows in timed.unresolved:
        others = others.not_among(others.row, rows)
    if len(others) != timed.rejected_by[Rejected.LATER_RELEASE]:
        return  # for other reasons
    fastest, reactions = observed.sender_fastest, observed.program.reactions
    _, latest = round_trip_bounds(fastest)
    quick = [*reactions.handshake, *(ns for ns in reactions.ack if ns < fastest + DELAYED)]
    if fastest >= FAR:
        quick += [ns for ns in reactions.data if ns < 2 * fastest]
    if len(quick) < COMPARABLE or percentile(quick, 75) <= latest:
        return
    slowest = percentile(quick, 90) + slack(fastest)
    timed.leave_open_after_all(others.released_within(latest, slowest), Rejected.LATER_RELEASE, Obstacle.PATH_VARIES)


def _may_be_held(trigger: Column, released: Column, full: Column, full_waits: Column) -> Column:
    """Whether Nagle's algorithm may have held a segment of ``released`` bytes behind one of ``trigger`` bytes.

    It does not hold a full one (``full`` bytes; 0 not observed). One behind a full one does not count if the
    congestion window is seen to hold full ones (``full_waits``).
    """
    divisor = select(full > 0, full, 1 << 40)
    is_small = (released < divisor) & (released % divisor > 0)
    return is_small & ((trigger % divisor > 0) | (full_waits < 2))


def _set_aside_announced(c: Candidates, judged: Judged) -> Candidates:
    """Without those whose sender had announced more (MSG_MORE): what Nagle's algorithm holds has PSH."""
    announced = c.only(c.kept_by == KeptBy.MSG_MORE)
    judged.reject(announced.only(announced.trigger_to_ack >= LEAST_DELAY), Rejected.CORKED)
    return c - announced


def _leave_open_behind_full_window(late: Candidates, judged: Judged) -> Candidates:
    """Without those whose trigger may have filled the window, which the ACK opened: no SYN shows how it is scaled."""
    behind = late.only(late.kept_by == KeptBy.WINDOW)
    judged.leave_open(behind, Obstacle.WINDOW_UNKNOWN)
    return late - behind


def _leave_open_stamped_before(late: Candidates, judged: Judged) -> Candidates:
    """Without those stamped before the ACK that they follow in the file, by much more than a kernel's stamps are out
    of order: two clocks stamped the two directions, and time says nothing.
    """
    stamped_before = late.only(late.ack_to_release < -OUT_OF_ORDER)
    judged.leave_open(stamped_before, Obstacle.CAPTURE_INCOMPLETE)
    return late - stamped_before


def _set_aside_unread(late: Candidates, judged: Judged) -> Candidates:
    """Without those whose pure ACK acknowledges more than a full segment.

    No timer delays that (RFC 1122 §4.2.3.2). Linux delays it while the program does not read (__tcp_ack_snd_check),
    and acknowledges when it does (tcp_cleanup_rbuf): so the exchange waits for that program.
    """
    unread = late.only((late.beyond_full > 0) & (late.pure > 0))
    judged.reject(unread, Rejected.NOT_READ)
    return late - unread


def _ground(held: Candidates, observed: Observed) -> Ground:
    """What proves that their ACKs released them, by how soon these releases came."""
    if len(held) < REPEATED:
        return Ground.PROMPTNESS
    if observed.is_away:
        return Ground.REPETITION_ON_PATH
    usual = percentile(held.ack_to_release, 50)
    are_alike = percentile(held.ack_to_release, 90) <= ALIKE * usual  # a program that polls every 50 µs varies more
    is_sure = usual <= SOONEST_WOKEN or (are_alike and (observed.is_at_sender or usual <= HELD))
    return Ground.REPETITION_AT_SENDER if is_sure else Ground.REPETITION_NEARBY


def _hold(held: Candidates, late: Candidates, observed: Observed) -> Hold:
    """Bounds of how long data was held; ``late`` are all candidates that ``held`` is chosen from.

    The hold begins with the write. What left with an early ACK had been written by then; what left later than that
    was written when it left. So early ACKs show when the program writes, behind a trigger of the usual size. Pauses
    longer than the wait are left out, because their data would not have been held. If waits differ much, the data had
    been written by the end of the shorter ones. If more than a tenth of the releases came too late to have been held,
    the program's pauses vary, and only the upper bound is known.
    """
    hold = _hold_in_packets(held, late, observed)
    is_wrong = is_denied(median(hold.least), held, observed.setting.kernel_answers)
    return Hold.up_to(hold.most) if is_wrong else hold


def _behind_the_first(early: Candidates, held: Candidates) -> Candidates:
    """Those that came after the first held one of their connection: a program is slower when it has just begun.

    Only the first MOST_LOOKED_AT are looked at.
    """
    if not len(early):
        return early
    first = {int(held.connection[group[0]]): lowest(pick(held.at, group)) for group in groups(held.connection)}
    looked_at = zip(early.connection[:MOST_LOOKED_AT], early.at[:MOST_LOOKED_AT], strict=True)
    return early.picked([row for row, (connection, at) in enumerate(looked_at) if int(at) > first[int(connection)]])


def _hold_in_packets(held: Candidates, late: Candidates, observed: Observed) -> Hold:
    """As :func:`_hold`, but by the packets alone, without what the kernel said."""
    at_once = percentile(held.ack_to_release, 90)  # as the path makes it
    # Away from the sender, trigger and ACK were also under way meanwhile.
    waits = held.trigger_to_release if observed.is_away else held.trigger_to_ack
    was_sooner = (held.since_full >= 0) & (held.since_full < waits)  # it was written after the full segment
    waits = select(was_sooner, held.since_full, waits)
    usual = median(waits)
    # On other connections that program may do something else.
    late, early = (some.on_connections_of(held) for some in (late, observed.early))
    if len(held) < SURELY_HELD * len(late):
        return Hold.up_to(waits)
    early = early.only(early.trigger_to_release <= usual)
    size, _ = Counter(map(int, held.trigger_bytes[:MOST_LOOKED_AT])).most_common(1)[0]
    early = early.only(early.trigger_bytes == size)
    # Releases within SHORT of their trigger are only counted: each had been written by then.
    at_once_when_early = [SHORT] * len(observed.program.reactions.release)
    written_by = [*map(int, early.trigger_to_release[:MOST_LOOKED_AT]), *at_once_when_early]
    latest = percentile(written_by, 90) if len(written_by) >= REPEATED else usual
    if len(early):  # what was only counted may be behind triggers of other sizes
        latest = max(latest, percentile(early.trigger_to_release, 90))
    shorter = percentile(waits, 10)
    if len(held) >= CONCLUSIVE and shorter <= usual / 2:
        latest = min(latest, shorter)
    pauses = early.only(early.ack_to_release > NEAR + at_once)
    shortest = max(_shortest_pause(pauses, held, len(written_by)), _as_long_as_wait(pauses, usual, len(written_by)))
    return Hold.after_pause(waits, shortest, max(latest, shortest))


def _shortest_pause(pauses: Candidates, held: Candidates, early: int) -> float:
    """How long the program pauses at least, ns, where most of ``early`` ACKs show pauses; 0 if it is not known."""
    paused = _behind_the_first(pauses, held)
    is_usual = len(paused) >= REPEATED and 2 * len(paused) > early
    return percentile(paused.trigger_to_release, 10) if is_usual else 0


def _as_long_as_wait(pauses: Candidates, usual: float, early: int) -> float:
    """How long the program pauses at least, ns, where two pauses or more, and most behind ``early`` ACKs, are alike
    and about as long as the ``usual`` wait; 0 if they are not.

    These count in the first exchange of a connection, too. A program that is slow because a connection has just begun
    is hardly ever slow for as long as the ACK is late. So few may be longer than others, by up to PAUSES_SPREAD.
    """
    as_long = pauses.only(pauses.trigger_to_release >= (1 - PAUSES_VARY) * usual).trigger_to_release
    if len(as_long) < 2 or 3 * len(as_long) <= 2 * early:
        return 0
    shortest = lowest(as_long)
    are_alike = 2 * (highest(as_long) - shortest) < PAUSES_SPREAD
    return max(shortest - PAUSES_SPREAD, 0) if are_alike else 0


def _set_aside_sent_before(late: Candidates, judged: Judged) -> Candidates:
    """Without those whose data left before the ACK had arrived, by its timestamp: it did not wait for the ACK."""
    waited = late.only(late.echo != Echo.BEFORE)
    judged.reject(late - waited, Rejected.NAGLE_OFF)
    return waited


def _set_aside_pauses(held: Candidates, pure: Candidates, judged: Judged) -> Candidates:
    """Without the few on a connection that come as long after the trigger as the more numerous ones that are not
    held.

    They are pauses that happened to end with the ACK: their data was held for next to nothing.
    """
    not_held = pure - held
    often = [number for number, count in how_often(not_held.connection).items() if count >= REPEATED]
    beside = held.among(held.connection, often)
    found: list[Column] = []
    for group in groups(beside.connection):
        some, number = beside.picked(group), int(beside.connection[group[0]])
        rest = not_held.only(not_held.connection == number)
        if len(some) < len(rest) and middle_half(rest.trigger_to_release) < 3 * MS:
            earliest = percentile(rest.trigger_to_release, 25) - MS
            found.append(pick(group, rows_where(some.trigger_to_release >= earliest)))
    pauses = beside.picked(in_order(found))
    judged.reject(pauses, Rejected.LATER_RELEASE)
    return held - pauses


def _set_aside_triggers_not_held(held: Candidates, judged: Judged) -> Candidates:
    """Without connections on which most triggers, small ones behind small ones, had not waited themselves.

    Nagle's algorithm was off when these left. So what follows them waits for something else: room in the send buffer,
    or the program.
    """
    if not total(held.trigger_not_held):
        return held
    unsure = held.on_connections_where(lambda one: 2 * total(one.trigger_not_held) > len(one))
    judged.leave_open(unsure, Obstacle.OWN_PACE)
    return held - unsure


def _without_early_acks(without_ack: Candidates) -> Candidates:
    """Those whose ACK was late, or may have been; the timestamps of some ACKs show that they were not."""
    sent_after = without_ack.ack_sent_after
    return without_ack.only((sent_after < 0) | (sent_after - without_ack.peer_fastest_ack >= LEAST_DELAY))


def _judge_without_ack(
    without_ack: Candidates, held: Candidates, observed: Observed, judged: Judged, usual: float
) -> None:
    """Judge the candidates whose ACK the capture lacks, and whose release echoes it (RFC 7323).

    Those that came as long after the trigger as proved stalls (``held``) are stalls, too. If there are no such
    stalls, those that came after half of the ``usual`` wait, ns, or later are left open; and those after DELAYED,
    because with a filter the ACKs that are captured, on data, may be much later.
    """
    if len(held):
        least, most = AS_LONG_AS_STALLS
        low, high = least * lowest(held.trigger_to_release), most * highest(held.trigger_to_release)
        alike = without_ack.only((without_ack.trigger_to_ack >= low) & (without_ack.trigger_to_ack <= high))
        if len(alike):
            judged.accept(alike, Ground.TIMESTAMPS, _hold(alike, alike, observed))
        return
    late = without_ack.only(without_ack.trigger_to_ack >= min(usual / 2, DELAYED))
    if len(late) >= REPEATED:
        judged.leave_open(late, Obstacle.CAPTURE_INCOMPLETE)


def _is_blind(pure: Candidates, observed: Observed) -> bool:
    """Whether the steps of the capture's clock are too large to measure the time from ACK to release."""
    resolution = observed.setting.resolution
    if observed.is_away:
        return resolution > BLIND and resolution > observed.sender_fastest / 8
    return resolution > BLIND or (resolution > COARSE and len(pure) < MEAN_OF)


def _judge_by_timestamps(pure: Candidates, observed: Observed, judged: Judged) -> None:
    """With a coarse capture clock, reject pauses that the ends' timestamps show; leave open what may be releases."""
    resolution = observed.setting.resolution
    delays = pure.only(pure.tsval_delay >= 0).tsval_delay
    soon = pure.only(pure.ack_to_release <= observed.sender_fastest + 2 * resolution + MS)
    if len(delays) >= COMPARABLE and len(delays) > len(pure) / 2:
        at_once = pure.only((pure.tsval_delay >= 0) & (pure.tsval_delay < 2))
        not_known = soon.only(soon.tsval_delay < 0)
        of_the_ack = soon.only(soon.tsval_delay * MS > soon.ack_to_release + 2 * (resolution + MS))  # on its way
        unsure = at_once | not_known | of_the_ack
    else:
        unsure = soon
    judged.leave_open(unsure, Obstacle.COARSE_CLOCK)
    judged.reject(pure - unsure, Rejected.LATER_RELEASE)
