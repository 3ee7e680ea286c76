"""Near the sender: how soon behind the ACK its data follows tells a kernel, which held it, from a program."""

from nagle_lab.diagnosis.proof.candidates import Candidates
from nagle_lab.diagnosis.proof.judged import Judged, Obstacle, Rejected
from nagle_lab.diagnosis.proof.population import (
    among,
    distinct,
    each,
    groups,
    highest,
    in_order,
    percentile,
    pick,
    total,
    where,
)
from nagle_lab.diagnosis.proof.timing import (
    FEW,
    FEW_LATE,
    HARDLY_ANY,
    LINUX_TIMER,
    LONGEST_WAIT,
    MANY,
    NEAR,
    NEARLY_ALL,
    PAUSE,
    SOME,
    US,
    Known,
    comes_early_too,
    is_chance,
    is_paced,
    middle_half,
    nearby,
    pauses_anyway,
)  # fmt: skip
from nagle_lab.tcp.events import MS, Echo

INTERRUPTED = 20 * MS  # so long may a program wait for a processor, on a busy machine
TICK = 5 * MS  # of a kernel with 250 of them in a second, and what a release takes

# How soon a kernel lets go what it held, median, ns (docs/proof.md has the measurements): at the sender 3 to 53 µs,
# at its peer up to 118; programs that wait for the same ACK take 49 µs and more at the sender, 74 at its peer. A
# kernel's path has a floor, and little varies above it; a woken program's time spreads. So the larger ones must be
# alike, which some can show.
HELD, HELD_ALIKE = 45 * US, 68 * US
AT_PEER, AT_PEER_ALIKE = 82 * US, 120 * US
ALIKE, SOME_ALIKE = 1.35, 8  # their ninth decile, times their median; and how many show it
# On a slow machine they take longer, alike or not: so many of that end's answers to a SYN, at most; or of its quick
# ACKs, where no SYN is in the capture.
HANDSHAKES, HANDSHAKES_AT_PEER, HANDSHAKES_ALIKE, SLOWEST_AT_PEER = 2, 4, 7, 100 * US
# A stack in user space sleeps, too, and its own ACKs are no faster than this: so many of its answers to a SYN, if
# data is also seen to come early where the ACK comes early.
SLOW_STACK, SOMETIMES_SLOW, SLOW_STACK_HANDSHAKES = 30 * US, 10 * US, 4

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


def held_near(pure: Candidates, known: Known, judged: Judged) -> Candidates:
    """Those of the late candidates that the ACK released."""
    if not len(pure):
        return pure
    limit = slowest_release(pure, known)
    near = pure.only(each(lambda release: release < PAUSE, pure.release))
    middle = _typical(near, known.setting.step) if len(near) else 0
    behind_arrivals = _behind_arrivals(near, known) if middle > max(limit, HELD_ALIKE) / 2 else near.picked([])
    is_relayed = len(behind_arrivals) >= max(2, len(near) / 2)
    queued = _queued(pure, known, limit)
    if queued is not None:
        judged.reject(len(pure) - len(queued), Rejected.LATER_RELEASE)
        return queued
    if not len(near):
        judged.reject(len(pure), Rejected.LATER_RELEASE)
        return near
    if is_relayed:
        _set_aside_relayed(pure, near, behind_arrivals, known, judged)
        return near.picked([])
    is_split = middle <= limit and known.setting.step <= FINE
    slow = _slow_connections(near, limit) if is_split else near.picked([])
    if len(slow):
        judged.leave(slow, Obstacle.LIKE_A_PROGRAM)
        others = distinct(slow.connection)
        pure, near = (some.only(each(lambda out: out < 1, among(some.connection, others))) for some in (pure, near))
        middle = _typical(near, known.setting.step)
    if middle <= limit or (middle <= 2 * HELD_ALIKE and _is_often_at_once(near, known)):
        return _kernels(pure, near, known, judged, middle)
    return _held_among_others(pure, near, known, judged, limit)


