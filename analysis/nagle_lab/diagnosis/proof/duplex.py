"""Late ACKs that came with data: what follows is an answer to that, or what Nagle's algorithm had held until then.

An answer is the commonest thing that follows data, so promptness alone accuses nobody here. It takes a kernel's
promptness and a second sign: what pure ACKs are proved to have released, late or early; an end that speaks of its own
accord and yet never beside unacknowledged data; or writes that were merged while they waited.
"""

import math
from bisect import bisect_left, bisect_right
from itertools import accumulate
from statistics import correlation

from nagle_lab.diagnosis.proof.candidates import LATER, Candidates, times_peer_spoke
from nagle_lab.diagnosis.proof.judged import Ground, Hold, Judged, Obstacle
from nagle_lab.diagnosis.proof.near import ALIKE, AT_PEER, FINE, HELD, HELD_ALIKE
from nagle_lab.diagnosis.proof.population import among, distinct, each, groups, percentile, pick, total
from nagle_lab.diagnosis.proof.timing import (
    FEW,
    HARDLY_ANY,
    LATE_FAR,
    MANY,
    MOST_LOOKED_AT,
    NEARLY_ALL,
    PAUSE,
    SOME,
    Known,
    around,
    is_chance,
    is_paced,
    middle_half,
    nearby,
)
from nagle_lab.tcp.events import Echo

MOST_SIZES = 6  # of a program's segments; among more of them sums are found by chance
# A kernel lets go what it held as soon as it answers a SYN (1.0 to 1.7 times as late, median); the fastest program,
# an echo in C, took 3.4 times as long between two namespaces, and 1.7 times on a relayed path (slow for SYNs, too).
KERNEL = 1.8
AS_SOON, AS_SOON_AT_SENDER = 1.5, 2.0  # times the median of what pure ACKs released
EXPECTED = 5  # data beside unacknowledged data, of an end that speaks when it likes: none of so many is no chance
SOME_OF = 0.1  # of the ridden ones: an end that sends more than so many beside unacknowledged data does not hold
# Writes by a clock: how far what was sent strays from a constant rate, at most, in standard deviations of a random
# walk of the same steps. One strays 1.2 on average, and hardly ever less than 0.6 (Kuiper's statistic).
STEADY = 0.55
# How closely sizes go with waits: their rank correlation, in standard deviations of chance, and of how many.
GROWS, GROWS_LEAST = 5, 30
# Data by a clock of its sender's own: its distances vary less than its reaction times do, by more than chance, which
# is so much divided by the root of their number.
BY_CHANCE, PAIRS = 1.5, 20
SURELY = 1.3  # times as long as its answers to SYNs a kernel takes where the fastest program takes 1.7 times as long
AROUND = 20  # times as long as a release may take: so long behind it other data shows how much comes by chance
SELDOM = 0.1  # of the answers at the sender: so few as quick as releases are chance
APART = 0.25  # away from it, where data that crosses is as quick by chance


def judge_ridden(ridden: Candidates, held: Candidates, c: Candidates, known: Known, judged: Judged) -> None:
    """Judge the late candidates whose ACK came with data; ``c`` are all of the program, ``held`` its proved ones."""
    ridden = ridden.only(each(lambda count: count == 0, ridden.not_held))
    if len(ridden) < SOME or known.setting.step > FINE or _sent_beside(known) > SOME_OF * len(ridden):
        return
    (_judge_far if known.is_far else _judge_near)(ridden, held, c, known, judged)


