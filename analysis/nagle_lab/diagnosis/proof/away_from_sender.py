"""Captured away from the sender: which late ACKs released the data that followed.

What an ACK releases passes the capture point one of the sender's round trips after it, as the sender's answers do.
By that, data after a late ACK is called

    prompt      as soon as what an ACK releases, as far as the path varies
    close       up to twice as late
    comparable  up to two round trips and SURELY_PAUSE later: what comes later still is surely a pause

docs/proof.md, rule 3.
"""

from collections import Counter
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

from nagle_lab.diagnosis.observed.candidates import NOT_RELEASED_AFTER, Candidates, times_peer_sent_unasked
from nagle_lab.diagnosis.observed.columns import (
    Column,
    among,
    groups,
    highest,
    in_order,
    lowest,
    maximum,
    percentile,
    pick,
    rows_where,
    total,
)
from nagle_lab.diagnosis.observed.enough import (
    A_FEW,
    COMPARABLE,
    CONCLUSIVE,
    HARDLY_ANY,
    MOST_LOOKED_AT,
    NEARLY_ALL,
    REPEATED,
)
from nagle_lab.diagnosis.observed.observed import ANSWERS, NEAR, PATH_JITTER, Observed, answers_of, latest_answer
from nagle_lab.diagnosis.observed.paths import round_trip_bounds, slack
from nagle_lab.diagnosis.proof.late_acks import LINUX_TIMER
from nagle_lab.diagnosis.proof.nagle_off import may_be_while_on, reject_as_off
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle, Rejected
from nagle_lab.diagnosis.proof.pauses import (
    PAUSES_SPREAD,
    SPAN,
    SPANS_AWAY,
    are_chance,
    are_delayed_by_the_path,
    comes_early_too,
    follows_ack,
    is_chance,
    is_paced,
    middle_half,
    of_one_size,
    pauses_anyway,
    sent_at_once,
    sent_at_once_but_delayed,
    sent_later,
    stand_out,
    timestamps_tell,
)
from nagle_lab.tcp.events import DELAYED, MS, US, Echo

SURELY_PAUSE = 10 * MS  # after two round trips: what comes later is a pause, and shows nothing about the path
SLOWER = 400 * US  # than the program's answers, or quick ACKs: data that Nagle held took up to 385 longer
AS_A_RELAY = 500 * US  # relays took 150 to 500 µs to pass on what they had waited for, their connections in step
# On a path of up to NEARBY: WOKEN, by how much a woken program's data comes later than its kernel's ACKs (medians) if
# its answers come later still; SURELY_WOKEN, the same if they do not; APART, the least distance between the slowest
# tenth of those ACKs and the soonest tenth of the data.
NEARBY, WOKEN, SURELY_WOKEN, APART = 2 * MS, 90 * US, 180 * US, 25 * US
SOONER_THAN_ACKS = 0.8  # times its soonest ACK in time: a program that reads may delay that by a little
SYN_TAKES = 50 * US  # the most by which a kernel takes longer for a SYN than for what Nagle held
SLOW_LINK = 2 * US  # for each byte, at most: 4 Mbit/s
PIECES = 4  # pairs of sizes, the most usual ones
VARIES = 3  # times the middle half: hardly anything is farther than half of that from the median
ONE_BEHAVIOUR = 0.7  # share of the candidates in time from which on the path makes the others a little later
# If a larger share of the candidates was sent before an ACK could arrive, losses of the capture do not explain it.
SENT_ANYWAY_FAR = 0.05
CLOCK_ERROR = 2  # ms, between timestamps of both ends


