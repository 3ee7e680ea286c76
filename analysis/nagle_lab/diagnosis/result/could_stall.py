"""The verdict on a user's own software: CLEAN only if a stall was possible, and would have been recorded.

A guarded run is recorded completely, with all of its connections. So CLEAN asks for more than with any other capture:
nothing is CLEAN that could not have been a STALL.
"""

from collections.abc import Iterable
from enum import StrEnum

from nagle_lab.diagnosis.proof.outcomes import Obstacle
from nagle_lab.diagnosis.result.idle_gaps import CAUSES, Cause
from nagle_lab.diagnosis.result.result import Connection, Result
from nagle_lab.diagnosis.result.spread import times_text
from nagle_lab.diagnosis.result.verdict import ENOUGH_CHANCES, ENOUGH_EXCHANGES, Verdict


class Missing(StrEnum):
    """What a run lacked, so that no stall was possible in it."""

    TRAFFIC = "traffic"
    LISTENER = "listener"  # all connections were refused
    CONNECTIONS = "connections"  # to be judged
    SECOND_EXCHANGE = "second_exchange"
    EXCHANGES = "exchanges"
    SECOND_WRITE = "second_write"
    UNCORKED_WRITE = "uncorked_write"  # there was no second one, but TCP_CORK may have joined several


IN_ONE_SEGMENT = {Missing.SECOND_WRITE, Missing.UNCORKED_WRITE}  # each request and each reply left in one


def what_is_missing(result: Result, judged: Iterable[Connection]) -> Missing | None:
    """Why none of the ``judged`` connections could have stalled; None: one could have.

    A small segment that was sent behind an unacknowledged small one is what Nagle's algorithm would have held; data
    that followed a pure ACK is a second write, too. If neither was seen, each message left at once. A stream without
    answers could have stalled if one connection has many of these: only its first ACKs are quick.
    """
    ones = list(judged)
    if not result.source.tcp_packets or not ones:
        return Missing.CONNECTIONS if result.source.tcp_packets else Missing.TRAFFIC
    if result.quality.refused == result.summary.connections:
        return Missing.LISTENER
    exchanges = sum(one.exchanges for one in ones)
    second_writes = [one.chances for one in ones]
    if exchanges < ENOUGH_EXCHANGES and max(second_writes) >= ENOUGH_CHANCES:
        return None
    if not any(one.repeat_exchanges for one in ones):
        return Missing.SECOND_EXCHANGE
    if exchanges < ENOUGH_EXCHANGES:
        return Missing.EXCHANGES
    in_one = Missing.UNCORKED_WRITE if cork_text(result) else Missing.SECOND_WRITE
    return None if any(second_writes) else in_one


def cork_text(result: Result) -> str:
    """What TCP_CORK cost, as surely as it is told; empty unless it took most of the time that the client did not take
    for itself.
    """
    took = {cause: gaps.total_ms for cause, gaps in result.idle_gaps.items() if cause is not Cause.CLIENT_THINK}
    corked = [cause for cause in (Cause.CORK, Cause.LIKELY_CORK) if cause in took]
    if 2 * sum(took[cause] for cause in corked) <= sum(took.values()):
        return ""
    most = max(corked, key=lambda cause: took[cause])
    gaps = result.idle_gaps[most]
    return (
        f"{gaps.count} idle gaps, {gaps.total_ms / gaps.count:.0f} ms each, are {CAUSES[most]}; that lets several "
        "writes leave as one segment, late: if the program sets it, clear it after the last one"
    )


def stricter_for_own_software(result: Result, judged: Iterable[Connection], lost: str) -> Result:
    """The result with a stricter verdict; ``lost`` says what the recording lacks, and is empty if it is complete.

    A stall is proved by the segments that show it, whatever is missing elsewhere.
    """
    if result.verdict is Verdict.STALL:
        return result
    if lost:
        return result.concluded(Verdict.INVALID, lost)
    if result.verdict is Verdict.INVALID and result.source.tcp_packets:
        return result
    elsewhere = result.quality.unresolved.get(Obstacle.NAGLE_OFF_ELSEWHERE, 0)
    if result.verdict is Verdict.CLEAN and elsewhere:
        return result.concluded(Verdict.INCONCLUSIVE, _SOME_WITHOUT.format(times=times_text(elsewhere)))
    ones = list(judged)
    missing = what_is_missing(result, ones)
    if missing and (result.verdict is Verdict.CLEAN or not result.quality.unresolved):
        return result.concluded(
            Verdict.INCONCLUSIVE,
            _SENTENCES[missing].format(n=sum(one.exchanges for one in ones), cork=cork_text(result)),
        )
    return result


NOTHING_STALLS = "nothing in it could have stalled"

_SOME_WITHOUT = (
    "{times} data followed a late ACK at once, where on other connections the same ends wait for no ACK: "
    "TCP_NODELAY is set on some of them only, it seems"
)
_SENTENCES = {
    Missing.TRAFFIC: "no TCP segment passed; of a command only what passes over loopback is recorded",
    Missing.LISTENER: "all connections were refused: nobody listened on the port; see why the server did not start, "
    "or wait for it",
    Missing.CONNECTIONS: "no connection was to be judged: each is on another port, or allowed to stall",
    Missing.SECOND_EXCHANGE: f"{NOTHING_STALLS}: no connection had two exchanges, and the first one does not stall, "
    f"for Linux acknowledges it at once; keep one open in the test, and send {ENOUGH_EXCHANGES} requests on it",
    Missing.EXCHANGES: f"{{n}} exchanges, none stalled, but {ENOUGH_EXCHANGES} are needed to say so; ask more often",
    Missing.SECOND_WRITE: f"{NOTHING_STALLS}: in all {{n}} exchanges each request and each reply left in one write, "
    "so Nagle's algorithm had nothing to hold; several writes that TCP_CORK or MSG_MORE joins look so, too",
    Missing.UNCORKED_WRITE: "in all {n} exchanges each request and each reply left as one segment, but perhaps of "
    "several writes: {cork}",
}