def _judge_near(ridden: Candidates, held: Candidates, c: Candidates, known: Known, judged: Judged) -> None:
    near = ridden.only(each(lambda release: release < PAUSE, ridden.release))
    if 2 * len(near) < len(ridden):  # it speaks at other times, too
        near = near.only(each(lambda release: release <= 2 * HELD_ALIKE, near.release))
        if is_chance(len(near), ridden.release, 2 * HELD_ALIKE, 2 * HELD_ALIKE, AROUND):
            return
    if len(near) < SOME:
        return
    middle = percentile(near.release, 50)
    prompt = near.only(each(lambda release: release <= max(2 * middle, HELD_ALIKE), near.release))
    merged, speaks = _merged_writes(prompt, known), len(_of_own_accord(c, known, prompt)) >= FEW
    has_second_sign = (
        speaks or _speaks_between(known) or (len(held) >= FEW and known.place == "sender") or _held_early(known)
    )
    are_merged = (len(merged) > NEARLY_ALL * len(prompt) and _holds(known)) or _are_by_a_clock(merged, prompt, known)
    is_kernel = _is_kernel(middle, prompt, held, known)
    # A few of many on a busy machine are as quick by chance.
    may_be_kernel = MANY <= len(prompt) > len(c) / 2 and _answers_like_a_kernel(middle, known)
    grows = _speaks_between(known) and _grows_with_the_wait(prompt)
    is_silent_beside = (speaks and _never_beside(prompt, c, known)) or _are_two_talkers(prompt, known)
    if (are_merged and middle <= 2 * HELD_ALIKE) or (is_kernel and grows):
        judged.accept(prompt, Ground.MERGED_WRITES, _unknown_hold(prompt, known))
    elif is_kernel and (has_second_sign or (_is_surely_kernel(middle, known) and _is_no_answer(prompt, known))):
        judged.accept(prompt, Ground.DATA_ACKS, _unknown_hold(prompt, known))
    elif is_kernel or may_be_kernel or (middle <= AT_PEER and (grows or is_silent_beside)):
        judged.leave(prompt, Obstacle.ACK_ON_DATA)


def _judge_far(ridden: Candidates, held: Candidates, c: Candidates, known: Known, judged: Judged) -> None:
    low, high = around(known.own or 0)
    if len(held) >= FEW:
        high = max(high, percentile(held.release, 90))
    prompt = ridden.only(each(lambda release: (release >= low) & (release <= high), ridden.release))
    if 2 * len(prompt) <= len(ridden) or is_paced(ridden):
        return
    both_speak = len(_of_own_accord(c, known, prompt)) >= FEW and times_peer_spoke(prompt) >= FEW
    is_silent_beside = both_speak and _never_beside(prompt, c, known)
    merged = _merged_writes(prompt, known)
    if both_speak and (len(held) >= FEW or (is_silent_beside and _held_early(known))):
        judged.accept(prompt, Ground.DATA_ACKS, _unknown_hold(prompt, known))
    elif _are_by_a_clock(merged, prompt, known):
        judged.accept(prompt, Ground.MERGED_WRITES, _unknown_hold(prompt, known))
    elif (
        is_silent_beside
        or (_speaks_between(known) and _grows_with_the_wait(prompt))
        or _are_two_talkers(prompt, known)
        or len(merged) > NEARLY_ALL * len(prompt)
        or _is_peer_by_a_clock(prompt)
        or _crosses_and_seldom_answers(low, high, known)
        or (not len(held) and _held_early(known))
    ):
        judged.leave(prompt, Obstacle.ACK_ON_DATA)


def _sent_beside(known: Known) -> int:
    return known.program.sent_without_waiting(0, (Echo.BEFORE, Echo.UNKNOWN)).total()


def _is_kernel(middle: float, prompt: Candidates, held: Candidates, known: Known) -> bool:
    """Whether releases came as soon as this end's kernel answers a SYN, or lets go what pure ACKs release.

    Where they take long for a kernel, they must be alike, too: a woken program's time varies.
    """
    is_sender = known.place == "sender"
    if len(held) >= FEW and middle <= (AS_SOON_AT_SENDER if is_sender else AS_SOON) * percentile(held.release, 50):
        return True
    answers, theirs = (nearby(side.handshake) for side in (known.program.own, known.program.peers))
    if known.place == "peer" and not (answers and theirs and 2 * percentile(answers, 50) < percentile(theirs, 50)):
        return False  # by handshakes, too: a few of its ACKs may be slow by chance
    varies = percentile(prompt.release, 90) > ALIKE * middle
    return _answers_like_a_kernel(middle, known) and not (middle > HELD and varies)


