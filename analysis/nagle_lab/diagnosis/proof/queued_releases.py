"""Releases that stand behind each other at their host, as connections in step make them (:func:`queued_releases`)."""

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import highest, percentile, total
from nagle_lab.diagnosis.observed.enough import COMPARABLE, NEARLY_ALL, REPEATED
from nagle_lab.diagnosis.observed.observed import US, Observed
from nagle_lab.diagnosis.proof.release_times import SOONEST_WOKEN

SOON_AS_SYNS = 1.5  # times the median answer to a SYN: data behind an early ACK that the kernel sent
QUEUE = 100  # releases that stand behind each other, at most: as long a queue is a pause
DIRECTLY = 20 * US  # or half an answer to a SYN: so soon comes the next one, median
STARTED = 0.75  # of the latest release: so late is the first of a queue, at most


def queued_releases(pure: Candidates, observed: Observed, limit: float) -> Candidates | None:
    """Releases that queue at their host, each as soon after the one before as a kernel sends; None if there are none.

    The timers of connections in step fire together, and their ACKs arrive at once. A relay's writes queue, too; so
    the kernel must also be seen to hold.
    """
    answers = observed.program.own.handshake
    if not answers or observed.sent_before or not (_is_held_early(observed) or _starts_at_once(pure, observed)):
        return None
    longest = QUEUE * limit
    queued = pure.only((pure.alone < pure.ack_to_release) & (pure.ack_to_release < longest))
    soon = total(queued.alone <= limit)
    if len(queued) < max(COMPARABLE, len(pure) / 2) or soon <= NEARLY_ALL * len(queued):
        return None
    if percentile(queued.alone, 50) > max(DIRECTLY, percentile(answers, 50) / 2):
        return None
    if percentile(queued.ack_to_release, 10) > STARTED * percentile(queued.ack_to_release, 90):
        return None  # all as late as the last one: what they stand behind is a pause
    latest = highest(queued.ack_to_release)  # the first one of each queue waits for the kernel to wake up
    return pure.only(pure.ack_to_release <= latest)


def _is_held_early(observed: Observed) -> bool:
    """Whether data follows early ACKs as soon as SYNs are answered."""
    answers, early = observed.program.own.handshake, observed.program.own.release
    return len(early) >= REPEATED and percentile(early, 50) <= SOON_AS_SYNS * percentile(answers, 50)


def _starts_at_once(pure: Candidates, observed: Observed) -> bool:
    """Whether those at the sender that stand behind nothing, directly behind their ACK, come sooner than any program
    that sleeps.
    """
    first = pure.only(pure.release_frame == pure.ack_frame + 1)
    is_seen = observed.is_at_sender and len(first) >= COMPARABLE
    return is_seen and percentile(first.ack_to_release, 50) <= SOONEST_WOKEN
