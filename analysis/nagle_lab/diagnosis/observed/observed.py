"""What was observed of a program before its candidates are judged (:func:`observe`): how fast each end reacts at the
capture point, and where that is.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import lowest, percentile
from nagle_lab.diagnosis.observed.enough import COMPARABLE, CONCLUSIVE, MOST_LOOKED_AT
from nagle_lab.diagnosis.observed.kernel_answers import AnswersByCandidate
from nagle_lab.diagnosis.observed.paths import SLACK, round_trip_bounds
from nagle_lab.diagnosis.observed.peers import LEAST_DELAY
from nagle_lab.diagnosis.observed.programs import Program, Reactions
from nagle_lab.tcp.events import DELAYED, MS, US, Echo

# An end that reacts faster than this is a few switches away at most: hardly a path, and it hardly varies.
NEAR = 1 * MS

# At the end where it was captured, pure ACKs take at most this share of the time that the peer's take. SURELY_SOONER
# applies if every packet was captured more than once: on a bridge or at both ends each end's ACKs come as soon.
SOONER_AT_HOME, SURELY_SOONER = 0.7, 0.5

# An end whose fastest reaction is sooner than this is where it was captured. If it is farther away, what its kernel
# releases cannot be told from what its program sends.
AT_CAPTURE_POINT = 150 * US

# How much a path varies whose round trip is a millisecond or more: as much as the shortest timers last. That far away
# an ACK was only delayed if it took longer than its sender's fastest reaction by this; nearer, by LEAST_DELAY.
PATH_JITTER = 8 * MS

ANSWERS = 8  # from this many on their spread shows how much the path varies


@dataclass(frozen=True)
class Setting:
    """What holds for all candidates that are judged together: those of the whole capture, or a chunk of them."""

    resolution: int  # of the capture's clock, ns
    astray_share: float  # of the data segments: missing in the capture, or captured after their ACKs
    swapped_share: float = 0.0  # of the data segments: captured after their ACKs
    chunk_share: float = 1.0  # of the capture's candidates: those that are judged together
    copied: bool = False  # every packet was captured more than once; the copy at its sender counts
    is_at_sender: bool | None = None  # whether one of two captures of the same traffic is; None: there is only one
    is_on_loopback: bool = False  # the ends of each connection have one address, or one of 127.0.0.0/8: one host
    seen_again: Collection[int] = ()  # connections that are others, seen before or after NAT
    kernel_answers: AnswersByCandidate = field(default_factory=AnswersByCandidate)


@dataclass(frozen=True)
class Observed:
    """What was observed of a program: what each rule starts from.

    Attributes
    ----------
    sender_fastest : the fastest reaction of its host at the capture point, ns
    peer_fastest : the fastest reaction of its peers at the capture point, ns; 0 if nothing shows it
    early : its candidates whose ACK was pure and not late: they show what it does when no timer delays the ACK
    sent_before : how often it sent data before the ACK could arrive, as long after the trigger as held data; by
        connection. Empty until it is known which candidates are late
    """

    program: Program
    setting: Setting
    sender_fastest: int
    peer_fastest: int
    early: Candidates
    sent_before: Counter[int] = field(default_factory=Counter)

    @property
    def is_away(self) -> bool:
        """Whether the capture was taken away from the program's host."""
        return self.sender_fastest >= AT_CAPTURE_POINT

    @property
    def is_at_sender(self) -> bool:
        """Whether a release is captured where it is sent: at its host, or on loopback."""
        return self.nearer_end == "sender" or self.setting.is_on_loopback

    @cached_property
    def nearer_end(self) -> Literal["sender", "peer"] | None:
        """Where it was captured, "sender" or "peer": the end whose pure ACKs follow sooner; None at both, or not
        known.
        """
        if self.setting.is_at_sender is not None:  # each end's ACKs are from the capture nearer to it
            return "sender" if self.setting.is_at_sender else None
        if self.peer_fastest >= NEAR:
            return "sender"
        own, peers = (below_near(side.ack) for side in (self.program.reactions, self.program.peer_reactions))
        if not own or not peers:
            return None
        mine, theirs = percentile(own, 5), percentile(peers, 5)
        sooner = SURELY_SOONER if self.setting.copied else SOONER_AT_HOME
        if mine <= sooner * theirs:
            return "sender"
        return "peer" if theirs <= sooner * mine else None