def _answers_like_a_kernel(middle: float, known: Known) -> bool:
    """Whether releases came as soon as SYNs are answered; at the peer the way there hides some of the difference."""
    answers = nearby(known.program.own.handshake)
    return bool(answers) and middle <= min(HELD_ALIKE, KERNEL * percentile(answers, 50))


def _is_surely_kernel(middle: float, known: Known) -> bool:
    """Whether that is as soon as no program that slept is: not so at the peer, where the way there hides it."""
    answers = nearby(known.program.own.handshake)
    return known.place == "sender" and bool(answers) and middle <= SURELY * percentile(answers, 50)


def _holds(known: Known) -> bool:
    """Whether the program's data was seen to follow early ACKs as soon as a kernel sends it."""
    releases = [*known.program.own.release, *map(int, known.early.release[:MOST_LOOKED_AT])]
    return any(release <= HELD_ALIKE for release in releases)


def _held_early(known: Known) -> bool:
    """Whether early pure ACKs released data, too, as soon as a kernel does: then Nagle's algorithm is on there."""
    if known.is_far:
        low, high = around(known.own or 0)
    else:
        answers = nearby(known.program.own.handshake)
        low, high = 0.0, min(HELD_ALIKE, KERNEL * percentile(answers, 50)) if answers else 0.0
    prompt = total(each(lambda release: (release >= low) & (release <= high), known.early.release))
    return prompt >= FEW and _sent_beside(known) <= HARDLY_ANY * prompt


def _are_by_a_clock(merged: Candidates, prompt: Candidates, known: Known) -> bool:
    """Whether some writes were merged, by the time they waited: what was sent keeps to a constant rate.

    So do answers of two sizes in turn. But who answers always acknowledges with that.
    """
    own = known.own or 0
    unanswered = sum(ack - own >= LATE_FAR for ack in known.program.own.ack)
    if len(merged) < max(SOME_OF * len(prompt), MANY) or unanswered < FEW:
        return False
    strays = []
    connections, sizes, times = prompt.connection, prompt.released_bytes, prompt.since
    for group in groups(connections):
        stray = _stray(*([int(number) for number in pick(column, group)] for column in (sizes, times)))
        strays += [stray] * (len(group) >= MANY)
    return bool(strays) and percentile(strays, 50) <= STEADY and percentile(strays, 90) < 1


def _stray(sizes: list[int], times: list[int]) -> float:
    """How far the sum of the sizes strays from a constant rate, in standard deviations of a random walk."""
    rate, mean, count = sum(sizes) / max(sum(times), 1), sum(sizes) / len(sizes), len(sizes)
    step = (sum((size - mean) ** 2 for size in sizes) / count) ** 0.5
    sums = list(accumulate(size - rate * time for size, time in zip(sizes, times, strict=True)))
    return (max(sums) - min(sums)) / (step * count**0.5) if step else 2.0


def _grows_with_the_wait(c: Candidates) -> bool:
    """Whether what was sent is the larger, the longer it waited: more writes were merged meanwhile.

    So are answers that bring all that has come up since the question before.
    """
    sizes, waits = ([int(number) for number in column[:MOST_LOOKED_AT]] for column in (c.released_bytes, c.wait))
    if len(sizes) < GROWS_LEAST or min(sizes) == max(sizes) or min(waits) == max(waits):
        return False
    closeness: float = correlation(_ranked(sizes), _ranked(waits))
    return closeness * math.sqrt(len(sizes)) > GROWS


def _speaks_between(known: Known) -> bool:
    """Whether some of the program's data came long after what it received last: then not all of it is answers."""
    return sum(data - (known.own or 0) > PAUSE for data in known.program.own.data) >= FEW


def _are_two_talkers(c: Candidates, known: Known) -> bool:
    """Whether the peer goes on without answers, and this end speaks at other times, too, but not beside its own."""
    if len(c) < GROWS_LEAST or not _speaks_between(known) or _sent_beside(known):
        return False
    beside = sum(known.program.peers_went_on[int(connection)] for connection in distinct(c.connection))
    return times_peer_spoke(c) + beside >= SOME


