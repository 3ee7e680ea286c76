"""A series in stretches, cut in files or between them, says what `analyze --rotated` says, to the letter."""

import gzip
import tempfile
from dataclasses import replace
from datetime import UTC
from itertools import pairwise
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nagle_lab.tcp
from nagle_lab.capture.capture import Capture
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.errors import NagleLabError
from nagle_lab.fleet import stretch as fleet_stretch
from nagle_lab.fleet.judge import judge_series
from nagle_lab.fleet.results_folder import Folder
from nagle_lab.fleet.series import series_of
from nagle_lab.fleet.stretch import FILES, checkpoint_name, events_name, events_of, is_done, read_stretch, stretches
from nagle_lab.fleet.whole import whole
from support.engines import ENGINES
from support.recorded import recorded, slow_release, told
from support.stalls import stalled
from support.stories import server_held, talk
from support.synthetic import MS, SECOND, merge, pcap_bytes, pcapng_bytes

T0 = 1_700_000_000 * SECOND
PACKETS = merge(
    *(
        stalled(
            8, (f"10.0.0.{n % 3 + 1}", 40_000 + n), ("10.0.1.1", 80 + n % 2), T0 + n * 9 * MS, close=n % 3 > 0
        ).segments
        for n in range(9)
    )
)


def said(result: Result) -> str:
    """All a result says."""
    names = [name for name in Result.__struct_fields__ if name not in ("connections", "stalls")]
    rows = {"connections": list(result.connections), "stalls": list(result.stalls)}
    return json_text({name: getattr(result, name) for name in names} | rows)


def rotated(folder: Path, parts: list[bytes]) -> list[Path]:
    """Files of one series."""
    (folder / "web-1").mkdir()
    paths = [folder / "web-1" / f"eth0_{n:05}_20231114{n:06}.pcap" for n in range(1, len(parts) + 1)]
    for path, content in zip(paths, parts, strict=True):
        path.write_bytes(content)
    return paths


def in_stretches(folder: Path, size: int) -> Result:
    (series,) = series_of([str(folder / "web-1")])
    out = Folder(str(folder / "out"))
    cut = stretches(series, size)
    for stretch in cut:
        read_stretch(stretch, out)
    return whole(cut, out).result


@settings(max_examples=25, deadline=None)
@given(
    st.sets(st.integers(1, len(PACKETS) - 1), min_size=1, max_size=7),
    st.integers(1, 40_000),
    st.sampled_from([2_500, 9_000]),
    st.sampled_from(list(ENGINES)),
    st.data(),
)
def test_however_a_series_is_cut_the_result_is_that_of_one_reading(cuts, size, least, engine, data):
    parts = [PACKETS[a:b] for a, b in pairwise([0, *sorted(cuts), len(PACKETS)])]
    if data.draw(st.booleans()):  # the clock is set back, or files are out of order
        parts[-1] = [replace(s, ts_ns=s.ts_ns - data.draw(st.sampled_from([3, 40, 4000])) * MS) for s in parts[-1]]
    files = [data.draw(st.sampled_from([pcap_bytes, pcapng_bytes]))(part) for part in parts]
    for at in data.draw(st.sets(st.integers(1, len(files) - 1), max_size=2)):  # not the first: analyze refuses that
        half = len(files[at]) // 2
        damaged = [b"", b"no capture", files[at][:-7], files[at][:24] + b"\x99" * 40, files[at][:half] + b"\x99" * 40]
        files[at] = data.draw(st.sampled_from([*damaged, gzip.compress(files[at])]))
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet_stretch, "LEAST_PART", least)
        patch.setattr(nagle_lab.tcp, "LIBRARY", None if engine == "plain" else nagle_lab.tcp.LIBRARY)
        folder = Path(name)
        rotated(folder, files)
        (series,) = series_of([str(folder / "web-1")])
        assert said(in_stretches(folder, size)) == said(
            analyze([file.path for file in series.files], exchanges=False, sha256=False)
        )


def test_acks_that_a_filter_left_out_are_missed_as_in_one_reading(tmp_path):
    held = [segment for segment in talk(server_held, timestamps=False).segments if segment.length]
    paths = rotated(tmp_path, [pcap_bytes(held[:30]), pcap_bytes(held[30:])])
    result = in_stretches(tmp_path, 1)
    assert result.verdict == "INCONCLUSIVE" and "as if a filter had left them out" in result.reason
    assert said(result) == said(analyze([str(path) for path in paths], exchanges=False, sha256=False))


