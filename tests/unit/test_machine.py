"""What the TCP machine knows of each end, and how long it remembers."""

from dataclasses import replace

import pytest

from nagle_lab.packet.segment import Segment as Decoded
from nagle_lab.tcp import machine
from nagle_lab.tcp.connection import Connection
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.machine import Machine
from support.rows import decoded
from support.stories import STALLED, one_after_the_other, talk
from support.synthetic import MS, SECOND, US, Conversation, Segment, merge

COLUMNS = LAYOUTS["connection"].columns

# MSS and window in the SYN of the client, then of the server (None: not seen), whether both have timestamps; the
# payload of a full segment, and what is surely smaller than a full one of the client and of the server.
SEGMENTS = [
    ((1460, 64_240), (1460, 65_160), True, 1448, [1448, 1448]),
    ((1460, 64_240), (1400, 65_160), False, 1400, [1400, 1400]),
    ((65_495, 2_000), (65_495, 60_000), False, 65_495, [30_000, 1_000]),  # half of what the other end offered
    ((1460, 500), (1460, 536), False, 1460, [536, 500]),  # not of so small a window
    ((None, 65_535), (None, 65_535), False, 1448, [536, 536]),  # what any host must take
    ((1460, 800), None, True, 1460, [1460, 400]),
    (None, (1460, 800), True, 1460, [400, 1460]),
]


def followed(segments: list[Decoded]) -> Machine:
    made = Machine()
    made.follow(segments)
    return made


def sizes(connection: Connection) -> list[object]:
    return [connection.least_full_segment, [half.surely_small_below for half in connection.halves]]


@pytest.mark.parametrize("case", SEGMENTS)
def test_how_large_segments_are_is_learned_with_the_handshake(case):
    """RFC 9293 §3.7.1, and tcp_bound_to_half_wnd; a SYN that comes again changes nothing."""
    client, server, stamps, *learned = case
    ends, syns = (("10.0.0.1", 4000), ("10.0.0.2", 80)), []
    for said, (here, there), flags in ((client, ends, "S"), (server, ends[::-1], "SA")):
        if said is not None:
            of = {"mss": said[0], "window": said[1], "timestamps": (1, 1) if stamps else None}
            again = [Segment(10**9 * SECOND + len(syns), *here, *there, seq=7, flags=flags, **of)] * 2
            syns += again
    made = followed(decoded(syns))
    (connection,) = made._live.values()
    assert sizes(connection) == learned
    made.finish()
    assert [row[COLUMNS["least_full_segment"]] for row in made.tables.connection.rows()] == learned[:1]
    (late,) = decoded([Segment(10**9 * SECOND, *ends[0], *ends[1], seq=9, flags="A")])
    assert sizes(followed([late])._live[0]) == [1448, [536, 536]]  # nothing of it is left


@pytest.mark.parametrize(("beside", "pushed", "full"), [(True, False, 900), (False, False, 1448), (False, True, 900)])
def test_a_full_segment_is_learned_of_two_of_a_size(beside, pushed, full):
    """Where the end never sets PSH, only of those that it sent while other data was unacknowledged."""
    c = Conversation(t0_ns=10**9 * SECOND)
    c.handshake()
    if pushed:
        c.server_sends(100)
    for size in (300, 900, 400, 900):
        c.server_sends(size, flags="A")
        if not beside:
            c.client_acks()
    made = followed(decoded(c.segments))
    made.finish()
    assert [row[COLUMNS["full_segment", 1]] for row in made.tables.connection.rows()] == [full]


def rows(made: Machine, name: str) -> list[tuple]:
    """Rows without the number of their connection."""
    return sorted(row[1:] for row in getattr(made.tables, name).rows())


def test_under_pressure_only_what_is_over_is_forgotten_early(monkeypatch):
    """With more live connections than are kept, closed ones go first: no stall and no exchange is lost."""
    talks = one_after_the_other()
    many = decoded(merge(*(t.seen_at("server") for t in talks)))
    whole = followed(many)
    monkeypatch.setattr(machine, "MANY", 60)
    monkeypatch.setattr(machine, "SWEEP", 40)
    pressed = followed(many)
    for made in (whole, pressed):
        made.finish()
    assert len(rows(whole, "exchange")) == 3 * len(talks)
    assert len(rows(whole, "candidate")) > 100
    for name in ("candidate", "exchange", "idle_gap", "delayed_ack"):
        assert rows(pressed, name) == rows(whole, name)