def _ranked(numbers: list[int]) -> list[float]:
    """The rank of each; equal ones share theirs."""
    ordered = sorted(numbers)
    return [(bisect_left(ordered, number) + bisect_right(ordered, number)) / 2 for number in numbers]


def _is_peer_by_a_clock(prompt: Candidates) -> bool:
    """Whether the peer's data, which carried the ACKs, kept to a clock of the peer's own and not to what it got.

    So it asked for nothing that it then got: from one of its segments to the next the time varies less than from what
    it got to the next. Otherwise it varies as much as both.
    """
    answered: dict[int, int] = {}  # frame of a release → how long after the peer's data
    between, waits = [], []
    rows = (prompt.trigger_frame, prompt.release_frame, prompt.wait, prompt.release)
    for trigger, released, wait, release in zip(*rows, strict=True):
        if int(trigger) in answered:
            waits.append(int(wait))
            between.append(answered.pop(int(trigger)) + int(wait))
        answered[int(released)] = int(release)
    if len(waits) < PAIRS:
        return False
    return middle_half(between) < (1 - BY_CHANCE / math.sqrt(len(waits))) * middle_half(waits)


def _is_no_answer(prompt: Candidates, known: Known) -> bool:
    """Whether what followed the peer's data answered nothing.

    The peer speaks when it likes, or this end's answers to data that acknowledged nothing, which could release
    nothing, all take longer.
    """
    free = known.program.own.free
    quick = 2 * percentile(prompt.release, 90)
    takes_longer = len(free) >= FEW and sum(ns <= quick for ns in free) <= SELDOM * len(free)
    return takes_longer or _is_peer_by_a_clock(prompt) or _are_two_talkers(prompt, known)


def _crosses_and_seldom_answers(low: float, high: float, known: Known) -> bool:
    """Whether this end's data crosses the peer's on the way, so it speaks when it likes, but seldom right behind it.

    Then it is as quick only where the peer's data acknowledges its own.
    """
    free = known.program.own.free
    crossed, quick = sum(ns < low for ns in free), sum(low <= ns <= high for ns in free)
    return len(free) >= SOME and crossed >= FEW and quick <= APART * len(free)


def _of_own_accord(c: Candidates, known: Known, ridden: Candidates) -> Candidates:
    """What the program sent long after all of its data was acknowledged, and nothing had come: no answer.

    Nor the rest of one, after a pause: what is sent at other times, too, is no larger than what might have been held.
    """
    own, largest = known.own or 0, percentile(ridden.released_bytes, 50) if len(ridden) else 0
    return c.only(
        each(
            lambda pure, release, size: (pure > 0) & (release - own >= LATER) & (size <= largest),
            c.pure,
            c.release,
            c.released_bytes,
        )
    )


def _never_beside(prompt: Candidates, c: Candidates, known: Known) -> bool:
    """Whether an end that speaks when it likes would have done so while data was unacknowledged, but did not."""
    free = _of_own_accord(c, known, prompt)
    expected = len(free) * total(prompt.wait) / max(total(free.release), 1)
    return len(free) >= FEW and expected >= EXPECTED and _sent_beside(known) <= HARDLY_ANY * expected


def _unknown_hold(prompt: Candidates, known: Known) -> Hold:
    return Hold(len(prompt), 0, percentile(prompt.since if known.is_far else prompt.wait, 50))


def _merged_writes(c: Candidates, known: Known) -> Candidates:
    """Those as large as two writes that the program sent apart at first, and then no more."""
    sizes = {int(size) for some in (c, known.early) for size in (*some.trigger_bytes, *some.released_bytes)}
    if len(sizes) > MOST_SIZES:
        return c.picked([])
    sums = {size for size in sizes if any(size - piece in sizes for piece in sizes)}
    return c.only(among(c.released_bytes, sorted(sums)))
