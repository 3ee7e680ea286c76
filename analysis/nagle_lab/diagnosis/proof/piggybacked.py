"""Piggybacked ACKs: what follows data with a late ACK is an answer, or what Nagle's algorithm held until then.

Data is usually followed by an answer, so promptness alone accuses nobody here. It takes a kernel's promptness and a
second sign: pure ACKs, late or early, that are proved to have released data on the same connections; an end that
sends unasked, but never while its data is unacknowledged; or writes that were merged while they waited.
docs/proof.md, rule 5.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate, pairwise
from statistics import correlation, pstdev

from nagle_lab.diagnosis.observed.candidates import NOT_RELEASED_AFTER, Candidates, times_peer_sent_unasked
from nagle_lab.diagnosis.observed.columns import distinct, groups, listed, lowest, percentile, pick, total
from nagle_lab.diagnosis.observed.enough import (
    A_FEW,
    COMPARABLE,
    CONCLUSIVE,
    HARDLY_ANY,
    MOST_LOOKED_AT,
    NEARLY_ALL,
    REPEATED,
)
from nagle_lab.diagnosis.observed.observed import PATH_JITTER, Observed, below_near
from nagle_lab.diagnosis.observed.paths import round_trip_bounds
from nagle_lab.diagnosis.observed.programs import by_connection
from nagle_lab.diagnosis.proof.late_acks import path_may_have_delayed
from nagle_lab.diagnosis.proof.outcomes import Ground, Hold, Judged, Obstacle
from nagle_lab.diagnosis.proof.pauses import PAUSE, middle_half
from nagle_lab.diagnosis.proof.release_times import ALIKE, AT_PEER, FINE, HELD, HELD_ALIKE, SOONEST_WOKEN

MOST_SIZES = 6  # of a program's segments; among more sizes some are sums by chance
# A kernel sends what it held as soon as it answers a SYN (1.0 to 1.7 times as late, median); the fastest program,
# an echo in C, took 3.4 times as long between two namespaces, and 1.7 times on a relayed path (slow for SYNs, too).
KERNEL = 1.8
AS_SOON, AS_SOON_AT_SENDER = 1.5, 2.0  # times the median of what pure ACKs released
TALKS = 30  # the least number of piggybacked ones that shows that both ends speak unasked
# How closely sizes must go with waits: rank correlation, in standard deviations of chance, and the least number.
GROWS, GROWS_LEAST = 5, 30
EXPECTED = 5  # segments beside unacknowledged data: if so many are expected, chance does not make it none
SOME_OF = 0.1  # of the piggybacked: an end that sends a larger share beside unacknowledged data does not hold
# Writes by a clock: the most by which what was sent strays from a constant rate, in standard deviations of a random
# walk of the same steps. A random walk strays 1.2 on average, and hardly ever less than 0.6 (Kuiper's statistic).
STEADY_RATE = 0.55
# A peer sends by a clock of its own if the distances of its data vary less than its reaction times, by more than
# chance explains: BY_CHANCE divided by the root of their number. It takes more than PAIRS of them.
BY_CHANCE, PAIRS = 1.5, 20
SURELY_KERNEL = 1.3  # times its answers to SYNs: a kernel takes no longer, the fastest program took 1.7 times
# Share of the data stamped before the ACK that it was captured behind: if it is larger, two clocks stamped the two
# directions, and it is not known how soon the data followed.
MOST_STAMPED_BEFORE = 0.1
STANDS_APART = 0.5  # of those that a kernel sent: no more come later, but at most twice as late
SELDOM = 0.1  # of the answers at the sender: if so few are as quick as releases, that is chance
SELDOM_AWAY = 0.25  # the same away from the sender, where data that crosses is as quick by chance


def judge_piggybacked(
    piggybacked: Candidates, held: Candidates, c: Candidates, observed: Observed, judged: Judged
) -> None:
    """Judge the late candidates whose ACK was piggybacked on data.

    Parameters
    ----------
    piggybacked : those candidates
    held : the program's stalls that pure ACKs, or the kernel, have proved
    c : all candidates of the program
    judged : where the outcome is added
    """
    piggybacked = piggybacked.only(piggybacked.not_held == 0)
    if len(piggybacked) < COMPARABLE or _times_not_held(piggybacked, observed) > SOME_OF * len(piggybacked):
        return
    if total(piggybacked.ack_to_release < 0) > MOST_STAMPED_BEFORE * len(piggybacked):
        judged.leave_open(piggybacked, Obstacle.CAPTURE_INCOMPLETE)
        return
    if observed.setting.resolution > FINE:
        _leave_open_by_coarse_clock(piggybacked, c, observed, judged)
        return
    if observed.is_away:
        _judge_away(piggybacked, held, c, observed, judged)
    else:
        _judge_near(piggybacked, held, c, observed, judged)


def _accept(prompt: Candidates, ground: Ground, observed: Observed, judged: Judged) -> None:
    """Add them as stalls, unless the path may be what made their ACKs late."""
    if path_may_have_delayed(prompt, observed):
        judged.leave_open(prompt, Obstacle.PATH_VARIES)
    else:
        judged.accept(prompt, ground, _unknown_hold(prompt, observed))


def _leave_open_by_coarse_clock(piggybacked: Candidates, c: Candidates, observed: Observed, judged: Judged) -> None:
    """If the clock hides how soon they follow the ACK, leave those open that may have waited for it."""
    low, high = round_trip_bounds(observed.sender_fastest) if observed.is_away else (0.0, PAUSE)
    low, high = low - observed.setting.resolution, high + observed.setting.resolution
    soon = piggybacked.only((piggybacked.ack_to_release >= low) & (piggybacked.ack_to_release < high))
    if 2 * len(soon) > len(piggybacked) and _is_more_than_an_answer(soon, c, observed, low, high):
        judged.leave_open(soon, Obstacle.COARSE_CLOCK)


def _judge_near(piggybacked: Candidates, held: Candidates, c: Candidates, observed: Observed, judged: Judged) -> None:
    """Judge them by how soon they follow the ACK, compared with what this end does at other times."""
    near = piggybacked.only(piggybacked.ack_to_release < PAUSE)
    if len(near) < COMPARABLE:
        return
    if len(apart := _apart_from_answers(near, observed)):
        near = apart
    middle = percentile(near.ack_to_release, 50)
    if not middle:  # a simulator, in which answers take no time either
        judged.leave_open(near, Obstacle.ACK_ON_DATA)
        return
    prompt = near.only(near.ack_to_release <= max(2 * middle, HELD_ALIKE))
    if middle > SOONEST_WOKEN and _answers_as_soon(prompt, observed):
        return
    held = held.on_connections_of(prompt)
    is_kernel = _is_kernel(middle, prompt, held, observed)
    are_most_merged = _are_nearly_all_merged(prompt, observed) and _ever_released_early(observed)
    merged = are_most_merged or _are_by_a_clock(prompt, observed)
    grows = _speaks_between(observed) and _grows_with_the_wait(prompt)
    if (is_kernel and (merged or grows)) or (merged and _vary_little(prompt, middle)):
        _accept(prompt, Ground.MERGED_WRITES, observed, judged)
    elif merged:  # or a program answers as much in one write as it does in two at other times
        judged.leave_open(prompt, Obstacle.ACK_ON_DATA)
    elif is_kernel and _has_second_sign(middle, prompt, c, observed):
        _accept(prompt, Ground.DATA_ACKS, observed, judged)
    elif is_kernel and len(held) >= REPEATED and observed.nearer_end == "sender":
        if len(alike := _of_the_same_lengths(prompt, held)):
            _accept(alike, Ground.DATA_ACKS, observed, judged)
        judged.leave_open(prompt - alike, Obstacle.ACK_ON_DATA)
    elif is_kernel or _may_be_by_kernel(middle, prompt, c, observed):
        judged.leave_open(prompt, Obstacle.ACK_ON_DATA)


def _apart_from_answers(near: Candidates, observed: Observed) -> Candidates:
    """Those that a kernel sent, if most others are answers of a program, which sleeps until the data arrives.

    At the sender only, where a kernel's times stand apart from those of a woken program. A program that happens to be
    awake answers as soon; so some must have lengths that answers seldom have.
    """
    limit = min(SOONEST_WOKEN, _slowest_like_syns(observed))
    quick = near.released_within(0, limit)
    if observed.nearer_end != "sender" or not CONCLUSIVE <= len(quick) < len(near) / 2:
        return near.none
    if len(near.released_within(limit, 2 * limit)) > STANDS_APART * len(quick):
        return near.none
    of_quick, of_all = Counter(listed(quick.released_bytes)), Counter(listed(near.released_bytes))
    no_answers = sum(times for length, times in of_quick.items() if 2 * times > of_all[length])
    return quick if no_answers >= max(A_FEW * len(quick), CONCLUSIVE) else near.none


def _answers_as_soon(prompt: Candidates, observed: Observed) -> bool:
    """Whether data comes as soon if the peer's data acknowledged nothing new, and so released nothing."""
    no_new_ack = observed.program.reactions.no_new_ack
    return len(no_new_ack) >= COMPARABLE and percentile(no_new_ack, 50) <= 2 * percentile(prompt.ack_to_release, 50)


