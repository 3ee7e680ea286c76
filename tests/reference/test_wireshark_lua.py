"""The post-dissector of docs/wireshark: what an annotated capture's stalls are as fields of tshark."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.evidence.annotation import annotate
from support.repository import REPOSITORY, STALLED
from support.stories import client_held, server_held, talk
from support.synthetic import merge, pcap_bytes

SCRIPT = REPOSITORY / "docs" / "wireshark" / "nagle-lab.lua"
FIELDS = ("frame.number", "nagle.stall", "nagle.part", "nagle.wait_ms", "nagle.role")


@pytest.fixture(params=["server and client hold", "nginx"])
def stalled(request, tmp_path) -> Path:
    if request.param == "nginx":
        return STALLED
    path = tmp_path / "x.pcap"
    other = talk(client_held, client=("10.0.0.9", 50000), server=("10.0.0.3", 81))
    path.write_bytes(pcap_bytes(merge(talk(server_held).segments, other.segments)))
    return path


def run(tshark: str, capture: Path, *options: str) -> str:
    command = [tshark, "-r", str(capture), "-X", f"lua_script:{SCRIPT}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout


def beside(folder: Path, content: str) -> tuple[str, ...]:
    """Options for a file beside the capture."""
    path = folder / "result.json"
    path.write_text(content)
    return "-o", f"nagle.result:{path}"


@pytest.mark.parametrize("annotated", [True, False], ids=["comments", "a result beside it"])
def test_the_fields_are_what_the_analysis_says(tshark, stalled, tmp_path, annotated):
    result, out = analyze(stalled), tmp_path / "out.pcapng"
    options: tuple[str, ...] = ()
    if annotated:
        annotate([stalled], result, out)
    else:
        out, options = stalled, beside(tmp_path, result.to_json())
    columns = [option for field in FIELDS for option in ("-e", field)]
    got = set()
    for line in run(tshark, out, *options, "-Y", "nagle.stall", "-T", "fields", *columns).splitlines():
        frame, *values = line.split("\t")
        got |= {(int(frame), *one) for one in zip(*(value.split(",") for value in values), strict=True)}
    expected = set()
    for number, stall in enumerate(result.stalls, 1):
        wait, held, delayed = f"{stall.wait_ms:g}", stall.held_by.role, stall.delayed_by.role
        expected |= {
            (stall.trigger_frame, str(number), "trigger", wait, held),
            (stall.ack_frame, str(number), "late ACK", wait, delayed),
            (stall.release_frame, str(number), "release", wait, held),
        }
    assert got == expected and len(got) == 3 * len(result.stalls)


def test_the_summary_is_by_who_held(tshark, stalled, tmp_path):
    result, out = analyze(stalled), tmp_path / "out.pcapng"
    annotate([stalled], result, out)
    lines = run(tshark, out, "-q", "-X", "lua_script1:summary").splitlines()
    expected = []
    for role in ("client", "server"):
        waits = [stall.wait_ms for stall in result.stalls if stall.held_by.role == role]
        expected += [f"held by the {role}: {len(waits)} stalls, {sum(waits):.1f} ms"] if waits else []
    assert lines == expected


def test_a_capture_without_our_comments_has_none(tshark, stalled):
    assert run(tshark, stalled, "-Y", "nagle") == ""


def test_a_file_beside_it_that_is_no_result_is_said(tshark, stalled, tmp_path):
    for content in ("", "{}", '{"schema":"nagle-lab-pair/1","stalls":[]}'):
        command = [
            tshark,
            "-r",
            str(stalled),
            "-X",
            f"lua_script:{SCRIPT}",
            *beside(tmp_path, content),
            "-Y",
            "nagle",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert "result.json is not what nagle-lab analyze --json prints" in done.stderr and done.stdout == ""


def test_the_profile_shows_the_fields_as_columns(tshark, tmp_path, monkeypatch):
    """As Wireshark's own list of packets does."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))  # a .wireshark there would come first
    profiles = tmp_path / "config" / "wireshark" / "profiles"
    shutil.copytree(SCRIPT.parent / "nagle-lab", profiles / "nagle-lab")
    result, out = analyze(STALLED), tmp_path / "out.pcapng"
    annotate([STALLED], result, out)
    stall = result.stalls[0]
    line = run(tshark, out, "-C", "nagle-lab", "-Y", f"frame.number == {stall.release_frame}")
    assert re.search(rf"^ *{stall.release_frame} .* 1 release {stall.wait_ms:g} server \d+ ", line), line
