"""What the kernel says of sockets while a capture is recorded: how it is written, read, and believed."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest

from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.kernel_answers import KernelAnswer, SocketAddress, comment, read
from nagle_lab.capture.writer import Pcapng
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.proof.outcomes import Obstacle
from nagle_lab.diagnosis.record_tap import RecordTap
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import Recording, VerdictInput, decide
from nagle_lab.guard.recording import socket_poller as recording
from nagle_lab.host.sock_diag import ListedSocket, TcpInfo, busy_sockets
from nagle_lab.reports.words.phrases import how_sure
from nagle_lab.tcp import make_engine
from support.recorded import headers, prompt_release, recorded, slow_release, told
from support.stories import BODY, HEADER, LATE, REQUEST, nodelay, prompt, talk, two_part_reply
from support.synthetic import MS, US, Conversation, Segment, merge

CLIENT, SERVER = ("10.0.0.1", 40000), ("10.0.0.2", 80)


@pytest.fixture
def diagnose(tmp_path):
    def of(segments: list[Segment], waiting: Iterable[KernelAnswer]) -> Result:
        return analyze(recorded(tmp_path / "some.pcapng", segments, waiting))

    return of


@pytest.mark.parametrize("every", [1, 2, 9])
def test_what_the_kernel_said_to_wait_was_held_however_late_it_left(diagnose, every):
    segments = talk(slow_release).segments
    before = diagnose(segments, [])
    assert (before.verdict, before.summary.stalls) == ("INCONCLUSIVE", 0)
    result = diagnose(segments, told(segments, lambda _: 20 * MS, every=every))
    at_least = len(headers(segments)[::every])
    assert result.verdict == "STALL"
    assert result.summary.grounds["seen_waiting"] >= at_least
    assert every > 2 or result.summary.stalls == 19
    assert "the kernel said that the data waited" in how_sure(result)


def test_the_hold_is_at_least_since_the_kernel_said_so(diagnose):
    segments = talk(slow_release).segments
    hold = diagnose(segments, told(segments, lambda _: 15 * MS)).summary.hold_ms
    assert hold is not None
    assert 24 < hold.low < hold.high < 45


def test_what_the_kernel_said_before_the_trigger_or_right_before_the_ack_counts_not(diagnose):
    segments = talk(slow_release).segments
    for after in (lambda _: -MS, lambda _: 4 * MS, lambda _: LATE + 4 * MS):
        assert diagnose(segments, told(segments, after)).verdict == "INCONCLUSIVE"


def test_more_than_was_released_is_something_else(diagnose):
    segments = talk(slow_release).segments
    assert diagnose(segments, told(segments, lambda _: 20 * MS, unsent=BODY + 1)).verdict == "INCONCLUSIVE"


def test_what_other_sockets_held_accuses_nobody(diagnose):
    segments = talk(slow_release).segments
    others = [replace_port(one) for one in told(segments, lambda _: 20 * MS)]
    assert diagnose(segments, others).verdict == "INCONCLUSIVE"


def replace_port(one: KernelAnswer) -> KernelAnswer:
    """The same of another connection."""
    return one._replace(receiver=(one.receiver[0], one.receiver[1] + 1))


def test_a_program_that_had_not_written_yet_is_not_accused_however_soon_it_writes(diagnose):
    """It asks for the ACK without sleeping (SIOCOUTQ): its data follows as soon as a kernel's does."""
    segments = talk(prompt_release).segments
    assert diagnose(segments, []).verdict == "STALL"
    result = diagnose(segments, told(segments, lambda number: (6 + 2 * number) * MS, unsent=0))
    assert (result.verdict, result.summary.stalls, result.quality.rejected["later_release"]) == ("CLEAN", 0, 19)


