"""Both ends speak of their own accord, and data carries the ACKs: what was held, and what only looks so."""

import heapq

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.result import Result
from support.stories import RELEASE
from support.synthetic import MS, SECOND, US, Conversation, pcap_bytes


@pytest.fixture
def diagnose(tmp_path):
    def of(c: Conversation, position: str) -> Result:
        path = tmp_path / "some.pcap"
        path.write_bytes(pcap_bytes(c.seen_at(position)))
        return analyze(path)

    return of


def chat(
    writes: list[int],
    ticks: list[int],
    *,
    rtt_ns: int,
    nagle: bool = True,
    answers: tuple[int, ...] = (50,),
    varies_ns: int = 0,
) -> Conversation:
    """A client writes 40 B at these times, ns, and its kernel holds what Nagle's algorithm tells it to.

    The server sends segments of those sizes at its own times, each of which acknowledges what has arrived. The path
    delays some by up to three times as long as ``varies_ns``.
    """
    c = Conversation(rtt_ns=rtt_ns)
    c.handshake()
    start, way = c.t0_ns + SECOND, rtt_ns // 2
    events = [(start + at, "write", 0) for at in writes] + [(start + at, "tick", 0) for at in ticks]
    heapq.heapify(events)
    waiting = sent = acked = sent_at = 0
    while events:
        now, what, covers = heapq.heappop(events)
        if what == "tick":
            for number, size in enumerate(answers):
                c.server_sends(size, at_ns=now + number * 20 * US)
            arrives = now + way + RELEASE + len(events) % 4 * varies_ns
            heapq.heappush(events, (arrives, "ack", sent if sent_at + way <= now else sent - 1))
        elif what == "ack":
            acked = max(acked, covers)
        else:
            waiting += 40
        if waiting and (acked == sent or not nagle):
            c.client_sends(waiting, at_ns=now)
            waiting, sent, sent_at = 0, sent + 1, now
    return c


PAIRS_OF_WRITES = [at + more for at in range(0, 6 * SECOND, 70 * MS) for more in (0, 2 * MS)]
SOMETIMES_PAIRS = [
    at + more for at in range(0, 6 * SECOND, 47 * MS) for more in (0, 2 * MS) if not more or at // (47 * MS) % 4 == 0
]
OFTEN = [at + 3 * MS + at // (5 * MS) % 7 * 300 * US for at in range(0, 6 * SECOND, 15 * MS)]


@pytest.mark.parametrize(
    ("nagle", "position", "verdict"),
    [
        (True, "client", "STALL"),
        (True, "server", "INCONCLUSIVE"),
        (False, "client", "CLEAN"),
        (False, "server", "CLEAN"),
    ],
)
def test_what_leaves_only_with_the_data_that_acknowledges_it_was_held(diagnose, nagle, position, verdict):
    """The peer's data comes every 15 ms, and hardly any of it is followed at once; the client's crosses it."""
    result = diagnose(chat(PAIRS_OF_WRITES, OFTEN, rtt_ns=20 * MS, nagle=nagle), position)
    assert result.verdict == verdict
    assert result.summary.held_by == ("client" if verdict == "STALL" else None)
    assert result.quality.unresolved.get("ack_on_data", 0) >= (50 if verdict == "INCONCLUSIVE" else 0)


def test_what_comes_at_other_times_too_does_not_hide_what_was_held(diagnose):
    """At the sender; on a path of 20 ms most of the writes come within that after data which acknowledged all."""
    result = diagnose(chat(SOMETIMES_PAIRS, OFTEN, rtt_ns=20 * MS), "client")
    assert (result.verdict, result.summary.held_by) == ("STALL", "client")
    assert 45 <= result.summary.stalls <= 50


@pytest.mark.parametrize("answers", [(50,), (50, 60)])
def test_the_first_of_two_segments_may_have_released_what_follows_both(diagnose, answers):
    """Away from the sender a round trip lies between; the second one acknowledges nothing that the first did not."""
    writes, ticks = range(0, 4 * SECOND, 27 * MS), range(0, 4 * SECOND, 33 * MS)
    c = chat(list(writes), list(ticks), rtt_ns=20 * MS, answers=answers, varies_ns=200 * US)
    result = diagnose(c, "server")
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
    assert result.quality.unresolved["ack_on_data"] >= 100


@pytest.mark.parametrize(("spread", "verdict"), [(1, "STALL"), (6, "INCONCLUSIVE")])
def test_a_program_that_is_woken_is_not_accused_for_being_quick(diagnose, spread, verdict):
    """A median of 61 µs where SYNs are answered in 40: its times vary, those of a kernel do not."""
    c = Conversation(rtt_ns=10 * MS)
    c.handshake(after_ns=40 * US)
    for number in range(60):
        c.client_sends(60, after_ns=25 * MS if number % 5 == 4 else (61 + (number % 11 - 5) * spread) * US)
        c.server_sends(200, after_ns=12 * MS)
    assert diagnose(c, "client").verdict == verdict


def test_an_answer_among_what_was_held_is_not_counted(diagnose):
    """Most of what follows data comes as soon as behind pure ACKs, and some only when the program was woken."""
    c = Conversation(rtt_ns=10 * MS)
    c.handshake(after_ns=20 * US)
    for number in range(60):
        c.client_sends(60, after_ns=(25 * MS, 21 * US, 100 * US, 22 * US, 20 * US)[number % 5])
        if number % 10 == 0:
            c.server_acks(after_ns=40 * MS)
            c.client_sends(60, after_ns=21 * US)
        c.server_sends(200, after_ns=12 * MS)
    result = diagnose(c, "client")
    assert (result.verdict, result.summary.grounds) == ("STALL", {"repetition_at_sender": 6, "data_acks": 36})
