"""The rule: what the proof of a whole capture amounts to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import msgspec

from nagle_lab.diagnosis.observed.enough import CONCLUSIVE, REPEATED
from nagle_lab.diagnosis.proof.outcomes import Obstacle
from nagle_lab.diagnosis.result.spread import plural, times_text
from nagle_lab.errors import Exit

# Fewer answered exchanges than this, without a stall, say nothing: the first ones of a connection never stall.
ENOUGH_EXCHANGES = 10
# A stream without answers has no exchanges. There data must have followed an acknowledgement, or left without waiting
# for one, ENOUGH_CHANCES times; CHANCES_EACH of these count as one exchange when open candidates are compared.
ENOUGH_CHANCES, CHANCES_EACH = 50, 10

# CLEAN requires that a stall would have been seen: at most these shares of exchanges open, and of segments astray.
MOST_UNRESOLVED, MOST_ASTRAY = 0.04, 0.1
# Of the late ACKs that data followed, at most this share may be open too, if REPEATED or more are and the path does
# not explain them: in long captures a few percent of the exchanges hide a rare stall, which only late ACKs show.
MOST_OPEN = 0.1
MOST_ONE_WAY = 0.5  # of the connections: SYNs without an answer are usual


# Why a traced run is never CLEAN, unless it was also run without tracing.
TRACED_ONLY = "strace slowed what it recorded, and may have hidden a stall: record it again without tracing"


class Verdict(StrEnum):
    """What a capture shows."""

    STALL = "STALL"  # proved, with frame numbers
    CLEAN = "CLEAN"  # a stall would have been seen, and none was
    INCONCLUSIVE = "INCONCLUSIVE"  # too little to say
    INVALID = "INVALID"  # no verdict can be based on it

    @property
    def is_conclusive(self) -> bool:
        """Whether it says that there is a stall, or that there is none."""
        return self in (Verdict.STALL, Verdict.CLEAN)


class Recording(StrEnum):
    """How to record so that what is undecided is decided."""

    ASKING_THE_KERNEL = "watch"  # on the host that sends: its kernel knows what waits
    AT_BOTH_ENDS = "both_ends"


class Undecided(msgspec.Struct, frozen=True):
    """What made a capture INCONCLUSIVE, if that is candidates which the evidence does not decide."""

    obstacle: Obstacle
    server: str | None  # address and port of the one server of which too many are undecided; None: of all together
    record: Recording | None  # None: as the reason says


class Decision(NamedTuple):
    """A verdict, and for a person the reason: see :func:`decide`."""

    verdict: Verdict
    reason: str
    undecided: Undecided | None = None


@dataclass(frozen=True)
class VerdictInput:
    """What a verdict rests on, counted over a capture or over some of its connections.

    Of some connections alone (those under test in a run, those of a row of `watch`) it is not known how many segments
    are astray, nor why single candidates are undecided: see :class:`Part` in part.py.
    """

    tcp_packets: int
    exchanges: int
    stalls: int
    damage: Sequence[str] = ()  # what is wrong with the file, in words
    set_back: bool = False  # the clock was: then nothing is proved, because times cannot be compared
    one_way: float = 0.0  # share of the connections that are seen in one direction only
    astray_share: float = 0.0  # of the data segments that the capture lacks, or has after their acknowledgement
    swapped_without_timestamps: int = 0  # data segments captured after their acknowledgement that have no timestamps
    unresolved: Mapping[Obstacle, int] = field(default_factory=dict)  # how often it was open what an ACK released
    mostly_open: int = 0  # how many of these are on connections where they outnumber the other exchanges
    asked: Mapping[Obstacle, int] = field(default_factory=dict)  # about how many of these the kernel was asked
    # How often data followed a late ACK for another reason than Nagle's algorithm: in a stream without answers, a
    # stall would have shown in these.
    late_without_stall: int = 0
    chances: int = 0  # how often data followed an ACK and was not held, or did not wait where Nagle would hold it
    left_out: int = 0  # connections, if a filter left out all of them
    cut_off: int = 0  # packets whose headers are not whole, because too few bytes of each were kept (tcpdump -s)
    is_data_only: bool = False  # hardly any segment only acknowledges, as if a filter had left these out
    sent_late: int = 0  # how often data left late behind data whose acknowledgement may have been left out so
    # The same for each of several servers with two or more undecided candidates, by address and port, most first;
    # their ``late_without_stall`` counts all pure ACKs that were 5 ms late and are not open.
    servers: Mapping[str, "VerdictInput"] = field(default_factory=dict)
    is_of_both_ends: bool = False  # each end is near the capture, or near one of two that were judged together

    @property
    def is_stream(self) -> bool:
        """Whether there are hardly any answers, but enough data that could have been held."""
        return self.exchanges < ENOUGH_EXCHANGES and self.chances >= ENOUGH_CHANCES

    @property
    def judged(self) -> int:
        """In how many exchanges, or behind how many late ACKs, a stall would have been seen."""
        return max(self.exchanges, self.late_without_stall)

    @property
    def as_many_exchanges(self) -> int:
        """How many exchanges the data of a stream is worth; 0 if it is no stream."""
        return self.chances // CHANCES_EACH if self.is_stream else 0


def decide(evidence: VerdictInput) -> Decision:
    """The verdict and, except for STALL, its reason: for CLEAN what was seen, otherwise what a person can do about
    it.

    A stall is proved by the segments that show it, whatever is damaged elsewhere in the file; but nothing can be
    called clean by a part of a capture.
    """
    if not evidence.tcp_packets:
        return Decision(Verdict.INVALID, _why_no_tcp(evidence))
    if evidence.stalls and not evidence.set_back:
        return Decision(Verdict.STALL, "")
    if evidence.damage or evidence.set_back:
        return Decision(Verdict.INVALID, "; ".join(evidence.damage) or "the clock was set back")
    if not evidence.left_out and (undecided := _too_much_is_open(evidence)):
        return undecided
    if reason := _what_hinders(evidence):
        return Decision(Verdict.INCONCLUSIVE, reason)
    return Decision(Verdict.CLEAN, _what_is_clean(evidence))


def _why_no_tcp(evidence: VerdictInput) -> str:
    if evidence.cut_off:
        packets = f"{evidence.cut_off:,} {plural('packet', evidence.cut_off)}"
        return f"no TCP header is whole: too few bytes were kept of {packets}; capture with -s 128, in tunnels -s 256"
    if evidence.damage:
        return f"no TCP packet in it; {'; '.join(evidence.damage)}"
    return "no TCP packet in it; capture with the filter 'tcp' on the interface in use"


def _what_is_clean(evidence: VerdictInput) -> str:
    if evidence.is_stream:
        followed = f"{times_text(evidence.chances)} data followed an acknowledgement or did not wait for it"
        return f"{followed}; none was held by a late one"
    if evidence.exchanges < ENOUGH_EXCHANGES:
        return (
            f"{times_text(evidence.late_without_stall)} data followed a late ACK, "
            "never because Nagle's algorithm had held it"
        )
    if left_open := sum(evidence.unresolved.values()):
        held = f"none proved to be held behind a delayed ACK, {left_open:,} undecided"
    else:
        held = "none held behind a delayed ACK"
    return f"{evidence.exchanges:,} answered exchanges, {held}"


def _what_hinders(evidence: VerdictInput) -> str:
    """Why it is not CLEAN although no stall is proved and little undecided, and what to do; empty if it is CLEAN."""
    if evidence.left_out:
        connections = f"all {evidence.left_out:,} connections" if evidence.left_out > 1 else "the only connection"
        return f"the filter left out {connections}: name the port of one of their servers, or leave the filter out"
    if reason := _too_much_is_astray(evidence):
        return reason
    # Fewer packets show no direction to be missing.
    is_all = evidence.one_way == 1 and evidence.tcp_packets >= ENOUGH_EXCHANGES
    if is_all or (1 > evidence.one_way > MOST_ONE_WAY and evidence.judged < ENOUGH_EXCHANGES):
        share = min(evidence.one_way, 0.99)  # nearly all must not round up to all
        which = "every connection" if evidence.one_way == 1 else f"{share:.0%} of the connections"
        return f"one direction is missing: of {which} only one end's packets are in it; capture where both pass"
    if evidence.judged < ENOUGH_EXCHANGES and not evidence.as_many_exchanges:
        return _too_few(evidence)
    return ""


def _too_few(evidence: VerdictInput) -> str:
    """How little was seen: of answers, or of data in a stream without answers."""
    if evidence.exchanges or not evidence.chances:
        stalled = "none proved to have stalled" if evidence.unresolved else "none stalled"
        seen, needed = f"{_exchanges_text(evidence.exchanges)}, {stalled}", ENOUGH_EXCHANGES
    else:
        followed = f"{times_text(evidence.chances)} data followed an acknowledgement or did not wait for it"
        seen, needed = f"no answers; {followed}, none was held", ENOUGH_CHANCES
    return f"{seen}, but {needed} are needed to say so; capture for longer"


def _too_much_is_astray(evidence: VerdictInput) -> str:
    """Why segments that are missing, or that two clocks stamped, may hide a stall, and what to do; empty if these are
    few.
    """
    if evidence.astray_share > MOST_ASTRAY:
        return (
            f"{evidence.astray_share:.0%} of the data segments are missing in the capture, or come after their "
            "acknowledgement; capture at one interface of one host, with `-B 16384`"
        )
    swapped = evidence.swapped_without_timestamps
    if swapped >= REPEATED and swapped > MOST_UNRESOLVED * evidence.judged:
        return (
            f"{times_text(swapped)} data was captured after its acknowledgement, as by two clocks: what "
            "followed a late ACK may seem sent before it; capture at one interface of one host"
        )
    return ""


def _too_much_is_open(evidence: VerdictInput) -> Decision | None:
    """INCONCLUSIVE if too many candidates are undecided, of one of several servers or in all, or are not known
    because a filter left out the ACKs; otherwise None.
    """
    for server, one in (*evidence.servers.items(), (None, evidence)):  # other servers must not hide one
        if _are_too_many(one):
            obstacle = max(Obstacle, key=lambda each: one.unresolved.get(each, 0))
            why, record = _why_open(obstacle, evidence, was_asked=one.asked.get(obstacle, 0) >= REPEATED)
            times = times_text(one.unresolved[obstacle])
            reason = f"{f'{server}: ' if server else ''}{_exchanges_text(one.exchanges)}; {times} {why}"
            return Decision(Verdict.INCONCLUSIVE, reason, Undecided(obstacle, server, record))
    if evidence.sent_late > MOST_UNRESOLVED * evidence.judged:
        reason = f"{_exchanges_text(evidence.exchanges)}; {times_text(evidence.sent_late)} {_ACKS_LEFT_OUT}"
        return Decision(Verdict.INCONCLUSIVE, reason, Undecided(Obstacle.CAPTURE_INCOMPLETE, None, None))
    return None


def _are_too_many(evidence: VerdictInput) -> bool:
    """Whether too many candidates are undecided for CLEAN."""
    unresolved, left_open = evidence.unresolved, sum(evidence.unresolved.values())
    without_cause = left_open - unresolved.get(Obstacle.PATH_VARIES, 0)
    are_many = without_cause >= REPEATED and without_cause > MOST_OPEN * (evidence.late_without_stall + left_open)
    return (
        are_many
        or evidence.mostly_open >= CONCLUSIVE
        or left_open > MOST_UNRESOLVED * max(evidence.judged, evidence.as_many_exchanges)
    )


def _why_open(obstacle: Obstacle, whole: VerdictInput, *, was_asked: bool) -> tuple[str, Recording | None]:
    """What was seen and why it does not decide, with what to do; and how to record then.

    ``was_asked``: whether the kernel of the sending host was asked meanwhile.
    """
    why, record = _WHY[obstacle]
    if whole.is_data_only and obstacle is Obstacle.CAPTURE_INCOMPLETE:
        return _ACKS_LEFT_OUT, None
    if whole.is_of_both_ends and record is Recording.AT_BOTH_ENDS:
        return _VARIES_AT_BOTH_ENDS, None
    if was_asked and record is Recording.ASKING_THE_KERNEL:
        return f"{why} {_THOUGH_ASKED}", None
    return (f"{why} {HOW_TO_RECORD[record]}" if record else why), record


def _exchanges_text(exchanges: int) -> str:
    return f"{exchanges:,} answered {plural('exchange', exchanges)}"


HOW_TO_RECORD = {
    Recording.ASKING_THE_KERNEL: (
        "record on the host that sends it with `nagle-lab watch`, which asks the kernel what waits"
    ),
    Recording.AT_BOTH_ENDS: "capture at both ends (`--same-traffic`)",
}
_THOUGH_ASKED = "record for longer: what its kernel said meanwhile did not decide it"
_WHY = {  # what was seen, and why it does not decide; how to record then, if the sentence does not say it
    Obstacle.LIKE_A_PROGRAM: (
        "data left a while after a late ACK: held on a busy machine, or a program waited for something else;",
        Recording.ASKING_THE_KERNEL,
    ),
    Obstacle.OWN_PACE: (
        "data followed a late ACK as if it had been held, but its program may have waited by itself, which looks the "
        "same from here;",
        Recording.ASKING_THE_KERNEL,
    ),
    Obstacle.CONNECTIONS_DIFFER: (
        "data followed a late ACK as if it had been held, but only on some connections, and what the same program "
        "does on the others is not certain;",
        Recording.ASKING_THE_KERNEL,
    ),
    Obstacle.ROUND_TRIP_UNKNOWN: (
        "data followed a late ACK, but how far away its sender is, is not known; capture from the beginning of the "
        "connections, or",
        Recording.ASKING_THE_KERNEL,
    ),
    Obstacle.WINDOW_UNKNOWN: (
        "data followed a late ACK, but the segment before it may have filled the window: no SYN shows how that is "
        "scaled; capture from the beginning of the connections, or",
        Recording.ASKING_THE_KERNEL,
    ),
    Obstacle.NO_HANDSHAKE: (
        "data waited for ACKs that came 38 ms later or more, as everything of that end does; no handshake shows "
        "whether the path or its delayed-ACK timer takes so long; capture while any new connection between the two "
        "hosts begins",
        None,
    ),
    Obstacle.PATH_VARIES: (
        "data followed a late ACK, but the path or a busy host may delay as much;",
        Recording.AT_BOTH_ENDS,
    ),
    Obstacle.COARSE_CLOCK: (
        "data followed a late ACK, but how soon, the capture's clock is too coarse to say; capture with time stamps "
        "of a microsecond or less",
        None,
    ),
    Obstacle.NAGLE_OFF_ELSEWHERE: (
        "data followed a late ACK at once, but elsewhere the same end waits for no ACK: TCP_NODELAY for some of its "
        "data only, or a congestion window of one segment;",
        Recording.ASKING_THE_KERNEL,
    ),
    Obstacle.COINCIDENCE: (
        "data followed a late ACK as soon as it could, which may be chance; capture for longer",
        None,
    ),
    Obstacle.CAPTURE_INCOMPLETE: (
        "data followed an ACK that the capture lacks, or has only later; capture at one interface, with `-B 16384`",
        None,
    ),
    Obstacle.ACK_ON_DATA: (
        "data followed an ACK that came with data: an answer to that data, or what was held until then;",
        Recording.ASKING_THE_KERNEL,
    ),
}
_VARIES_AT_BOTH_ENDS = (
    "data followed a late ACK, but a busy host or the path may delay as much; capture for longer, or while less runs "
    "beside it"
)
_ACKS_LEFT_OUT = (
    "data followed an ACK that is not in the capture, nor is any other without data, "
    "as if a filter had left them out; capture with the filter 'tcp', and keep all of it"
)


def exit_code(verdict: Verdict, expected: Verdict | None = None) -> Exit:
    """The exit code of a verdict; with an expectation, whether it was met."""
    if verdict is Verdict.INVALID:
        return Exit.UNUSABLE
    if verdict is Verdict.INCONCLUSIVE:
        return Exit.INCONCLUSIVE
    return Exit.OK if expected in (None, verdict) else Exit.CONTRADICTED