@pytest.mark.parametrize(
    ("after", "every"),
    [
        pytest.param(lambda number: (6 + number) * MS, 1, id="asked too early to tell"),
        pytest.param(lambda number: (6 + 2 * number) * MS, 3, id="asked too seldom"),
    ],
)
def test_a_kernel_that_was_asked_too_early_or_too_seldom_acquits_nobody(diagnose, after, every):
    segments = talk(prompt_release).segments
    result = diagnose(segments, told(segments, after, unsent=0, every=every))
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)


def test_a_busy_machine_s_kernel_leaves_open_what_it_seldom_says(diagnose):
    segments = talk(prompt_release, 60).segments
    seldom = told(segments, lambda number: (7 + number % 33) * MS, unsent=0, every=4)
    result = diagnose(segments, seldom)
    assert (result.verdict, result.summary.stalls, result.quality.unresolved["own_pace"]) == ("INCONCLUSIVE", 0, 59)
    assert result.reason.endswith("; record for longer: what its kernel said meanwhile did not decide it")


@pytest.mark.parametrize(("asked", "about"), [(2, "10.0.0.2"), (3, "10.0.0.2"), (60, "10.0.0.9")])
def test_that_the_kernel_was_asked_is_said_of_the_server_it_was_asked_about(diagnose, asked, about):
    """Of each server nearly all is open; more of the first one."""
    more, less = (
        talk(slow_release, exchanges, server=(host, 80), client=("10.0.0.1", port)).segments
        for exchanges, host, port in ((80, "10.0.0.2", 40_000), (40, "10.0.0.9", 40_001))
    )
    segments = merge(more, less)
    answers = told(more if about == "10.0.0.2" else less, lambda _: 6 * MS, unsent=0)[:asked]
    result = diagnose(segments, answers)
    assert result.reason.startswith("10.0.0.2:80: ")
    was_asked = about == "10.0.0.2" and asked >= 3
    assert ("with `nagle-lab watch`" in result.reason, "what its kernel said meanwhile" in result.reason) == (
        not was_asked,
        was_asked,
    )
    assert result.undecided.record == (None if was_asked else Recording.ASKING_THE_KERNEL)
    assert result.quality.kernel_asked == {"like_a_program": len(answers)}


def test_where_the_kernel_was_asked_in_vain_the_reason_does_not_say_to_ask_it():
    ask = "record on the host that sends it with `nagle-lab watch`, which asks the kernel what waits"
    to_ask = 0
    for obstacle in Obstacle:
        open_ones = VerdictInput(tcp_packets=100, exchanges=40, stalls=0, unresolved={obstacle: 30})
        before, after = decide(open_ones), decide(replace(open_ones, asked={obstacle: 3}))
        if before.undecided.record is Recording.ASKING_THE_KERNEL:
            assert before.reason.endswith(ask) and ask not in after.reason and after.undecided.record is None
            assert after.reason.endswith("record for longer: what its kernel said meanwhile did not decide it")
            to_ask += 1
        else:
            assert before == after and ask not in before.reason
    assert to_ask == 7


def test_a_kernel_that_was_asked_of_the_beginning_only_accuses_nobody_later(diagnose):
    """No more is told than is read."""
    segments = talk(prompt_release, 60).segments
    beginning = told(segments, lambda number: (6 + 2 * number) * MS, unsent=0)[:18]
    result = diagnose(segments, beginning)
    assert (result.verdict, result.summary.stalls) == ("INCONCLUSIVE", 0)
    assert (result.quality.rejected["later_release"], result.quality.unresolved["own_pace"]) == (18, 41)


def test_one_that_was_seen_to_wait_outweighs_those_that_were_not_yet_written(diagnose):
    """The program writes 25 ms late: before that nothing waits."""
    segments = talk(prompt_release).segments
    early = told(segments, lambda number: (6 + number % 19) * MS, unsent=0)
    late = told(segments, lambda _: 36 * MS, every=2)
    result = diagnose(segments, [*early, *late])
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)


def uncorked_later(c: Conversation, number: int) -> None:
    """The body is written at once behind TCP_CORK, which the program takes away after the ACK."""
    two_part_reply(c, ack=LATE, body=8 * MS + number % 7 * 100 * US)


