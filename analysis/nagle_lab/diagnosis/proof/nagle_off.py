"""Where Nagle's algorithm was off: then a program sends small data beside unacknowledged small data.

A few connections, or a stretch of one, say nothing about the others: TCP_NODELAY is an option of each socket, and can
be set and cleared at any time. docs/proof.md, rule 10.
"""

from collections import Counter
from collections.abc import Iterable
from math import exp, lgamma

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import (
    Column,
    Numbers,
    distinct,
    groups,
    highest,
    in_order,
    is_full,
    listed,
    percentile,
    pick,
    rows_where,
    total,
)
from nagle_lab.diagnosis.observed.enough import A_FEW, COMPARABLE, CONCLUSIVE, HARDLY_ANY, MOST_LOOKED_AT, REPEATED
from nagle_lab.diagnosis.observed.observed import NEAR, PATH_JITTER, Observed, answers_of, latest_answer
from nagle_lab.diagnosis.observed.paths import round_trip_bounds, slack
from nagle_lab.diagnosis.observed.programs import ToPeer, by_connection
from nagle_lab.diagnosis.proof.late_acks import LINUX_TIMER
from nagle_lab.diagnosis.proof.outcomes import Ground, Hold, Judged, Obstacle, Rejected
from nagle_lab.diagnosis.proof.pauses import PAUSE, SPAN, follows_ack, is_chance, sent_later, stand_out
from nagle_lab.diagnosis.proof.release_times import FINE, HELD, SOONEST_WOKEN, slowest_release
from nagle_lab.tcp.events import MS, PROBE, US, Echo

# What comes later behind the trigger may be a loss probe, which sends what is held (RFC 8985 §7.3): it shows nothing.
NO_PROBE = PROBE * 9 // 10
NO_CHANCE = 0.001  # that so many in a row wait, or seem to, while others of that connection do not
UNLIKELY = 0.05  # the same, if they are only left open
SURELY_APART = 80 * US  # fastest reaction: if slower, the sender is not at the capture point, but may be near
SLOWEST_LINK = 8 * US  # for each byte, at most: 1 Mbit/s
STEADY = 1 / 8  # of what a path may vary: that much it varies when it is quiet
PAUSE_VARIES = 0.05  # share: the most by which data leaves sooner or later after the same pause
NOT_BESIDE = 2 / 3  # of the data within 3 × PAUSE_VARIES: if more is within PAUSE_VARIES, it is a usual pause
APART_AWAY = 2  # times the width in which releases may pass: for that long after it hardly anything else passes
OFTEN = 0.5  # times the candidates: if more data did not wait on a connection, it does not wait for ACKs
OFTEN_AWAY = 0.25  # the same away from the sender, three times and more: there what the path keeps looks held
# The same for a program if packets are astray and timestamps do not tell which; and the data must be more than
# ASTRAY_TIMES as much as packets that are astray would make look so.
WHERE_ASTRAY, ASTRAY_TIMES = 0.3, 3


def set_aside_nagle_off(
    late: Candidates, no_waits: Counter[ToPeer], observed: Observed, judged: Judged
) -> tuple[Candidates, Counter[ToPeer]]:
    """Without the connections that are seen not to wait for ACKs; the program's other connections are judged.

    Of the connections set aside, only what may have been held before TCP_NODELAY was set, or after it was cleared,
    stays. ``no_waits`` is returned without the connections of that data.
    """
    late = _set_aside_mixed(late, observed, judged)
    beside = by_connection(no_waits)
    if not beside:
        return late, no_waits
    connections = late.connection
    while_on = surely_while_on(late, observed)
    off = sorted({*_often(beside, late, observed), *map(int, while_on.connection)})
    on_those = late.among(connections, off)
    kept = while_on | _before_nodelay(on_those - while_on, observed)
    others = (late - on_those) | kept
    reject_as_off(late - others, observed, judged)
    changed = set(map(int, kept.connection))
    return others, Counter({to: count for to, count in no_waits.items() if to.connection not in changed})


