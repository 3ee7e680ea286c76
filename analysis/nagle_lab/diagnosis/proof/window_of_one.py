"""A congestion window of one segment holds data as Nagle's algorithm does (:func:`set_aside_window_of_one`)."""

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import groups, listed, total
from nagle_lab.diagnosis.observed.enough import REPEATED
from nagle_lab.diagnosis.observed.observed import Observed
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle
from nagle_lab.tcp.events import PROBE


def set_aside_window_of_one(held: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Without what a congestion window of one segment may have held, if other connections wait for no ACK.

    Such a window is set for a destination (a route's cwnd lock, a cached metric), so all later connections to it have
    the same. Or it is the window that a connection begins with, which grows with the first ACK (RFC 5681 §3.1).
    """
    peers, not_held = set(listed(held.peer_program)), observed.program.not_held
    times = sum(of_peer.times for peer, of_peer in not_held.items() if peer in peers)
    if not len(held) or 2 * times * observed.setting.chunk_share < len(held):
        return held
    if _outlasts_growth(held, observed):
        return held  # then the connections that do not wait have TCP_NODELAY, perhaps set later
    judged.leave_open(held, Obstacle.NAGLE_OFF_ELSEWHERE)
    return held.none


def _window_would_be_shared(held: Candidates, observed: Observed) -> set[int]:
    """Connections on which data is held, if a window left to them would be that of one that does not wait, too.

    The first connection that ends leaves its window to all of the same hosts that begin later (Linux, tcp_metrics.c;
    after an hour the route is asked again). So a connection that waits for no ACK would have that window, too, if it
    began later; or earlier, if none ended in between.
    """
    found: set[int] = set()
    for number, peer, began in zip(*map(listed, (held.connection, held.peer_program, held.began)), strict=True):
        others = observed.program.not_held.get(peer)
        if others and number not in others.began and began < others.last_ended:
            found.add(number)
    return found


def _outlasts_growth(held: Candidates, observed: Observed) -> bool:
    """Whether data was held repeatedly when the window was surely larger than one segment.

    The window must have held more than one segment, and not have begun anew. It begins anew after an RTO without data
    (RFC 5681 §4.1), and grows with the first ACK after that, so it has not if other data was sent shortly before the
    trigger. It takes three holds on one connection; or on several, before each is first seen not to hold, because the
    option is set then.
    """
    grown = held.only((held.since_data >= 0) & (held.since_data < PROBE))
    others = _window_would_be_shared(held, observed)
    two_at_once, at_first = 0, 0
    for group in groups(grown.connection):
        of_one = grown.picked(group)
        sent_two, is_other = int(of_one.beside_unacked[0]), int(of_one.connection[0]) in others
        if len(group) >= REPEATED and (sent_two >= REPEATED or is_other):
            return True
        if sent_two or is_other:
            two_at_once += REPEATED if is_other else sent_two
            first = int(of_one.first_not_held[0])
            at_first += total(of_one.release_frame < first) if first else len(group)
    return at_first >= REPEATED and two_at_once >= REPEATED
