"""Whether data came when its program liked, whatever the ACK.

That is shown by what the program does where the ACK came early, what chance explains, whether a clock of its own
paces the data, and when it left by its timestamps.
"""

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from statistics import correlation, pstdev

from nagle_lab.diagnosis.observed.candidates import NOT_RELEASED_AFTER, Candidates
from nagle_lab.diagnosis.observed.columns import Column, listed, percentile, total
from nagle_lab.diagnosis.observed.enough import A_FEW, COMPARABLE, MOST_LOOKED_AT, NEARLY_ALL
from nagle_lab.diagnosis.observed.observed import PATH_JITTER, Observed
from nagle_lab.diagnosis.observed.paths import round_trip_bounds, slack
from nagle_lab.tcp.events import MS, US, Echo

# If a program is at the capture point, what comes later than this after the ACK is its pause.
PAUSE = 1 * MS

# A program's pauses: the share by which they differ from the usual one, and how wide their middle half is, at most.
PAUSES_VARY, PAUSES_SPREAD = 0.2, 5 * MS
# Times the width in which releases may stand out: for that long after it, pauses show what chance explains. If the
# path varies, the one of several that shows the most.
SPAN, SPANS_AWAY = (10,), (1, 2, 4)
STANDARD_ERRORS = 3  # between what is held and what comes at its own time
AT_ONCE = 1  # ms, by timestamps, at most: both clocks are read within a millisecond
STEP = 1 * MS  # of both clocks
MORE_THAN_BACK = 3  # times as much as the way back, the way there may vary
ALIKE_AFTER_ACK = 4  # what follows ACKs at once differs so many times less than the waits; pauses do not
SOONER = 5 * MS  # a pause that is shorter by this ended before the ACK came


def comes_early_too(pure: Candidates, observed: Observed) -> bool:
    """Whether data mostly came early where the ACK came early: it had been written by then, and was held."""
    at_once, away = len(observed.program.reactions.release), observed.sender_fastest if observed.is_away else 0
    soon = at_once + total(observed.early.trigger_to_release <= 0.8 * pure.usual_wait + away)
    return soon >= 2 and 2 * soon > at_once + len(observed.early)


def pauses_anyway(c: Candidates, early: Candidates, fastest: int, often: int = 2) -> bool:
    """Whether the program sends just as long after the trigger where the ACK came early: then it pauses, whatever the
    ACK.

    ``early`` are the candidates with early ACKs, ``fastest`` is how soon the sender reacts, ns. It must do so after
    more than two of three of them, and at least ``often``: on a busy machine the first exchanges of a connection,
    whose ACKs are early, are slow as well. A pause that is shorter by SOONER ended before the late ACK came: the data
    that ended it was held.
    """
    usual = percentile(c.trigger_to_release, 50)
    least, longest = max(usual * (1 - PAUSES_VARY), usual - SOONER - slack(fastest)), usual * (1 + PAUSES_VARY)
    is_pause = (
        (early.ack_to_release > fastest + NOT_RELEASED_AFTER)
        & (early.trigger_to_release >= least)
        & (early.trigger_to_release <= longest)
    )
    pauses = early.only(is_pause)
    return (
        len(pauses) >= often
        and 3 * len(pauses) > 2 * len(early)
        and middle_half(pauses.trigger_to_release) < PAUSES_SPREAD
    )


def is_more_than_chance(count: float, expected: float) -> bool:
    """Whether there are more than chance explains: ``expected``, which varies by its square root."""
    return count > expected + 3 * sqrt(expected)


def is_chance(soon: int, releases: Column, bound: float, width: float, spans: Sequence[int]) -> bool:
    """Whether ``soon`` releases, within ``width`` ns up to ``bound`` ns, are no more than there would be of pauses
    that end at any time.

    How many of those to expect is counted after the bound, in a stretch of each of the ``spans`` times the width.
    """
    by_chance = [total((releases > bound) & (releases <= bound + span * width)) / span for span in spans]
    return not is_more_than_chance(soon, max(by_chance))


def stand_out(soon: int, releases: Column, low: float, high: float) -> bool:
    """Whether so many releases, ``low`` to ``high`` ns after the ACK, are more than chance explains by those before
    and after.

    What comes sooner than by a round trip left before the ACK had arrived, so it also shows what chance explains.
    """
    width = high - low
    before = total((releases >= low - width) & (releases < low))
    spans = SPAN if high < PAUSE else SPANS_AWAY
    return is_more_than_chance(soon, before) and not is_chance(soon, releases, high, width, spans)


def is_paced(c: Candidates, resolution: int) -> bool:
    """Whether releases come at a constant time after the trigger, not after the ACK: by the program's own clock.

    Times that are stamped with that ``resolution``, ns, vary by a step of it or more by chance.
    """
    varies = middle_half(c.ack_to_release) if len(c) >= COMPARABLE else 0
    return varies > max(300 * US, 2 * resolution) and 2 * middle_half(c.trigger_to_release) < varies


def of_one_size(c: Candidates) -> Candidates:
    """Those with the most usual sizes of trigger and release: on a slow link other sizes come sooner, or later."""
    both = Counter(zip(listed(c.trigger_bytes), listed(c.released_bytes), strict=True)).most_common(1)
    if not both:
        return c
    (trigger, released), _ = both[0]
    return c.only((c.trigger_bytes == trigger) & (c.released_bytes == released))


