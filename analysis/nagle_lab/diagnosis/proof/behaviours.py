"""Programs that do one thing on some connections and another on others: judged together, the two hide each other.

A pool may hold data on one connection, and pause or have TCP_NODELAY on the next. So if most of a program's
candidates are no stalls, its connections are judged by themselves, too. docs/proof.md, rule 9.
"""

from typing import NamedTuple

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import groups, percentile
from nagle_lab.diagnosis.observed.enough import A_FEW, COMPARABLE, CONCLUSIVE
from nagle_lab.diagnosis.observed.observed import Observed, Setting, observe
from nagle_lab.diagnosis.observed.peers import LEAST_DELAY
from nagle_lab.diagnosis.observed.programs import Program
from nagle_lab.diagnosis.proof.outcomes import Judged, Obstacle
from nagle_lab.diagnosis.proof.proof import prove
from nagle_lab.diagnosis.proof.release_times import FINE, SOONEST_WOKEN

MOSTLY_STALLS = 0.5  # of the candidates with late ACKs: if so many are stalls, nothing hides them
MOST_CONNECTIONS = 30  # that are judged by themselves


def prove_by_behaviour(c: Candidates, program: Program, setting: Setting) -> Judged:
    """What is decided about the candidates of one program, judged as :func:`prove` does, and by connection if need
    be.

    The parameters are those of :func:`prove`. If the kernel was asked whether data waited, its answers distinguish
    the connections already.
    """
    together = prove(c, program, setting)
    late = c.only((c.late_by(0) >= LEAST_DELAY) & (c.ack_frame > 0) & (c.pure > 0))
    if together.stall_count >= MOSTLY_STALLS * len(late) or setting.kernel_answers.until:
        return together
    return _judged_apart(c, late, program, setting, together)


def _judged_apart(c: Candidates, late: Candidates, program: Program, setting: Setting, together: Judged) -> Judged:
    """What is decided about connections that hold and the others, or else what was decided about them ``together``.

    Ten stalls or more on some connections count if the others certainly do something else: none of the others has a
    stall or a candidate left open, and the others are no more than three of four, because of many connections the
    pauses of a few end right behind the ACK by chance. They also count if a kernel certainly released the data: at
    the sender, sooner than any program is woken. Otherwise what was found together stands; if that was no stall, all
    that are found here are left open. No stall that was found together is lost. What was left open together because
    of the path stays so.
    """
    alone = _judged_alone(c, late, program, setting)
    on_those = prove(c.among(c.connection, alone.holding), program, setting)
    if _seemingly_held(on_those) < CONCLUSIVE or on_those.stall_count < together.stall_count:
        return together
    held = late.among(late.connection, alone.holding)
    if _are_left_to_the_path(held, together):
        return together
    elsewhere = prove(c.not_among(c.connection, alone.holding), program, setting)
    are_others_decided = not alone.are_open and not elsewhere.unresolved and not elsewhere.stall_count
    if are_others_decided and len(alone.holding) >= A_FEW * alone.tried:
        return on_those + elsewhere
    if together.stall_count:
        return together
    if not _are_at_once(held, observe(program, setting, c)):
        on_those = on_those.all_open(Obstacle.CONNECTIONS_DIFFER)
    return on_those + elsewhere.all_open(Obstacle.CONNECTIONS_DIFFER)


class _Alone(NamedTuple):
    """Connections judged by themselves."""

    holding: list[int]  # those on which five candidates or more seem held, by number, ascending
    are_open: bool  # whether there are stalls on any other, or candidates left open
    tried: int  # how many were judged by themselves


def _judged_alone(c: Candidates, late: Candidates, program: Program, setting: Setting) -> _Alone:
    """What each connection with five late candidates shows by itself; of many connections, those with the most."""
    holding: list[int] = []
    are_open, tried = False, 0
    for group in sorted(groups(late.connection), key=len, reverse=True)[:MOST_CONNECTIONS]:
        if not COMPARABLE <= len(group) < len(late):
            continue
        number, tried = int(late.connection[group[0]]), tried + 1
        one = prove(c.only(c.connection == number), program, setting)
        if _seemingly_held(one) >= COMPARABLE:
            holding.append(number)
        elif one.stall_count or one.unresolved:
            are_open = True
    return _Alone(sorted(holding), are_open, tried)


def _seemingly_held(judged: Judged) -> int:
    """How many are stalls, or would be if nothing showed that Nagle's algorithm is off elsewhere."""
    return judged.stall_count + sum(map(len, judged.left_open(Obstacle.NAGLE_OFF_ELSEWHERE)))


def _are_left_to_the_path(held: Candidates, together: Judged) -> bool:
    """Whether most are open because of the path: fewer ACKs do not show better how much it varies."""
    of_path = (held.among(held.row, rows) for rows in together.left_open(Obstacle.PATH_VARIES))
    return 2 * sum(map(len, of_path)) > len(held)


def _are_at_once(late: Candidates, observed: Observed) -> bool:
    """Whether nearly all leave their host sooner after the ACK than from any program that it wakes."""
    is_told = observed.is_at_sender and observed.setting.resolution <= FINE
    return is_told and percentile(late.ack_to_release, 90) <= SOONEST_WOKEN