def below_near(reactions: list[int]) -> list[int]:
    """The reaction times, ns, that show an end at the capture point or next to it."""
    return [ns for ns in reactions if ns < NEAR]


def answers_of(own: Reactions, round_trip: int, timer: int) -> list[int]:
    """How soon that end answered with pure ACKs and data, ns, ascending: so much may the path to it vary.

    If most are ACKs that took the ``timer``, ns, longer than a round trip, only the others. If even the soonest came
    PATH_JITTER later than anything of its kernel, its program always takes that long: less that time.
    """
    by_kernel = own.by_kernel_before(round_trip + timer)
    sooner = [*(ns for ns in own.ack if ns < round_trip + timer), *own.data]
    answers = sorted(sooner if 2 * len(sooner) < len(own.after_handshake) else own.after_handshake)
    program_takes = percentile(answers, 5) - max([round_trip, *by_kernel]) if answers else 0
    return [int(ns - program_takes) for ns in answers] if program_takes > PATH_JITTER else answers


def latest_answer(answers: list[int], round_trip: int) -> float:
    """How late an end's kernel may be at the capture point, ns, as its ``answers`` vary, without the slowest of them.

    No later than two medians: what takes longer may be a pause of its program.
    """
    _, latest = round_trip_bounds(round_trip)
    if len(answers) < ANSWERS:
        return latest
    return max(latest, min(percentile(answers, 95), 2 * percentile(answers, 50)) + SLACK)


def _fastest_reaction(handshake: list[int], others: list[int]) -> int | None:
    """How fast an end reacts at this capture point, ns, by its handshakes and other reactions; None if not known.

    If handshakes are much faster than all else, something before the end answered them: a SYN proxy.
    """
    if not handshake:
        return min(others, default=None)
    if len(others) >= COMPARABLE and min(handshake) < NEAR and percentile(others, 5) > 3 * NEAR:
        return None
    return min(handshake + sorted(others)[1:2])  # not the very fastest: the clock may have been wrong once


def observe(program: Program, setting: Setting, c: Candidates) -> Observed:
    """What was observed of the program of these candidates."""
    reactions, peers = program.reactions, program.peer_reactions
    peer = (
        _after_path_became_longer(peers)
        or _fastest_reaction(peers.handshake, peers.after_handshake)
        or min(peers.handshake, default=0)
    )
    if not peers.handshake and peer >= NEAR and len(known := c.only(c.is_path_known > 0)):
        peer = min(peer, lowest(known.peer_fastest_ack))
    sender_fastest = _sender_fastest(reactions, c.only(c.echo != Echo.BEFORE))
    if setting.is_on_loopback and peer:
        sender_fastest = min(sender_fastest, peer)  # both ends are one host: a slow answer to a SYN is no path
    early = c.only((c.late_by(peer) < late_margin(peer)) & (c.pure > 0))
    return Observed(program, setting, sender_fastest=sender_fastest, peer_fastest=peer, early=early)