def _is_often_at_once(near: Candidates, known: Known) -> bool:
    """Whether a third of the releases at the sender came sooner than any program that sleeps, or as it answers a SYN.

    Then a busy machine delayed the others: what released some released all of them.
    """
    answers = nearby(known.program.own.handshake)
    if not known.is_at_sender or not answers or len(near) < 2 * MANY or known.setting.step > FINE:
        return False
    return percentile(near.release, 33) <= max(percentile(answers, 50), SOONEST_WOKEN)


def _set_aside_relayed(
    pure: Candidates, near: Candidates, behind_arrivals: Candidates, known: Known, judged: Judged
) -> None:
    """Data that arrived meanwhile was passed on; but at a slow stack, data of connections in step comes by chance."""
    arrivals = behind_arrivals.arrival
    in_step = total(among(arrivals, distinct(near.connection)))
    if _is_slow_stack(pure, known) and in_step > len(arrivals) / 2:
        judged.reject(len(pure) - len(near), Rejected.LATER_RELEASE)
        judged.leave(near, Obstacle.LIKE_A_PROGRAM)
        return
    judged.reject(len(pure), Rejected.RELAYED)
    for connection, other in zip(behind_arrivals.connection, arrivals, strict=True):
        judged.relays[int(connection), int(other)] += 1


def slowest_release(pure: Candidates, known: Known) -> float:
    """How large the median of a kernel's releases is here, at most, ns."""
    near = pure.only(each(lambda release: release < PAUSE, pure.release)).release
    step = known.setting.step
    cannot_tell = len(near) < SOME_ALIKE or step > FINE
    is_alike = cannot_tell or percentile(near, 90) <= ALIKE * percentile(near, 50) + 2 * step
    own = known.program.own
    answers = nearby(own.handshake or own.ack)
    usual = percentile(answers, 50) if answers else 0
    if own.handshake and usual >= SLOW_STACK and _is_slow_stack(pure, known) and comes_early_too(pure, known):
        return max(HELD_ALIKE, SLOW_STACK_HANDSHAKES * usual)
    if known.is_at_sender:
        return HELD_ALIKE if is_alike else max(HELD, min(HANDSHAKES * usual, HELD_ALIKE))
    slowest = percentile(answers, 90) if answers else 0
    if is_alike and not cannot_tell:
        return max(AT_PEER, min(HANDSHAKES_ALIKE * slowest, AT_PEER_ALIKE)) if answers else AT_PEER_ALIKE
    return max(AT_PEER, min(HANDSHAKES_AT_PEER * slowest, SLOWEST_AT_PEER))


def _slow_connections(near: Candidates, limit: float) -> Candidates:
    """Those on connections that are clearly of a program, though most others are of a kernel."""
    clearly_late = near.only(each(lambda release: release > CLEARLY * limit, near.release))
    suspects = near.only(among(near.connection, distinct(clearly_late.connection)))
    releases = suspects.release
    slow = [
        group
        for group in groups(suspects.connection)
        if ENOUGH <= len(group) < len(near) and percentile(pick(releases, group), 50) > CLEARLY * limit
    ]
    return suspects.picked(in_order(slow) if slow else [])


