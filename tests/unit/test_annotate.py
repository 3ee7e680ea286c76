"""nagle-lab annotate: what it refuses, what it leaves, the order of its comments. With tshark: tests/reference."""

import json
import os
from functools import partial
from pathlib import Path

import pytest

from nagle_lab.capture.capture import open_capture
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.evidence import annotation
from nagle_lab.evidence.annotation import annotate, comments, frame_filter
from support.files import rewrite
from support.repository import STALLED
from support.stories import nodelay, server_held, talk
from support.synthetic import merge, pcap_bytes, pcapng_bytes

TALK = talk(server_held, 4).segments


@pytest.fixture
def held(tmp_path) -> Path:
    path = tmp_path / "held.pcap"
    path.write_bytes(pcap_bytes(talk(server_held, 6).segments))
    return path


def refused(run, *arguments) -> str:
    code, out, err = run("annotate", *arguments)
    assert (code, out) == (Exit.UNUSABLE, "")
    assert err.count("\n") == 1
    return err


def test_what_exists_is_not_written_over_without_force(run, held, tmp_path):
    out = tmp_path / "out.pcapng"
    out.write_bytes(b"mine")
    assert "--force" in refused(run, held, "-o", out)
    assert out.read_bytes() == b"mine"
    assert run("annotate", held, "-o", out, "--force")[0] == 0
    assert out.read_bytes().startswith(b"\x0a\x0d\x0d\x0a")


def test_the_capture_itself_is_never_written_over(run, held, tmp_path):
    before = held.read_bytes()
    link = tmp_path / "link.pcapng"
    link.symlink_to(held)
    for out in (held, link):
        assert "it is an input of this command" in refused(run, held, "-o", out, "--force")
        with pytest.raises(NagleLabError, match="is the capture itself"):
            annotate([held], analyze(held), out, force=True)
    assert held.read_bytes() == before


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("no/such/folder/out.pcapng", "there is no folder no/such/folder: create it"),
        (".", "is a folder: name a file in it"),
        ("pipe", "exists and is not a regular file"),
    ],
)
def test_where_no_file_can_be_is_refused(run, held, tmp_path, monkeypatch, out, said):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    assert said in refused(run, held, "-o", out, "--force")


@pytest.mark.parametrize("kind", [OSError(28, "No space left on device"), KeyboardInterrupt(), NagleLabError("no")])
def test_nothing_partial_remains_after_an_error(held, tmp_path, monkeypatch, kind):
    def fail(*_):
        yield 1, "begun"
        raise kind

    monkeypatch.setattr(annotation, "comments", fail)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(type(kind)):
        annotate([held], analyze(held), tmp_path / "out.pcapng")
    assert sorted(tmp_path.iterdir()) == before


def test_a_capture_that_changed_since_its_analysis_is_refused(held, tmp_path):
    result = analyze(held)
    held.write_bytes(pcap_bytes(talk(server_held, 7).segments))
    with pytest.raises(NagleLabError, match="changed while it was being annotated"):
        annotate([held], result, tmp_path / "out.pcapng")
    assert [path.name for path in tmp_path.iterdir()] == ["held.pcap"]


def test_wrong_usage_says_what_to_do(run, held, tmp_path):
    assert "--filter" in refused(run, held)
    assert "--rotated" in refused(run, held, held, "-o", tmp_path / "o.pcapng")
    assert "save it to a file" in refused(run, "-", "-o", tmp_path / "o.pcapng")
    assert "no such file" in refused(run, tmp_path / "missing.pcap", "-o", tmp_path / "o.pcapng")


def test_without_a_packet_nothing_is_written(run, tmp_path):
    path, out = tmp_path / "none.pcap", tmp_path / "out.pcapng"
    for content in (pcap_bytes([]), pcapng_bytes([])[:20] + b"\xff" * 40):
        path.write_bytes(content)
        assert "no packet in it" in refused(run, path, "-o", out)
        assert not out.exists()


