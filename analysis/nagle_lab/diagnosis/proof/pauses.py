"""Whether data came when its program liked, whatever the ACK: what it does where the ACK came early, what chance
explains, and whether a clock of its own paces it.
"""

from math import sqrt
from statistics import correlation, pstdev

from nagle_lab.diagnosis.observed.candidates import LATER, Candidates
from nagle_lab.diagnosis.observed.columns import Column, listed, percentile, total
from nagle_lab.diagnosis.observed.enough import COMPARABLE, MOST_LOOKED_AT
from nagle_lab.diagnosis.observed.observed import US, Observed, slack
from nagle_lab.tcp.events import MS

# Later than this behind the ACK comes a pause of the program, where it is at the capture point.
PAUSE = 1 * MS

# A program's pauses: by what share of the usual one others are longer or shorter, and how wide their middle half is.
PAUSES_VARY, PAUSES_SPREAD = 0.2, 5 * MS
# Times the width in which releases may stand out: so long behind it pauses show what chance does.
SPANS_AWAY, SPANS_NEAR = (1, 2, 4), (10,)
STANDARD_ERRORS = 3  # between what is held and what comes at its own time
SOONER = 5 * MS  # a pause that is so much shorter ended before the ACK came


def comes_early_too(pure: Candidates, observed: Observed) -> bool:
    """Whether data mostly came early where the ACK came early: it had been written by then, and was held."""
    at_once, usual = len(observed.program.reactions.release), 0.8 * percentile(pure.trigger_to_ack, 50)
    soon = at_once + total(observed.early.trigger_to_release <= usual)
    return soon >= 2 and 2 * soon > at_once + len(observed.early)


def pauses_anyway(c: Candidates, early: Candidates, fastest: int) -> bool:
    """Whether the program sends as long after the trigger where the ACK came early: then it pauses, whatever the ACK.

    ``early`` are the candidates with early ACKs, ``fastest`` is how soon the sender reacts, ns. After more than two
    of three of them: on a busy machine the first exchanges of a connection, whose ACKs are early, are slow as well. A
    pause that is shorter by SOONER ended before the late ACK came: what it ended with was held.
    """
    usual = percentile(c.trigger_to_release, 50)
    least, longest = max(usual * (1 - PAUSES_VARY), usual - SOONER - slack(fastest)), usual * (1 + PAUSES_VARY)
    is_pause = (
        (early.ack_to_release > fastest + LATER)
        & (early.trigger_to_release >= least)
        & (early.trigger_to_release <= longest)
    )
    pauses = early.only(is_pause)
    return (
        len(pauses) >= 2
        and 3 * len(pauses) > 2 * len(early)
        and middle_half(pauses.trigger_to_release) < PAUSES_SPREAD
    )


def is_chance(soon: int, releases: Column, bound: float, width: float, times: int) -> bool:
    """Whether ``soon`` releases within ``width`` ns up to ``bound`` ns are no more than pauses that end at any time.

    How many of those to expect is counted after the bound, in a stretch of ``times`` the width; it varies by its
    square root, and three of these standard deviations are allowed.
    """
    beyond = bound + times * width
    by_chance: float = total((releases > bound) & (releases <= beyond)) / times
    return soon <= by_chance + 3 * sqrt(by_chance)


def stand_out(soon: int, releases: Column, low: float, high: float) -> bool:
    """Whether so many releases, ``low`` to ``high`` ns after the ACK, are more than chance brings before and behind.

    What comes sooner than by a round trip left before the ACK had arrived, and shows what chance does as well.
    """
    width = high - low
    before = total((releases >= low - width) & (releases < low))
    if soon <= before + 3 * sqrt(before):
        return False
    spans = SPANS_NEAR if high < PAUSE else SPANS_AWAY
    return not any(is_chance(soon, releases, high, width, span) for span in spans)


def is_paced(c: Candidates, resolution: int) -> bool:
    """Whether releases come at a constant time after the trigger, not after the ACK: by the program's own clock.

    Times that are stamped with that ``resolution``, ns, vary by one step of it, and more, by chance.
    """
    spread = middle_half(c.ack_to_release) if len(c) >= COMPARABLE else 0
    return spread > max(300 * US, 2 * resolution) and 2 * middle_half(c.trigger_to_release) < spread


def follows_ack(c: Candidates) -> bool | None:
    """Whether data came as long after its ACK however late that was; None where chance may explain either.

    What an ACK lets go does. What a program sends at a time of its own comes the sooner behind an ACK the later that
    is: the two are correlated, by as much of what the distances vary by as the waits do. The nearer of both tells, if
    three standard errors lie between them; and where the distances vary less than half as much as the waits, the ACK.
    """
    waits = [int(ns) for ns in listed(c.trigger_to_ack)[:MOST_LOOKED_AT]]
    distances = [int(ns) for ns in listed(c.ack_to_release)[:MOST_LOOKED_AT]]
    if len(waits) < COMPARABLE or not pstdev(waits) or not pstdev(distances):
        return None
    if 2 * pstdev(distances) < pstdev(waits):
        return True  # at a time of its own they would vary as much as the waits, and more
    of_its_own = -min(pstdev(waits) / pstdev(distances), 1)
    if -of_its_own * sqrt(len(waits)) < STANDARD_ERRORS:
        return None
    return correlation(waits, distances) > of_its_own / 2


def middle_half(times: Column) -> float:
    """The interquartile range."""
    return percentile(times, 75) - percentile(times, 25)
