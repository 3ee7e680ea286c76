"""Captured near the sender (within 150 µs): which late ACKs released the data that followed.

A kernel sends what it held sooner after the ACK than a program that the ACK wakes, and its times vary less.
docs/proof.md, rule 2.
"""

from collections import Counter

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import highest, listed, lowest, percentile, total
from nagle_lab.diagnosis.observed.enough import A_FEW, COMPARABLE, CONCLUSIVE, HARDLY_ANY, NEARLY_ALL, REPEATED
from nagle_lab.diagnosis.observed.observed import AT_CAPTURE_POINT, NEAR, Observed
from nagle_lab.diagnosis.proof.late_acks import LINUX_TIMER, LONGEST_WAIT
from nagle_lab.diagnosis.proof.nagle_off import may_be_while_on, reject_as_off, surely_while_on
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle, PassedOn, Rejected
from nagle_lab.diagnosis.proof.pauses import (
    PAUSE,
    PAUSES_VARY,
    SPAN,
    comes_early_too,
    is_chance,
    is_more_than_chance,
    is_paced,
    middle_half,
    pauses_anyway,
)
from nagle_lab.diagnosis.proof.release_times import (
    COARSE,
    FINE,
    HELD,
    HELD_ALIKE,
    SOONEST_WOKEN,
    queued_releases,
    slowest_release,
    usual_release,
)
from nagle_lab.tcp.events import MS, US

INTERRUPTED = 20 * MS  # how long a program may wait for a processor on a busy machine
TICK = 5 * MS  # a tick of the kernel at HZ=250, 4 ms, and what a release takes

# Where the median release is a kernel's, so are others that take up to SPREAD medians, or SPREAD_NS.
SPREAD, SPREAD_NS = 3, 100 * US
ABOUT = 0.06  # share by which a pause of 40 ms may differ from a delayed-ACK timer of 40 ms (HZ=250)
WRITTEN_LATE = 0.8  # times the usual wait: a program that pauses as long may also write just after the ACK
SOONEST_RELEASE = 3 * US  # of a kernel, at its end of a path
SAME_PAUSE = MS // 2  # the most by which a program's pauses differ if they are all as long
AS_LONG = 1.01  # times a usual pause (medians): what ended with a late ACK by chance is no longer

# A connection is judged by itself if it has ENOUGH releases; it is slow if their median is CLEARLY times the limit.
ENOUGH, CLEARLY = 6, 1.3
# If most releases take as long as a program does, this share of data sent before its ACK could arrive shows that the
# program does not wait.
SENT_ANYWAY_NEAR = 0.01


