"""Where Nagle's algorithm was off: a program that sends small data beside unacknowledged small data does not hold it.

A few connections, or a stretch of one, say nothing about the others: TCP_NODELAY is an option of each socket, and can
be set and cleared at any time.
"""

from collections import Counter

from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import Column, chosen, distinct, groups, in_order, pick, where
from nagle_lab.diagnosis.observed.enough import FEW
from nagle_lab.diagnosis.observed.observed import Observed
from nagle_lab.diagnosis.proof.outcomes import Judged, Rejected
from nagle_lab.diagnosis.proof.pauses import PAUSE, PAUSES_VARY
from nagle_lab.tcp.events import MS, PROBE, Echo

# Later behind the trigger it may be a loss probe, which sends what is held (RFC 8985 §7.3): it shows nothing.
NO_PROBE = PROBE * 9 // 10
NO_CHANCE = 0.001  # that so many in a row wait, or seem to, where others of that connection do not
OFTEN = 0.5  # data that did not wait, beside candidates: a connection with more is seen not to wait for ACKs
IN_DISORDER = 0.3  # the same of a program, where the capture lost or swapped packets and timestamps do not tell which


def without_nagle_off(
    late: Candidates, no_waits: Counter[tuple[int, int]], observed: Observed, judged: Judged
) -> tuple[Candidates, Counter[tuple[int, int]]]:
    """Without the connections that are seen not to wait for ACKs; the program's other connections are judged.

    On these, only what may have been held before TCP_NODELAY was set, or after it was cleared. What ``no_waits`` says
    of where that is so is left out.
    """
    by_connection: Counter[int] = Counter()
    for (_, connection), count in no_waits.items():
        by_connection[connection] += count
    if not by_connection:
        return late, no_waits
    connections = late.connection
    held = {int(connections[group[0]]): len(group) for group in groups(connections)}
    off = sorted(connection for connection, count in by_connection.items() if count > OFTEN * held.get(connection, 0))
    while_on = _while_nagle_on(late, by_connection, observed)
    off = sorted({*off, *map(int, while_on.connection)})
    on_those = late.among(connections, off)
    kept = while_on | _before_nodelay(on_those - while_on, observed)
    others = (late - on_those) | kept
    judged.reject(len(late) - len(others), Rejected.NAGLE_OFF)
    changed = set(map(int, kept.connection))
    return others, Counter({key: count for key, count in no_waits.items() if key[1] not in changed})


def _while_nagle_on(late: Candidates, by_connection: Counter[int], observed: Observed) -> Candidates:
    """Those before the first data of their connection that did not wait, or after the last, if so many are no chance.

    Then the option was changed in between, and that part is judged as a capture of it alone would be.
    ``by_connection`` is how often data did not wait.
    """
    kept: list[Column] = []
    connections = late.connection
    for group in groups(connections):
        number = int(connections[group[0]])
        if number not in observed.program.no_wait_frames or not by_connection[number]:
            continue
        first, last = observed.program.no_wait_frames[number]
        triggers, releases = (pick(column, group) for column in (late.trigger_frame, late.release_frame))
        before, after = (pick(group, where(releases < first)), pick(group, where(triggers > last)))
        share = len(group) / (len(group) + by_connection[number])
        kept += [part for part in (before, after) if share ** len(part) < NO_CHANCE]
    return late.picked(in_order(kept))


def _before_nodelay(off: Candidates, observed: Observed) -> Candidates:
    """Those near the sender that came before the first data that did not wait, and right behind the ACK.

    TCP_NODELAY may have been set then: OpenSSH does it when a session begins. But not those as long after the trigger
    as data that did not wait: that is the program's pause.
    """
    if observed.is_far:
        return off.picked([])
    frames, paused = observed.program.no_wait_frames, {key[3] for key in observed.program.no_waits}
    rows = zip(off.connection, off.release_frame, off.ack_to_release, off.trigger_to_release, strict=True)
    return off.picked(
        [
            row
            for row, (connection, frame, release, since) in enumerate(rows)
            if frame < frames.get(int(connection), (0, 0))[0]
            and release < PAUSE
            and not any(abs(since - ms * MS) <= PAUSES_VARY * since for ms in paused)
        ]
    )


def without_held_behind_full(late: Candidates, observed: Observed, judged: Judged) -> Candidates:
    """Without those behind full segments, on connections seen not to wait behind these: Linux does not (Minshall)."""
    is_behind = (late.full > 0) & (late.trigger_bytes % chosen(late.full > 0, late.full, 1) == 0)
    behind, times = late.only(is_behind), observed.program.behind_full
    held = Counter(map(int, behind.connection)) if times else Counter()
    off = sorted(connection for connection, count in held.items() if times[connection] > OFTEN * count)
    unlikely = behind.among(behind.connection, off)
    judged.reject(len(unlikely), Rejected.NAGLE_OFF)
    return late - unlikely


def sent_before(late: Candidates, observed: Observed, no_waits: Counter[tuple[int, int]]) -> Counter[int]:
    """How often data was sent before its ACK could arrive, as long after the trigger: its sender waits for no ACK.

    By connection; to the same peers, or, where connections are long, on the same connections. Empty where ACKs that
    the capture lost or swapped may explain it.
    """
    peers, connections = (set(map(int, distinct(column))) for column in (late.peer, late.connection))
    are_long = len(late) >= FEW * len(connections)
    soon = late.only((late.echo == Echo.BEFORE) & (late.trigger_to_release < NO_PROBE))
    found = Counter(map(int, soon.connection))
    for (peer, connection), times in no_waits.items():
        if connection in connections if are_long else peer in peers:
            found[connection] += times
    disorder, count = observed.setting.disorder, found.total()
    if not disorder:
        return found
    if observed.program.sent_without_waiting():  # timestamps tell most of the lost ones
        return found if count > disorder * (len(late) + count) else Counter()
    return found if count > max(IN_DISORDER * len(late), 3 * disorder * (len(late) + count) + 1) else Counter()
