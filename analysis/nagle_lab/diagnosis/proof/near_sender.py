"""Captured near the sender (within 150 µs): which late ACKs released the data that followed.

A kernel sends what it held sooner after the ACK than a program can that is woken by it, and its times vary less.
docs/proof.md, rule 2.
"""

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import (
    among,
    distinct,
    groups,
    highest,
    in_order,
    listed,
    percentile,
    pick,
    total,
    where,
)
from nagle_lab.diagnosis.observed.enough import COMPARABLE, CONCLUSIVE, FEW_LATE, HARDLY_ANY, NEARLY_ALL, REPEATED
from nagle_lab.diagnosis.observed.observed import NEAR, US, Observed, nearby
from nagle_lab.diagnosis.proof.late_acks import LINUX_TIMER, LONGEST_WAIT
from nagle_lab.diagnosis.proof.nagle_off import may_be_while_on
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle, Rejected
from nagle_lab.diagnosis.proof.pauses import (  # fmt: skip
    PAUSE,
    comes_early_too,
    is_chance,
    is_paced,
    middle_half,
    pauses_anyway,
)
from nagle_lab.tcp.events import MS, Echo

INTERRUPTED = 20 * MS  # how long a program may wait for a processor on a busy machine
TICK = 5 * MS  # a tick of the kernel at HZ=250, 4 ms, and what a release takes

# How soon after the ACK a kernel sends what it held, median, ns (docs/proof.md has the measurements): at the sender
# 3 to 53 µs, at its peer up to 118; programs that wait for the same ACK take 49 µs and more at the sender, 74 at its
# peer. A kernel's times have a floor and vary little above it; those of a woken program spread. So times up to the
# larger limit must be alike, which takes SOME_ALIKE of them to show.
HELD, HELD_ALIKE = 45 * US, 68 * US
AT_PEER, AT_PEER_ALIKE = 82 * US, 120 * US
ALIKE, SOME_ALIKE = 1.35, 8  # their ninth decile, times their median; and how many show it
# On a slow machine they take longer, alike or not: so many of that end's answers to a SYN, at most; or of its quick
# ACKs, where no SYN is in the capture.
HANDSHAKES, HANDSHAKES_AT_PEER, HANDSHAKES_ALIKE, SLOWEST_AT_PEER = 2, 4, 7, 100 * US
# A stack in user space sleeps, too, and its own ACKs are no faster than this: so many of its answers to a SYN, if
# data is also seen to come early where the ACK comes early.
SLOW_STACK, SOMETIMES_SLOW, SLOW_STACK_HANDSHAKES = 30 * US, 10 * US, 4

AS_LONG = 1.01  # times a pause: one that a late ACK ended by chance, median

# A connection is judged by itself from so many releases on, if their median is so much above the limit.
ENOUGH, CLEARLY = 6, 1.3
# Where most take as long as a program does, data sent so often before its ACK could arrive shows that nothing waits.
SENT_ANYWAY = 0.01

SOON_AS_SYNS = 1.5  # times the median answer to a SYN: data behind an early ACK that the kernel sent
QUEUE = 100  # releases that stand behind each other, at most: as long a queue is a pause
SOONEST_WOKEN = 25 * US  # after another one a woken thread follows; what an ACK wakes takes 49 and more
DIRECTLY = 20 * US  # or half an answer to a SYN: so soon comes the next one, median
STARTED = 0.75  # of the latest release: so late is the first of a queue, at most

COARSE = 20 * US  # step of a clock by which single distances are uncertain
FINE = 5 * US  # and by which medians are not