def held_near(pure: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Those of the late candidates ``pure``, all with pure ACKs, whose data the ACK released.

    The others are added to ``judged`` as rejected or unresolved.
    """
    if not len(pure):
        return pure
    limit = slowest_release(pure, observed)
    queued = queued_releases(pure, observed, limit)
    if queued is not None:
        judged.reject(pure - queued, Rejected.LATER_RELEASE)
        return queued
    near = pure.only(pure.ack_to_release < PAUSE)
    if not len(near):
        judged.reject(pure, Rejected.LATER_RELEASE)
        return near
    middle = usual_release(near, observed.setting.resolution)
    behind_arrivals = _behind_arrivals(near, observed) if middle > max(limit, HELD_ALIKE) / 2 else near.none
    if len(behind_arrivals) >= max(2, len(near) / 2) and not _arrive_by_chance(behind_arrivals, near):
        _judge_relayed(pure, near, behind_arrivals, judged)
        return near.none
    return _held_by_release_times(pure, near, observed, judged, limit)


def _held_by_release_times(
    pure: Candidates, near: Candidates, observed: Observed, judged: Judged, limit: float
) -> Candidates:
    """Those released as soon as by a kernel, of releases behind nothing but their ACK: their median is up to
    ``limit``, ns.
    """
    middle = usual_release(near, observed.setting.resolution)
    slow = near.none
    if middle <= limit and observed.setting.resolution <= FINE:
        slow = _slow_connections(near, limit)
    if len(slow):
        judged.leave_open(slow, Obstacle.LIKE_A_PROGRAM)
        pure, near = (some.not_among(some.connection, slow.connection) for some in (pure, near))
        if not len(near):
            judged.reject(pure, Rejected.LATER_RELEASE)
            return near
        middle = usual_release(near, observed.setting.resolution)
    if middle <= limit:
        return _released_by_kernel(pure, near, observed, judged, middle)
    return _held_among_others(pure, near, observed, judged, limit)


def _judge_relayed(pure: Candidates, near: Candidates, behind_arrivals: Candidates, judged: Judged) -> None:
    """Reject all: their program passes on data that arrived meanwhile from other connections.

    But leave them open if data of all those connections together comes so often that it may have arrived by chance.
    """
    if _expected_arrivals_of_any(behind_arrivals) > HARDLY_ANY * len(behind_arrivals):
        judged.reject(pure - near, Rejected.LATER_RELEASE)
        judged.leave_open(near, Obstacle.LIKE_A_PROGRAM)
        return
    judged.reject(pure, Rejected.RELAYED)
    both = zip(listed(behind_arrivals.connection), listed(behind_arrivals.arrival), strict=True)
    judged.relays += Counter(PassedOn(*one) for one in both)


def _expected_arrivals(behind: Candidates) -> float:
    """Before how many of these releases data would have arrived by chance, as often as its connection has any."""
    both = zip(behind.ack_to_release, behind.arrives_every, strict=True)
    return sum(min(int(release) / max(int(every), 1), 1) for release, every in both)


def _expected_arrivals_of_any(behind: Candidates) -> float:
    """As :func:`_expected_arrivals`, but data of any of those connections counts: one may come instead of another."""
    every_of = dict(zip(listed(behind.arrival), listed(behind.arrives_every), strict=True))
    in_a_ns = sum(1 / max(int(every), 1) for every in every_of.values())
    return sum(min(int(release) * in_a_ns, 1) for release in behind.ack_to_release)


def _arrive_by_chance(behind: Candidates, near: Candidates) -> bool:
    """Whether no more releases follow arrivals than chance explains, with three standard deviations."""
    by_chance = _expected_arrivals(behind) / len(behind) * len(near)
    return not is_more_than_chance(len(behind), by_chance)


def _slow_connections(near: Candidates, limit: float) -> Candidates:
    """Those on connections whose median is clearly too late for a kernel, though the median of all is not.

    A busy machine delays some releases of each connection, a relay delays all of its own.
    """
    clearly_late = near.only(near.ack_to_release > CLEARLY * limit)
    return near.on_connections_of(clearly_late).on_connections_where(
        lambda one: ENOUGH <= len(one) < len(near) and percentile(one.ack_to_release, 50) > CLEARLY * limit
    )


def _released_by_kernel(
    pure: Candidates, near: Candidates, observed: Observed, judged: Judged, middle: float
) -> Candidates:
    """The releases by a kernel, without those that are too late; none where other evidence speaks against it."""
    resolution = observed.setting.resolution
    bound = max(SPREAD * middle, SPREAD_NS, 2 * resolution if resolution > COARSE else 0)
    prompt = near.only(near.ack_to_release <= bound)
    sent_before = observed.sent_before.total()
    if len(prompt) < 3 * sent_before:
        return _held_on_the_others(pure, prompt, observed, judged)
    if middle > SOONEST_WOKEN and observed.sent_before:
        return _held_sooner_or_before(pure, prompt, observed, judged)
    if is_chance(len(prompt), pure.ack_to_release, bound, bound, SPAN):
        if _follow_the_ack(pure, resolution):
            judged.leave_open(pure, Obstacle.LIKE_A_PROGRAM)
        else:
            judged.reject(pure, Rejected.COINCIDENCE)
        return near.none
    if _pauses_anyway_there(prompt, observed):
        unsure = near.none if _may_end_by_chance(prompt, pure, observed) else prompt
        judged.leave_open(unsure, Obstacle.LIKE_A_PROGRAM)
        judged.reject(pure - unsure, Rejected.LATER_RELEASE)
        return near.none
    prompt = _with_those_a_tick_late(prompt, pure, bound, observed)
    judged.reject(pure - prompt, Rejected.LATER_RELEASE)
    if doubt := _doubt(prompt, pure, observed, bound, middle):
        judged.leave_open(prompt, doubt)
        return near.none
    return prompt


def _doubt(prompt: Candidates, pure: Candidates, observed: Observed, bound: float, middle: float) -> Obstacle | None:
    """Why releases as soon as a kernel's may be something else all the same; None where they are the kernel's."""
    pauses = total((pure.ack_to_release > bound) & (pure.ack_to_release < LONGEST_WAIT))
    if len(prompt) == 1 and (pauses >= COMPARABLE or _may_be_the_path(prompt, observed)):
        return Obstacle.COINCIDENCE
    if _may_have_met_on_the_path(prompt, observed):
        return Obstacle.ROUND_TRIP_UNKNOWN
    if _is_often_late_without_pauses(prompt, pure, bound, observed):
        return Obstacle.LIKE_A_PROGRAM
    if middle > HELD and _paused_when_early(prompt, observed):
        return Obstacle.LIKE_A_PROGRAM
    return None


def _may_have_met_on_the_path(prompt: Candidates, observed: Observed) -> bool:
    """Whether data often passes sooner behind the ACK than any kernel sends it, and nothing shows how far away its
    sender is.

    A relay's data and the ACK may have left in the same tick of one kernel, and met in the middle of their path.
    """
    own = observed.program.reactions
    is_unknown = not own.handshake and own.fastest >= AT_CAPTURE_POINT and len(own.after_handshake) >= CONCLUSIVE
    is_sooner = percentile(prompt.ack_to_release, 25) < SOONEST_RELEASE
    return is_unknown and observed.peer_fastest >= AT_CAPTURE_POINT and is_sooner


def _paused_when_early(prompt: Candidates, observed: Observed) -> bool:
    """Whether all early ACKs, even if it is only one, show a pause about as long as the waits, or most of several do.

    False if data was also released at once: that alone distinguishes a kernel from a program.
    """
    early = observed.early.on_connections_of(prompt)
    if not len(early) or observed.program.reactions.release:
        return False
    usual, pauses = percentile(prompt.trigger_to_release, 50), early.trigger_to_release
    if len(pauses) >= COMPARABLE and percentile(pauses, 10) >= usual / 2:
        differs = ABOUT if len(prompt) >= COMPARABLE else PAUSES_VARY  # few releases prove less
        return abs(percentile(pauses, 50) - usual) <= differs * usual
    return usual * (1 - ABOUT) <= lowest(pauses) and highest(pauses) <= usual * (1 + ABOUT)


def _pauses_anyway_there(prompt: Candidates, observed: Observed) -> bool:
    """Whether data like that, on the same connections, comes as long after the trigger where the ACK came early.

    Then pauses end with the peer's timer by chance: they are exactly as long, whereas data that was held comes later
    than after an early ACK. Only segments of the same lengths are compared: a program may send others after a pause.
    """
    early = observed.early.on_connections_of(prompt)
    early = early.among(early.trigger_bytes, prompt.trigger_bytes)
    early = early.among(early.released_bytes, prompt.released_bytes)
    if len(early) < REPEATED:
        return False
    is_as_long = percentile(prompt.trigger_to_release, 50) <= AS_LONG * percentile(early.trigger_to_release, 50)
    return is_as_long and pauses_anyway(prompt, early, observed.sender_fastest)


def _may_end_by_chance(prompt: Candidates, pure: Candidates, observed: Observed) -> bool:
    """Whether pauses that vary like those behind early ACKs may end this often right behind the late one.

    If they are all as long, they may do so each time; but not if these come sooner than any pause.
    """
    soonest = lowest(observed.early.on_connections_of(prompt).trigger_to_release)
    if AS_LONG * percentile(prompt.trigger_to_release, 50) < soonest:
        return False
    varies = 2 * middle_half(observed.early.trigger_to_release)
    by_chance = len(pure) * min(highest(prompt.ack_to_release) / max(varies, 1), 1)
    return not is_more_than_chance(len(prompt), by_chance)


def _held_on_the_others(pure: Candidates, prompt: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """The prompt ones of connections that were not seen to send before the ACK, if nearly all there are prompt.

    TCP_NODELAY may be set on some of a program's connections and lost on others. They must be sooner than from a
    woken program; if not, or if they are few, they are left open. The prompt ones of connections that were seen to
    send before the ACK are left open, too, if they are more than pauses explain: the option may be set for some
    replies. All others are rejected.
    """
    others, held = (c.not_among(c.connection, sorted(observed.sent_before)) for c in (pure, prompt))
    if len(held) <= NEARLY_ALL * len(others):
        held = held.none
    reject_as_off(pure - held, observed, judged)
    if len(held) >= COMPARABLE and percentile(held.ack_to_release, 90) <= SOONEST_WOKEN:
        return held
    judged.leave_open(held, Obstacle.NAGLE_OFF_ELSEWHERE)
    return held.none


def _are_sent_anyway(near: Candidates, observed: Observed) -> bool:
    """Whether enough was sent before its ACK: then releases as late as a woken program's are no holds."""
    return observed.sent_before.total() >= max(1, SENT_ANYWAY_NEAR * len(near))


def _held_sooner_or_before(pure: Candidates, prompt: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """The prompt ones of connections that were not seen to send before the ACK, if they are sooner than a woken
    program's, and those that came before TCP_NODELAY was set, or after it was cleared. The other prompt ones are left
    open.
    """
    others = prompt.not_among(prompt.connection, sorted(observed.sent_before))
    if len(others) and percentile(others.ack_to_release, 50) > HELD:
        others = others.none
    held = others | surely_while_on(prompt, observed)
    judged.leave_open(prompt - held, Obstacle.LIKE_A_PROGRAM)
    judged.reject(pure - prompt, Rejected.LATER_RELEASE)
    return held


def _follow_the_ack(pure: Candidates, resolution: int) -> bool:
    """Whether nearly all follow the ACK within a TICK, and not the trigger by a constant time: they are no pauses."""
    soon = total(pure.ack_to_release <= TICK)
    return soon > NEARLY_ALL * len(pure) and not is_paced(pure, resolution)


def _writes_at_once(observed: Observed) -> bool:
    """Whether early ACKs show that the program writes at once: hardly any data came after a pause then."""
    at_once = len(observed.program.reactions.release)
    return at_once >= REPEATED and 2 * len(observed.early) <= at_once


def _is_often_late_without_pauses(prompt: Candidates, pure: Candidates, bound: float, observed: Observed) -> bool:
    """Whether releases at the sender are often late though early ACKs show no pauses: then a program polls.

    A kernel handles an ACK as soon as it is captured; a program that polls for it is sometimes interrupted. False on
    loopback, where the ACK is captured when it is sent, and a busy kernel handles it later (ksoftirqd).
    """
    if observed.nearer_end != "sender" or observed.setting.is_on_loopback or not _writes_at_once(observed):
        return False
    late = pure.only((pure.ack_to_release > bound) & (pure.ack_to_release <= INTERRUPTED))
    few = A_FEW * len(prompt)
    return len(late) > few and len(_without_other_behaviours(late, pure, prompt)) > few


def _without_other_behaviours(late: Candidates, pure: Candidates, prompt: Candidates) -> Candidates:
    """Of the late ones, without connections with several releases and hardly any prompt: there the program does
    something else.
    """
    usual = Counter(listed(prompt.connection))
    alike = pure.on_connections_of(late).on_connections_where(
        lambda one: len(one) < REPEATED or usual[int(one.connection[0])] > A_FEW * len(one)
    )
    return late.on_connections_of(alike)


def _may_be_the_path(prompt: Candidates, observed: Observed) -> bool:
    """Whether the path may have delayed the one ACK: its sender is far away, and Linux's timer fires later."""
    return observed.peer_fastest >= NEAR and highest(prompt.trigger_to_ack) - observed.peer_fastest < LINUX_TIMER


def _with_those_a_tick_late(prompt: Candidates, pure: Candidates, bound: float, observed: Observed) -> Candidates:
    """The prompt ones, and those up to a tick of the kernel later: on a busy machine the ACK waited for the tick.

    The late ones count only if they are no more than the prompt ones, nothing comes later still, as a pause would,
    and no early ACK shows a pause as long as the waits; or if hardly anything does, and early ACKs show that the
    program had written. At the sender the kernel does not wait for a tick.
    """
    if observed.nearer_end == "sender" or len(prompt) < REPEATED:
        return prompt
    late = pure.only(pure.ack_to_release > bound)
    late = _without_other_behaviours(late, pure, prompt)
    a_tick_late = late.only(late.ack_to_release <= TICK)
    if observed.setting.is_on_loopback:  # another program's data may be passed on a tick later
        a_tick_late = a_tick_late.only(a_tick_late.arrival < 0)
    later = len(late) - len(a_tick_late)
    pauses = total(observed.early.on_connections_of(prompt).trigger_to_release > WRITTEN_LATE * pure.usual_wait)
    is_none_later = len(prompt) >= CONCLUSIVE and not later and not pauses
    if not is_none_later and not comes_early_too(pure, observed):
        return prompt
    if len(a_tick_late) > len(prompt) or later > HARDLY_ANY * len(prompt):
        return prompt
    return prompt | a_tick_late


def _held_among_others(
    pure: Candidates, near: Candidates, observed: Observed, judged: Judged, limit: float
) -> Candidates:
    """Those of single connections that are clearly a kernel's, if most releases took as long as a program's."""
    some = _on_prompt_connections(near, observed, limit)
    judged.reject(pure - near, Rejected.LATER_RELEASE)
    _judge_slow_ones(near - some, near, observed, judged, limit)
    return some


def _on_prompt_connections(near: Candidates, observed: Observed, limit: float) -> Candidates:
    """Those on connections that are judged by themselves: most of their releases come before ``limit``, ns."""
    if observed.setting.resolution > COARSE:
        return near.none
    some = near.on_connections_where(
        lambda one: (
            ENOUGH <= len(one) < len(near)
            and percentile(one.ack_to_release, 50) <= limit / 2
            and percentile(one.ack_to_release, 80) <= limit
        )
    )
    return some.only(some.ack_to_release <= 2 * limit)


def _judge_slow_ones(rest: Candidates, near: Candidates, observed: Observed, judged: Judged, limit: float) -> None:
    """Reject the ``rest`` if something shows that its program waits for no ACK, or pauses; else leave it open."""
    middle = percentile(near.ack_to_release, 50)
    if _are_sent_anyway(near, observed):
        while_on = may_be_while_on(rest, observed)
        judged.leave_open(while_on, Obstacle.NAGLE_OFF_ELSEWHERE)
        reject_as_off(rest - while_on, observed, judged)
    elif observed.setting.resolution > COARSE and middle <= limit + observed.setting.resolution:
        judged.leave_open(rest, Obstacle.COARSE_CLOCK)
    elif pauses_anyway(near, observed.early, observed.sender_fastest):
        unsure = _not_seen_to_pause(rest, observed, limit)
        judged.leave_open(unsure, Obstacle.LIKE_A_PROGRAM)
        judged.reject(rest - unsure, Rejected.LATER_RELEASE)
    else:
        judged.leave_open(rest, Obstacle.LIKE_A_PROGRAM)


def _are_as_long(quick: Candidates, early: Candidates) -> bool:
    """Whether the program's pauses are all as long, by its early ACKs, and these candidates come no sooner."""
    pauses = early.trigger_to_release
    is_constant = highest(pauses) - lowest(pauses) < SAME_PAUSE
    return is_constant and lowest(pauses) - SAME_PAUSE < percentile(quick.trigger_to_release, 50)


def _not_seen_to_pause(rest: Candidates, observed: Observed, limit: float) -> Candidates:
    """Of a program that pauses, those that may show a second behaviour, because a kernel may have held them.

    Either more than a few are clearly as soon as a kernel's, and are no pauses that end there by chance. Or those on
    connections on which the program was not seen to pause are sooner, and an early ACK released data at once.
    """
    pausing = rest.on_connections_of(observed.early)
    quick, elsewhere, nothing = pausing.only(pausing.ack_to_release <= limit / 2), rest - pausing, rest.none
    are_pauses = len(quick) and _are_as_long(quick, observed.early)
    if are_pauses or len(quick) < REPEATED or len(quick) <= A_FEW * len(pausing):
        quick = nothing
    at_once = min(observed.program.reactions.release, default=PAUSE)
    if not len(elsewhere) or at_once > limit or percentile(elsewhere.ack_to_release, 50) > 2 * limit:
        elsewhere = nothing
    return elsewhere | quick


def _behind_arrivals(near: Candidates, observed: Observed) -> Candidates:
    """Those with data of another connection that arrived at the sender's host between ACK and release, as at a relay.

    The same data seen again before or after NAT does not count. On loopback everything arrives at one address, so
    there it shows nothing.
    """
    if observed.setting.is_on_loopback:
        return near.none
    behind = near.only(near.arrival >= 0)
    return behind.not_among(behind.arrival, sorted(observed.setting.seen_again))