@pytest.mark.parametrize("content", [pcap_bytes(TALK), pcapng_bytes(TALK), pcapng_bytes(TALK, byte_order=">")])
def test_a_damaged_capture_is_copied_exactly_as_far_as_it_was_analysed(tmp_path, content):
    """Whatever byte is wrong: the copy counts the frames the analysis counts, and shows the same stalls."""
    path, out = tmp_path / "damaged", tmp_path / "out.pcapng"
    for at in range(30, len(content), 29):
        rewrite(path, content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        try:
            result = analyze(path)
            annotate([path], result, out, force=True)
        except NagleLabError as error:
            assert "changed while it was being annotated" not in str(error)
            continue
        again = analyze(out)
        assert again.source.packets == result.source.packets
        assert list(again.stalls) == list(result.stalls)


def test_a_clean_capture_has_only_the_verdict_and_no_filter(run, tmp_path):
    path, out = tmp_path / "clean.pcap", tmp_path / "out.pcapng"
    path.write_bytes(pcap_bytes(talk(nodelay).segments))
    code, said, err = run("annotate", path, "-o", out)
    assert (code, said) == (0, "") and "no stall" in err
    assert out.read_bytes().count(b"nagle-lab verdict: CLEAN") == 2  # section and first frame
    assert "no stall to select" in refused(run, path, "--filter")


def test_the_same_capture_gives_the_same_bytes(run, held, tmp_path):
    for name in ("a.pcapng", "b.pcapng"):
        assert run("annotate", held, "-o", tmp_path / name)[0] == 0
    assert (tmp_path / "a.pcapng").read_bytes() == (tmp_path / "b.pcapng").read_bytes()


@pytest.mark.parametrize("at_once", [1, 2, 7, 4096])
def test_comments_come_in_order_of_frames_however_many_are_looked_at_at_once(tmp_path, monkeypatch, at_once):
    path = tmp_path / "many.pcap"
    talks = [talk(server_held, 18, client=("10.0.0.1", 1000 + n), t0_ns=10**18 + n * 7_001_003) for n in range(5)]
    path.write_bytes(pcap_bytes(merge(*(each.segments for each in talks))))
    result = analyze(path)
    whole = sorted(comments(result))
    monkeypatch.setattr(annotation, "_STALLS_AT_ONCE", at_once)
    found = list(comments(result))
    assert len(found) == 1 + 3 * len(result.stalls) > 200
    assert [frame for frame, _ in found] == sorted(frame for frame, _ in found)
    assert sorted(found) == whole


def test_a_filter_that_would_be_too_long_selects_the_first_stalls(held, monkeypatch):
    result = analyze(held)
    monkeypatch.setattr(annotation, "LONGEST_FILTER", 45)
    text, selected = frame_filter(result)
    assert 0 < selected < len(result.stalls) and len(text) <= 45
    first = result.stalls[0]
    assert text.startswith(f"frame.number in {{{first.trigger_frame}..{first.release_frame}")


def test_windows_of_any_size_give_the_same_file(held, tmp_path, monkeypatch):
    ng = tmp_path / "held.pcapng"
    ng.write_bytes(pcapng_bytes(talk(server_held, 6).segments))
    for path in (held, ng):
        annotate([path], analyze(path), tmp_path / "whole")
        for size in (64, 150, 1000):
            narrow = partial(open_capture, window_bytes=size)
            monkeypatch.setattr("nagle_lab.capture.comment_writer.open_capture", narrow)
            annotate([path], analyze(path), tmp_path / "parts", force=True)
            assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
        monkeypatch.undo()
        (tmp_path / "whole").unlink()


def test_a_run_folder_is_its_capture_nearest_the_held_end(run, tmp_path):
    out = tmp_path / "run.pcapng"
    assert run("annotate", STALLED.parent, "-o", out)[0] == 0
    assert analyze(out).stalls[5] == analyze(STALLED).stalls[5]
    assert json.loads(run("analyze", "--json", out)[1])["verdict"] == "STALL"
