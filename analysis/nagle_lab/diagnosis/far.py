"""Away from the sender: a release passes one of its round trips after the ACK, as its answers do."""

from nagle_lab.diagnosis.candidates import Candidates
from nagle_lab.diagnosis.judged import Judged, Obstacle, Rejected
from nagle_lab.diagnosis.population import each, highest, lowest, percentile, total
from nagle_lab.diagnosis.timing import FEW, MOST_LOOKED_AT, NEAR, SOME, US, Known, is_paced
from nagle_lab.tcp.machine import MS, Echo

SLACK = 300 * US  # by which a path varies at least
ANSWERS = 8  # so many tell how much it varies


def held_far(pure: Candidates, known: Known, judged: Judged) -> Candidates:
    """Those of the late candidates that the ACK released."""
    nothing = pure.picked([])
    if not len(pure):
        return nothing
    if known.sent_before > 0.05 * len(pure) + 0.5:
        judged.reject(len(pure), Rejected.NAGLE_OFF)
        return nothing
    answers = sorted([*known.program.own.ack, *known.program.own.data])
    base = _round_trip(pure, known, answers)
    if base is None:
        judged.leave(pure, Obstacle.ROUND_TRIP_UNKNOWN)
        return nothing
    slack = max(SLACK, base // 8)
    soonest, latest = base - slack, _latest_release(pure, answers, base, slack)
    around = pure.only(each(lambda release: release < 2 * base + 10 * MS, pure.release))
    soon = total(each(lambda release, echo: (release < soonest) & (echo != Echo.AFTER), pure.release, pure.echo))
    if is_paced(around) or soon > 0.1 * len(pure) + 0.5:
        judged.reject(len(pure), Rejected.NAGLE_OFF)
        return nothing
    prompt = pure.only(each(lambda release: (release >= soonest) & (release <= latest), pure.release))
    beyond = latest + 4 * (latest - base)
    by_chance = total(each(lambda release: (release > latest) & (release <= beyond), pure.release)) / 4
    if len(prompt) <= by_chance + 3 * by_chance**0.5 or (len(prompt) < FEW and not _is_a_listing(pure, known)):
        close = pure.only(each(lambda release: (release >= soonest) & (release <= 2 * latest), pure.release))
        if len(close) <= 0.2 * len(pure) or _is_none_at_once(close, answers, base, slack):
            close = nothing
        judged.leave(close, Obstacle.PATH_VARIES)
        judged.reject(len(pure) - len(close), Rejected.LATER_RELEASE)
        return nothing
    judged.reject(len(pure) - len(prompt), Rejected.LATER_RELEASE)
    return prompt


def _is_none_at_once(close: Candidates, answers: list[int], base: int, slack: int) -> bool:
    """Whether not even the first of several came as soon as that end answers: some of what an ACK releases does."""
    soonest = max(base, percentile(answers, 25)) if answers else base
    return len(close) >= SOME and lowest(close.release) > soonest + slack


def _is_a_listing(pure: Candidates, known: Known) -> bool:
    """A few exchanges from the middle of a connection, as people post them: all releases within a millisecond."""
    return len(pure) < FEW and not known.program.own.handshake and highest(pure.release) < NEAR


def _round_trip(pure: Candidates, known: Known, answers: list[int]) -> int | None:
    """From the capture point to the sender and back, ns; None not known.

    Where nothing else tells: its releases, if they are alike while the waits are not. What echoes the late ACK was
    sent after that had arrived, so the path is no longer than the shortest of these took.
    """
    base = known.own
    if base is None:
        low = percentile(pure.release, 10)
        spread = percentile(pure.wait, 90) - percentile(pure.wait, 10)
        if len(pure) < SOME or percentile(pure.release, 90) - low > 0.25 * spread:
            return None
        if answers and low > answers[0] + MS:
            return None
        base = int(low)
    after = pure.only(each(lambda echo: echo == Echo.AFTER, pure.echo))
    return min([base, *map(int, after.release[:MOST_LOOKED_AT])])


def _latest_release(pure: Candidates, answers: list[int], base: int, slack: int) -> float:
    """How late a release may pass: as late as that end's own answers do."""
    latest: float = base + slack
    if len(answers) >= ANSWERS:
        latest = max(latest, min(percentile(answers, 95), 2 * percentile(answers, 50)) + SLACK)
        within = total(each(lambda release: (release >= base - slack) & (release <= latest), pure.release))
        if within > 0.7 * len(pure):  # one behaviour
            latest = max(latest, min(answers[-1] * 1.1, 3 * percentile(answers, 50)))
    return latest