def _kernels(pure: Candidates, near: Candidates, known: Known, judged: Judged, middle: float) -> Candidates:
    """Releases by a kernel, without those that are too late to be; none where something else tells against them."""
    step = known.setting.step
    bound = max(3 * middle, 100 * US, 2 * step if step > COARSE else 0)
    prompt = near.only(each(lambda release: release <= bound, near.release))
    pauses = total(each(lambda release: (release > bound) & (release < LONGEST_WAIT), pure.release))
    nothing = near.picked([])
    if known.sent_before > HARDLY_ANY * len(pure) and len(prompt) < 3 * known.sent_before:
        judged.reject(len(pure), Rejected.NAGLE_OFF)
        return nothing
    if is_chance(len(prompt), pure.release, bound, bound, 10):
        if _follow_the_ack(pure):
            judged.leave(pure, Obstacle.LIKE_A_PROGRAM)
        else:
            judged.reject(len(pure), Rejected.COINCIDENCE)
        return nothing
    prompt = _with_those_a_tick_late(prompt, pure, bound, known)
    if len(prompt) == 1 and (pauses >= SOME or _may_be_the_path(prompt, known)):
        judged.leave(prompt, Obstacle.COINCIDENCE)
        judged.reject(len(pure) - 1, Rejected.LATER_RELEASE)
        return nothing
    judged.reject(len(pure) - len(prompt), Rejected.LATER_RELEASE)
    if _is_often_late_without_pauses(prompt, pure, bound, known):
        judged.leave(prompt, Obstacle.LIKE_A_PROGRAM)
        return nothing
    return prompt


def _follow_the_ack(pure: Candidates) -> bool:
    """Whether releases follow the ACK soon, though not at once, and not the trigger: no pauses of any length."""
    soon = total(each(lambda release: release <= TICK, pure.release))
    return soon > NEARLY_ALL * len(pure) and not is_paced(pure)


def _is_often_late_without_pauses(prompt: Candidates, pure: Candidates, bound: float, known: Known) -> bool:
    """Whether releases at the sender are often late, though the program is seen to write at once: no kernel waits so.

    It handles an ACK as soon as that is captured; a program that asks for it again and again is interrupted. But on
    loopback the ACK is captured when it is sent, and a busy kernel handles it later (ksoftirqd).
    """
    if known.place != "sender" or known.program.is_on_loopback:
        return False
    at_once = len(known.program.own.release)
    late = total(each(lambda release: (release > bound) & (release <= INTERRUPTED), pure.release))
    return at_once >= FEW and 2 * len(known.early) <= at_once and late > FEW_LATE * len(prompt)


def _may_be_the_path(prompt: Candidates, known: Known) -> bool:
    """Whether a single ACK from far away came sooner than Linux's timer fires: a path may stand still once."""
    return known.peer >= NEAR and highest(prompt.wait) - known.peer < LINUX_TIMER


def _with_those_a_tick_late(prompt: Candidates, pure: Candidates, bound: float, known: Known) -> Candidates:
    """With releases up to a tick of the kernel later: the ACK waited for one on its way, on a busy machine.

    Where they are few, or the program has written early, and nothing comes later still: a pause has no reason to end
    there only.
    """
    if known.place == "sender" or len(prompt) < FEW:
        return prompt
    late = pure.only(each(lambda release, echo: (release > bound) & (echo != Echo.BEFORE), pure.release, pure.echo))
    ticked = late.only(each(lambda release: release <= TICK, late.release))
    later = len(late) - len(ticked)
    are_few = len(prompt) >= MANY and len(ticked) <= FEW_LATE * len(prompt) and not later
    if not are_few and not comes_early_too(pure, known):
        return prompt
    if len(ticked) > len(prompt) or later > HARDLY_ANY * len(prompt):
        return prompt
    return pure.only(among(pure.row, in_order([prompt.row, ticked.row])))


def _queued(pure: Candidates, known: Known, limit: float) -> Candidates | None:
    """Releases that had to queue behind others of the same host, each as soon behind the one before as a kernel is.

    The timers of connections in step fire together, and their ACKs arrive at once. A relay's writes queue, too, so
    it also takes that the kernel was seen to hold: data behind early ACKs as soon as the answers to SYNs. None where
    it is not so.
    """
    answers, early = known.program.own.handshake, known.program.own.release
    if not answers or len(early) < FEW or known.sent_before:
        return None
    if percentile(early, 50) > SOON_AS_SYNS * percentile(answers, 50):
        return None
    longest = QUEUE * limit
    queued = pure.only(each(lambda alone, release: (alone < release) & (release < longest), pure.alone, pure.release))
    soon = total(each(lambda alone: alone <= limit, queued.alone))
    if len(queued) < max(SOME, len(pure) / 2) or soon <= NEARLY_ALL * len(queued):
        return None
    if percentile(queued.alone, 50) > max(DIRECTLY, percentile(answers, 50) / 2):
        return None
    if percentile(queued.release, 10) > STARTED * percentile(queued.release, 90):
        return None  # all as late as the last one: what they stand behind is a pause
    latest = highest(queued.release)  # the first one of each queue waits for the kernel to wake up
    return pure.only(each(lambda release: release <= latest, pure.release))


