"""Calls joined to segments, where trace and capture begin together, and where either begins late."""

import random
from dataclasses import replace

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.experiments.writes import joining
from nagle_lab.experiments.writes.joining import Joined, join
from nagle_lab.guard.tracing.strace_output import read_trace
from support.stories import LATE, RELEASE
from support.synthetic import MS, US, Conversation, pcap_bytes

EXCHANGES = 12
WAY = "10.0.0.2:80->10.0.0.1:40000"
HEADERS = [200 + number for number in range(EXCHANGES)]  # bytes: each exchange has its own, to know them by
BODIES = [600 + 3 * number for number in range(EXCHANGES)]


class Story:
    """A server that writes header and body, and the calls with which it does so."""

    def __init__(self, *, isn: int | None = None) -> None:
        self.talk = Conversation(server_isn=isn)
        self.talk.handshake()
        self.calls = [(self.talk.t0_ns + 25 * US, f"accept4(3<TCP:[10.0.0.2:80]>, NULL, NULL, 0) = 5<TCP:[{WAY}]>")]
        for number in range(EXCHANGES):
            self.exchange(number)

    def exchange(self, number: int) -> None:
        """One; the body waits from the second on."""
        talk = self.talk
        talk.client_sends(84)
        header = talk.server_sends(HEADERS[number], after_ns=300 * US)
        self.writes(header.ts_ns - 10 * US, HEADERS[number])
        self.writes(header.ts_ns + 50 * US, BODIES[number])
        talk.client_acks(after_ns=LATE if number else 100 * US)
        talk.server_sends(BODIES[number], after_ns=RELEASE)
        talk.client_acks(after_ns=10 * US)
        talk.pause(2 * MS)

    def writes(self, at: int, length: int, by: int = 7) -> None:
        self.calls.append((at, f'{by}: write(5<TCP:[{WAY}]>, ""..., {length}) = {length}'))

    def joined(self, folder, *, segments_from: int = 0, calls_from: int = 0, calls_to: int | None = None) -> Joined:
        """With so many segments and calls left out."""
        capture, trace = folder / "capture.pcap", folder / "strace.txt"
        capture.write_bytes(pcap_bytes(self.talk.segments[segments_from:]))
        lines = []
        for at, text in sorted(self.calls)[calls_from:calls_to]:
            thread, _, call = text.rpartition(": ")
            lines.append(f"{thread or 7}<server> {at // 10**9}.{at % 10**9 // 1000:06} {call}\n")
        trace.write_text("".join(lines))
        return join([capture], analyze(capture), read_trace(trace))


def right(found: Joined) -> list[int]:
    """The exchanges whose two calls are the ones that were made in them."""
    for pair in found.pairs:
        number = HEADERS.index(pair.trigger.wrote)
        assert (pair.stall.trigger_bytes, pair.held.wrote) == (HEADERS[number], BODIES[number])
        assert pair.hold_ms(0) == pytest.approx((LATE + RELEASE - 50 * US) / 1e6, abs=0.002)
    return [HEADERS.index(pair.trigger.wrote) for pair in found.pairs]


@pytest.mark.parametrize("isn", [None, 0xFFFFFFFF - 3000])
def test_both_from_the_beginning(tmp_path, isn):
    found = Story(isn=isn).joined(tmp_path)
    assert right(found) == list(range(1, EXCHANGES)) and not found.missing


@pytest.mark.parametrize("segments_from", [0, 3, 4, 11, 17])
@pytest.mark.parametrize("calls_from", [0, 1, 2, 3, 8, 9])
@pytest.mark.parametrize("isn", [None, 0xFFFFFFFF - 3000])
def test_from_the_middle_of_a_connection(tmp_path, segments_from, calls_from, isn):
    """Every pair is right; what began before the trace is missing, and nothing behind it."""
    found = Story(isn=isn).joined(tmp_path, segments_from=segments_from, calls_from=calls_from)
    stalls = found.missing.total() + len(found.pairs)
    first_whole = max(1, -(-(calls_from - 1) // 2), (segments_from + 1) // 5)
    assert set(right(found)) >= set(range(first_whole + 1, EXCHANGES))
    assert stalls >= EXCHANGES - 4


def test_too_few_calls_to_be_sure(tmp_path):
    story = Story()
    assert right(story.joined(tmp_path, calls_from=len(story.calls) - 2)) == [EXCHANGES - 1], "each met its segment"
    found = story.joined(tmp_path, calls_from=len(story.calls) - 1)
    assert not found.pairs
    assert found.missing == {joining.BEFORE: EXCHANGES - 2, joining.UNSURE: 1}


def test_bytes_that_no_call_wrote(tmp_path):
    """One write of io_uring's, say, in the middle: what was written before and after it is right."""
    story = Story()
    story.calls = [call for call in story.calls if not call[1].endswith(f" = {HEADERS[6]}")]
    found = story.joined(tmp_path)
    assert right(found) == [n for n in range(1, EXCHANGES) if n != 6]
    assert found.missing == {joining.NOT_ALL: 1}


@pytest.mark.parametrize("seed", range(5))
def test_many_bytes_that_no_call_wrote(tmp_path, seed):
    """Whatever is missing: no call is named that was not it."""
    story = Story()
    kept = random.Random(seed)
    story.calls = [call for call in story.calls if kept.random() < 0.8]
    found = story.joined(tmp_path)
    assert right(found)
    assert found.missing


def test_a_trace_that_ends_early(tmp_path):
    found = Story().joined(tmp_path, calls_to=1 + 2 * 8)
    assert right(found) == list(range(1, 8))
    assert found.missing == {joining.BEFORE: EXCHANGES - 8}


def test_retransmissions_do_not_count_twice(tmp_path):
    story = Story()
    for flight in [one for one in story.talk._flights if one.segment.length in HEADERS[3:6]]:
        again = replace(flight, segment=replace(flight.segment, ts_ns=flight.segment.ts_ns + 5 * MS))
        story.talk._flights.append(again)
    for calls_from in (0, 1):
        found = story.joined(tmp_path, calls_from=calls_from)
        assert set(right(found)) >= set(range(7, EXCHANGES))


def test_no_calls_at_all(tmp_path):
    found = Story().joined(tmp_path, calls_to=0)
    assert found.missing == {joining.NOT_SEEN: EXCHANGES - 1} and not found.pairs
