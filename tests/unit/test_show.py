"""nagle-lab show of one stall, and nagle-lab verify, on a machine without tshark. With it: tests/reference."""

import json
import os
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.evidence.examples import examples
from nagle_lab.evidence.tshark import OurFrame, compare_rows
from support.repository import CAPTURES, STALLED
from support.rows import truth
from support.stories import (
    held_by_both,
    nodelay,
    pauses_a_little_longer_than_the_timer,
    server_held,
    talk,
    thinks_then_one_write,
)
from support.synthetic import pcap_bytes

LOOKALIKES = CAPTURES / "lookalikes"
TALK = talk(server_held, 6).segments


@pytest.fixture(autouse=True)
def no_tshark(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def held(tmp_path) -> Path:
    path = tmp_path / "held.pcap"
    path.write_bytes(pcap_bytes(held_by_both()))
    return path


def stalls_of(run, path) -> list[dict]:
    return json.loads(run("analyze", "--json", path)[1])["stalls"]


def test_every_stall_can_be_shown_by_its_number(run, held):
    stalls = stalls_of(run, held)
    assert len(stalls) == 10
    assert [s["ack_frame"] for s in stalls] == sorted(s["ack_frame"] for s in stalls)
    for number, stall in enumerate(stalls, 1):
        code, out, err = run("show", held, "--stall", number)
        assert (code, err) == (0, "")
        assert f"Stall {number} of 10: connection {stall['connection']}, exchange {stall['exchange']}" in out
        lines = {line.split()[0]: line for line in out.splitlines() if "│" in line}
        for what, frame in (("trigger", "trigger_frame"), ("late ACK", "ack_frame"), ("release", "release_frame")):
            assert lines[str(stall[frame])].endswith(what)
        assert max(map(len, out.splitlines())) <= 100


def test_without_a_number_it_is_the_typical_one(run, held):
    _, chosen, _ = run("show", "--json", held)
    _, shown, _ = run("analyze", held)
    stall = json.loads(chosen)
    number = stalls_of(run, held).index(stall) + 1
    assert f"A typical stall: connection {stall['connection']}, exchange {stall['exchange']};" in shown
    assert run("show", held)[1] == run("show", held, "--stall", number)[1]


def test_json_is_the_stall_as_in_the_result(run, held):
    assert [json.loads(run("show", held, "--json", "--stall", n)[1]) for n in (1, 10)] == [
        stalls_of(run, held)[at] for at in (0, 9)
    ]


def test_the_bytes_the_held_side_waited_with_are_told(run, held):
    stall = stalls_of(run, held)[0]
    _, out, _ = run("show", held, "--stall", 1)
    assert f"{stall['trigger_bytes']} B in frame {stall['trigger_frame']}" in out
    assert f"{stall['wait_ms']:.3f} ms" in out


def test_rotated_files_are_shown_as_one_capture(run, held, tmp_path):
    packets = held_by_both()
    parts = [tmp_path / "b.pcap", tmp_path / "a.pcap"]  # not in the order of their names
    stall = stalls_of(run, held)[3]
    for path, part in zip(parts, (packets[: stall["ack_frame"]], packets[stall["ack_frame"] :]), strict=True):
        path.write_bytes(pcap_bytes(part))
    code, out, err = run("show", "--rotated", *reversed(parts), "--stall", 4, "--json")
    assert (code, json.loads(out), err) == (Exit.OK, stall, "")
    _, out, _ = run("show", "--rotated", *parts, "--stall", 4)
    assert "Stall 4 of 10" in out
    assert "join these with nagle-lab annotate --rotated FILE… -o OUT.pcapng" in " ".join(out.split())
    code, _, err = run("show", *parts)
    assert code == Exit.UNUSABLE and "show takes one FILE, or with --rotated the files of one" in err


@pytest.mark.parametrize("number", [0, -1, 11, 10**30])
def test_a_number_out_of_range_says_how_many_there_are(run, held, number):
    code, out, err = run("show", held, "--stall", number)
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "1 to 10" in err and err.count("\n") == 1


def test_without_a_stall_an_ordinary_exchange_is_shown(run, tmp_path):
    path = tmp_path / "clean.pcap"
    path.write_bytes(pcap_bytes(talk(nodelay).segments))
    code, out, err = run("show", path)
    assert (code, err) == (0, "")
    assert "No stall to show: CLEAN" in out and "frames of clean.pcap" in out
    assert "10.0.0.2:80" in out and "▶" in out and "◀" in out and "late ACK" not in out


@pytest.mark.parametrize("name", ["nodelay-pause-30-60", "tail-loss-probe", "cork", "think-40"])
def test_the_ordinary_exchange_takes_about_the_median(name):
    path = LOOKALIKES / name / "server.pcap.gz"
    result = analyze(path)
    shown = examples([path], result).exchange
    assert shown and result.summary.exchange_ms
    answer = max(row.ns for row in shown.rows if not row.from_client and " B " in row.label)
    assert answer / 1e6 == pytest.approx(result.summary.exchange_ms.p50, rel=0.02)
    assert not [row for row in shown.rows if "FIN" in row.label]


@pytest.mark.parametrize(
    ("story", "says"), [(pauses_a_little_longer_than_the_timer, True), (thinks_then_one_write, False)]
)
def test_an_exchange_that_only_looks_like_the_stall_says_so(run, tmp_path, story, says):
    path = tmp_path / "clean.pcap"
    path.write_bytes(pcap_bytes(talk(story).segments))
    _, out, _ = run("show", path)
    assert "CLEAN" in out
    assert ("Not this stall: TCP held nothing back. Frame " in out) is says


@pytest.mark.parametrize("options", [["--stall", 1], ["--json"]])
def test_a_stall_that_is_not_there_says_the_verdict(run, tmp_path, options):
    path = tmp_path / "clean.pcap"
    path.write_bytes(pcap_bytes(talk(nodelay).segments))
    code, out, err = run("show", path, *options)
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "no stall" in err and "CLEAN" in err and err.count("\n") == 1


def test_a_stall_of_a_run_is_one_of_the_held_end(run):
    _, whole, _ = run("show", STALLED.parent)
    code, out, _ = run("show", STALLED.parent, "--stall", 3)
    assert code == 0
    assert "Stall 3 of 96" in out and "frames of server.pcap" in out and "as expected" not in out
    assert "as expected" in whole


def test_without_tshark_one_line_says_what_to_install(run, held):
    _, out, _ = run("show", held)
    assert len([line for line in out.splitlines() if "apt-get install tshark" in line]) == 1
    code, out, err = run("verify", held)
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "apt-get install tshark" in err and err.count("\n") == 1


def test_a_tshark_that_fails_is_one_line_behind_the_ladder(run, held, tmp_path):
    (tmp_path / "tshark").write_text("#!/bin/sh\necho 'tshark: it \033[31mfailed' >&2\nexit 2\n")
    (tmp_path / "tshark").chmod(0o755)
    code, out, err = run("show", held)
    assert (code, err) == (0, "")
    assert "release" in out and "tshark: it \\x1b[31mfailed" in out
    code, out, err = run("verify", held)
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "tshark: it \\x1b[31mfailed" in err and err.count("\n") == 1


def test_what_cannot_be_read_twice_is_refused_without_reading_it(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for command in ("show", "verify"):
        for path in ("-", tmp_path / "pipe"):
            code, out, err = run(command, path)
            assert (code, out) == (Exit.UNUSABLE, "")
            assert "save it to a file" in err and err.count("\n") == 1


# ---------------------------------------------------------------------------- the comparison, without a tshark

ROWS = truth(TALK)


def ours(rows, **marks):
    return [OurFrame(row.frame, row, **marks) for row in rows]


def test_equal_tables_are_equal():
    found = compare_rows(ours(ROWS), ROWS)
    assert (found.equal, found.compared, found.first) == (True, len(ROWS), [])


def test_every_column_is_compared():
    for name in ROWS[0]._fields[1:]:
        changed = ROWS[0]._replace(**{name: "x"})
        found = compare_rows(ours(ROWS), [changed, *ROWS[1:]])
        assert found.columns == {name: 1}
        assert found.first[0].startswith(f"frame 1: {name} is ")


def test_only_the_first_differences_are_told_but_all_are_counted():
    found = compare_rows(ours(ROWS), [row._replace(seq=0, ack=9) for row in ROWS], most=3)
    assert len(found.first) == 3
    assert found.differing == len(ROWS)
    assert found.columns == {"seq": len(ROWS), "ack": len(ROWS)}


def test_rows_of_one_side_only_are_found():
    missing = compare_rows(ours(ROWS), ROWS[1:-1])
    assert missing.columns == {"only in ours": 2}
    known = [OurFrame(ROWS[0].frame, None, "UDP"), *ours(ROWS[1:])]
    assert compare_rows(known, ROWS).first == ["frame 1: only in tshark's (ours: UDP)"]
    assert compare_rows([], ROWS[:1]).first == ["frame 1: only in tshark's"]


def test_what_a_cut_explains_is_explained_only_where_there_was_a_cut():
    without = [row._replace(tsval=None) for row in ROWS]
    assert compare_rows(ours(without, cut=True), ROWS).equal
    assert compare_rows(ours(without), ROWS).columns == {"tsval": len(ROWS)}
    longer = [row._replace(length=row.length + 1) for row in ROWS]
    assert compare_rows(ours(longer, beyond=True), ROWS).equal
    assert not compare_rows(ours(longer, cut=True), ROWS).equal


def test_a_table_out_of_order_is_refused():
    with pytest.raises(NagleLabError, match="not in order of frames"):
        compare_rows(ours(ROWS), [*ROWS, ROWS[0]])


def test_a_loopback_is_no_end_that_sends(run):
    _, out, _ = run("show", CAPTURES / "workshop" / "unbuffered-proxy-unbuffered-nagle")
    assert "segments sent over loopback " in out and "delayed ACKs over loopback " in out
