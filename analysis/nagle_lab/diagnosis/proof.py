"""The proof: which segments Nagle's algorithm held until a delayed ACK arrived.

A stall is three segments of one connection, named by frame:

    trigger   X sends a segment smaller than the MSS; it stays unacknowledged, so Nagle holds X's next small one
              (RFC 896; RFC 9293 §3.7.4; Linux holds only behind a *small* one, tcp_minshall_check)
    late ACK  Y, with nothing to say, acknowledges it only when its delayed-ACK timer fires (RFC 1122 §4.2.3.2)
    release   X sends what it held, at once: no slower than X's TCP reacts at this capture point

The machine (:mod:`nagle_lab.tcp.machine`) collects every such triple, the *candidates*; :func:`prove` keeps those
whose release was caused by the ACK. That takes what only the whole capture shows: how fast each end's TCP reacts,
whether the sender ever put a small segment behind an unacknowledged small one (then Nagle is off), and how often
its data follows a late ACK by chance.
"""

from dataclasses import dataclass
from typing import Any

from nagle_lab.diagnosis.population import (
    Column,
    Columns,
    among,
    chosen,
    each,
    extended,
    groups,
    highest,
    in_order,
    least,
    most,
    percentile,
    pick,
    replaced,
    total,
    where,
)
from nagle_lab.tcp.machine import LATE, MS

# No delayed-ACK timer fires sooner than this: at HZ=100 one of 40 ms may lack the jiffy it began in. What is late and
# came sooner was sent because a program read its data late (tcp_cleanup_rbuf).
SOONEST_TIMER = 30 * MS

# No delayed ACK may wait for half a second (RFC 1122 §4.2.3.2): what took longer was not a delayed-ACK timer, but the
# network, the capturing machine, or its clock, which was set.
LATEST = 500 * MS

# A release is caused by the ACK when it follows within the sender's fastest reaction plus this. Measured against
# system-call times: true releases 1-51 µs after the ACK, pauses of the application 1.2 ms and more (docs/proof.md).
RELEASE_MARGIN = 300_000  # ns

# Without a handshake the sender's round trip to the capture point is only bounded from above by what it answered.
UNKNOWN_ROUND_TRIP = 1 * MS

# Data that follows a late ACK later than a release, but within this, is the application's own pause: it tells how
# likely coincidence is.
PAUSE = 40 * MS

# Where a sender's releases show how they spread, one may be at least this much later than its neighbours: twice the
# slowest true release seen at a sender's own capture.
RELEASE_SPREAD = 100_000  # ns
NOTHING = -(1 << 62)  # ns, a margin nobody keeps
NEIGHBOURS = 4  # so many before a release, or after it, tell how late the queues made it: all but the earliest

# What queues between the sender and the capture point are believed to add to a release, at most.
QUEUEING = 5 * MS

# So many candidates of one sender show whether its releases follow the ACK or its own clock.
POPULATION = 10


def is_late(wait: Any, reaction: Any) -> Any:
    """Whether an ACK took longer than its sender's fastest, its ``reaction``, by what a delayed-ACK timer adds.

    At this capture point, ns; at least :data:`LATE`, and less than :data:`LATEST`.
    """
    return (wait - reaction >= LATE) & (wait - reaction < LATEST)


def is_before_timer(wait: Any, reaction: Any) -> Any:
    """Whether a late ACK came sooner than a delayed-ACK timer can fire: something else sent it."""
    return wait - reaction < SOONEST_TIMER


@dataclass(frozen=True)
class Ends:
    """What the whole capture shows of the sender of each of n candidates, and of its peer. Columns (n,)."""

    reaction: Column  # ns, the sender's fastest; 0 unknown
    peer_reaction: Column
    handshake: Column  # both SYNs are in the capture
    nagle_off: Column  # how often the sender put a small segment behind an unacknowledged small one
    program: Column  # number of the sender's program
    half: Column  # tells half-connections apart, among these candidates only


@dataclass(frozen=True)
class Proof:
    """What :func:`prove` decided of candidates: which are stalls, and why the others are none."""

    stalls: Column  # numbers of rows
    round_trips: Column  # of those held until an ACK that came after a round trip, not from a timer
    nagle_off: int  # the sender is seen not to wait for ACKs: Nagle is off
    not_late: int  # the ACK took a round trip, or longer than any delayed-ACK timer
    later_release: int  # the data came later than the ACK explains: the application's own pause
    coincidence: int  # close to the ACK, but not more often than chance puts it there


def prove(candidates: Columns, ends: Ends) -> Proof:
    """Keep the candidates whose release the ACK caused; rows (n,) of ``candidate`` in tcp/engine.h."""
    wait, release, peer = candidates["wait"], candidates["release"], ends.peer_reaction
    off = _nagle_off(release, ends)
    round_trip = each(_round_trip, ends.handshake, ends.reaction)
    excess = each(lambda after, trip: after - trip, release, round_trip)
    early = each(_early, ends.handshake, round_trip)
    late = each(is_late, wait, peer)
    delayed = where(each(lambda late, off: late & (off == 0), late, off))
    stalls, prompt, coincidence = [], 0, 0
    for group in groups(pick(ends.program, delayed)):
        rows = pick(delayed, group)
        caused, by_chance = _caused(*(pick(column, rows) for column in (wait, release, excess, early)))
        prompt += len(caused)
        if by_chance:
            coincidence += len(caused)
        else:
            stalls.append(pick(rows, caused))
    return Proof(
        stalls=in_order(stalls),
        round_trips=where(each(_waits_for_round_trip, wait, peer, off, excess)),
        nagle_off=total(off),
        not_late=total(each(lambda late, off: (late == 0) & (off == 0), late, off)),
        later_release=len(delayed) - prompt,
        coincidence=coincidence,
    )


