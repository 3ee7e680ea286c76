"""How soon after the ACK a kernel sends what it held, near the sender, alone or in a queue; docs/proof.md, rule 2."""

from itertools import pairwise

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import are_all, highest, listed, percentile, total
from nagle_lab.diagnosis.observed.enough import COMPARABLE, MOST_LOOKED_AT, NEARLY_ALL, REPEATED
from nagle_lab.diagnosis.observed.observed import Observed, below_near
from nagle_lab.diagnosis.observed.programs import Program, Reactions
from nagle_lab.diagnosis.proof.pauses import PAUSE, comes_early_too, is_as_soon_behind_any
from nagle_lab.packet.segment import OPTIONS_CUT
from nagle_lab.tcp.events import MS, US

# Medians (docs/proof.md has the measurements): a kernel takes 3 to 53 µs at the sender, up to 118 at its peer;
# programs that wait for the same ACK take 49 µs and more at the sender, 74 and more at its peer. A kernel's times
# have a floor and vary little above it; those of a woken program spread. So times up to the larger limit must be
# alike, of at least SOME_ALIKE releases.
HELD, HELD_ALIKE = 45 * US, 68 * US
AT_PEER, AT_PEER_ALIKE = 82 * US, 120 * US
ALIKE, SOME_ALIKE = 1.35, 5  # their ninth decile, times their median; and how many it takes
# On a slow machine kernels take longer: so many times its answer to a SYN, or its quick ACK if no SYN is captured.
SYN_ANSWERS, SYN_ANSWERS_AT_PEER = 2, 3
# On a fast machine kernels take less. If no release is sooner than a woken program, and they are not alike, kernels
# took up to two of its answers to a SYN, woken relays four and more.
SURELY_SYN_ANSWERS = 3
SPREADS = 3  # times the median: the ninth decile of what a kernel releases at the sender is no later
SLOWEST_AT_PEER = 100 * US  # but the limit is no longer than this, unless they are alike
# A stack in user space sleeps, too, and its own ACKs take SLOW_STACK or more (SOMETIMES_SLOW without timestamps). Its
# limit is SLOW_STACK_SYN_ANSWERS of its answers to a SYN, if data also comes early where the ACK comes early; but no
# more than SLOW_STACK_SLEEPS later than these (gVisor took up to 228 µs), because a path may make them late.
SLOW_STACK, SOMETIMES_SLOW, SLOW_STACK_SYN_ANSWERS, SLOW_STACK_SLEEPS = 30 * US, 10 * US, 4, 250 * US

POLLED = 5 * MS  # a program that polls its send queue every few ms is mostly later than PAUSE, but not than this

SOONEST_WOKEN = 25 * US  # for a thread that another thread wakes; one that an ACK wakes takes 49 and more

BLIND = 100 * US  # with a coarser clock distances say nothing
COARSE = 20 * US  # with a coarser clock single distances are uncertain
FINE = 5 * US  # up to this resolution medians are certain

# On a path of 0.1 ms: the most by which data that a kernel held comes later than its answers (medians). It took up to
# 38 µs longer, programs that wait for the ACK 49 and more.
HARDLY_LATER = 40 * US

SOON_AS_SYNS = 1.5  # times the median answer to a SYN: the limit of data that a kernel sent behind an early ACK
# Share of an answer to a SYN: a kernel sends one release after the other no later (median); relays took 0.57 and
# more.
ONE_BEHIND_THE_OTHER = 0.35
IN_ORDER = 0.9  # share of the releases that leave in the order in which their ACKs came
QUEUE = 100  # times the limit: what comes as late does not stand in a queue, but follows a pause
STARTED = 0.75  # of the latest release: the first of a queue is no later


def slowest_release(pure: Candidates, observed: Observed) -> float:
    """The largest median time from ACK to release, ns, that is still a kernel's at this capture point."""
    near = pure.only(pure.ack_to_release < PAUSE)
    if slowest := _slowest_of_slow_stack(pure, near, observed):
        return slowest
    return _slowest_at_sender(near, observed) if observed.is_at_sender else _slowest_at_peer(near, observed)


