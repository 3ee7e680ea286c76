"""Two captures of the same traffic give the ACK's delay and the hold apart."""

import json
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import NagleLabError
from nagle_lab.evidence.pair import match
from support.stories import client_held, nodelay, server_held, talk, thinks_then_one_write, three_writes
from support.synthetic import MS, pcap_bytes


@pytest.fixture
def at(tmp_path):
    def diagnosed(conversation, position):
        path = tmp_path / f"{position}.pcap"
        path.write_bytes(pcap_bytes(conversation.seen_at(position)))
        return analyze(path)

    return diagnosed


@pytest.mark.parametrize("story", [server_held, client_held, three_writes], ids=lambda s: s.__name__)
@pytest.mark.parametrize("order", [("server", "client"), ("client", "server"), ("middle", "client")])
def test_delay_and_hold_are_told_apart(at, story, order):
    """On a path of 20 ms the delaying end shows its timer, 40.3 ms and more; the hold is a round trip more."""
    conversation = talk(story, rtt_ns=20 * MS)
    pair = match(*(at(conversation, position) for position in order))
    assert pair.matched == (38 if story is three_writes else 19)
    assert pair.only_in == [0, 0]
    assert pair.hold_ms is not None and pair.ack_delay_ms is not None and pair.path_ms is not None
    assert 60.3 <= pair.hold_ms.p50 <= 64.4
    nearest = {server_held: "client", three_writes: "client", client_held: "server"}[story]
    if nearest in order:
        assert 40.3 <= pair.ack_delay_ms.p50 <= 44.4
        assert 20 <= pair.path_ms.p50 <= 20.1


def test_other_traffic_is_refused(at):
    one = at(talk(server_held), "server")
    two = at(talk(nodelay, client=("10.9.9.9", 1)), "client")
    with pytest.raises(NagleLabError, match="no connection in common"):
        match(one, two)


def test_as_json_it_is_one_line(at):
    conversation = talk(server_held, rtt_ns=20 * MS)
    pair = match(at(conversation, "server"), at(conversation, "client"))
    text = pair.to_json()
    assert text.endswith("\n") and text.count("\n") == 1
    said = json.loads(text)
    assert (said["schema"], said["files"], said["matched"]) == (
        "nagle-lab-pair/1",
        ["server.pcap", "client.pcap"],
        19,
    )
    assert said["hold_ms"]["p50"] == pair.hold_ms.p50
    assert list(said["ack_delay_ms"]) == ["p50", "p95", "p99", "max"]
    nothing = match(at(talk(nodelay), "server"), at(talk(nodelay), "client"))
    assert (nothing.matched, nothing.hold_ms, nothing.ack_delay_ms, nothing.path_ms) == (0, None, None, None)


def test_two_captures_that_disagree_say_so():
    """A program that waits for the ACK looks held from the other end of its path; from its own it cannot be told."""
    folder = Path(__file__).parents[2] / "captures" / "families" / "wait-drained-rtt-10"
    pair = match(analyze(folder / "server.pcap.gz"), analyze(folder / "client.pcap.gz"))
    assert pair.disagreement.startswith("server.pcap.gz is INCONCLUSIVE, client.pcap.gz is STALL: trust the capture")
    same = match(analyze(folder / "server.pcap.gz"), analyze(folder / "server.pcap.gz"))
    assert same.disagreement == ""


def test_a_clean_pair_says_which_part_of_the_reply_is_the_path(at, run, tmp_path):
    conversation = talk(thinks_then_one_write, rtt_ns=20 * MS)
    server, client = (at(conversation, position) for position in ("server", "client"))
    pair = match(server, client)
    assert pair.reply_ms[0] and pair.reply_ms[1]
    assert 20 <= pair.reply_ms[1].p50 - pair.reply_ms[0].p50 <= 20.1
    _, out, _ = run("analyze", "--same-traffic", tmp_path / "client.pcap", tmp_path / "server.pcap")
    words = " ".join(out.split())
    assert "no stall in either capture" in words
    assert f"p50 {pair.reply_ms[0].p50:.2f} ms after the request in server.pcap" in words
    assert "the path between them takes 20.0" in words


def test_the_files_of_a_pair_are_told_apart_on_the_screen(run, tmp_path):
    content = pcap_bytes(talk(nodelay).segments)
    for end in ("one", "two"):
        (tmp_path / end).mkdir()
        (tmp_path / end / "c.pcap").write_bytes(content)
    _, out, _ = run("analyze", "--same-traffic", tmp_path / "one" / "c.pcap", tmp_path / "two" / "c.pcap")
    assert "one/c.pcap and two/c.pcap" in out