def test_the_last_part_of_a_file_is_read_in_windows(tmp_path, monkeypatch):
    """As large as the part, not of a few bytes each."""
    monkeypatch.setattr(fleet_stretch, "WINDOW_BYTES", 3_000)
    monkeypatch.setattr(fleet_stretch, "LEAST_PART", 20_000)
    rotated(tmp_path, [pcap_bytes(PACKETS[:260])])
    (series,) = series_of([str(tmp_path / "web-1")])
    windows: list[int] = []

    class Noted(Capture):
        def __init__(self, paths, window, **rest):
            windows.append(window)
            super().__init__(paths, window, **rest)

    monkeypatch.setattr(fleet_stretch, "Capture", Noted)
    in_stretches(tmp_path, 20_000)
    assert len(windows) > 1 and min(windows[:-1]) == 3_000
    assert windows[-1] == min(3_000, series.files[0].size % 20_000)


def test_a_missing_or_unreadable_file_is_told_of_and_never_fatal(tmp_path):
    paths = rotated(tmp_path, [b"no capture", pcap_bytes(PACKETS[:300]), pcap_bytes(PACKETS[300:])])
    (tmp_path / "m.toml").write_text(
        f'[[series]]\nhost = "h"\nfiles = ["{paths[0]}", "{paths[1]}", "{tmp_path}/gone.pcap"]'
    )
    (series,) = series_of([str(tmp_path / "m.toml")])
    out = Folder(str(tmp_path / "out"))
    cut = stretches(series, 1)
    for stretch in cut:
        read_stretch(stretch, out)
    judged = judge_series(series, cut, out)
    assert judged.verdict == "STALL"
    assert len(judged.problems) == 2
    assert "not a capture" in judged.problems[0] and "gone.pcap: no such file" in judged.problems[1]
    files = pq.read_table(f"{out.path}/files", partitioning="hive").to_pylist()
    assert [bool(file["problem"]) for file in files] == [True, False, True]
    alone = whole(cut[:1], out).result
    assert (alone.verdict, alone.reason) == (
        "INVALID",
        f"{paths[0].name}: not a capture, but text: record one with tcpdump -w",
    )


def test_what_is_stored_is_what_the_result_says(tmp_path):
    paths = rotated(tmp_path, [pcap_bytes(PACKETS[:200]), pcap_bytes(PACKETS[200:])])
    (series,) = series_of([str(tmp_path)])
    out = Folder(str(tmp_path / "out"))
    cut = stretches(series, 1)
    for stretch in cut:
        read_stretch(stretch, out)
    judge_series(series, cut, out)
    result = analyze([str(path) for path in paths], exchanges=True, sha256=False)
    stored = {name: pq.read_table(f"{out.path}/{name}", partitioning="hive").to_pylist() for name in
              ("stalls", "connections", "exchanges", "series", "files")}  # fmt: skip
    assert [(s["trigger_frame"], s["ack_frame"], s["release_frame"], s["wait_ms"], s["release_us"], s["connection"],
             s["exchange"], s["held_ip"], s["held_port"], s["held_role"], s["delayed_ip"], s["trigger_bytes"])
            for s in stored["stalls"]] == [
        (s.trigger_frame, s.ack_frame, s.release_frame, s.wait_ms, s.release_us, s.connection, s.exchange,
         s.held_by.ip, s.held_by.port, s.held_by.role, s.delayed_by.ip, s.trigger_bytes) for s in result.stalls
    ]  # fmt: skip
    for stall in stored["stalls"]:
        frame = stall["frame"] + 200 * stall["file"].endswith(paths[1].name)
        assert frame == stall["release_frame"]
        assert round(stall["released_at"].replace(tzinfo=UTC).timestamp() * 1e6) == round(
            PACKETS[frame - 1].ts_ns / 1e3
        )
    assert [(c["client_ip"], c["client_port"], c["server_port"], c["packets"], c["lost_ms"], c["stalls"])
            for c in stored["connections"]] == [
        (c.client.ip, c.client.port, c.server.port, c.packets, c.lost_ms, c.stalls) for c in result.connections
    ]  # fmt: skip
    bins: dict[float, int] = {}
    for row in stored["exchanges"]:
        bins[row["from_ms"]] = bins.get(row["from_ms"], 0) + row["exchanges"]
    histogram = result.histograms["exchange_ms"]
    assert sorted(bins.items()) == [(low, count) for low, _, count in histogram.bins]
    assert sum(row["total_ms"] for row in stored["exchanges"]) == pytest.approx(histogram.total_ms)
    (row,) = stored["series"]
    assert (row["verdict"], row["stalls"], row["series"]) == ("STALL", result.summary.stalls, "web-1/eth0")
    assert msgspec.json.decode(row["result"])["summary"]["stalls"] == result.summary.stalls


