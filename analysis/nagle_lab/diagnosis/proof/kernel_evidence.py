"""What the kernel said while guard or watch recorded the capture: did data wait in the socket before the ACK came?

Data that waited there was held; data that was not yet written when the ACK came was not. So if the kernel has
answered, no timing is needed. docs/proof.md, "What the kernel said".
"""

from typing import NamedTuple

from nagle_lab.capture.kernel_answers import SLOWEST_NS
from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import distinct, groups, highest, percentile, total
from nagle_lab.diagnosis.observed.enough import A_FEW, CONCLUSIVE, REPEATED
from nagle_lab.diagnosis.observed.kernel_answers import AnswersByCandidate
from nagle_lab.diagnosis.observed.observed import Observed
from nagle_lab.diagnosis.observed.programs import GOES_ON, by_connection
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle, Rejected
from nagle_lab.diagnosis.proof.pauses import PAUSE
from nagle_lab.tcp.events import Echo


class KernelSplit(NamedTuple):
    """Late candidates, divided by what the kernel said; those of programs that had not written are in neither part.

    Attributes
    ----------
    waiting : those whose data waited before the ACK came: stalls
    at_least : how long data waited in the median one of these, at least, ns
    rest : those about which the kernel did not say enough: the packets decide
    """

    waiting: Candidates
    at_least: float
    rest: Candidates


def split_by_kernel(late: Candidates, observed: Observed, judged: Judged) -> KernelSplit:
    """Divide late candidates by what the kernel said; reject, or leave open, those of programs that had not written.

    The kernel is asked every 10 to 20 ms, so not during each wait. In the other waits, data that left as soon after
    the ACK was held as well, unless the kernel said that nothing waited at a time when the seen data did. If it never
    said that data waited, however late in the wait it was asked, none did.
    """
    said, just_before = observed.setting.kernel_answers, late.usual_wait / 8
    nothing = late.none
    if not said.waited and not said.unwritten:
        return KernelSplit(nothing, 0, late)
    waiting = _without_corking_connections(late.among(late.row, sorted(said.waited)), late, observed)
    if not len(waiting):
        if not _had_not_written(late, said, just_before) or _is_seldom(late, said):
            return KernelSplit(nothing, 0, _set_aside_unwritten(late, set(), said, just_before, judged))
        _reject_unwritten(late, said, judged)
        return KernelSplit(nothing, 0, nothing)
    holding = set(map(int, distinct(waiting.connection)))
    waited = [said.waited[int(row)] for row in waiting.row]
    typical = percentile(waited, 50)
    others = _set_aside_unwritten(late, holding, said, min(just_before, typical), judged)
    if 2 * len(waiting) >= len(others):
        waiting = _with_those_alike(waiting, others, typical, said)
    rest = others - waiting
    return KernelSplit(waiting, _waited_at_least(others, waited, observed), rest)


def _with_those_alike(
    waiting: Candidates, others: Candidates, typical: float, said: AnswersByCandidate
) -> Candidates:
    """Those that waited, and the others that left as soon after the ACK and may have been written by then."""
    latest = min(highest(waiting.ack_to_release), max(PAUSE, percentile(waiting.ack_to_release, 90)))
    is_alike = (others.ack_to_release <= latest) & (others.echo != Echo.BEFORE)
    alike = [row for row in map(int, others.only(is_alike).row) if _may_have_been_written(row, typical, said)]
    return others.among(others.row, sorted({*map(int, waiting.row), *alike}))


def _without_corking_connections(waiting: Candidates, late: Candidates, observed: Observed) -> Candidates:
    """Without connections on which more than a few left later than a kernel sends what Nagle's algorithm held.

    TCP_CORK keeps data waiting, too, but the program ends that, not the ACK: after the ACK, or a while before. Of the
    data that left before, the same share is taken to have waited as of the ``late`` candidates.
    """
    latest = _latest_release(observed)
    before = by_connection(observed.program.sent_without_waiting(GOES_ON))

    def is_not_corked(one: Candidates) -> bool:
        number = int(one.connection[0])
        share = len(one) / total(late.connection == number)
        return total(one.ack_to_release > latest) + share * before[number] <= A_FEW * len(one)

    return waiting.on_connections_where(is_not_corked)


