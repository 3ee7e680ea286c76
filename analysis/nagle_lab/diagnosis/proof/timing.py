"""Which ACKs were late (:func:`late_candidates`), and what several rules measure: how fast each end reacts here,
whether a program pauses, what chance explains.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import Any

from nagle_lab.diagnosis.proof.candidates import LATER, Candidates, KernelAnswers
from nagle_lab.diagnosis.proof.columns import Column, each, most, percentile, total
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle, Rejected
from nagle_lab.diagnosis.proof.programs import Program, Reactions
from nagle_lab.tcp.events import LATE, MS, Echo

US = 1_000  # ns

# An ACK was delayed when it took this much longer than its sender's fastest reaction. Timers of 10 ms exist (Windows
# Server, Solaris); a path of a millisecond and more varies by more than a wire.
LATE_NEAR, LATE_FAR = 5 * MS, 8 * MS
# A timer's waits differ by a few jiffies; where they differ by more, the path may be what made the ACKs late.
TIMER_SPREAD = 12 * MS
LINUX_TIMER = 38 * MS  # TCP_DELACK_MIN is 40 ms, and clocks differ

# No delayed-ACK timer of Linux fires sooner than this: at HZ=100 one of 40 ms may lack the jiffy it began in. What is
# late and came sooner was sent because a program read its data late (tcp_cleanup_rbuf).
SOONEST_TIMER = 30 * MS

# No delayed ACK may wait for half a second (RFC 1122 §4.2.3.2): what took longer was not a delayed-ACK timer, but the
# network, the capturing machine, or its clock, which was set.
LONGEST_TIMER = 500 * MS  # beyond the fastest reaction
LONGEST_WAIT = LONGEST_TIMER + 100 * MS  # as captured: of a stall, on a path of up to 100 ms

CLOCK_ERROR = 2  # ms, of the distance between timestamps of both ends

# An end that reacts faster than this is at the capture point, or next to it.
NEAR = 1 * MS

# At an end its pure ACKs are captured so much sooner than the peer's: times as long, at most. Where every packet was
# captured more than once, on a bridge or at both ends, each end's are as soon, give or take more of chance.
SOONER_AT_HOME, SURELY_SOONER = 0.7, 0.5

# Later than this behind the ACK comes a pause of the program, where it is at the capture point.
PAUSE = 1 * MS

# A program's pauses: by what share of the usual one others are longer or shorter, and how wide their middle half is.
PAUSES_VARY, PAUSES_SPREAD = 0.2, 5 * MS
SOONER = 5 * MS  # a pause that is so much shorter ended before the ACK came

# From here on the program is not at the capture point: its releases and those of a kernel cannot be told apart.
AWAY = 150 * US

FEW, SOME, MANY = 3, 5, 10  # candidates, or samples
NEARLY_ALL, HARDLY_ANY = 0.8, 0.1  # shares: what so many do all do; what so few do may be chance
FEW_LATE = 0.25  # of the prompt ones come a little later, and none after that: no pause ends so
MOST_LOOKED_AT = 1_000  # of those, where all of them would say no more

SLACK = 300 * US  # how much a path varies, at least


@dataclass(frozen=True)
class Setting:
    """What holds for the whole capture."""

    step: int  # of the clock that stamped it, ns
    disorder: float  # share of the data segments that it lacks, or that come after their ACKs
    swapped: float = 0.0  # share of those that come after their ACKs
    part: float = 1.0  # share of its candidates that are judged at once
    copied: bool = False  # every packet was captured more than once: the copy that counts is the one at its sender
    views: Collection[int] = ()  # connections that are others, seen before or after NAT
    kernel: KernelAnswers = field(default_factory=KernelAnswers)  # what the kernel said of the candidates


@dataclass(frozen=True)
class Observed:
    """What was observed of a program before its candidates are judged: what each rule starts from.

    Attributes
    ----------
    own : the fastest reaction of its host at the capture point, ns; None where nothing tells
    peer : the fastest reaction of its peers at the capture point, ns; 0 where nothing tells
    early : its candidates whose ACK was pure and not late: what it does when no timer delays the ACK
    sent_before : how often it sent data before the ACK could arrive, as long after the trigger as held data; by
        connection
    """

    program: Program
    setting: Setting
    own: int | None
    peer: int
    early: Candidates
    sent_before: Counter[int] = field(default_factory=Counter)

    @property
    def is_far(self) -> bool:
        """Whether the capture was taken away from the program's host."""
        return self.own is None or self.own >= AWAY

    @property
    def is_at_sender(self) -> bool:
        """Whether a release is captured where its host sends it: there, or on loopback."""
        return self.place == "sender" or self.program.is_on_loopback

    @cached_property
    def place(self) -> str | None:
        """Where it was captured, "sender" or "peer": whose pure ACKs follow sooner; None at both, or not known."""
        if self.peer >= NEAR:
            return "sender"
        own, peers = (nearby(side.ack) for side in (self.program.own, self.program.peers))
        if not own or not peers:
            return None
        mine, theirs = percentile(own, 5), percentile(peers, 5)
        sooner = SURELY_SOONER if self.setting.copied else SOONER_AT_HOME
        if mine <= sooner * theirs:
            return "sender"
        return "peer" if theirs <= sooner * mine else None