def _slowest_of_slow_stack(pure: Candidates, near: Candidates, observed: Observed) -> float:
    """The same for a TCP stack in user space whose data waits for the ACK; 0 for others.

    It comes early where the ACK does. Or it comes as soon behind any ACK, and no tick of one kernel sends both.
    """
    if not observed.program.reactions.handshake:
        return 0
    usual = _usual_answer(observed)
    is_hardly_any_later = len(near) >= NEARLY_ALL * total(pure.ack_to_release < POLLED)
    may_be_slow = usual >= SLOW_STACK and is_hardly_any_later
    if not may_be_slow or not is_slow_stack(pure, observed):
        return 0
    if not comes_early_too(pure, observed) and not (are_all(pure.two_kernels) and is_as_soon_behind_any(near)):
        return 0
    return max(HELD_ALIKE, min(SLOW_STACK_SYN_ANSWERS * usual, usual + SLOW_STACK_SLEEPS))


def _slowest_at_sender(near: Candidates, observed: Observed) -> float:
    if observed.setting.resolution > FINE:
        return HELD_ALIKE
    usual, acks = _usual_answer(observed), below_near(observed.program.reactions.ack)
    # One SYN may be answered late on a busy host; a machine is only slow if its own ACKs take as long.
    surely_slow = min(usual, percentile(acks, 50)) if acks else usual
    # With its handshake, several ACKs show if it was captured one hop before the sender, on a bridge for example.
    is_known = len(acks) >= COMPARABLE and bool(observed.program.reactions.handshake)
    if _are_alike(near, observed):
        return max(HELD_ALIKE, min(SYN_ANSWERS * surely_slow, AT_PEER_ALIKE)) if is_known else HELD_ALIKE
    limit = max(HELD, min(SYN_ANSWERS * surely_slow, AT_PEER if is_known else HELD_ALIKE))
    is_woken = _is_none_sooner_than_woken(near) or _vary_like_a_program(near)
    if not observed.program.reactions.handshake or not is_woken:
        return limit
    return limit if _early_releases_are_as_soon_as_syns(observed) else min(limit, SURELY_SYN_ANSWERS * usual)


def _slowest_at_peer(near: Candidates, observed: Observed) -> float:
    answers, is_coarse = _answers(observed), observed.setting.resolution > FINE
    are_alike = not is_coarse and _are_alike(near, observed)
    is_unknown = not answers and not are_alike and not is_coarse  # how fast that end is
    if is_unknown and _is_none_sooner_than_woken(near) and not _early_releases_are_a_kernels(observed.program):
        return SOONEST_WOKEN
    slowest = SYN_ANSWERS_AT_PEER * percentile(answers, 90) if answers else 0
    limit = max(AT_PEER, min(slowest, AT_PEER_ALIKE if are_alike else SLOWEST_AT_PEER))
    return max(limit, _slowest_on_short_path(observed.program.reactions))


def _early_releases_are_a_kernels(program: Program) -> bool:
    """Whether data follows early ACKs sooner than from a woken program, and always as soon: its kernel had
    held it.
    """
    released = program.reactions.release
    if len(released) < COMPARABLE:
        return False
    usual = percentile(released, 50)
    return usual <= HELD and usual <= ALIKE * percentile(released, 10)


def _slowest_on_short_path(reactions: Reactions) -> float:
    """The largest median release, ns, of an end on a path so short that programs can still be recognized; 0 for
    others.

    Hardly any of its kernel's answers is as soon as a release may be at its peer, and what the kernel held comes
    hardly later.
    """
    answers, acks = below_near(reactions.handshake), below_near(reactions.ack)
    if not answers or len(answers + acks) < COMPARABLE or percentile(answers + acks, 10) < AT_PEER:
        return 0
    usual = min(percentile(some, 50) for some in (answers, acks) if some)
    return usual + HARDLY_LATER


def _answers(observed: Observed) -> list[int]:
    """How soon that end's kernel answers SYNs near the capture point, or if there are none, other segments, ns."""
    reactions = observed.program.reactions
    return below_near(reactions.handshake or reactions.ack)


def _usual_answer(observed: Observed) -> float:
    answers = _answers(observed)
    return percentile(answers, 50) if answers else 0


def _are_alike(near: Candidates, observed: Observed) -> bool:
    if len(near) < SOME_ALIKE:
        return False
    alike = ALIKE * percentile(near.ack_to_release, 50) + 2 * observed.setting.resolution
    return percentile(near.ack_to_release, 90) <= alike