def _held_among_others(
    pure: Candidates, near: Candidates, known: Known, judged: Judged, limit: float
) -> Candidates:  # fmt: skip
    """Most releases took as long as a program does; single connections may still be held clearly."""
    held = []
    of_all = near.release
    for group in groups(near.connection):
        releases = pick(of_all, group)
        if (
            SOME < len(group) < len(near)
            and known.setting.step <= COARSE
            and percentile(releases, 50) <= limit / 2
            and percentile(releases, 80) <= limit
        ):
            held.append(pick(group, where(each(lambda release: release <= 2 * limit, releases))))
    some = near.picked(in_order(held) if held else [])
    rest = near.only(each(lambda is_some: is_some < 1, among(near.row, some.row)))
    middle = percentile(near.release, 50)
    if known.sent_before >= max(1, SENT_ANYWAY * len(near)):
        judged.reject(len(rest), Rejected.NAGLE_OFF)
    elif known.setting.step > COARSE and middle <= limit + known.setting.step:
        judged.leave(rest, Obstacle.COARSE_CLOCK)
    elif pauses_anyway(near, known):
        judged.reject(len(rest), Rejected.NAGLE_OFF)
    elif _are_few_by_chance(near, pure, 3 * middle) and is_paced(pure) and middle_half(near.release) > middle / 2:
        judged.reject(len(rest), Rejected.LATER_RELEASE)
    else:
        judged.leave(rest, Obstacle.LIKE_A_PROGRAM)
    return some


def _are_few_by_chance(near: Candidates, pure: Candidates, bound: float) -> bool:
    """Whether less than half came so soon, and no more within the bound than of pauses that may end at any time."""
    soon = total(each(lambda release: release <= bound, near.release))
    return len(near) < len(pure) / 2 and is_chance(soon, pure.release, bound, bound, 10)


def _typical(near: Candidates, step: int) -> float:
    """The middle of the distances from ACK to release; means survive a coarse clock."""
    releases = near.release
    if step <= FINE:
        return percentile(releases, 50)
    low, high = percentile(releases, 10), percentile(releases, 90)
    most = pick(releases, where(each(lambda release: (release >= low) & (release <= high), releases)))
    return total(most) / len(most)


def _behind_arrivals(near: Candidates, known: Known) -> Candidates:
    """Those before which, since the ACK, data of another connection arrived at the sender's host, as at a relay's.

    What is captured before and behind NAT arrives at the NAT's own address, too, and is the same data.
    On loopback all that is sent arrives at one address, so there it tells nothing.
    """
    if known.program.is_on_loopback:
        return near.picked([])
    behind = near.only(each(lambda arrival: arrival >= 0, near.arrival))
    if views := known.setting.views:
        return behind.picked([i for i, other in enumerate(behind.arrival) if int(other) not in views])
    return behind


def _is_slow_stack(pure: Candidates, known: Known) -> bool:
    """Whether even the sender's fastest pure ACKs take as long as those of no kernel.

    Without timestamps, which smoltcp and lwIP lack and Linux does not, some may be faster.
    """
    acks = nearby(known.program.own.ack)
    has_timestamps = total(each(lambda pace: pace >= 0, pure.pace))
    return not acks or percentile(acks, 5) >= (SLOW_STACK if has_timestamps else SOMETIMES_SLOW)