def nearby(reactions: list[int]) -> list[int]:
    """The reaction times, ns, that are of an end at the capture point or next to it."""
    return [ns for ns in reactions if ns < NEAR]


def slack(round_trip: int) -> int:
    """How much longer or shorter than ``round_trip`` another round trip of that path may be, ns."""
    return SLACK + round_trip // 8


def around(round_trip: int) -> tuple[float, float]:
    """The shortest and the longest that another round trip of that path may be, ns."""
    return round_trip - slack(round_trip), round_trip + slack(round_trip)


def fastest(handshake: list[int], others: list[int]) -> int | None:
    """How fast an end reacts at this capture point, ns, by its handshakes and other reactions; None not known.

    A handshake much faster than all else was answered by something before the end: a SYN proxy.
    """
    if not handshake:
        return min(others, default=None)
    if len(others) >= SOME and min(handshake) < NEAR and percentile(others, 5) > 3 * NEAR:
        return None
    return min(handshake + sorted(others)[1:2])  # not the very fastest: the clock may have been wrong once


def observe(program: Program, setting: Setting, c: Candidates) -> Observed:
    """What was observed of the program of these candidates."""
    own, peers = program.own, program.peers
    peer = fastest(peers.handshake, [*peers.ack, *peers.data]) or min(peers.handshake, default=0)
    early = c.filter(lambda late, pure: (late < _margin(peer)) & (pure > 0), c.late_by(peer), c.pure)
    return Observed(
        program,
        setting,
        own=_own(own, c),
        peer=peer,
        early=early,
    )


def _own(own: Reactions, c: Candidates) -> int | None:
    """The fastest reaction of the program's host, ns; where it is near, its releases count, too. None not known.

    What comes in less than a third of the time in which anything else did was under way before the ACK.
    """
    by_itself = fastest(own.handshake, [*own.ack, *own.data])
    releases = [int(release) for release in c.ack_to_release[:MOST_LOOKED_AT]]
    if by_itself is None and own.handshake and min(releases, default=NEAR) < NEAR:
        by_itself = min(own.handshake)  # no SYN proxy: that end is near, and its program slow
    if by_itself is None:
        return min([*releases, *own.ack, *own.data], default=None)
    if by_itself >= NEAR and own.handshake:
        return by_itself
    if by_itself >= AWAY and own.handshake and len(own.ack) + len(own.data) >= SOME:
        releases = [release for release in releases if 3 * release >= by_itself]
    return min([by_itself, *releases])