def _are_nearly_all_merged(prompt: Candidates, observed: Observed) -> bool:
    return len(_merged_writes(prompt, observed)) > NEARLY_ALL * len(prompt)


def _of_the_same_lengths(prompt: Candidates, held: Candidates) -> Candidates:
    """Those whose trigger and release are as long as of one that a pure ACK released: the others may be answers."""
    lengths = set(zip(listed(held.trigger_bytes), listed(held.released_bytes), strict=True))
    both = zip(listed(prompt.trigger_bytes), listed(prompt.released_bytes), strict=True)
    return prompt.picked([row for row, these in enumerate(both) if these in lengths])


def _has_second_sign(middle: float, prompt: Candidates, c: Candidates, observed: Observed) -> bool:
    """Whether what a kernel sent, ``middle`` ns after the peer's data, is more than an answer to it."""
    return (
        _sends_unasked(prompt, c, observed)
        or _early_acks_release(prompt, observed)
        or (_is_surely_kernel(middle, observed) and _is_no_answer(prompt, observed))
    )


def _may_be_by_kernel(middle: float, prompt: Candidates, c: Candidates, observed: Observed) -> bool:
    """Whether a kernel may have sent ``prompt``, though its times do not prove it."""
    own = observed.program.reactions
    # If no SYN shows how fast that end's kernel is, its ACKs in time do; or data sooner than from a woken program.
    acks = below_near(own.ack)
    like_acks = min(HELD_ALIKE, KERNEL * percentile(acks, 50)) if acks else 0
    latest = _slowest_like_syns(observed) if own.handshake else max(HELD, like_acks)
    if CONCLUSIVE <= len(prompt) > len(c) / 2 and middle <= latest:  # a few of many may be as quick by chance
        return True
    return middle <= AT_PEER and (_are_nearly_all_merged(prompt, observed) or _are_two_talkers(prompt, observed))