def _round_trip(handshake: Any, reaction: Any) -> Any:
    """From the capture point to the sender and back, ns: its fastest reaction, when a handshake shows it."""
    return chosen(handshake > 0, reaction, least(reaction, UNKNOWN_ROUND_TRIP))


def _early(handshake: Any, round_trip: Any) -> Any:
    """How much sooner than after a round trip a release may pass, ns; without a handshake it may be anything less."""
    return chosen(handshake > 0, most(round_trip // 8, RELEASE_MARGIN), round_trip)


def _waits_for_round_trip(wait: Any, peer: Any, off: Any, excess: Any) -> Any:
    """Whether a candidate is Nagle's algorithm waiting for an ACK that was not delayed."""
    return (wait - peer < LATE) & (off == 0) & (excess <= RELEASE_MARGIN)


def _nagle_off(release: Column, ends: Ends) -> Column:
    """Whether each candidate's sender is seen not to wait for ACKs: 0 or 1.

    It put a small segment behind an unacknowledged small one; or its data passes sooner after an ACK than an answer
    to that could: it was sent before the ACK arrived.
    """
    sooner = where(each(_is_sent_before_ack, release, ends.handshake, ends.reaction))
    before_acks = among(ends.half, pick(ends.half, sooner))
    return each(lambda count, before: ((count > 0) | before) * 1, ends.nagle_off, before_acks)


def _is_sent_before_ack(release: Any, handshake: Any, reaction: Any) -> Any:
    return (handshake > 0) & (reaction > RELEASE_MARGIN) & (2 * release < reaction)


def _caused(wait: Column, release: Column, excess: Column, early: Column) -> tuple[Column, bool]:
    """Which of one sender's candidates (n,) came when the ACK explains it, and whether chance explains them all."""
    since_trigger = each(lambda wait, release: wait + release, wait, release)
    margin = _margins(since_trigger, excess)
    caused = where(each(lambda excess, margin, early: (excess <= margin) & (excess >= -early), excess, margin, early))
    beyond = each(lambda excess, margin: excess - margin, excess, margin)
    width = int(percentile(margin, 50) + highest(early))
    return caused, _is_chance(len(caused), beyond, width)


def _margins(since_trigger: Column, excess: Column) -> Column:
    """How much slower than its fastest reaction a sender's releases may be, (n,) ns; in order of their ACKs.

    Away from the sender, queues add to a release what they add to its neighbours. So many releases are compared, each
    with the next: those an ACK caused keep their distance from the ACK while the time since the trigger varies with
    the timer; those the application timed keep their distance from the trigger instead, and none is a release. Where
    they follow the ACK, each may be as late as its neighbours are, and vary as much as they do.
    """
    strict = each(lambda excess: excess * 0 + RELEASE_MARGIN, excess)
    near = where(each(lambda excess: excess <= PAUSE, excess))
    if len(near) < POPULATION:
        return strict
    from_ack, from_trigger = pick(excess, near), pick(since_trigger, near)
    steps = each(_step, from_ack[:-1], from_ack[1:])  # between two releases
    step_from_ack = percentile(steps, 50)
    step_from_trigger = percentile(each(_step, from_trigger[:-1], from_trigger[1:]), 50)
    if 2 * step_from_trigger < step_from_ack:  # what an ACK releases varies with the ACK and more, never less
        return each(lambda excess: excess * 0 + NOTHING, excess)
    if 2 * step_from_ack > step_from_trigger and 2 * _spread(from_ack) > _spread(from_trigger):
        return strict
    middle = percentile(from_ack, 50)
    spread = max(RELEASE_SPREAD, min(2 * middle, RELEASE_MARGIN))
    widest = QUEUEING if middle > RELEASE_SPREAD else RELEASE_MARGIN  # no queue, no widening
    slack = int(max(6 * percentile(steps, 25), spread))  # small steps, even where pauses are many
    queued = each(lambda late: most(least(late + slack, widest), RELEASE_SPREAD), _queued(from_ack))
    return replaced(strict, near, queued)


def _step(one: Any, other: Any) -> Any:
    return abs(other - one)


def _queued(from_ack: Column) -> Column:
    """How late the queues made each release (n,): all but the earliest of its neighbours before it, or after it."""
    count = len(from_ack)
    padded = extended(from_ack[NEIGHBOURS:0:-1], from_ack, from_ack[-2 : -2 - NEIGHBOURS : -1])  # mirrored
    runs = each(_second_least, *(padded[at : at + count + NEIGHBOURS] for at in range(NEIGHBOURS + 1)))
    return each(most, runs[:count], runs[NEIGHBOURS : NEIGHBOURS + count])


def _second_least(first: Any, second: Any, *others: Any) -> Any:
    lowest, next_lowest = least(first, second), most(first, second)
    for time in others:
        next_lowest = least(next_lowest, most(lowest, time))
        lowest = least(lowest, time)
    return next_lowest


def _spread(times: Column) -> float:
    """The range of the middle half."""
    return percentile(times, 75) - percentile(times, 25)


def _is_chance(prompt: int, beyond: Column, width: int) -> bool:
    """Whether one sender's ``prompt`` releases are no more than pauses ending anywhere would put next to an ACK.

    Under Nagle the ACK itself causes the release, so releases pile up right behind it; an application's pauses end
    evenly over the milliseconds that follow. ``beyond`` (n,) is how much later than allowed each came; prompt ones,
    within ``width`` (all ns), count when they exceed by three standard deviations what the later ones predict.
    """
    expected = 0.0
    for span in (10 * width, PAUSE):
        later = total(each(lambda late: (late > 0) & (late <= span), beyond))  # noqa: B023 - applied at once
        expected = max(expected, width * later / span)
    return bool(prompt <= expected + 3 * expected**0.5)