def test_what_a_cork_kept_waiting_was_not_held(diagnose):
    segments = talk(uncorked_later).segments
    result = diagnose(segments, told(segments, lambda _: 20 * MS))
    assert (result.verdict, result.summary.stalls) == ("CLEAN", 0)


def uncorked_around_the_ack(c: Conversation, number: int) -> None:
    """The body is written at once behind TCP_CORK; its timer ends about when the delayed ACK comes."""
    c.client_sends(REQUEST)
    c.server_sends(HEADER, after_ns=200 * US)
    if number % 3 == 0:
        c.server_sends(BODY, after_ns=LATE - MS)
    else:
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY, after_ns=20 * US + number % 7 * 100 * US)
    c.client_acks(after_ns=10 * US)


def test_what_a_cork_lets_go_about_when_the_ack_comes_was_not_held_either(diagnose):
    segments = talk(uncorked_around_the_ack, 60).segments
    result = diagnose(segments, told(segments, lambda _: 20 * MS))
    assert result.summary.stalls == 0


def test_a_corked_connection_does_not_clear_one_that_holds(diagnose):
    corked, held = talk(uncorked_later).segments, talk(prompt_release, client=("10.0.0.1", 40001)).segments
    waiting = [*told(corked, lambda _: 20 * MS), *told(held, lambda _: 20 * MS)]
    result = diagnose(merge(corked, held), waiting)
    assert (result.verdict, result.summary.stalls, result.summary.grounds["seen_waiting"]) == ("STALL", 19, 19)


@pytest.mark.parametrize("every", [1, 4])
def test_connections_that_had_not_written_are_not_accused_beside_one_that_holds(diagnose, every):
    spinning, held = talk(prompt_release).segments, talk(prompt_release, client=("10.0.0.1", 40001)).segments
    unwritten = told(spinning, lambda number: (6 + 2 * number) * MS, unsent=0)
    result = diagnose(merge(spinning, held), [*unwritten, *told(held, lambda _: 20 * MS, every=every)])
    assert (result.verdict, result.summary.stalls, result.quality.rejected["later_release"]) == ("STALL", 19, 19)


def test_a_connection_that_was_never_caught_holding_for_little_is_one_of_its_program(diagnose):
    """It writes 4 ms before the ACK: what is asked 5 ms before it tells nothing else."""
    one, other = talk(prompt_release).segments, talk(prompt_release, client=("10.0.0.1", 40001)).segments
    unwritten = told(one, lambda number: LATE + (number + 1) % 5 * MS - 5 * MS, unsent=0)
    waiting = told(other, lambda number: LATE + (number + 1) % 5 * MS - 3 * MS)
    result = diagnose(merge(one, other), [*unwritten, *waiting])
    assert (result.verdict, result.summary.stalls) == ("STALL", 38)


def test_what_was_not_written_when_others_waited_was_not_seen_to_wait(diagnose):
    """Every third exchange waits for the ACK itself."""
    segments = talk(prompt_release).segments
    waiting = [
        one._replace(at=one.at + 15 * MS, unsent=0) if number % 3 == 0 else one
        for number, one in enumerate(told(segments, lambda _: 20 * MS))
    ]
    result = diagnose(segments, waiting)
    assert (result.verdict, result.summary.grounds["seen_waiting"]) == ("STALL", 12)


@pytest.mark.parametrize("rtt_ms", [0, 10])
def test_most_was_held_no_longer_than_the_kernel_says(diagnose, rtt_ms):
    """It writes at once behind early ACKs, and in every third exchange; in the others 35 ms late."""
    c = talk(lambda c, number: (prompt if number < 6 else prompt_release)(c, number), 36, rtt_ns=rtt_ms * MS)
    segments = c.seen_at("client")
    before = diagnose(segments, []).summary.hold_ms
    assert before is not None
    assert before.low > 35
    at_once = told(segments, lambda _: 10 * MS, every=3)
    others = [*told(segments, lambda _: 30 * MS, unsent=0), *told(segments, lambda _: 36 * MS)]
    wrote_at_once = {one.at - 10 * MS for one in at_once}
    late = [one for one in others if one.at - (36 if one.unsent else 30) * MS not in wrote_at_once]
    hold = diagnose(segments, [*at_once, *late]).summary.hold_ms
    assert hold is not None
    assert hold.low < 9 < hold.high