def _sends_unasked(prompt: Candidates, c: Candidates, observed: Observed) -> bool:
    return len(_sent_unasked(prompt, c, observed)) >= REPEATED


def _judge_away(piggybacked: Candidates, held: Candidates, c: Candidates, observed: Observed, judged: Judged) -> None:
    """Judge them by whether they follow the ACK by a round trip of the sender, and by what else both ends send."""
    low, high = round_trip_bounds(observed.sender_fastest)
    if len(held) >= REPEATED:
        high = max(high, percentile(held.ack_to_release, 90))
    prompt = piggybacked.released_within(low, high)
    if 2 * len(prompt) <= len(piggybacked):
        _leave_open_by_jitter(piggybacked, observed, judged)
        return
    both_speak = _both_send_unasked(prompt, c, observed)
    if both_speak and (
        len(held) >= REPEATED or (_never_beside(prompt, c, observed) and _early_acks_release(prompt, observed))
    ):
        _accept(prompt, Ground.DATA_ACKS, observed, judged)
    elif _are_by_a_clock(prompt, observed):
        _accept(prompt, Ground.MERGED_WRITES, observed, judged)
    elif _is_more_than_an_answer(prompt, c, observed, low, high):
        judged.leave_open(prompt, Obstacle.ACK_ON_DATA)


def _leave_open_by_jitter(piggybacked: Candidates, observed: Observed, judged: Judged) -> None:
    """If the path varies by more than usual, leave open what comes as soon as that end's quick answers to SYNs and
    data do: if early pure ACKs released data, or nearly all are merged writes.
    """
    low, high = round_trip_bounds(observed.sender_fastest)
    own = [*observed.program.reactions.ack, *observed.program.reactions.handshake]
    quick = [ns for ns in own if ns < high + PATH_JITTER / 2]
    high = max(high, percentile(quick, 90)) if quick else high
    prompt = piggybacked.released_within(low, high)
    if 2 * len(prompt) > len(piggybacked) and (
        _early_acks_release(piggybacked, observed)
        or _are_nearly_all_merged(piggybacked, observed)
        or _are_as_at_first(prompt, observed, low, high)
    ):
        judged.leave_open(prompt, Obstacle.ACK_ON_DATA)