def _latest_release(observed: Observed) -> float:
    """How long after the ACK, ns, a kernel sends what Nagle's algorithm held, at most."""
    return PAUSE + (observed.sender_fastest if observed.is_away else 0)


def _set_aside_unwritten(
    late: Candidates, holding: set[int], said: AnswersByCandidate, just_before: float, judged: Judged
) -> Candidates:
    """Without the connections on which nothing ever waited: there the program itself waits for something.

    ``holding`` are the connections on which data waited.
    """
    if not said.unwritten:
        return late
    connections = late.connection
    unwritten: list[int] = []
    unsure: list[int] = []
    for group in groups(connections):
        number, its_own = int(connections[group[0]]), late.picked(group)
        if number in holding or not _had_not_written(its_own, said, just_before):
            continue
        if _is_seldom(its_own, said):
            unsure.append(number)
        else:
            unwritten.append(number)
    judged.leave_open(late.among(connections, sorted(unsure)), Obstacle.OWN_PACE)
    _reject_unwritten(late.among(connections, sorted(unwritten)), said, judged)
    return late.not_among(connections, sorted(unsure + unwritten))


def _reject_unwritten(late: Candidates, said: AnswersByCandidate, judged: Judged) -> None:
    """Reject them as not written yet; leave open those after the kernel's last answer, if more than a few."""
    later = late.only(late.at - late.trigger_to_release > said.until)
    if len(later) > A_FEW * len(late):
        judged.leave_open(later, Obstacle.OWN_PACE)
        judged.reject(late - later, Rejected.LATER_RELEASE)
    else:
        judged.reject(late, Rejected.LATER_RELEASE)


def _had_not_written(late: Candidates, said: AnswersByCandidate, just_before: float) -> bool:
    """Whether the kernel said of ten that nothing waited, and of none that data did.

    It must have said so at least once no longer than ``just_before`` (ns) before the ACK.
    """
    rows = list(map(int, late.row)) if said.unwritten else []
    asked = [said.unwritten[row] for row in rows if row in said.unwritten]
    return len(asked) >= CONCLUSIVE and min(asked) <= just_before and not any(row in said.waited for row in rows)


def _is_seldom(late: Candidates, said: AnswersByCandidate) -> bool:
    """Whether the kernel spoke of less than half of them, those after its last answer not counted."""
    asked = sum(int(row) in said.unwritten for row in late.row)
    return 2 * asked < total(late.at - late.trigger_to_release <= said.until)


def _may_have_been_written(row: int, long: float, said: AnswersByCandidate) -> bool:
    """Whether the kernel did not say, less than ``long`` ns before the ACK, that nothing waited."""
    return row not in said.unwritten or row in said.waited or said.unwritten[row] + SLOWEST_NS >= long


def _waited_at_least(late: Candidates, waited: list[int], observed: Observed) -> float:
    """How long data waited in the median one that left soon after the ACK, ns; ``waited`` are the waits seen."""
    said, prompt = observed.setting.kernel_answers, late.only(late.ack_to_release <= _latest_release(observed))
    if not any(int(row) in said.unwritten for row in prompt.row):
        return percentile(waited, 90)  # what was seen in some holds for all
    asked = [int(row) for row in prompt.row if int(row) in said.waited or int(row) in said.unwritten]
    return percentile([said.waited.get(row, 0) for row in asked], 50)


def is_denied(low: float, held: Candidates, said: AnswersByCandidate) -> bool:
    """Whether the kernel denies a hold of ``low`` ns: it said of more than a few that nothing waited by then."""
    rows = list(map(int, held.row)) if said.unwritten else []
    asked = [row for row in rows if row in said.unwritten or row in said.waited]
    denied = [row for row in asked if said.unwritten.get(row, low) + SLOWEST_NS < low]
    return len(denied) >= REPEATED and len(denied) > A_FEW * len(asked)
