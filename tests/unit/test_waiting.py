"""What the kernel says of sockets while a capture is recorded: how it is written, read, and believed."""

from collections.abc import Iterable

import msgspec
import pytest

from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.waiting import Waiting, comment, read
from nagle_lab.capture.writer import Pcapng
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.passing import Passing
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.guard.recording import waiting as recording
from nagle_lab.guard.recording.diag import Info, Listed
from nagle_lab.reports.words.phrases import how_sure
from nagle_lab.tcp import make_engine
from support.recorded import headers, prompt_release, recorded, slow_release, told
from support.stories import BODY, LATE, nodelay, talk
from support.synthetic import MS, Segment

CLIENT, SERVER = ("10.0.0.1", 40000), ("10.0.0.2", 80)


@pytest.fixture
def diagnose(tmp_path):
    def of(segments: list[Segment], waiting: Iterable[Waiting]) -> Result:
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


def replace_port(one: Waiting) -> Waiting:
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


def test_one_that_was_seen_to_wait_outweighs_those_that_were_not_yet_written(diagnose):
    """The program writes 25 ms late: before that nothing waits."""
    segments = talk(prompt_release).segments
    early = told(segments, lambda number: (6 + number % 19) * MS, unsent=0)
    late = told(segments, lambda _: 36 * MS, every=2)
    result = diagnose(segments, [*early, *late])
    assert (result.verdict, result.summary.stalls) == ("STALL", 19)


def test_where_nothing_waits_the_kernel_s_word_changes_nothing(diagnose):
    segments = talk(nodelay).segments
    assert diagnose(segments, told(segments, lambda _: 20 * MS, unsent=0)).verdict == "CLEAN"


def test_comments_are_read_as_they_were_written():
    one = Waiting(17, ("10.0.0.1", 40000), ("fe80::1", 80), 57)
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
        writer.add_waiting(0, Waiting(17, CLIENT, SERVER, 57))
    with open_capture(path) as capture, make_engine() as engine:
        for _ in capture.read(Passing(engine, None)):
            pass
        assert capture.dropped == 3
        assert capture.facts.waiting == [Waiting(17, CLIENT, SERVER, 57)]


# ------------------------------------------------------------------------------------- asking the kernel

SMALL = Info(mss=1000, in_flight=1, unsent=57, cwnd=10, window=65535)


def listed(info: Info | None, queued: int = 157) -> Listed:
    """A socket of which so many bytes are not acknowledged or not sent."""
    return Listed("ESTABLISHED", CLIENT, SERVER, 0, 1, 1, queued, info)


@pytest.mark.parametrize(
    ("changed", "queued", "unsent"),
    [
        pytest.param({}, 157, [57], id="behind a small segment"),
        pytest.param({"unsent": 0}, 100, [0], id="nothing waits"),
        pytest.param({}, 1057, [], id="behind a full segment"),
        pytest.param({"unsent": 1000}, 1100, [], id="a full segment"),
        pytest.param({"unsent": 0, "in_flight": 0}, 0, [], id="all is acknowledged"),
        pytest.param({"cwnd": 1}, 157, [], id="the congestion window is full"),
        pytest.param({"window": 150}, 157, [], id="the other end's window is full"),
        pytest.param({"window": None}, 157, [57], id="a kernel that does not say that window"),
    ],
)
def test_only_what_a_small_segment_keeps_waiting_is_told(monkeypatch, changed, queued, unsent):
    info = msgspec.structs.replace(SMALL, **changed)
    monkeypatch.setattr(recording, "tcp_sockets", lambda states: [listed(info, queued)])
    assert [one.unsent for one in recording.Asked().waiting()] == unsent


def test_those_that_hold_something_come_first_and_others_ports_not_at_all(monkeypatch):
    held, empty = listed(SMALL), listed(msgspec.structs.replace(SMALL, unsent=0), 100)
    monkeypatch.setattr(recording, "tcp_sockets", lambda states: [*[empty] * recording.AT_ONCE, held])
    told = recording.Asked().waiting()
    assert [one.unsent for one in told] == [57] + [0] * (recording.AT_ONCE - 1)
    assert [one.unsent for one in recording.Asked([80]).waiting()] == [one.unsent for one in told]
    assert recording.Asked([443]).waiting() == []


def test_a_kernel_that_cannot_be_asked_is_asked_no_more(monkeypatch):
    asked = []

    def refuse(states: int) -> list[Listed]:
        asked.append(states)
        raise PermissionError

    monkeypatch.setattr(recording, "tcp_sockets", refuse)
    kernel = recording.Asked()
    assert kernel.waiting() == kernel.waiting() == []
    assert len(asked) == 1


def test_no_more_is_told_than_is_read(monkeypatch):
    monkeypatch.setattr(recording, "MOST", 3)
    monkeypatch.setattr(recording, "LEAST_S", 0)
    monkeypatch.setattr(recording, "SHARE", float("inf"))
    monkeypatch.setattr(recording, "tcp_sockets", lambda states: [listed(SMALL)] * 2)
    kernel = recording.Asked()
    assert [len(kernel.waiting()) for _ in range(4)] == [2, 1, 0, 0]