def _both_send_unasked(prompt: Candidates, c: Candidates, observed: Observed) -> bool:
    """Whether both ends send unasked, on the connections of these candidates."""
    return _sends_unasked(prompt, c, observed) and times_peer_sent_unasked(prompt) >= REPEATED


def _is_more_than_an_answer(prompt: Candidates, c: Candidates, observed: Observed, low: float, high: float) -> bool:
    """Whether something shows that what followed the peer's data, ``low`` to ``high`` ns later, is more than an
    answer.
    """
    return (
        (_both_send_unasked(prompt, c, observed) and _never_beside(prompt, c, observed))
        or _are_two_talkers(prompt, observed)
        or _are_nearly_all_merged(prompt, observed)
        or _are_as_at_first(prompt, observed, low, high)
        or _is_peer_by_a_clock(prompt)
        or _crosses_and_seldom_answers(low, high, observed)
        or (_early_acks_release(prompt, observed) and not _is_later_than_kernel(prompt, observed))
    )


def _are_as_at_first(prompt: Candidates, observed: Observed, low: float, high: float) -> bool:
    """Whether segments of the same lengths followed each early pure ACK as soon, twice or more.

    Then the same data answers nothing: Linux acknowledges at once only where a connection begins (quick ACKs), and
    that data had been written by then.
    """
    early = observed.early.on_connections_of(prompt)
    released = early.released_within(low, high)
    alike = _of_the_same_lengths(prompt, released)
    return len(released) == len(early) >= 2 and len(alike) > NEARLY_ALL * len(prompt)


def _is_later_than_kernel(prompt: Candidates, observed: Observed) -> bool:
    """Whether even the soonest comes later than nine of ten of what early pure ACKs released (away from the
    sender): these are a program's answers.
    """
    if not observed.is_away:
        return False
    low, high = round_trip_bounds(observed.sender_fastest)
    kernel = observed.early.on_connections_of(prompt).released_within(low, high).ack_to_release
    return len(kernel) >= COMPARABLE and lowest(prompt.ack_to_release) > percentile(kernel, 90)


def _times_not_held(c: Candidates, observed: Observed) -> int:
    """How often the program sent small data beside unacknowledged small data, on the connections of ``c``."""
    counts = by_connection(observed.program.sent_without_waiting())
    return sum(counts[int(connection)] for connection in distinct(c.connection))


def _is_kernel(middle: float, prompt: Candidates, held: Candidates, observed: Observed) -> bool:
    """Whether releases came as soon as this end's kernel answers a SYN, or sends what pure ACKs release.

    If they take long for a kernel, they must be alike, too: the time that a woken program takes varies.
    """
    as_soon = AS_SOON_AT_SENDER if observed.nearer_end == "sender" else AS_SOON
    if len(held) >= REPEATED and middle <= as_soon * percentile(held.ack_to_release, 50):
        return True
    if observed.nearer_end == "peer":  # handshakes must agree: a few of the peer's ACKs may be slow by chance
        answers = below_near(observed.program.reactions.handshake)
        theirs = below_near(observed.program.peer_reactions.handshake)
        if not answers or not theirs or percentile(theirs, 50) <= 2 * percentile(answers, 50):
            return False
    return middle <= _slowest_like_syns(observed) and (middle <= HELD or _vary_little(prompt, middle))


def _vary_little(prompt: Candidates, middle: float) -> bool:
    """Whether releases, whose median is ``middle`` ns, vary as little as a kernel's do."""
    return percentile(prompt.ack_to_release, 90) <= ALIKE * middle


def _slowest_like_syns(observed: Observed) -> float:
    """The longest time, ns, that a kernel takes if it answers SYNs as that end does; 0 if no SYN shows it."""
    answers = below_near(observed.program.reactions.handshake)
    return min(HELD_ALIKE, KERNEL * percentile(answers, 50)) if answers else 0.0