def late_candidates(c: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """The candidates whose ACK was late: a delayed-ACK timer, not the path, made it so. docs/proof.md, rule 1.

    The others are added to ``judged``: as not late, or unresolved where the path may have made pure ACKs late.
    """
    peer, margin = observed.peer, _margin(observed.peer)
    late = c.filter(lambda late, wait: (late >= margin) & (wait < LONGEST_WAIT), c.late_by(peer), c.trigger_to_ack)
    sent_late = _sent_late(late, c, observed)
    judged.reject(len(c) - len(sent_late), Rejected.NOT_LATE)
    pure, piggybacked = sent_late.only(sent_late.pure), sent_late.filter(lambda pure: 1 - pure, sent_late.pure)
    others, peers = _ways_to_peers(observed), observed.program.peers
    if not (peer >= NEAR or (len(others) >= SOME and percentile(others, 25) >= NEAR)):
        return sent_late
    if len(pure) and _is_made_by_the_path(late.only(late.pure), len(pure), c.only(c.pure), observed):
        _leave_to_the_path(pure, observed, judged)
        pure = pure.picked([])
    # Data comes when its program likes, so only handshakes tell how long it was under way.
    if len(piggybacked) and _is_the_path(piggybacked, peer, peers.handshake_more, enough=1):
        piggybacked = piggybacked.picked([])
    if len(pure) + len(piggybacked) == len(sent_late):
        return sent_late
    return pure if len(pure) else piggybacked


def _leave_to_the_path(pure: Candidates, observed: Observed, judged: Judged) -> None:
    """Leave open what late ACKs may have released; at the sender only what followed before a PAUSE."""
    unsure = pure if observed.is_far else pure.filter(lambda release: release < PAUSE, pure.ack_to_release)
    judged.leave_open(unsure, Obstacle.PATH_VARIES)
    judged.reject(len(pure) - len(unsure), Rejected.LATER_RELEASE)


def _ways_to_peers(observed: Observed) -> list[int]:
    """Round trips to the peers, ns: by handshakes, or by their other reactions where there are few."""
    peers = observed.program.peers
    return peers.handshake if len(peers.handshake) >= FEW else [*peers.handshake, *(peers.ack or peers.data)]


def _is_made_by_the_path(late: Candidates, sent_late: int, c: Candidates, observed: Observed) -> bool:
    """Whether the path may have made these pure ACKs late; ``c`` are all candidates with a pure ACK.

    Also where many of them, all but ``sent_late``, were sent in time by the ends' timestamps, and were under way for
    long: what happens to ACKs happens to the data before them, too.
    """
    peer, peers = observed.peer, observed.program.peers
    under_way = len(late) - sent_late
    if under_way > 1 and 2 * under_way >= sent_late:
        return True
    if _stand_apart(late, c, peer):
        return False
    is_known = len(peers.handshake) >= FEW
    more = peers.handshake_more if is_known else [*peers.handshake_more, *peers.data_more]
    return (
        _is_the_path(late, peer, more)
        or _is_no_timer(late, peer, peers)
        or _is_a_queue(late, peer, peers)
        or _is_a_tail(late, c, peer)
        or _is_the_end_of_many(late, c, peer)
    )


def _sent_late(late: Candidates, c: Candidates, observed: Observed) -> Candidates:
    """Without those whose ACK was sent in time and under way for long, by the ends' timestamps (RFC 7323).

    Only where data behind early ACKs shows that the timestamp clocks of both ends keep step.
    """
    own, margin = observed.own or 0, _margin(observed.peer)
    early = c.filter(lambda late, pace: (late < margin) & (pace >= 0), c.late_by(observed.peer), c.pace)
    soon = early.filter(lambda release: release - own < NEAR, early.ack_to_release).pace
    if len(soon) < MANY or percentile(soon, 90) * MS > LATE_NEAR:
        return late
    after_capture = each(lambda release: most(release - own, 0), late.ack_to_release)
    way = each(lambda pace, rest: (pace - CLOCK_ERROR) * MS - rest, late.pace, after_capture)
    is_known = each(lambda echo, pace: (echo == Echo.AFTER) & (pace >= 0), late.echo, late.pace)
    return late.filter(
        lambda late, way, is_known: (late - way >= margin) | (1 - is_known),
        late.late_by(observed.peer),
        way,
        is_known,
    )


def _margin(peer: int) -> int:
    """How much longer than its sender's fastest reaction, ``peer``, a late ACK takes at least; both ns."""
    return LATE_NEAR if peer < NEAR else LATE_FAR


def _is_the_path(late: Candidates, peer: int, more: list[int], enough: int = FEW) -> bool:
    """Whether a path that varies made ACKs late: all else of those ends came as late.

    ``more`` is how much later than the fastest that came, ns; ``enough`` is how many of it tell.
    """
    waits = late.late_by(peer)
    varies = percentile(waits, 90) - percentile(waits, 10) > TIMER_SPREAD
    if len(more) < enough:
        return varies
    varies = varies or percentile(more, 90) - percentile(more, 10) > LATE_FAR / 2
    return varies and percentile(waits, 50) < percentile(more, 75) + LATE_FAR


def _is_no_timer(late: Candidates, peer: int, peers: Reactions) -> bool:
    """Whether ACKs are late by different times, some shorter than Linux's timer: a timer has one time."""
    waits = late.late_by(peer)
    least = percentile(waits, 10)
    is_spread = percentile(waits, 90) - least > TIMER_SPREAD
    return is_spread and least < LINUX_TIMER and not _data_comes_sooner(late, peer, peers)


def _is_a_queue(late: Candidates, peer: int, peers: Reactions) -> bool:
    """Whether a queue that filled up after the handshakes may delay all ACKs, and no data came sooner.

    Not where they are as alike as those of a timer, and as late as Linux's.
    """
    waits = late.late_by(peer)
    is_alike = percentile(waits, 90) - percentile(waits, 10) <= TIMER_SPREAD
    if len(peers.ack) < MANY or (is_alike and percentile(waits, 50) >= LINUX_TIMER):
        return False
    return percentile(peers.ack, 10) - peer >= LATE_FAR and not _data_comes_sooner(late, peer, peers)


def _data_comes_sooner(late: Candidates, peer: int, peers: Reactions) -> bool:
    """Whether data of those ends comes sooner than their late ACKs: then the path is not what delays these."""
    usual = percentile(late.late_by(peer), 50)
    return len(peers.data) >= FEW and percentile(peers.data, 25) - peer < usual - LATE_FAR


def _is_a_tail(late: Candidates, c: Candidates, peer: int) -> bool:
    """Whether the late ACKs are the few slowest of many on a path: those of a timer are alike, or many."""
    waits = late.late_by(peer)
    is_alike = len(late) >= MANY and percentile(waits, 90) - percentile(waits, 10) <= TIMER_SPREAD
    return len(late) <= HARDLY_ANY * len(c) and not is_alike


def _stand_apart(late: Candidates, c: Candidates, peer: int) -> bool:
    """Whether most late ACKs are as late as Linux's timer makes them, on a path that delays hardly any other."""
    if len(late) < SOME or len(c) - len(late) < MANY or percentile(late.late_by(peer), 50) < LINUX_TIMER:
        return False
    others = c.filter(lambda late: late < _margin(peer), c.late_by(peer))
    return len(others) >= MANY and percentile(others.late_by(peer), 95) <= LATE_FAR / 2


def _is_the_end_of_many(late: Candidates, c: Candidates, peer: int) -> bool:
    """Whether as many ACKs came a little sooner: a queue delays by any amount, a timer by all of its time."""
    if percentile(late.late_by(peer), 50) >= LINUX_TIMER:
        return False
    least = percentile(late.trigger_to_ack, 10)
    sooner = total(each(lambda wait: (wait < least) & (wait >= least - LATE_FAR), c.trigger_to_ack))
    return sooner >= max(FEW, len(late) / 2)


def comes_early_too(pure: Candidates, observed: Observed) -> bool:
    """Whether data mostly came early where the ACK came early: it had been written by then, and was held."""
    at_once, usual = len(observed.program.own.release), 0.8 * percentile(pure.trigger_to_ack, 50)
    soon = at_once + total(each(lambda since: since <= usual, observed.early.trigger_to_release))
    return soon >= 2 and 2 * soon > at_once + len(observed.early)


def pauses_anyway(c: Candidates, observed: Observed) -> bool:
    """Whether the program sends as long after the trigger where the ACK came early: then it pauses, whatever the ACK.

    After more than two of three early ACKs: on a busy machine the first exchanges of a connection, whose ACKs are
    early, are slow as well. A pause that is shorter by SOONER ended before the late ACK came: what it ended with was
    held.
    """
    usual, own, early = percentile(c.trigger_to_release, 50), observed.own or 0, observed.early
    least, longest = max(usual * (1 - PAUSES_VARY), usual - SOONER - slack(own)), usual * (1 + PAUSES_VARY)
    is_pause = each(
        lambda release, since: (release > own + LATER) & (since >= least) & (since <= longest),
        early.ack_to_release,
        early.trigger_to_release,
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
    by_chance: float = total(each(lambda release: (release > bound) & (release <= beyond), releases)) / times
    return soon <= by_chance + 3 * sqrt(by_chance)


def is_paced(c: Candidates) -> bool:
    """Whether releases come at a constant time after the trigger, not after the ACK: by the program's own clock."""
    spread = middle_half(c.ack_to_release) if len(c) >= SOME else 0
    return spread > 300 * US and 2 * middle_half(c.trigger_to_release) < spread


def middle_half(times: Column) -> float:
    """The interquartile range."""
    return percentile(times, 75) - percentile(times, 25)


# Which pure ACKs are counted as delayed, to be compared with the kernel's own count (TcpExtDelayedACKs) -------------


def is_late(wait: Any, reaction: Any) -> Any:
    """Whether an ACK took longer than its sender's fastest ``reaction`` by what a delayed-ACK timer adds.

    That is at least :data:`LATE` and less than :data:`LONGEST_TIMER`; both times are ns, at the capture point.
    """
    return (wait - reaction >= LATE) & (wait - reaction < LONGEST_TIMER)


def is_before_timer(wait: Any, reaction: Any) -> Any:
    """Whether a late ACK came sooner than Linux's delayed-ACK timer can fire: something else sent it. Times in ns."""
    return wait - reaction < SOONEST_TIMER