def test_a_flood_of_syns_is_forgotten_as_it_goes(monkeypatch):
    """However many connections nobody answers, so many are remembered at a time; all are counted."""
    monkeypatch.setattr(machine, "MANY", 64)
    monkeypatch.setattr(machine, "SWEEP", 50)
    syns = [Conversation(client=("10.0.0.1", 1_000 + i), t0_ns=10**18 + i * US) for i in range(4_000)]
    for syn in syns:
        syn.handshake()
    made, most = Machine(), 0
    for segment in decoded([syn.segments[0] for syn in syns]):
        made.follow([segment])
        most = max(most, len(made._live))
    assert most <= 64 + 50
    made.finish()
    assert made.connections == len(made.tables.connection) == len(syns)


def test_a_closed_connection_is_remembered_for_time_wait():
    """Linux keeps it for 60 s: what comes until then is its own, what comes later is another connection's."""
    closed = talk(STALLED[0], exchanges=2).segments
    ends = ("10.0.0.1", 40_000, "10.0.0.2", 80)
    for later_ns, connections in ((59 * SECOND, 1), (61 * SECOND, 2)):
        again = Segment(closed[-1].ts_ns + later_ns, *ends, seq=closed[-1].seq, ack=closed[-1].ack, flags="A")
        assert followed(decoded([*closed, again])).connections == connections
    unclosed = [segment for segment in closed if "F" not in segment.flags]
    again = Segment(closed[-1].ts_ns + 3600 * SECOND, *ends, seq=closed[-1].seq, ack=closed[-1].ack, flags="A")
    assert followed(decoded([*unclosed, again])).connections == 1


def test_a_sweep_forgets_what_was_closed_long_ago(monkeypatch):
    monkeypatch.setattr(machine, "SWEEP", 10)
    first = talk(STALLED[0], exchanges=2).segments
    later = talk(STALLED[0], 2, client=("10.0.0.9", 1), t0_ns=first[-1].ts_ns + 61 * SECOND).segments
    made = followed(decoded([*first, *later]))
    assert list(made._live) == [1]
    assert [row[0] for row in made.tables.connection.rows()] == [0]


def test_handshakes_are_timed_once():
    """From the SYN to its sender's first ACK; not where the SYN was sent again, or is missing."""
    column = COLUMNS["handshake"]
    plain = talk(STALLED[0], exchanges=2, rtt_ns=20 * MS).segments
    tsval, tsecr = plain[0].timestamps
    again = [plain[0], replace(plain[0], ts_ns=plain[0].ts_ns + 6 * MS, timestamps=(tsval + 6, tsecr)), *plain[1:]]
    for segments, expected in ((plain, plain[2].ts_ns - plain[0].ts_ns), (again, -1), (plain[1:], -1)):
        made = followed(decoded(segments))
        made.finish()
        assert [row[column] for row in made.tables.connection.rows()] == [expected]


def test_of_one_direction_no_more_connections_are_kept_than_of_a_flood(monkeypatch):
    """They never close, as far as the capture shows; all are counted, and nothing of them could be proved."""
    monkeypatch.setattr(machine, "MANY", 64)
    monkeypatch.setattr(machine, "SWEEP", 50)
    talks = [talk(STALLED[0], 2, client=("10.0.0.1", 1_000 + i), t0_ns=10**18 + i * SECOND) for i in range(300)]
    made, most = Machine(), 0
    for segment in decoded([s for one in talks for s in one.segments if s.sport == 80 and "F" not in s.flags]):
        made.follow([segment])
        most = max(most, len(made._live))
    assert most <= 64 + 50
    made.finish()
    assert made.connections == len(talks)


def test_a_side_alone_is_closed_by_its_own_fin(monkeypatch):
    monkeypatch.setattr(machine, "SWEEP", 10)
    first = [s for s in talk(STALLED[0], exchanges=2).segments if s.sport == 80]
    later = talk(STALLED[0], 4, client=("10.0.0.9", 1), t0_ns=first[-1].ts_ns + 61 * SECOND).segments
    assert list(followed(decoded([*first, *later]))._live) == [1]