def _is_surely_kernel(middle: float, observed: Observed) -> bool:
    """Whether ``middle``, ns, is sooner than any program that slept; False at the peer, where the path hides that."""
    answers = below_near(observed.program.reactions.handshake)
    return observed.nearer_end == "sender" and bool(answers) and middle <= SURELY_KERNEL * percentile(answers, 50)


def _ever_released_early(observed: Observed) -> bool:
    """Whether the program's data was seen to follow early ACKs as soon as a kernel sends it."""
    releases = [*observed.program.reactions.release, *map(int, observed.early.ack_to_release[:MOST_LOOKED_AT])]
    return any(release <= HELD_ALIKE for release in releases)


def _early_acks_release(c: Candidates, observed: Observed) -> bool:
    """Whether early pure ACKs, on the connections of ``c``, released data as soon as a kernel does.

    Then Nagle's algorithm is on.
    """
    low, high = 0.0, _slowest_like_syns(observed)
    if observed.is_away:
        low, high = round_trip_bounds(observed.sender_fastest)
    prompt = len(observed.early.on_connections_of(c).released_within(low, high))
    return prompt >= REPEATED and _times_not_held(c, observed) <= HARDLY_ANY * prompt


def _are_by_a_clock(prompt: Candidates, observed: Observed) -> bool:
    """Whether writes at a constant rate were merged: the longer they waited, the more was sent at once.

    Answers of two sizes in turn keep to such a rate, too; but an end that answers everything never lets its ACK timer
    fire, so some pure ACKs of its own must have come late.
    """
    unanswered = sum(ack - observed.sender_fastest >= PATH_JITTER for ack in observed.program.reactions.ack)
    merged = len(_merged_writes(prompt, observed))
    if merged < max(SOME_OF * len(prompt), CONCLUSIVE) or unanswered < REPEATED:
        return False
    strays = []
    for group in groups(prompt.connection):
        if len(group) >= CONCLUSIVE:
            sizes = [int(size) for size in pick(prompt.released_bytes, group)]
            times = [int(ns) for ns in pick(prompt.trigger_to_release, group)]
            strays.append(_stray(sizes, times))
    return bool(strays) and percentile(strays, 50) <= STEADY_RATE and percentile(strays, 90) < 1


def _stray(sizes: list[int], times: list[int]) -> float:
    """How far the sum of the sizes strays from a constant rate, in standard deviations of a random walk.

    More than any limit if all sizes are equal.
    """
    rate, step = sum(sizes) / max(sum(times), 1), pstdev(sizes)
    if not step:
        return 2.0
    sums = list(accumulate(size - rate * time for size, time in zip(sizes, times, strict=True)))
    return (max(sums) - min(sums)) / (step * math.sqrt(len(sizes)))


def _grows_with_the_wait(c: Candidates) -> bool:
    """Whether more was sent at once the longer it waited: more writes were merged meanwhile.

    The same holds for answers that bring all that has come up since the previous question (polling).
    """
    sizes = [int(size) for size in c.released_bytes[:MOST_LOOKED_AT]]
    waits = [int(ns) for ns in c.trigger_to_ack[:MOST_LOOKED_AT]]
    if len(sizes) < GROWS_LEAST or min(sizes) == max(sizes) or min(waits) == max(waits):
        return False
    closeness: float = correlation(_ranked(sizes), _ranked(waits))
    return closeness * math.sqrt(len(sizes)) > GROWS


def _speaks_between(observed: Observed) -> bool:
    """Whether some data of the program came long after what it received last: then not all data is answers."""
    return sum(data - observed.sender_fastest > PAUSE for data in observed.program.reactions.data) >= REPEATED


def _are_two_talkers(c: Candidates, observed: Observed) -> bool:
    """Whether both ends send unasked, but this one never while its own data is unacknowledged.

    Either the peer sends by a clock, and this end does not only send right behind the peer's data; or the peer goes
    on without waiting for answers, and this end also sends long after what it received.
    """
    if len(c) < TALKS or _times_not_held(c, observed):
        return False
    if _is_peer_by_a_clock(c) and not _mostly_follows_at_once(c):
        return True
    if not _speaks_between(observed):
        return False
    beside = sum(observed.program.peers_went_on[int(connection)] for connection in distinct(c.connection))
    return times_peer_sent_unasked(c) + beside >= COMPARABLE


def _ranked(numbers: list[int]) -> list[float]:
    """The rank of each number; equal ones share theirs."""
    ordered = sorted(numbers)
    return [(bisect_left(ordered, number) + bisect_right(ordered, number)) / 2 for number in numbers]