@pytest.mark.parametrize("write", [pcap_bytes, pcapng_bytes, lambda part: gzip.compress(pcap_bytes(part))])
def test_one_large_file_is_read_in_parts_unless_it_is_compressed(tmp_path, write, monkeypatch):
    monkeypatch.setattr(fleet_stretch, "LEAST_PART", 100)
    (path,) = rotated(tmp_path, [write(PACKETS)])
    (series,) = series_of([str(tmp_path)])
    out = Folder(str(tmp_path / "out"))
    cut = stretches(series, series.size // 5)
    assert sum(stretch.size for stretch in cut) == series.size and len(cut) in (5, 6)
    packets = [read_stretch(stretch, out).packets for stretch in cut]
    assert sum(packets) == len(PACKETS)
    is_compressed = path.read_bytes()[:2] == b"\x1f\x8b"
    assert sum(count > 0 for count in packets) == 1 if is_compressed else all(packets[:4])
    judge_series(series, cut, out)
    (file,) = pq.read_table(f"{out.path}/files", partitioning="hive").to_pylist()
    assert (file["packets"], file["bytes"], file["first_frame"]) == (len(PACKETS), series.size, 1)
    stalls = pq.read_table(f"{out.path}/stalls", partitioning="hive").to_pylist()
    assert stalls and all(stall["frame"] == stall["release_frame"] for stall in stalls)


def test_what_the_kernel_said_while_it_was_recorded_goes_from_stretch_to_stretch(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_stretch, "LEAST_PART", 100)
    (tmp_path / "web-1").mkdir()
    segments = talk(slow_release).segments
    path = recorded(tmp_path / "web-1" / "eth0_00001.pcapng", segments, told(segments, lambda _: 20 * MS))
    whole_file = analyze(path, exchanges=False, sha256=False)
    assert whole_file.summary.grounds == {"seen_waiting": 19}
    assert said(in_stretches(tmp_path, path.stat().st_size // 5)) == said(whole_file)


def test_added_files_and_only_they_are_new_work(tmp_path):
    rotated(tmp_path, [pcap_bytes(PACKETS[:200]), pcap_bytes(PACKETS[200:400])])
    before = stretches(series_of([str(tmp_path)])[0], 1)
    (tmp_path / "web-1" / "eth0_00003_20231115000000.pcap").write_bytes(pcap_bytes(PACKETS[400:]))
    after = stretches(series_of([str(tmp_path)])[0], 1)
    assert after[:2] == before and len(after) == 3
    (tmp_path / "web-1" / "eth0_00001_20231114000001.pcap").write_bytes(pcap_bytes(PACKETS[:199]))
    changed = stretches(series_of([str(tmp_path)])[0], 1)
    assert not {one.key for one in changed} & {one.key for one in after}


def test_what_is_written_to_a_folder_appears_whole_or_not_at_all(tmp_path):
    out = Folder(str(tmp_path / "out"))
    with pytest.raises(RuntimeError), out.writing("work/a.events") as file:
        file.write(b"half")
        raise RuntimeError
    assert out.names("work") == set()
    out.write("work/a.events", b"whole")
    assert (out.names("work"), out.read("work/a.events")) == ({"a.events"}, b"whole")


def test_a_damaged_or_foreign_carry_is_refused_in_one_line(tmp_path):
    rotated(tmp_path, [pcap_bytes(PACKETS[:200]), pcap_bytes(PACKETS[200:])])
    out = Folder(str(tmp_path / "out"))
    one, two = stretches(series_of([str(tmp_path)])[0], 1)
    read_stretch(one, out)
    left = out.read(checkpoint_name(one.key))
    for wrong, says in ((left[:50], "damaged"), (left.replace(b"snapshot 1", b"snapshot 0"), "same build")):
        out.write(checkpoint_name(one.key), wrong)
        with pytest.raises(NagleLabError, match=says) as error:
            read_stretch(two, out)
        assert "\n" not in str(error.value)


def test_damaged_events_are_said_and_read_again_once_they_are_gone(tmp_path):
    rotated(tmp_path, [pcap_bytes(PACKETS[:200])])
    out = Folder(str(tmp_path / "out"))
    (only,) = stretches(series_of([str(tmp_path)])[0], 1)
    read_stretch(only, out)
    assert is_done(only, out.names("work"))
    events = out.read(events_name(only.key))
    out.write(events_name(only.key), events[:-3])
    with pytest.raises(NagleLabError, match=rf"remove work/{only.key}\.\* and go on with --resume"):
        list(events_of(only.key, out, [FILES]))
    out.remove(events_name(only.key))
    assert not is_done(only, out.names("work"))