def test_where_nothing_waits_the_kernel_s_word_changes_nothing(diagnose):
    segments = talk(nodelay).segments
    assert diagnose(segments, told(segments, lambda _: 20 * MS, unsent=0)).verdict == "CLEAN"


def test_comments_are_read_as_they_were_written():
    one = KernelAnswer(17, ("10.0.0.1", 40000), ("fe80::1", 80), 57)
    assert comment(one).startswith("nagle-lab: 57 bytes wait in 10.0.0.1:40000 for fe80::1:80, ")
    assert read(comment(one), 17) == one


@pytest.mark.parametrize(
    "text", ["", "a comment", "nagle-lab: many bytes wait in a:1 for b:2, ", "nagle-lab: 1 bytes"]
)
def test_other_comments_say_nothing(text):
    assert read(text, 17) is None


def test_comments_are_neither_frames_nor_losses(tmp_path):
    segments = talk(slow_release).segments
    path = recorded(tmp_path / "some.pcapng", segments, told(segments, lambda _: 20 * MS))
    result = analyze(path)
    assert (result.source.packets, result.quality.damage) == (len(segments), [])


def test_losses_that_were_told_stand_where_a_comment_tells_of_none(tmp_path):
    path = tmp_path / "some.pcapng"
    with path.open("wb") as file:
        writer = Pcapng(file)
        writer.add_interface("lo")
        writer.add_dropped(0, 3)
        writer.add_answer(KernelAnswer(17, CLIENT, SERVER, 57))
    with open_capture(path) as capture, make_engine() as engine:
        for _ in capture.read(RecordTap(engine, None)):
            pass
        assert capture.dropped == 3
        assert capture.facts.kernel_answers == [KernelAnswer(17, CLIENT, SERVER, 57)]


# ------------------------------------------------------------------------------------- asking the kernel

SMALL = TcpInfo(mss=1000, in_flight=1, unsent=57, cwnd=10, window=65535, silent_ms=recording.SILENT_MS)


@pytest.fixture(autouse=True)
def _any_answer_is_in_time(monkeypatch):
    monkeypatch.setattr(recording, "LONGEST_S", float("inf"))  # a busy machine's tests may be slow