def held_near(pure: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Those of the late candidates ``pure``, all with pure ACKs, whose data the ACK released.

    The others are added to ``judged`` as rejected or unresolved.
    """
    if not len(pure):
        return pure
    limit = slowest_release(pure, observed)
    near = pure.only(pure.ack_to_release < PAUSE)
    middle = _typical(near, observed.setting.step) if len(near) else 0
    behind_arrivals = _behind_arrivals(near, observed) if middle > max(limit, HELD_ALIKE) / 2 else near.picked([])
    is_relayed = len(behind_arrivals) >= max(2, len(near) / 2)
    queued = _queued(pure, observed, limit)
    if queued is not None:
        judged.reject(len(pure) - len(queued), Rejected.LATER_RELEASE)
        return queued
    if not len(near):
        judged.reject(len(pure), Rejected.LATER_RELEASE)
        return near
    if is_relayed:
        _set_aside_relayed(pure, near, behind_arrivals, observed, judged)
        return near.picked([])
    is_split = middle <= limit and observed.setting.step <= FINE
    slow = _slow_connections(near, limit) if is_split else near.picked([])
    if len(slow):
        judged.leave_open(slow, Obstacle.LIKE_A_PROGRAM)
        others = distinct(slow.connection)
        pure, near = (some.not_among(some.connection, others) for some in (pure, near))
        middle = _typical(near, observed.setting.step)
    if middle <= limit or (middle <= 2 * HELD_ALIKE and _is_often_at_once(near, observed)):
        return _kernels(pure, near, observed, judged, middle)
    return _held_among_others(pure, near, observed, judged, limit)


def _is_often_at_once(near: Candidates, observed: Observed) -> bool:
    """Whether a third of the releases at the sender came sooner than from any program that sleeps, or as soon as SYNs
    are answered.

    Then a kernel released all of them, and a busy machine delayed the rest.
    """
    answers = nearby(observed.program.own.handshake)
    if not observed.is_at_sender or not answers or len(near) < 2 * CONCLUSIVE or observed.setting.step > FINE:
        return False
    # One slow answer may be that of a program that just began.
    answered = percentile(answers, 50) if len(answers) >= REPEATED or _acknowledges_slowly(observed) else 0
    return percentile(near.ack_to_release, 33) <= max(answered, SOONEST_WOKEN)


def _set_aside_relayed(
    pure: Candidates, near: Candidates, behind_arrivals: Candidates, observed: Observed, judged: Judged
) -> None:
    """Reject all: their program passes on data that arrived meanwhile from other connections.

    But leave them open at a slow stack where that data is mostly of connections with releases of their own: these run
    in step, so it arrives then by chance.
    """
    arrivals = behind_arrivals.arrival
    in_step = total(among(arrivals, distinct(near.connection)))
    if _is_slow_stack(pure, observed) and in_step > len(arrivals) / 2:
        judged.reject(len(pure) - len(near), Rejected.LATER_RELEASE)
        judged.leave_open(near, Obstacle.LIKE_A_PROGRAM)
        return
    judged.reject(len(pure), Rejected.RELAYED)
    for connection, other in zip(behind_arrivals.connection, arrivals, strict=True):
        judged.relays[int(connection), int(other)] += 1


def slowest_release(pure: Candidates, observed: Observed) -> float:
    """The largest median time from ACK to release, ns, that is still a kernel's at this capture point."""
    near = pure.only(pure.ack_to_release < PAUSE).ack_to_release
    step = observed.setting.step
    cannot_tell = len(near) < SOME_ALIKE or step > FINE
    is_alike = cannot_tell or percentile(near, 90) <= ALIKE * percentile(near, 50) + 2 * step
    own = observed.program.own
    answers = nearby(own.handshake or own.ack)
    usual = percentile(answers, 50) if answers else 0
    if own.handshake and usual >= SLOW_STACK and _is_slow_stack(pure, observed) and comes_early_too(pure, observed):
        return max(HELD_ALIKE, SLOW_STACK_HANDSHAKES * usual)
    if observed.is_at_sender:
        return HELD_ALIKE if is_alike else max(HELD, min(HANDSHAKES * usual, HELD_ALIKE))
    slowest = percentile(answers, 90) if answers else 0
    if is_alike and not cannot_tell:
        return max(AT_PEER, min(HANDSHAKES_ALIKE * slowest, AT_PEER_ALIKE)) if answers else AT_PEER_ALIKE
    return max(AT_PEER, min(HANDSHAKES_AT_PEER * slowest, SLOWEST_AT_PEER))


def _slow_connections(near: Candidates, limit: float) -> Candidates:
    """Those on connections whose median is clearly too late for a kernel, though that of all is not."""
    clearly_late = near.only(near.ack_to_release > CLEARLY * limit)
    suspects = near.among(near.connection, distinct(clearly_late.connection))
    releases = suspects.ack_to_release
    slow = [
        group
        for group in groups(suspects.connection)
        if ENOUGH <= len(group) < len(near) and percentile(pick(releases, group), 50) > CLEARLY * limit
    ]
    return suspects.picked(in_order(slow))


def _kernels(pure: Candidates, near: Candidates, observed: Observed, judged: Judged, middle: float) -> Candidates:
    """The releases by a kernel, without those that are too late; none where other evidence speaks against it."""
    step = observed.setting.step
    bound = max(3 * middle, 100 * US, 2 * step if step > COARSE else 0)
    prompt = near.only(near.ack_to_release <= bound)
    pauses = total((pure.ack_to_release > bound) & (pure.ack_to_release < LONGEST_WAIT))
    nothing = near.picked([])
    sent_before = observed.sent_before.total()
    if sent_before > HARDLY_ANY * len(pure) and len(prompt) < 3 * sent_before:
        return _held_elsewhere(pure, prompt, observed, judged)
    if is_chance(len(prompt), pure.ack_to_release, bound, bound, 10):
        if _follow_the_ack(pure):
            judged.leave_open(pure, Obstacle.LIKE_A_PROGRAM)
        else:
            judged.reject(len(pure), Rejected.COINCIDENCE)
        return nothing
    if _pauses_anyway_there(prompt, observed):
        judged.reject(len(pure), Rejected.LATER_RELEASE)
        return nothing
    prompt = _with_those_a_tick_late(prompt, pure, bound, observed)
    if len(prompt) == 1 and (pauses >= COMPARABLE or _may_be_the_path(prompt, observed)):
        judged.leave_open(prompt, Obstacle.COINCIDENCE)
        judged.reject(len(pure) - 1, Rejected.LATER_RELEASE)
        return nothing
    judged.reject(len(pure) - len(prompt), Rejected.LATER_RELEASE)
    if _is_often_late_without_pauses(prompt, pure, bound, observed) or _goes_piece_by_piece(prompt, observed):
        judged.leave_open(prompt, Obstacle.LIKE_A_PROGRAM)
        return nothing
    return prompt


def _pauses_anyway_there(prompt: Candidates, observed: Observed) -> bool:
    """Whether data like that, on the same connections, comes as long after the trigger where the ACK came early.

    Then pauses end with the peer's timer by chance: they are exactly as long, where data that was held comes later
    than after an early ACK. Alike are segments of the same lengths: a program may send others after a pause.
    """
    early = observed.early
    early = early.among(early.connection, distinct(prompt.connection))
    early = early.among(early.trigger_bytes, distinct(prompt.trigger_bytes))
    early = early.among(early.released_bytes, distinct(prompt.released_bytes))
    if len(early) < REPEATED:
        return False
    is_as_long = percentile(prompt.trigger_to_release, 50) <= AS_LONG * percentile(early.trigger_to_release, 50)
    return is_as_long and pauses_anyway(prompt, early, observed.own or 0)


def _held_elsewhere(pure: Candidates, prompt: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """The prompt ones of connections that were not seen to send before the ACK, if nearly all there are prompt.

    TCP_NODELAY may be set on some of a program's connections and lost on others. Only at the sender, and sooner than
    any program that was woken; where they are few, they are left open. All others are rejected.
    """
    others, held = (c.not_among(c.connection, sorted(observed.sent_before)) for c in (pure, prompt))
    are_all = len(held) >= REPEATED and len(held) > NEARLY_ALL * len(others)
    if not (are_all and observed.is_at_sender and percentile(held.ack_to_release, 90) <= SOONEST_WOKEN):
        held = held.picked([])
    judged.reject(len(pure) - len(held), Rejected.NAGLE_OFF)
    if len(held) >= COMPARABLE:
        return held
    judged.leave_open(held, Obstacle.NAGLE_OFF_ELSEWHERE)
    return held.picked([])


def _goes_piece_by_piece(prompt: Candidates, observed: Observed) -> bool:
    """Whether releases follow each other, each behind the ACK of the one before, though the program writes at once.

    Nagle's algorithm merges what was written by then. So the program itself waits for each ACK, and never sleeps.
    """
    follow = total(among(prompt.trigger_frame, prompt.release_frame))
    return follow >= REPEATED and follow > FEW_LATE * len(prompt) and _writes_at_once(observed)


def _writes_at_once(observed: Observed) -> bool:
    """Whether early ACKs show that the program writes at once: hardly any data came after a pause then."""
    at_once = len(observed.program.own.release)
    return at_once >= REPEATED and 2 * len(observed.early) <= at_once


def _follow_the_ack(pure: Candidates) -> bool:
    """Whether nearly all follow the ACK within a TICK, and not the trigger by a constant time: they are no pauses."""
    soon = total(pure.ack_to_release <= TICK)
    return soon > NEARLY_ALL * len(pure) and not is_paced(pure)


def _is_often_late_without_pauses(prompt: Candidates, pure: Candidates, bound: float, observed: Observed) -> bool:
    """Whether releases at the sender are often late though early ACKs show no pauses: by a program that polls.

    A kernel handles an ACK as soon as it is captured; a program that polls for it is sometimes interrupted. Not on
    loopback: there the ACK is captured when it is sent, and a busy kernel handles it later (ksoftirqd).
    """
    if observed.captured_near != "sender" or observed.program.is_on_loopback or not _writes_at_once(observed):
        return False
    late = pure.only((pure.ack_to_release > bound) & (pure.ack_to_release <= INTERRUPTED))
    few = FEW_LATE * len(prompt)
    return len(late) > few and len(_without_other_behaviours(late, pure, prompt)) > few


def _without_other_behaviours(late: Candidates, pure: Candidates, prompt: Candidates) -> Candidates:
    """Of the late ones, without connections with several releases and none prompt: there the program does something
    else.
    """
    releases = pure.among(pure.connection, distinct(late.connection)).connection
    with_few = [releases[group[0]] for group in groups(releases) if len(group) < REPEATED]
    return late.among(late.connection, [*listed(distinct(prompt.connection)), *with_few])


def _may_be_the_path(prompt: Candidates, observed: Observed) -> bool:
    """Whether the path may have delayed the one ACK: its sender is far away, and Linux's timer fires later."""
    return observed.peer >= NEAR and highest(prompt.trigger_to_ack) - observed.peer < LINUX_TIMER


def _with_those_a_tick_late(prompt: Candidates, pure: Candidates, bound: float, observed: Observed) -> Candidates:
    """The prompt ones, and those up to a tick of the kernel later: on a busy machine the ACK waited for it.

    Only if they are few, or early ACKs show that the program had written, and hardly any comes later still, as
    pauses would. At the sender a kernel never waits for it, but a stack in user space does.
    """
    if _is_delayed_stack(prompt, pure, observed):
        return prompt | pure.only((pure.ack_to_release <= TICK) & (pure.echo != Echo.BEFORE))
    if observed.captured_near == "sender" or len(prompt) < REPEATED:
        return prompt
    late = pure.only((pure.ack_to_release > bound) & (pure.echo != Echo.BEFORE))
    late = _without_other_behaviours(late, pure, prompt)
    ticked = late.only(late.ack_to_release <= TICK)
    if observed.program.is_on_loopback:  # where what another program had to wait for may be passed on a tick later
        ticked = ticked.only(ticked.arrival < 0)
    later = len(late) - len(ticked)
    are_few = len(prompt) >= CONCLUSIVE and len(ticked) <= FEW_LATE * len(prompt) and not later
    if not are_few and not comes_early_too(pure, observed):
        return prompt
    if len(ticked) > len(prompt) or later > HARDLY_ANY * len(prompt):
        return prompt
    return prompt | ticked


def _is_delayed_stack(prompt: Candidates, pure: Candidates, observed: Observed) -> bool:
    """Whether a stack in user space releases at once when it runs: half are prompt, and the others hardly later."""
    is_usual = len(prompt) >= REPEATED and 2 * len(prompt) >= len(pure)
    return is_usual and not observed.sent_before and _follow_the_ack(pure) and _acknowledges_slowly(observed)


def _acknowledges_slowly(observed: Observed) -> bool:
    """Whether nearly all pure ACKs of the sender are slower than any kernel's."""
    acks = nearby(observed.program.own.ack)
    return len(acks) >= REPEATED and percentile(acks, 5) >= SLOW_STACK


def _queued(pure: Candidates, observed: Observed, limit: float) -> Candidates | None:
    """Releases that queue at their host, each as soon after the one before as a kernel sends; None if there are none.

    The timers of connections in step fire together, and their ACKs arrive at once. A relay's writes queue, too; so
    the kernel must also be seen to hold.
    """
    answers = observed.program.own.handshake
    if not answers or observed.sent_before or not (_is_held_early(observed) or _starts_at_once(pure, observed)):
        return None
    longest = QUEUE * limit
    queued = pure.only((pure.alone < pure.ack_to_release) & (pure.ack_to_release < longest))
    soon = total(queued.alone <= limit)
    if len(queued) < max(COMPARABLE, len(pure) / 2) or soon <= NEARLY_ALL * len(queued):
        return None
    if percentile(queued.alone, 50) > max(DIRECTLY, percentile(answers, 50) / 2):
        return None
    if percentile(queued.ack_to_release, 10) > STARTED * percentile(queued.ack_to_release, 90):
        return None  # all as late as the last one: what they stand behind is a pause
    latest = highest(queued.ack_to_release)  # the first one of each queue waits for the kernel to wake up
    return pure.only(pure.ack_to_release <= latest)


def _is_held_early(observed: Observed) -> bool:
    """Whether data follows early ACKs as soon as SYNs are answered."""
    answers, early = observed.program.own.handshake, observed.program.own.release
    return len(early) >= REPEATED and percentile(early, 50) <= SOON_AS_SYNS * percentile(answers, 50)


def _starts_at_once(pure: Candidates, observed: Observed) -> bool:
    """Whether those at the sender that stand behind nothing, directly behind their ACK, come sooner than any program
    that sleeps.
    """
    first = pure.only(pure.release_frame == pure.ack_frame + 1)
    is_seen = observed.is_at_sender and len(first) >= COMPARABLE
    return is_seen and percentile(first.ack_to_release, 50) <= SOONEST_WOKEN


def _held_among_others(
    pure: Candidates, near: Candidates, observed: Observed, judged: Judged, limit: float
) -> Candidates:  # fmt: skip
    """Those of single connections that are clearly a kernel's, where most releases took as long as a program."""
    held = []
    of_all = near.ack_to_release
    for group in groups(near.connection):
        releases = pick(of_all, group)
        if (
            COMPARABLE < len(group) < len(near)
            and observed.setting.step <= COARSE
            and percentile(releases, 50) <= limit / 2
            and percentile(releases, 80) <= limit
        ):
            held.append(pick(group, where(releases <= 2 * limit)))
    some = near.picked(in_order(held))
    rest = near - some
    middle = percentile(near.ack_to_release, 50)
    if observed.sent_before.total() >= max(1, SENT_ANYWAY * len(near)):
        while_on = may_be_while_on(rest, observed)
        judged.leave_open(while_on, Obstacle.NAGLE_OFF_ELSEWHERE)
        judged.reject(len(rest) - len(while_on), Rejected.NAGLE_OFF)
    elif observed.setting.step > COARSE and middle <= limit + observed.setting.step:
        judged.leave_open(rest, Obstacle.COARSE_CLOCK)
    elif pauses_anyway(near, observed.early, observed.own or 0):
        judged.reject(len(rest), Rejected.NAGLE_OFF)
    elif (
        _are_few_by_chance(near, pure, 3 * middle)
        and is_paced(pure)
        and middle_half(near.ack_to_release) > middle / 2
    ):
        judged.reject(len(rest), Rejected.LATER_RELEASE)
    else:
        judged.leave_open(rest, Obstacle.LIKE_A_PROGRAM)
    return some


def _are_few_by_chance(near: Candidates, pure: Candidates, bound: float) -> bool:
    """Whether less than half came soon, and within ``bound``, ns, no more than of pauses that end at any time."""
    soon = total(near.ack_to_release <= bound)
    return len(near) < len(pure) / 2 and is_chance(soon, pure.ack_to_release, bound, bound, 10)


def _typical(near: Candidates, step: int) -> float:
    """The usual time from ACK to release, ns: the median; by a coarse clock the mean of the middle eight tenths."""
    releases = near.ack_to_release
    if step <= FINE:
        return percentile(releases, 50)
    low, high = percentile(releases, 10), percentile(releases, 90)
    most = pick(releases, where((releases >= low) & (releases <= high)))
    return total(most) / len(most)


def _behind_arrivals(near: Candidates, observed: Observed) -> Candidates:
    """Those before which data of another connection arrived at the sender's host since the ACK, as at a relay's.

    The same data seen again before or after NAT does not count. On loopback everything arrives at one address, so
    there it tells nothing.
    """
    if observed.program.is_on_loopback:
        return near.picked([])
    behind = near.only(near.arrival >= 0)
    if views := observed.setting.views:
        return behind.picked([i for i, other in enumerate(behind.arrival) if int(other) not in views])
    return behind


def _is_slow_stack(pure: Candidates, observed: Observed) -> bool:
    """Whether even the fastest pure ACKs of the sender are slower than any kernel's: a TCP stack in user space.

    Where it sends no timestamps, which Linux does and smoltcp and lwIP do not, some of them may be faster. There is
    none on loopback.
    """
    if observed.program.is_on_loopback:
        return False
    acks = nearby(observed.program.own.ack)
    may_have_timestamps = total((pure.pace >= 0) | (pure.ahead < -1))
    return not acks or percentile(acks, 5) >= (SLOW_STACK if may_have_timestamps else SOMETIMES_SLOW)