def _is_peer_by_a_clock(prompt: Candidates) -> bool:
    """Whether the peer sent the data that carried the ACKs by a clock of its own, not as a reaction to what it got.

    Then that data is no question, and what follows it no answer. It is so if the time from one of these segments to
    the next varies less than the time from what the peer received to its segment. This takes more than PAIRS on one
    connection: many connections that a busy server answers in turn are as regular together.
    """
    between, waits = [], []
    connections, sent_at = prompt.connection, prompt.at - prompt.ack_to_release
    for group in groups(connections):
        if len(group) <= PAIRS:
            continue
        times = [int(ts) for ts in pick(sent_at, group)]
        between += [later - earlier for earlier, later in pairwise(times)]
        waits += [int(wait) for wait in pick(prompt.trigger_to_ack, group)][1:]
    if not waits:
        return False
    return middle_half(between) < (1 - BY_CHANCE / math.sqrt(len(waits))) * middle_half(waits)


def _mostly_follows_at_once(prompt: Candidates) -> bool:
    """Whether most of what the peer acknowledged had been sent right behind its previous data.

    A client does so that asks again as soon as a busy server has answered.
    """
    released = set(listed(prompt.release_frame))
    return 2 * sum(frame in released for frame in listed(prompt.trigger_frame)) > len(prompt)


def _is_no_answer(prompt: Candidates, observed: Observed) -> bool:
    """Whether what followed the peer's data does not answer it.

    Either both ends speak unasked; or this end takes longer to answer data that acknowledged nothing new, and so
    could release nothing.
    """
    no_new_ack = observed.program.reactions.no_new_ack
    quick = 2 * percentile(prompt.ack_to_release, 90)
    takes_longer = len(no_new_ack) >= REPEATED and sum(ns <= quick for ns in no_new_ack) <= SELDOM * len(no_new_ack)
    return takes_longer or _are_two_talkers(prompt, observed)


def _crosses_and_seldom_answers(low: float, high: float, observed: Observed) -> bool:
    """Whether this end is quick only behind data that acknowledges its own, so the ACK must be what releases.

    Its data crosses the peer's on the path, so it speaks unasked; and it seldom comes right behind data of the peer
    that acknowledged nothing new.
    """
    no_new_ack = observed.program.reactions.no_new_ack
    crossed, quick = sum(ns < low for ns in no_new_ack), sum(low <= ns <= high for ns in no_new_ack)
    return len(no_new_ack) >= COMPARABLE and crossed >= REPEATED and quick <= SELDOM_AWAY * len(no_new_ack)


def _sent_unasked(prompt: Candidates, c: Candidates, observed: Observed) -> Candidates:
    """What the program sent unasked: long after all of its data was acknowledged, with nothing received since.

    Larger data than what may have been held (``prompt``) is left out: it may be the rest of an answer, after a pause.
    """
    largest = percentile(prompt.released_bytes, 50) if len(prompt) else 0
    are_late = c.ack_to_release - observed.sender_fastest >= NOT_RELEASED_AFTER
    return c.only((c.pure > 0) & are_late & (c.released_bytes <= largest))


def _never_beside(prompt: Candidates, c: Candidates, observed: Observed) -> bool:
    """Whether an end that sends unasked never did so while its data was unacknowledged, though chance would expect
    it.
    """
    unasked = _sent_unasked(prompt, c, observed)
    expected = len(unasked) * total(prompt.trigger_to_ack) / max(total(unasked.ack_to_release), 1)
    is_expected = len(unasked) >= REPEATED and expected >= EXPECTED
    return is_expected and _times_not_held(prompt, observed) <= HARDLY_ANY * expected


def _unknown_hold(prompt: Candidates, observed: Observed) -> Hold:
    return Hold.up_to(prompt.trigger_to_release if observed.is_away else prompt.trigger_to_ack)


def _merged_writes(c: Candidates, observed: Observed) -> Candidates:
    """Those as large as two others together: these are writes that the program sends one by one elsewhere."""
    sizes = {int(size) for some in (c, observed.early) for size in (*some.trigger_bytes, *some.released_bytes)}
    if len(sizes) > MOST_SIZES:
        return c.none
    sums = {size for size in sizes if any(size - piece in sizes for piece in sizes)}
    return c.among(c.released_bytes, sorted(sums))