def held_away(pure: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Those of the late candidates ``pure``, all with pure ACKs, whose data the ACK released.

    The others are added to ``judged`` as rejected or unresolved.
    """
    paced = _on_paced_connections(pure, observed.setting.resolution)
    _judge_paced(paced, observed, judged)
    prompt = _prompt_ones(pure - paced, observed, judged)
    if not len(prompt):
        return prompt
    is_slow_link = are_delayed_by_the_path(prompt, observed.sender_fastest)
    comparable = _comparable(pure, observed.sender_fastest)
    often = 2 if len(prompt) >= CONCLUSIVE else 1
    is_unknown = _do_only_releases_show_round_trip(observed) and not _is_a_posted_excerpt(pure, observed)
    if is_unknown and not follows_ack(comparable):
        judged.leave_open(prompt, Obstacle.ROUND_TRIP_UNKNOWN)
        return prompt.none
    if (
        follows_ack(comparable - sent_later(comparable, pure, observed)) is False
        or pauses_anyway(prompt, observed.early, observed.sender_fastest, often)
        or _is_one_in_flight(prompt, observed)
        or (not is_slow_link and _is_slower_than_kernel(prompt, observed))
        or _is_sooner_than_anything(prompt, observed)
    ):
        judged.leave_open(prompt, Obstacle.OWN_PACE)
        return prompt.none
    return prompt if is_slow_link else _set_aside_slow(prompt, observed, judged)


def _do_only_releases_show_round_trip(observed: Observed) -> bool:
    """Whether nothing that end reacted with took as long as the round trip: then the soonest release shows it alone.

    It may be the soonest end of a pause. Handshakes that took less may be a SYN proxy's.
    """
    shortest, longest = round_trip_bounds(observed.sender_fastest)
    own = observed.program.reactions
    return not any(shortest <= ns <= longest for ns in [*own.handshake, *own.after_handshake])


def _on_paced_connections(pure: Candidates, resolution: int) -> Candidates:
    """Those on connections whose data keeps to a clock of the program, though all data together may not."""
    return pure.on_connections_where(
        lambda one: CONCLUSIVE <= len(one) < len(pure) and _keeps_own_clock(one, resolution)
    )


def _judge_paced(paced: Candidates, observed: Observed, judged: Judged) -> None:
    """Reject what comes by the program's own clock; leave it open if data comes at once where the ACK came early.

    What comes at another time, a round trip behind the ACK, is left open, too, if it is more than chance explains.
    """
    if not len(paced):
        return
    early = observed.early.on_connections_of(paced)
    if comes_early_too(paced, replace(observed, early=early)):
        judged.leave_open(paced, Obstacle.OWN_PACE)
        return
    soonest, latest = round_trip_bounds(observed.sender_fastest)
    apart = _apart_from_clock(paced)
    unsure = apart.released_within(soonest, latest)
    if len(unsure) < REPEATED or not stand_out(len(unsure), apart.ack_to_release, soonest, latest):
        unsure = paced.none
    judged.leave_open(unsure, Obstacle.OWN_PACE)
    judged.reject(paced - unsure, Rejected.LATER_RELEASE)


def _apart_from_clock(paced: Candidates) -> Candidates:
    """Those that come clearly sooner or later behind the trigger than usual, on their connection if that has many."""
    usual = percentile(paced.trigger_to_release, 50)
    apart: list[Column] = []
    for group in groups(paced.connection):
        since = pick(paced.trigger_to_release, group)
        its = percentile(since, 50) if len(since) >= CONCLUSIVE else usual
        apart.append(pick(group, rows_where((since < its - PAUSES_SPREAD) | (since > its + PAUSES_SPREAD))))
    return paced.picked(in_order(apart))


def _keeps_own_clock(c: Candidates, resolution: int) -> bool:
    """Whether releases come by the program's clock, and most did not leave as soon as their ACKs arrived.

    On a slow link the sizes of trigger and release matter, so releases of one size must keep to the clock, too.
    """
    at_once = sent_at_once(c)
    are_released = 2 * len(at_once) > len(c)
    alike = of_one_size(c)
    is_by_size = len(alike) >= COMPARABLE and not is_paced(alike, resolution)
    return is_paced(c, resolution) and not is_by_size and not are_released


class _Expected(NamedTuple):
    """When what an ACK releases passes the capture point: one of the sender's round trips after it; all in ns."""

    soonest: float
    round_trip: int
    latest: float
    answers: list[int]  # of the sender, ascending: they show how much the path varies
    comparable: Candidates  # those that may be compared with it, because they are no pauses


def _prompt_ones(pure: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Those that pass as soon after the ACK as what it releases does; none if other evidence speaks against it."""
    nothing = pure.none
    if not len(pure):
        return nothing
    if observed.sent_before.total() > SENT_ANYWAY_FAR * len(pure) + 0.5:
        _judge_where_some_do_not_wait(pure, observed, judged)
        return nothing
    expected = _when_expected(pure, observed)
    if _may_be_at_capture_point(expected, observed):
        judged.leave_open(pure, Obstacle.ROUND_TRIP_UNKNOWN)
        return nothing
    if _rejected_by_when_they_came(pure, expected, observed, judged):
        return nothing
    prompt, latest = _as_soon_as_expected(pure, expected, observed)
    if not _may_be_chance(prompt, pure, expected._replace(latest=latest), observed):
        behind = expected.comparable.only(expected.comparable.echo != Echo.BEFORE)
        late = behind.only(behind.ack_to_release > expected.latest)
        return _with_those_held_up(prompt, late, pure, observed, judged)
    delayed = sent_at_once_but_delayed(pure, expected.round_trip)
    if len(delayed):
        judged.reject(pure - delayed, Rejected.LATER_RELEASE)
    else:
        _judge_close_ones(pure, expected, observed, judged)
    return delayed


def _as_soon_as_expected(pure: Candidates, expected: _Expected, observed: Observed) -> tuple[Candidates, float]:
    """Those that pass as soon as what an ACK releases, and the latest of these times, ns; without what is rather a
    pause.
    """
    prompt, latest = pure.released_within(expected.soonest, expected.latest), expected.latest
    later = sent_later(prompt, pure, observed)
    if len(later):
        prompt = prompt - later
        latest = highest(prompt.ack_to_release) if len(prompt) else latest
    return prompt, latest


def _judge_where_some_do_not_wait(pure: Candidates, observed: Observed, judged: Judged) -> None:
    """Reject them, because their sender waits for no ACK; leave open what seems held elsewhere, or at
    another time.
    """
    unsure = _held_where_others_do_not(pure, observed)
    unsure = unsure | may_be_while_on(pure.released_within(*round_trip_bounds(observed.sender_fastest)), observed)
    judged.leave_open(unsure, Obstacle.NAGLE_OFF_ELSEWHERE)
    reject_as_off(pure - unsure, observed, judged)


def _when_expected(pure: Candidates, observed: Observed) -> _Expected:
    """When what an ACK releases passes the capture point."""
    base = _round_trip(pure, observed)
    answers = answers_of(observed.program.reactions, base, LINUX_TIMER)
    if _both_begin_by_themselves(pure, observed):  # only what came soon shows how the path varies
        answers = [ns for ns in answers if ns < base + PATH_JITTER]
    varies, latest = slack(base), _latest_release(pure, answers, base)
    comparable = _comparable(pure, base)
    if _path_is_shorter(comparable, observed):
        base = min(base, int(percentile(pure.ack_to_release, 5)))
    return _Expected(base - varies, base, latest, answers, comparable)


def _may_be_at_capture_point(expected: _Expected, observed: Observed) -> bool:
    """Whether what seems to be a short round trip may be the time that a program takes, a relay for example.

    That is so if neither handshakes nor ACKs in time show how soon that end's kernel reacts.
    """
    own = observed.program.reactions
    return expected.round_trip < AS_A_RELAY and not own.handshake and not any(ns < NEAR for ns in own.ack)


def _rejected_by_when_they_came(pure: Candidates, expected: _Expected, observed: Observed, judged: Judged) -> bool:
    """Reject all if they came too soon to have waited for the ACK, or by the program's own clock; return whether they
    did.
    """
    soonest, _ = round_trip_bounds(min([expected.round_trip, *observed.program.reactions.by_kernel]))
    too_soon = total(pure.ack_to_release < min(soonest, expected.soonest))
    if too_soon > HARDLY_ANY * len(pure) + 0.5:
        if follows_ack(pure):  # its sender is nearer than it seems: it may look for packets every few ms
            judged.leave_open(pure, Obstacle.ROUND_TRIP_UNKNOWN)
        else:
            reject_as_off(pure, observed, judged)
        return True
    if _keeps_own_clock(expected.comparable, observed.setting.resolution):
        _judge_paced(pure, observed, judged)
        return True
    return False


def _may_be_chance(prompt: Candidates, pure: Candidates, expected: _Expected, observed: Observed) -> bool:
    """Whether there are too few, or no more than there would be of pauses that end at any time."""
    latest, width = expected.latest, expected.latest - expected.soonest
    if is_chance(len(prompt), pure.ack_to_release, latest, width, SPANS_AWAY):
        return True
    return len(prompt) < REPEATED and not _is_a_posted_excerpt(pure, observed)


def _is_none_as_soon(close: Candidates, answers: list[int], base: int) -> bool:
    """Whether none of several came as soon as that end answers: of what an ACK releases, some does.

    The time that a segment's bytes may take on a slow link (SLOW_LINK) is not counted.
    """
    if len(close) < COMPARABLE:
        return False
    soonest = max(base, percentile(answers, 25)) if answers else base
    by_size = close.ack_to_release - close.released_bytes * SLOW_LINK
    return lowest(by_size) > soonest + slack(base)


def _is_a_posted_excerpt(pure: Candidates, observed: Observed) -> bool:
    """Whether it is a few exchanges from the middle of a connection, as people post as text, all released within 1
    ms.
    """
    return len(pure) < REPEATED and not observed.program.reactions.handshake and highest(pure.ack_to_release) < NEAR


def _judge_close_ones(pure: Candidates, expected: _Expected, observed: Observed, judged: Judged) -> None:
    """Leave open what may be released though it comes later than by a round trip; reject the others.

    All of it is left open if data follows the ACK. Otherwise what left at once by its timestamps is; or, if these do
    not tell, what came nearly as soon as expected, if more than hardly any did.
    """
    close = pure.released_within(expected.soonest, 2 * expected.latest)
    unsure = chance = pure.none
    if follows_ack(pure) or _are_as_soon_behind_early_acks(pure, observed.early, expected):
        unsure = pure
    elif timestamps_tell(pure):
        at_once = sent_at_once(pure)
        if len(at_once) > A_FEW * len(pure) or not are_chance(at_once, pure):
            unsure = at_once
        chance = _not_by_one_clock(close, expected.round_trip) - unsure
    elif len(close) > HARDLY_ANY * len(pure) and not _is_none_as_soon(close, expected.answers, expected.round_trip):
        unsure = close
    judged.leave_open(unsure, Obstacle.PATH_VARIES)
    judged.leave_open(chance, Obstacle.COINCIDENCE)
    judged.reject(pure - unsure - chance, Rejected.LATER_RELEASE)


def _are_as_soon_behind_early_acks(pure: Candidates, early: Candidates, expected: _Expected) -> bool:
    """Whether nearly all followed their late ACKs as soon as data follows early ones, which came earlier for that.

    A program's pauses are just as long where the ACK came early; what a relay waits for may be far away.
    """
    if len(early) < REPEATED or len(pure) < COMPARABLE or len(expected.comparable) < NEARLY_ALL * len(pure):
        return False
    came_earlier = percentile(early.trigger_to_release, 90) < percentile(pure.trigger_to_release, 10)
    return came_earlier and percentile(pure.ack_to_release, 90) <= highest(early.ack_to_release)


def _not_by_one_clock(c: Candidates, base: int) -> Candidates:
    """Those that left later by their timestamps than the capture allows: the ends' clocks do not keep step.

    ``base`` is the round trip, ns.
    """
    after_ack = maximum(c.ack_to_release - base, 0)
    return c.only(c.tsval_delay * MS - after_ack > CLOCK_ERROR * MS)


def _comparable(pure: Candidates, base: int) -> Candidates:
    """Those that may be compared with what an ACK releases after ``base`` ns: what takes longer is surely a pause."""
    return pure.only(pure.ack_to_release < 2 * base + SURELY_PAUSE)


def _path_is_shorter(comparable: Candidates, observed: Observed) -> bool:
    """Whether that end may be nearer than its few reactions show, because what it sends follows the ACK.

    It may be nearer by no more than its reactions vary.
    """
    reactions = observed.program.reactions
    if not reactions.by_kernel or not follows_ack(comparable):
        return False
    sooner = min(reactions.by_kernel) - percentile(comparable.ack_to_release, 5)
    return sooner <= VARIES * middle_half([*reactions.by_kernel, *reactions.data])


def _held_where_others_do_not(pure: Candidates, observed: Observed) -> Candidates:
    """Those that seem held, on connections with no sign of TCP_NODELAY, where other connections show it.

    All of them must come a round trip behind the ACK, because a few connections that do not wait look like this by
    chance.
    """
    others = pure.not_among(pure.connection, list(observed.sent_before))
    held = others if len(others) < REPEATED else held_away(others, replace(observed, sent_before=Counter()), Judged())
    prompt = held.released_within(*round_trip_bounds(observed.sender_fastest))
    return held if len(prompt) == len(held) else pure.none


def _with_those_held_up(
    prompt: Candidates, late: Candidates, pure: Candidates, observed: Observed, judged: Judged
) -> Candidates:
    """The prompt ones, with late ones that the path held up: a few, if early ACKs show that the program writes at
    once; and those that left at once by their timestamps, and stood in a queue.

    None if the program writes at once, but more than a few are late: no path delays only those.
    """
    if comes_early_too(pure, observed):
        are_few = len(late) <= A_FEW * len(prompt)
        if len(prompt) >= CONCLUSIVE and are_few:
            prompt = prompt | late.only(late.echo == Echo.AFTER)
        elif len(observed.early) >= REPEATED and not are_few:
            judged.leave_open(prompt, Obstacle.OWN_PACE)
            judged.reject(pure - prompt, Rejected.LATER_RELEASE)
            return prompt.none
    if len(prompt):
        prompt = prompt | sent_at_once_but_delayed(pure - prompt, observed.sender_fastest)
    judged.reject(pure - prompt, Rejected.LATER_RELEASE)
    return prompt


def _is_one_in_flight(prompt: Candidates, observed: Observed) -> bool:
    """Whether messages leave in the same pieces each time, each behind the ACK of the one before, late or early.

    Nagle's algorithm merges what it holds; so if nothing is merged, the program itself waits for each piece's ACK, or
    keeps that pace.
    """
    # A program that waits for each piece's ACK sends no full segments behind a small one.
    early = observed.early.only(observed.early.since_full < 0)
    as_soon = early.only(early.ack_to_release <= highest(prompt.ack_to_release))
    both = zip(prompt.trigger_bytes[:MOST_LOOKED_AT], prompt.released_bytes[:MOST_LOOKED_AT], strict=True)
    most_common = Counter((int(one), int(other)) for one, other in both).most_common(PIECES)
    pieces = sum(count for _, count in most_common if count > 1)  # what came once does not show a pattern
    follow = total(among(as_soon.trigger_frame, prompt.release_frame)) + total(
        among(prompt.trigger_frame, in_order([as_soon.release_frame, prompt.release_frame]))
    )
    is_same = len(as_soon) >= REPEATED and pieces > NEARLY_ALL * min(len(prompt), MOST_LOOKED_AT)
    return is_same and 2 * follow > len(prompt) and not _are_sums_only_late(prompt, early)


def _are_sums_only_late(prompt: Candidates, early: Candidates) -> bool:
    """Whether most releases are as large as two pieces behind early ACKs together, and none of these pieces is.

    Then Nagle's algorithm has merged them.
    """
    pieces = Counter(map(int, early.released_bytes[:MOST_LOOKED_AT]))
    sums = [one + other for one in pieces for other in pieces if one + other not in pieces]
    return 2 * total(among(prompt.released_bytes, sorted(set(sums)))) > len(prompt)


def _is_slower_than_kernel(prompt: Candidates, observed: Observed) -> bool:
    """Whether releases take longer than a kernel, by what else that end sends."""
    return (
        _is_slower_than_answers(prompt, observed)
        or _is_slower_than_acks(prompt, observed)
        or _is_slower_than_any_ack_nearby(prompt, observed)
        or _is_between_acks_and_answers(prompt, observed)
    )


def _is_slower_than_answers(prompt: Candidates, observed: Observed) -> bool:
    """Whether releases take longer than the program's answers by more than the path varies: no kernel does."""
    answers = observed.program.reactions.data
    if len(prompt) < CONCLUSIVE or len(answers) < CONCLUSIVE:
        return False
    longer = percentile(prompt.ack_to_release, 50) - percentile(answers, 50)
    # If the path varies more, the fastest tell: a kernel is no slower than the program that it serves.
    soonest = percentile(prompt.ack_to_release, 10) - percentile(answers, 25)
    slower = max(SLOWER, 2 * observed.setting.resolution)
    return longer > max(slower, middle_half(answers)) or (len(prompt) >= 2 * CONCLUSIVE and soonest > slower)


def _is_sooner_than_anything(prompt: Candidates, observed: Observed) -> bool:
    """Whether most passed sooner than any reaction of that end, so before the ACK could have arrived.

    False if they follow the ACK, and vary by more than they are sooner, because the path varies; or are hardly
    sooner, because that kernel takes longer for a SYN.
    """
    fastest: float = observed.sender_fastest
    reactions, releases = observed.program.reactions, prompt.ack_to_release
    quick = reactions.by_kernel_before(fastest + DELAYED)
    if not reactions.handshake:  # the fastest may be one of these releases
        if len(quick) > 1:
            fastest = SOONER_THAN_ACKS * min(quick)
        elif len(reactions.after_handshake) >= CONCLUSIVE:
            fastest = SOONER_THAN_ACKS * reactions.fastest
    soonest = min(reactions.by_kernel, default=fastest)
    hardly = max(middle_half(releases), min(SYN_TAKES, soonest / 8))
    if soonest - percentile(releases, 50) < hardly and follows_ack(prompt):
        return False
    sooner = (releases < fastest) & (prompt.echo != Echo.AFTER)
    enough = len(reactions.by_kernel) + len(reactions.data) >= CONCLUSIVE
    return enough and len(prompt) >= COMPARABLE and 2 * total(sooner) > len(prompt)


def _is_slower_than_acks(prompt: Candidates, observed: Observed) -> bool:
    """Whether releases take clearly longer than that end's kernel takes to answer, with ACKs that are not delayed.

    That is longer by more than three standard errors of the path, and than their bytes take on a slow link. On a path
    that varies as much as the shortest timers last, slower ACKs may have been delayed, so only releases that are no
    slower are compared.
    """
    reactions = observed.program.reactions
    latest = observed.sender_fastest + PATH_JITTER
    quick = reactions.by_kernel_before(latest)
    if len(prompt) < CONCLUSIVE or len(quick) < CONCLUSIVE:
        return False
    by_size = _without_their_length(prompt, observed)
    as_quick = pick(by_size, rows_where(by_size < latest))
    if 2 * len(as_quick) > len(by_size):
        by_size = as_quick
    longer = percentile(by_size, 50) - percentile(quick, 50)
    varies = middle_half(quick) * 3 / sqrt(min(len(quick), len(by_size)))
    return longer > max(SLOWER, 2 * observed.setting.resolution, varies)


def _is_slower_than_any_ack_nearby(prompt: Candidates, observed: Observed) -> bool:
    """Whether nearly all come later than that end's ACKs, none of which was delayed, on a path up to NEARBY.

    If the tick that fires a relay's peer's delayed-ACK timer wakes the relay, what it passes on took WOKEN longer
    than ACKs, or more; its answers, which come from its origin, took longer still. What a kernel released took up to
    160 µs longer, but so did its program's answers.
    """
    reactions = observed.program.reactions
    quick = reactions.by_kernel_before(observed.sender_fastest + PATH_JITTER)
    if observed.sender_fastest > NEARBY or len(quick) < 2:
        return False
    usual = percentile(prompt.ack_to_release, 50)
    longer = usual - percentile(quick, 50) - 2 * observed.setting.resolution
    is_sooner_than_answers = len(reactions.data) >= CONCLUSIVE and usual < percentile(reactions.data, 5)
    if longer <= WOKEN or not (is_sooner_than_answers or (longer > SURELY_WOKEN and len(quick) >= CONCLUSIVE)):
        return False
    return percentile(prompt.ack_to_release, 10) - percentile(quick, 90) > APART


def _without_their_length(c: Candidates, observed: Observed) -> Column:
    """From ACK to release, ns, less the time that the bytes of the release take on as slow a link as this one may be.

    Two things limit how slow it is: by how much that end's fastest answers are later than its ACKs (such an answer is
    a trigger), and by how much a release is later than its fastest reaction.
    """
    reactions, least = observed.program.reactions, lowest(c.trigger_bytes)
    quick, answers = reactions.by_kernel, reactions.data
    if len(answers) < CONCLUSIVE or not quick:
        return c.ack_to_release - c.released_bytes * SLOW_LINK
    longer = max(percentile(answers, 5) - percentile(quick, 5), 0) + observed.setting.resolution
    both = zip(c.ack_to_release[:MOST_LOOKED_AT], c.released_bytes[:MOST_LOOKED_AT], strict=True)
    a_byte = min(max(int(release) - observed.sender_fastest, 0) / int(length) for release, length in both)
    return c.ack_to_release - c.released_bytes * min(longer / max(least, 1), a_byte, SLOW_LINK)


def _is_between_acks_and_answers(prompt: Candidates, observed: Observed) -> bool:
    """Whether all came later than that end's kernel answers, but most sooner than its program answers."""
    reactions, base = observed.program.reactions, observed.sender_fastest
    quick = reactions.by_kernel_before(base + PATH_JITTER)
    usual, answers = percentile(prompt.ack_to_release, 50), reactions.data
    if not quick or len(answers) < CONCLUSIVE or usual >= percentile(answers, 5):
        return False
    by_size = prompt.ack_to_release - prompt.released_bytes * SLOW_LINK
    return lowest(by_size) > percentile(quick, 75) + slack(base)


def _set_aside_slow(prompt: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Without those that come later than by a round trip, if most do, but no reaction of that end's kernel does.

    Its program's answers vary as much, but not because of the path: these releases may be its pauses.
    """
    soonest, latest = round_trip_bounds(observed.sender_fastest)
    by_kernel = observed.program.reactions.by_kernel_before(observed.sender_fastest + DELAYED)
    slow = prompt.only(prompt.ack_to_release > latest)
    if 2 * len(slow) <= len(prompt) or any(ns > latest for ns in by_kernel):
        return prompt
    rest = prompt - slow
    if len(rest) < COMPARABLE or is_chance(len(rest), prompt.ack_to_release, latest, latest - soonest, SPAN):
        rest = prompt.none
    judged.leave_open(prompt - rest, Obstacle.OWN_PACE)
    return rest


def _round_trip(pure: Candidates, observed: Observed) -> int:
    """The round trip from the capture point to the sender, ns.

    A release that echoes the late ACK was sent after its arrival, so the round trip is no longer than the shortest
    time to one of these.
    """
    after = pure.only(pure.echo == Echo.AFTER)
    return min([observed.sender_fastest, *map(int, after.ack_to_release[:MOST_LOOKED_AT])])


def _both_begin_by_themselves(pure: Candidates, observed: Observed) -> bool:
    """Whether both ends send unasked, three times or more: long after all was acknowledged, with nothing received."""
    by_itself = total(observed.early.ack_to_release - observed.sender_fastest >= NOT_RELEASED_AFTER)
    return by_itself >= REPEATED and times_peer_sent_unasked(pure) >= REPEATED


def _latest_release(pure: Candidates, answers: list[int], base: int) -> float:
    """How long after the ACK a release may pass, ns: as late as that end's own answers do.

    The slowest of these do not count, because the program may have made them late: the limit is two medians, or three
    if the candidates show one behaviour only.
    """
    latest = latest_answer(answers, base)
    if len(answers) >= ANSWERS:
        within = pure.released_within(base - slack(base), latest)
        if len(within) > ONE_BEHAVIOUR * len(pure):
            latest = max(latest, min(percentile(answers, 95) * 1.1, 3 * percentile(answers, 50)))
    return latest