def follows_ack(c: Candidates) -> bool | None:
    """Whether data came as long after its ACK however late that was; None where chance may explain either.

    What an ACK releases does. What a program sends at a time of its own comes the sooner after an ACK the later the
    ACK is: the two times correlate by minus the ratio of their standard deviations, at least -1. The nearer of both
    predictions decides, if they are three standard errors apart. If the distances vary less than half as much as the
    waits, data follows the ACK.
    """
    waits = [int(ns) for ns in listed(c.trigger_to_ack)[:MOST_LOOKED_AT]]
    distances = [int(ns) for ns in listed(c.ack_to_release)[:MOST_LOOKED_AT]]
    if len(waits) < COMPARABLE or not pstdev(waits):
        return None
    if 2 * pstdev(distances) < pstdev(waits) or is_as_soon_behind_any(c):
        return True  # at a time of its own they would vary as much as the waits, and more
    of_its_own = -min(pstdev(waits) / pstdev(distances), 1)
    if -of_its_own * sqrt(len(waits)) < STANDARD_ERRORS:
        return None
    return correlation(waits, distances) > of_its_own / 2


def is_as_soon_behind_any(c: Candidates) -> bool:
    """Whether most follow their ACK at the same distance, however much the waits for it differ."""
    if len(c) < COMPARABLE:
        return False
    return ALIKE_AFTER_ACK * middle_half(c.ack_to_release) < middle_half(c.trigger_to_ack)


def middle_half(times: Column) -> float:
    """The interquartile range."""
    return percentile(times, 75) - percentile(times, 25)


def spread(times: Column) -> float:
    """What they differ by, without the tenth at either end."""
    return percentile(times, 90) - percentile(times, 10)


# When data left its sender, by the timestamps of both ends (RFC 7323), which count milliseconds on Linux. A release
# echoes the late ACK and leaves as soon as that has arrived. What passes the capture point later was under way for
# longer, on a slow link or in a queue; or it left later, because it was written later.


def sent_later(c: Candidates, pure: Candidates, observed: Observed) -> Candidates:
    """Those of ``c`` that left clearly later than their ACK arrived, and passed the capture point as much later.

    They must be later by more than the path is seen to vary, by all candidates, ``pure``: the ACK may have been
    delayed on its way. None if they all follow the ACK as soon, whatever the wait: then the path is longer than when
    the clocks were compared.
    """
    _, latest = round_trip_bounds(observed.sender_fastest)
    later = c.only((c.echo == Echo.AFTER) & (c.tsval_delay > AT_ONCE) & (_under_way(c) < latest + STEP))
    later = later.only(later.ack_to_release > observed.sender_fastest + STEP + path_variation(pure, observed))
    return c.none if is_as_soon_behind_any(later) else later


def _under_way(c: Candidates) -> Column:
    """From the ACK to the release, ns, less the time until it left: the way there and back, and up to a STEP less."""
    return c.ack_to_release - c.tsval_delay * MS


def path_variation(pure: Candidates, observed: Observed) -> float:
    """The most by which the path is seen to delay what a kernel sends, ns; no program has a part in that.

    It is seen by that kernel's answers, and by how much longer than others some releases were under way: that is how
    much the way back varies, and the way there varies at most MORE_THAN_BACK times as much.
    """
    base = observed.sender_fastest
    quick = [ns - base for ns in observed.program.reactions.by_kernel_before(base + PATH_JITTER)]
    way = _under_way(pure.only((pure.echo == Echo.AFTER) & (pure.tsval_delay >= 0)))
    back = percentile(way, 95) - percentile(way, 5) - STEP if len(way) else 0
    return max(slack(base), percentile(quick, 95) if quick else 0, MORE_THAN_BACK * back)


def timestamps_tell(c: Candidates) -> bool:
    """Whether timestamps show for nearly all of these when they left."""
    return total((c.echo == Echo.BEFORE) | (c.tsval_delay >= 0)) > NEARLY_ALL * len(c)


def sent_at_once(pure: Candidates) -> Candidates:
    """Those that left as soon as their ACK arrived."""
    return pure.only((pure.echo == Echo.AFTER) & (pure.tsval_delay >= 0) & (pure.tsval_delay <= AT_ONCE))


def are_chance(at_once: Candidates, pure: Candidates) -> bool:
    """Whether no more of ``pure`` were :func:`sent_at_once` than there would be of pauses that end at any time."""
    delays = pure.only((pure.echo == Echo.AFTER) & (pure.tsval_delay >= 0)).tsval_delay
    return is_chance(len(at_once), delays, AT_ONCE, AT_ONCE + 1, SPANS_AWAY)


def are_delayed_by_the_path(released: Candidates, base: int) -> bool:
    """Whether most of these left at once, and several of them were surely under way for longer than ``base`` ns.

    A slow link takes time for their bytes, or they stood in a queue.
    """
    at_once = sent_at_once(released)
    delayed = at_once.only(_under_way(at_once) - base - STEP > slack(base))
    return 2 * len(at_once) > len(released) and len(delayed) >= max(COMPARABLE, A_FEW * len(at_once))


def sent_at_once_but_delayed(pure: Candidates, base: int) -> Candidates:
    """Those that were :func:`sent_at_once` and delayed by the path; none if chance explains as many."""
    at_once = sent_at_once(pure)
    if are_chance(at_once, pure) or not are_delayed_by_the_path(at_once, base):
        return pure.none
    return at_once