def _is_none_sooner_than_woken(near: Candidates) -> bool:
    return len(near) >= SOME_ALIKE and percentile(near.ack_to_release, 10) >= SOONEST_WOKEN


def _vary_like_a_program(near: Candidates) -> bool:
    """Whether most are no sooner than from a woken program, and the slower ones much slower than most."""
    if len(near) < SOME_ALIKE:
        return False
    usual = percentile(near.ack_to_release, 50)
    return usual >= SOONEST_WOKEN and percentile(near.ack_to_release, 90) > SPREADS * usual


def usual_release(near: Candidates, resolution: int) -> float:
    """The usual time from ACK to release, ns: the median; by a coarse clock the mean of the middle eight tenths."""
    if resolution <= FINE:
        return percentile(near.ack_to_release, 50)
    tenth = len(near) // 10
    most: list[int] = sorted(listed(near.ack_to_release))[tenth : len(near) - tenth]
    return sum(most) / len(most)


def is_slow_stack(pure: Candidates, observed: Observed) -> bool:
    """Whether even the fastest pure ACKs of the sender are slower than any kernel's: a TCP stack in user space.

    If the sender has no timestamps (Linux has, smoltcp and lwIP have none), some of its ACKs may be faster. There is
    no such stack on loopback.
    """
    if observed.setting.is_on_loopback:
        return False
    acks = below_near(observed.program.reactions.ack)
    may_have_timestamps = total((pure.tsval_delay >= 0) | (pure.ahead == OPTIONS_CUT))
    handshakes = observed.program.reactions.handshake
    if len(handshakes) < 2 and len(acks) + len(handshakes) < REPEATED:
        return False  # one or two answers of a Linux that is busy take as long
    return not acks or percentile(acks, 5) >= (SLOW_STACK if may_have_timestamps else SOMETIMES_SLOW)


def queued_releases(pure: Candidates, observed: Observed, limit: float) -> Candidates | None:
    """Releases that queue at their host, each following the previous one as soon as a kernel sends; None if there are
    none.

    The timers of connections in step fire together, and their ACKs arrive at once. A relay's writes queue, too; so
    the kernel must also be seen to hold.
    """
    answers = observed.program.reactions.handshake
    if not answers or observed.sent_before:
        return None
    longest = QUEUE * limit
    queued = pure.only((pure.since_host_busy < pure.ack_to_release) & (pure.ack_to_release < longest))
    soon = queued.only(queued.since_host_busy <= limit)
    if len(queued) < max(COMPARABLE, len(pure) / 2) or len(soon) <= NEARLY_ALL * len(queued):
        return None
    answer, apart = percentile(answers, 50), percentile(queued.since_host_busy, 50)
    if apart > answer:
        return None  # a program that writes to one connection after the other takes longer for each
    if not _early_releases_are_as_soon_as_syns(observed) and (
        apart > ONE_BEHIND_THE_OTHER * answer or not _are_in_order(queued)
    ):
        return None
    if percentile(queued.ack_to_release, 10) > STARTED * percentile(queued.ack_to_release, 90):
        return None  # all are as late as the last one: they stand behind a pause
    latest = highest(soon.ack_to_release) + limit  # the first one of each queue waits for the kernel to wake up
    return pure.only(pure.ack_to_release <= latest)


def _are_in_order(queued: Candidates) -> bool:
    """Whether nearly all leave in the order in which their ACKs came, as one kernel sends them.

    If several threads write side by side, the releases are as close, but not in order.
    """
    both = (listed(frames[:MOST_LOOKED_AT]) for frames in (queued.release_frame, queued.ack_frame))
    released = sorted(zip(*both, strict=True))
    together = [(ack, after) for (release, ack), (_, after) in pairwise(released) if after < release]
    in_order = sum(ack < after for ack, after in together)
    return len(together) >= COMPARABLE and in_order > IN_ORDER * len(together)


def _early_releases_are_as_soon_as_syns(observed: Observed) -> bool:
    """Whether data follows early ACKs as soon as SYNs are answered, or sooner than from any program that sleeps."""
    answers, early = observed.program.reactions.handshake, observed.program.reactions.release
    limit = max(SOON_AS_SYNS * percentile(answers, 50), SOONEST_WOKEN)
    return len(early) >= REPEATED and percentile(early, 50) <= limit