def listed(info: TcpInfo | None, queued: int = 157) -> ListedSocket:
    """A socket of which so many bytes are not acknowledged or not sent."""
    return ListedSocket("ESTABLISHED", CLIENT, SERVER, 0, 1, 1, queued, info)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that have passed; nothing takes processor time."""
    now = [100.0]
    monkeypatch.setattr(recording.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(recording.time, "thread_time", lambda: 0.0)
    return now


@pytest.mark.parametrize(
    ("changed", "queued", "unsent"),
    [
        pytest.param({}, 157, [57], id="behind a small segment"),
        pytest.param({"unsent": 0}, 100, [0], id="nothing waits"),
        pytest.param({}, 1057, [], id="behind a full segment"),
        pytest.param({"unsent": 1000}, 1100, [], id="a full segment"),
        pytest.param({"unsent": 0, "in_flight": 0}, 0, [], id="all is acknowledged"),
        pytest.param({"cwnd": 1}, 157, [0], id="the congestion window is full"),
        pytest.param({"window": 150}, 157, [0], id="the other end's window is full"),
        pytest.param({"window": None}, 157, [57], id="a kernel that does not say that window"),
        pytest.param({"silent_ms": 0}, 157, [], id="sent just now"),
    ],
)
def test_only_what_a_small_segment_keeps_waiting_is_told(monkeypatch, clock, changed, queued, unsent):
    info = msgspec.structs.replace(SMALL, **changed)
    monkeypatch.setattr(recording, "busy_sockets", lambda: iter([[listed(info, queued)]]))
    assert [one.unsent for one in recording.SocketPoller().answers()] == unsent


def test_those_that_hold_something_come_first_and_others_ports_not_at_all(monkeypatch, clock):
    held, empty = listed(SMALL), listed(msgspec.structs.replace(SMALL, unsent=0), 100)
    monkeypatch.setattr(recording, "busy_sockets", lambda: iter([[empty] * recording.SOCKETS_AT_ONCE, [held]]))
    told = recording.SocketPoller().answers()
    assert [one.unsent for one in told] == [57] + [0] * (recording.SOCKETS_AT_ONCE - 1)
    assert [one.unsent for one in recording.SocketPoller([80]).answers()] == [one.unsent for one in told]
    assert recording.SocketPoller([443]).answers() == []


def test_a_kernel_that_cannot_be_asked_is_asked_no_more(monkeypatch):
    asked = []

    def refuse() -> list[ListedSocket]:
        asked.append("once")
        raise PermissionError

    monkeypatch.setattr(recording, "busy_sockets", refuse)
    kernel = recording.SocketPoller()
    assert kernel.answers() == kernel.answers() == []
    assert len(asked) == 1


def test_it_is_told_for_ever_but_no_more_than_so_much_a_second(monkeypatch, clock):
    monkeypatch.setattr(recording, "AT_FIRST", 3)
    monkeypatch.setattr(recording, "PER_S", 2)
    monkeypatch.setattr(recording, "busy_sockets", lambda: iter([[listed(SMALL)] * 5]))
    kernel, told = recording.SocketPoller(), []
    for _ in range(10):
        told.append(len(kernel.answers()))
        clock[0] += 0.5
    assert told == [3, *[1] * 9]
    clock[0] += 1_000
    assert len(kernel.answers()) == 3, "it saves no more than it had at first"


def test_a_long_answer_is_taken_bit_by_bit_and_what_the_kernel_said_long_ago_is_left_out(monkeypatch, clock):
    """The kernel makes a part of its answer when the one before is taken: what comes after a break is old."""
    made = [[msgspec.structs.replace(listed(SMALL), remote=(SERVER[0], port))] for port in range(8)]
    asked = []

    def slowly() -> Iterator[list[ListedSocket]]:
        asked.append("once")
        for part in made:
            clock[0] += recording.AT_A_TIME_S * 0.6
            yield part

    monkeypatch.setattr(recording, "busy_sockets", slowly)
    kernel, told = recording.SocketPoller(), []
    for _ in range(6):
        told.append([one.receiver[1] for one in kernel.answers()])
        clock[0] += recording.LEAST_S
    assert told == [[0, 1], [3], [5], [7], [], [0, 1]]
    assert len(asked) == 2


def test_an_answer_that_took_too_long_is_not_believed(monkeypatch, clock):
    def late() -> Iterator[list[ListedSocket]]:
        clock[0] += 0.006
        yield [listed(SMALL)]

    monkeypatch.setattr(recording, "LONGEST_S", 0.005)
    monkeypatch.setattr(recording, "busy_sockets", late)
    assert recording.SocketPoller().answers() == []


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_kernel_lists_who_has_data_under_way_and_nobody_else(address):
    """Here of a receiver that does not read."""
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        s = socket.create_connection(listener.getsockname()[:2])
        peer, _ = listener.accept()
    ours = s.getsockname()[:2], s.getpeername()[:2]

    def busy() -> list[tuple[SocketAddress, SocketAddress]]:
        found = [(one.local, one.remote) for part in busy_sockets() for one in part]
        return [ends for ends in found if ends in (ours, ours[::-1])]

    with s, peer:
        assert busy() == []
        s.setblocking(False)
        with suppress(BlockingIOError):
            while s.send(bytes(1 << 16)):
                pass
        assert busy() == [ours]
