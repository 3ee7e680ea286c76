"""The post-dissector of docs/wireshark: what an annotated capture's stalls are as fields of tshark."""

import subprocess
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.evidence.annotation import annotate
from support.stories import client_held, server_held, talk
from support.synthetic import merge, pcap_bytes

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "docs" / "wireshark" / "nagle-lab.lua"
FIELDS = ("frame.number", "nagle.stall", "nagle.part", "nagle.hold_ms", "nagle.role")


@pytest.fixture(params=["server and client hold", "nginx"])
def stalled(request, tmp_path) -> Path:
    if request.param == "nginx":
        return REPOSITORY / "captures" / "reference" / "nginx-static-nodelay-off" / "server.pcap"
    path = tmp_path / "x.pcap"
    other = talk(client_held, client=("10.0.0.9", 50000), server=("10.0.0.3", 81))
    path.write_bytes(pcap_bytes(merge(talk(server_held).segments, other.segments)))
    return path


def run(tshark: str, capture: Path, *options: str) -> str:
    command = [tshark, "-r", str(capture), "-X", f"lua_script:{SCRIPT}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout


def test_the_fields_are_what_the_analysis_says(tshark, stalled, tmp_path):
    result, out = analyze(stalled), tmp_path / "out.pcapng"
    annotate([stalled], result, out)
    columns = [option for field in FIELDS for option in ("-e", field)]
    got = set()
    for line in run(tshark, out, "-Y", "nagle.stall", "-T", "fields", *columns).splitlines():
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