def _sender_fastest(own: Reactions, c: Candidates) -> int:
    """The fastest reaction of the program's host, ns; if the host is near, its releases count, too.

    But not the soonest of many, and with a handshake none that comes in less than a third of the time that anything
    else took: these were under way before the ACK.
    """
    if longer := _after_path_became_longer(own) or _begin_after_handshakes(own, c):
        return longer
    if _releases_are_as_slow_as_syn_answers(own, c):
        return min(own.handshake)
    if round_trip := _round_trip_by_acks(own):
        return round_trip
    by_itself = _fastest_reaction(own.handshake, own.after_handshake)
    releases = [int(release) for release in c.ack_to_release[:MOST_LOOKED_AT]]
    if by_itself is None and own.handshake and min(releases, default=NEAR) < NEAR:
        by_itself = min(own.handshake)  # no SYN proxy: that end is near, and its program slow
    if by_itself is None:
        return min([*releases, *own.after_handshake], default=0)
    if by_itself >= NEAR and own.handshake:
        return by_itself
    if by_itself >= AT_CAPTURE_POINT and own.handshake and len(own.after_handshake) >= COMPARABLE:
        releases = sorted(release for release in releases if 3 * release >= by_itself)[1:]
    elif not own.handshake and len(releases) >= CONCLUSIVE:
        releases = sorted(releases)[1:]
    return min([by_itself, *releases])


def _releases_are_as_slow_as_syn_answers(own: Reactions, c: Candidates) -> bool:
    """Whether what follows ACKs takes a millisecond and more, and always as long as answers to SYNs: a stack that
    sleeps.

    Such a stack, in user space or on a small device, answers at once what it reads together with the previous ACK.
    """
    if not own.handshake or min(own.handshake) < NEAR or len(c) < CONCLUSIVE:
        return False
    shortest, longest = round_trip_bounds(min(own.handshake))
    soonest, latest = (percentile(c.ack_to_release, share) for share in (10, 90))
    return shortest <= soonest and latest <= longest and latest - soonest < SLACK


def _round_trip_by_acks(own: Reactions) -> int | None:
    """The round trip to an end a millisecond or more away, ns, by its ACKs, if no handshake is captured; else None.

    The soonest of its ACKs are alike, and no data comes sooner. Both show that no timer delayed all of its ACKs: they
    come sooner than any timer fires, or its soonest data comes as late as they do.
    """
    if own.handshake or len(own.ack) < COMPARABLE or own.ack[0] < NEAR:
        return None
    least, most = round_trip_bounds(own.ack[0])
    soonest = percentile(own.data, 5) if own.data else most
    is_known = own.ack[0] < DELAYED or (len(own.data) >= COMPARABLE and soonest <= most)
    return own.ack[0] if is_known and own.ack[COMPARABLE - 1] <= most and soonest >= least else None


def _after_path_became_longer(own: Reactions) -> int | None:
    """How long most handshakes and ACKs that are not delayed take, ns, if the path became longer; else None.

    They must take longer than the fastest handshake, by more than that varies. None if no handshake took as long: a
    SYN proxy may have answered them, or a short timer delays the ACKs.
    """
    if not own.handshake:
        return None
    delayed_from = max(own.handshake) + DELAYED
    quick = [*own.handshake, *(ns for ns in own.ack if ns < delayed_from)]
    usual = int(percentile(quick, 25))
    least, most = round_trip_bounds(usual)
    is_steady = percentile(quick, 75) <= most and any(least <= ns <= most for ns in own.handshake)
    return usual if is_steady and usual > round_trip_bounds(min(own.handshake))[1] else None


def _begin_after_handshakes(own: Reactions, c: Candidates) -> int | None:
    """How long the soonest ACKs, data and releases take, ns, if all take alike and longer than any handshake; else
    None.

    Then something nearer answered the handshakes, a SYN proxy for example.
    """
    if not own.handshake or len(own.ack) < 2 or min(len(own.data), len(c)) < COMPARABLE:
        return None
    soonest = [own.ack[0], *(percentile(some, 5) for some in (own.data, c.ack_to_release))]
    _, longest = round_trip_bounds(int(min(soonest)))
    _, longest_handshake = round_trip_bounds(max(own.handshake))
    return int(min(soonest)) if max(soonest) <= longest and min(soonest) > longest_handshake else None


def late_margin(fastest: int) -> int:
    """How much longer than its sender's ``fastest`` reaction a late ACK takes at least; both ns."""
    return LEAST_DELAY if fastest < NEAR else PATH_JITTER