def _set_aside_mixed(late: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Without connections on which other small data, sent in between, did not wait, however soon behind the trigger.

    What a capture loses or swaps looks the same, so it must have done neither. What left its host before that data,
    sooner behind the ACK than from any program that sleeps, was not in between.
    """
    if observed.setting.astray_share:
        return late
    right_behind = _sent_right_behind(late, observed)
    beside = by_connection(observed.program.sent_without_waiting()) + right_behind
    often = late.among(late.connection, _often(beside, late, observed))
    apart = may_be_while_on(often, observed) | _began_held(often, right_behind, observed)
    mixed = often.not_among(often.connection, apart.connection) - _surely_before_nodelay(often, observed)
    reject_as_off(mixed, observed, judged)
    return late - mixed


def _began_held(c: Candidates, right_behind: Counter[int], observed: Observed) -> Candidates:
    """Those that came before any data of their connection that was sent ``right_behind``: the option may be set and
    cleared.

    Away from the sender, where what the path keeps until the ACK looks held, only if they are too many for chance.
    """

    def are_too_many(one: Candidates) -> bool:
        before = len(one.only(one.release_frame < one.first_not_held))
        chance = _chance_of_run(before, len(one), right_behind[int(one.connection[0])])
        return not observed.is_away or chance < UNLIKELY

    began = c.among(c.connection, sorted(right_behind)).on_connections_where(are_too_many)
    return began.only(began.release_frame < began.first_not_held)


def reject_as_off(off: Candidates, observed: Observed, judged: Judged) -> None:
    """Reject what came on connections that do not wait for ACKs.

    But more of it than pauses explain may follow the ACK as if it had been held, because the option may be set and
    cleared again and again. This counts as held if it leaves its host sooner than from any program that sleeps;
    otherwise it is left open.
    """
    as_if_held, sooner = _as_if_held(off, observed), _sooner_than_pauses(off, observed)
    if len(sooner) > len(as_if_held) or (len(sooner) and not _is_sooner_than_woken(as_if_held, observed)):
        as_if_held = sooner
    if _is_sooner_than_woken(as_if_held, observed):
        hold = Hold.up_to(as_if_held.trigger_to_ack)
        judged.accept(as_if_held, Ground.REPETITION_AT_SENDER, hold)
    else:
        judged.leave_open(as_if_held, Obstacle.NAGLE_OFF_ELSEWHERE)
    rest = off - as_if_held
    unsure = rest.only((rest.pure > 0) & (rest.ack_to_release <= HELD)) if as_if_held is sooner else rest.none
    judged.leave_open(unsure, Obstacle.NAGLE_OFF_ELSEWHERE)
    judged.reject(rest - unsure, Rejected.NAGLE_OFF)


def _sooner_than_pauses(off: Candidates, observed: Observed) -> Candidates:
    """Those at their sender that come sooner than from any program that sleeps, if they are more than pauses explain
    that end at any time.

    A pause as long as the peer's timer may end in the same tick of one kernel, but then more come a little later: a
    program is woken in that tick, too.
    """
    times = off.ack_to_release
    soon = off.only((off.pure > 0) & (off.echo != Echo.BEFORE) & (times <= SOONEST_WOKEN))
    if not _is_sooner_than_woken(soon, observed):
        return off.none
    a_little_later = total((times > SOONEST_WOKEN) & (times <= 2 * SOONEST_WOKEN))
    if 2 * a_little_later > len(soon) or is_chance(len(soon), times, SOONEST_WOKEN, SOONEST_WOKEN, SPAN):
        return off.none
    return soon


def _is_sooner_than_woken(c: Candidates, observed: Observed) -> bool:
    """Whether several, captured at their sender, follow the ACK sooner than from any program that sleeps."""
    if observed.nearer_end != "sender" or observed.setting.resolution > FINE or len(c) < COMPARABLE:
        return False
    own = observed.program.reactions
    if not own.handshake and own.fastest >= NEAR:
        return False  # nothing but these releases shows that their sender is near
    soon = c.ack_to_release
    return (
        percentile(soon, 50) > 0 and percentile(soon, 90) <= SOONEST_WOKEN
    )  # stamped with the ACK: not yet released


def _as_if_held(off: Candidates, observed: Observed) -> Candidates:
    """Those that follow a pure ACK as soon as a kernel releases data, or by a round trip, if more than chance
    explains.

    What follows data is an answer, and not counted; nor is what left before the ACK had arrived, by its timestamp.
    """
    off, nothing = off.only((off.pure > 0) & (off.echo != Echo.BEFORE)), off.none
    if len(off) < REPEATED:
        return nothing
    most = _most_as_soon(off, _when_released(off, observed), observed)
    if len(most) < REPEATED and observed.is_away:  # perhaps a slow link: then its bytes take time, too
        soonest, latest = round_trip_bounds(observed.sender_fastest)
        slowest = latest + highest(off.released_bytes) * SLOWEST_LINK
        most = _most_as_soon(off, [(soonest, slowest)], observed)
    return most if len(most) >= REPEATED and follows_ack(most) is not False else nothing


def _most_as_soon(off: Candidates, ranges: Iterable[tuple[float, float]], observed: Observed) -> Candidates:
    """Those in the one of these ranges after the ACK, ns, in which the most are, if chance does not explain them."""
    most, pauses = off.none, _usual_pauses(observed)
    for low, high in ranges:
        soon = off.released_within(low, high)
        are_most = 2 * len(soon) > len(off)  # no pause ends so soon behind the ACK again and again
        is_sure = are_most and _is_sooner_than_woken(soon, observed)
        if not is_sure and not _stand_alone(soon, off, low, high):
            soon = soon.only(_is_no_pause(soon, pauses))
        if len(sent_later(soon, off, observed)) > A_FEW * len(soon):
            continue
        if len(soon) > len(most) and stand_out(len(soon), off.ack_to_release, low, high):
            most = soon
    return most


def _stand_alone(soon: Candidates, off: Candidates, low: float, high: float) -> bool:
    """Whether hardly any data passes just before or behind those that come ``low`` to ``high`` ns after the ACK.

    Pauses that end at any time do so before and after as well. One that ends in the same tick as the peer's timer
    ends with it each time, but near the sender a program is woken later then.
    """
    if len(soon) < CONCLUSIVE:
        return False
    times, width = off.ack_to_release, high - low
    span = SPAN[0] if high < PAUSE else APART_AWAY
    beside = total((times >= low - width) & (times < low)) + total((times > high) & (times <= high + span * width))
    is_soon = high >= PAUSE or percentile(soon.ack_to_release, 50) <= SOONEST_WOKEN
    return is_soon and beside <= HARDLY_ANY * len(soon)


def _when_released(off: Candidates, observed: Observed) -> Iterable[tuple[float, float]]:
    """The soonest and the latest time after an ACK, ns, at which data that it releases may pass.

    There are several such ranges: a path may vary as usual, hardly vary, or vary as that end's answers do.
    """
    fastest = observed.sender_fastest
    answers = answers_of(observed.program.reactions, fastest, LINUX_TIMER)
    soonest, latest = round_trip_bounds(fastest)
    step = observed.setting.resolution  # times are no more exact than that
    if not observed.is_away:
        yield 0, slowest_release(off, observed) + 2 * step
    if observed.is_away or fastest > SURELY_APART:
        quiet = STEADY * slack(fastest) + step
        yield max(soonest - step, 0), latest + step
        yield max(soonest - step, 0), latest_answer(answers, fastest) + step
        yield fastest - quiet, fastest + quiet


def _sent_right_behind(c: Candidates, observed: Observed) -> Counter[int]:
    """How often small data left within SHORT (tcp/waited.py) of unacknowledged small data, by connection of ``c``.

    Without connections on which most triggers did so: what follows these waits for something else, room in the send
    buffer for example.
    """
    c = c.only(c.not_held > 0)
    if not len(c):
        return Counter()
    later = Counter[int]()
    for sent, count in observed.program.no_waits.items():
        later[sent.connection] += count
    c = c.on_connections_where(lambda one: 2 * total(one.trigger_not_held) <= len(one))
    in_all = dict(zip(map(int, c.connection), map(int, c.not_held), strict=True))
    share = observed.setting.chunk_share
    return +Counter({number: int(count * share) - later[number] for number, count in in_all.items()})


def _often(beside: Counter[int], late: Candidates, observed: Observed) -> list[int]:
    """The connections on which data often did not wait, compared with the data that seems to wait there."""
    if not beside:
        return []
    held = Counter(listed(late.connection))

    def is_often(connection: int, count: int) -> bool:
        share = OFTEN_AWAY if observed.is_away and count >= REPEATED else OFTEN
        return count > share * held[connection]

    return sorted(connection for connection, count in beside.items() if is_often(connection, count))


def surely_while_on(c: Candidates, observed: Observed) -> Candidates:
    """Those of ``c`` that came before TCP_NODELAY was set or after it was cleared."""
    return _in_a_row(c, observed, NO_CHANCE)


def may_be_while_on(c: Candidates, observed: Observed) -> Candidates:
    """Those of ``c`` that may have come before TCP_NODELAY was set or after it was cleared."""
    return _in_a_row(c, observed, UNLIKELY)


def _in_a_row(c: Candidates, observed: Observed, chance: float) -> Candidates:
    """Those before the first data of their connection that did not wait, or after the last, if too many for chance.

    Then the option was changed in between, and that part is judged as a capture of it alone would be. The same
    applies if one or two come before that data on each connection, and on too many connections for chance: OpenSSH
    sets the option when a session begins. Only what seems held is counted, not pauses, which are no sign that data
    waited.
    """
    kept: list[Column] = []
    all_before: list[Column] = []
    are_all_before: list[bool] = []
    chances: list[float] = []
    beside, frames = by_connection(observed.program.sent_without_waiting()), observed.program.no_wait_frames
    seems_held = _seem_held(c, observed)
    for group in groups(c.connection):
        number = int(c.connection[group[0]])
        if number not in frames or not beside[number]:
            continue
        first, last = frames[number].first, frames[number].last
        triggers, releases = pick(c.trigger_frame, group), pick(c.release_frame, group)
        held = total(pick(seems_held, group))
        before, after = pick(group, rows_where(releases < first)), pick(group, rows_where(triggers > last))
        kept += [
            part
            for part in (before, after)
            if _chance_of_run(total(pick(seems_held, part)), held, beside[number]) < chance
        ]
        if held:
            chances.append(_chance_of_run(held, held, beside[number]))
            are_all_before.append(total(pick(seems_held, before)) == held)
            if are_all_before[-1]:
                all_before.append(before)
    if _chance_of_so_many(sum(are_all_before[:MOST_LOOKED_AT]), chances[:MOST_LOOKED_AT]) < chance:
        kept += all_before
    return c.picked(distinct(in_order(kept)))


def _seem_held(c: Candidates, observed: Observed) -> Column:
    """Which follow their ACK at once, but not as long after the trigger as data that did not wait: that is
    a pause.
    """
    latest = observed.sender_fastest + PATH_JITTER if observed.is_away and observed.sender_fastest else PAUSE
    return (c.ack_to_release < latest) & _is_no_pause(c, {sent.ms for sent in observed.program.no_waits})


def _is_no_pause(c: Candidates, pauses: Iterable[int]) -> Column:
    """Which do not come as long after the trigger as one of these ``pauses``, ms."""
    since = c.trigger_to_release
    is_none = since >= 0
    for pause in pauses:
        is_none = is_none & ((since * (1 + PAUSE_VARIES) < pause * MS) | (since * (1 - PAUSE_VARIES) > pause * MS))
    return is_none


def _usual_pauses(observed: Observed) -> list[int]:
    """How long after the trigger, ms, several of the program's data left that did not wait, and few sooner
    or later.
    """
    times: Counter[int] = Counter()
    for sent, count in observed.program.no_waits.items():
        times[sent.ms] += count

    def within(share: float, pause: int) -> int:
        return sum(count for ms, count in times.items() if abs(ms - pause) <= share * pause)

    def is_usual(pause: int) -> bool:
        alike = within(PAUSE_VARIES, pause)
        are_some = alike >= COMPARABLE and alike > A_FEW * times.total()
        return are_some and alike > NOT_BESIDE * within(3 * PAUSE_VARIES, pause)  # by chance it is a third

    return [pause for pause in times if is_usual(pause)]


def _chance_of_run(run: int, held: int, not_held: int) -> float:
    """How likely it is that the first ``run`` are all ``held``, if these and the ``not_held`` come in any order.

    That is C(held + not_held - run, not_held) / C(held + not_held, not_held), the hypergeometric distribution.
    """
    return exp(
        lgamma(held + not_held - run + 1) - lgamma(held - run + 1) + lgamma(held + 1) - lgamma(held + not_held + 1)
    )


def _chance_of_so_many(times: int, chances: list[float]) -> float:
    """How likely it is that events with these ``chances``, each by itself, happen so many ``times`` or more.

    The time that this takes grows with the square of their number.
    """
    likely = [1.0]  # at each place: that as many of the events so far happened
    for chance in chances:
        without, once_more = [*likely, 0.0], [0.0, *likely]
        likely = [no * (1 - chance) + yes * chance for no, yes in zip(without, once_more, strict=True)]
    return sum(likely[times:])


def _before_nodelay(off: Candidates, observed: Observed) -> Candidates:
    """Those near the sender that came before the first data that did not wait, and seem held.

    TCP_NODELAY may have been set then: OpenSSH does it when a session begins.
    """
    if observed.is_away:
        return off.none
    frames = observed.program.no_wait_frames
    first = Numbers([frames[number].first if number in frames else 0 for number in listed(off.connection)])
    return off.only(_seem_held(off, observed) & (off.release_frame < first))


def _surely_before_nodelay(c: Candidates, observed: Observed) -> Candidates:
    """The same, captured at their sender and released by its kernel; none if it is only part of a capture."""
    setting = observed.setting
    if observed.nearer_end != "sender" or setting.resolution > FINE or setting.chunk_share < 1:
        return c.none
    return _before_nodelay(c.only((c.ack_to_release <= SOONEST_WOKEN) & (c.pure > 0)), observed)


def set_aside_held_behind_full(late: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Without those behind full segments, on connections seen not to wait behind full ones: Linux does not
    (Minshall).
    """
    behind, times = late.only(is_full(late.trigger_bytes, late.full)), observed.program.not_held_behind_full
    held = Counter(map(int, behind.connection)) if times else Counter()
    off = sorted(connection for connection, count in held.items() if times[connection] > OFTEN * count)
    unlikely = behind.among(behind.connection, off)
    judged.reject(unlikely, Rejected.NAGLE_OFF)
    return late - unlikely


def sent_before(late: Candidates, observed: Observed, no_waits: Counter[ToPeer]) -> Counter[int]:
    """How often data was sent before its ACK could arrive, as long after the trigger: its sender waits for no ACK.

    By connection; to the same peers or, if connections are long, on the same connections. Empty if ACKs that the
    capture lost or swapped may explain it.
    """
    peers, connections = (set(map(int, distinct(column))) for column in (late.peer_program, late.connection))
    are_long = len(late) >= REPEATED * len(connections)
    soon = late.only((late.echo == Echo.BEFORE) & (late.trigger_to_release < NO_PROBE))
    found = Counter(map(int, soon.connection))
    for (peer, connection), times in no_waits.items():
        is_theirs = connection in connections if are_long else peer in peers
        if is_theirs:
            found[connection] += times
    astray, count = observed.setting.astray_share, found.total()
    if not astray or observed.program.sent_without_waiting(by_timestamps=True):  # timestamps show most lost ACKs
        return found
    expected = astray * (len(late) + count)
    return found if count > max(WHERE_ASTRAY * len(late), ASTRAY_TIMES * expected + 1) else Counter()
