"""The clock is set in the middle of a capture: the kernel's stamps jump, and no verdict may come of that."""

import gzip
import hashlib
import json
import shutil
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from nagle_lab.analysis import analyze
from nagle_lab.errors import Exit
from nagle_lab.runs import judge
from support.stories import server_held, talk
from support.synthetic import MS, Interface, pcapng_bytes

CAPTURES = Path(__file__).parents[2] / "captures"
SECOND = 1_000_000_000


def stepped(capture: bytes, by_ns: int, at_ns: int) -> bytes:
    """A pcap of ours (nanoseconds, little endian) with every stamp from the time ``at_ns`` on moved ``by_ns``."""
    assert capture[:4] == b"\x4d\x3c\xb2\xa1"
    changed, at = bytearray(capture), 24
    while at < len(changed):
        seconds, ns, length = struct.unpack_from("<III", changed, at)
        if (time := seconds * SECOND + ns) >= at_ns:
            struct.pack_into("<II", changed, at, *divmod(time + by_ns, SECOND))
        at += 16 + length
    return bytes(changed)


def times(capture: bytes) -> list[int]:
    found, at = [], 24
    while at < len(capture):
        seconds, ns, length = struct.unpack_from("<III", capture, at)
        found.append(seconds * SECOND + ns)
        at += 16 + length
    return found


def stored(name: str) -> bytes:
    raw = (CAPTURES / name).read_bytes()
    return gzip.decompress(raw) if name.endswith(".gz") else raw


@pytest.mark.parametrize("step_s", [3600, 2, 0.6])
@pytest.mark.parametrize("name", ["nginx-static-no-keepalive/client", "nginx-static-nodelay-off/server"])
def test_a_step_forward_makes_and_unmakes_no_stall(tmp_path: Path, name: str, step_s: float):
    """Before each of a stretch of frames, so also between a segment and its ACK: half a second is no ACK timer."""
    capture = stored(f"reference/{name}.pcap")
    file = tmp_path / "some.pcap"
    file.write_bytes(capture)
    before = analyze(file)
    for time in times(capture)[70:90]:
        file.write_bytes(stepped(capture, int(step_s * SECOND), time))
        after = analyze(file)
        assert after.verdict == before.verdict
        waiting = before.summary.connections  # no more can wait at one time
        assert 0 <= before.summary.stalls - after.summary.stalls <= waiting


@pytest.mark.parametrize("step_s", [-5, -0.03])
@pytest.mark.parametrize(
    "name",
    [
        "reference/nginx-static-rtt-20-nodelay-off/client.pcap",  # would be CLEAN
        "lookalikes/nagle-rtt-40/middle.pcap.gz",  # would be STALL
        "reference/nginx-static-nodelay-off/server.pcap",
    ],
)
def test_a_step_back_makes_it_invalid_and_is_named(tmp_path: Path, name: str, step_s: float):
    capture = stored(name)
    file = tmp_path / "some.pcap"
    at = times(capture)
    frame = next(i for i in range(12, len(at)) if at[i] - at[i - 1] < MS)
    file.write_bytes(stepped(capture, int(step_s * SECOND), at[frame]))
    result = analyze(file)
    assert result.verdict == "INVALID"
    back = f"{(at[frame - 1] - at[frame]) / 1e9 - step_s:.9g}"
    assert result.reason == (
        f"some.pcap: time goes back by {back} s at frame {frame + 1}: "
        "was the clock set, record again; are packets only out of order, sort them with reordercap"
    )


@pytest.mark.parametrize(
    "name", ["lookalikes/nagle-rtt-40/middle.pcap.gz", "reference/nginx-static-nodelay-off/server.pcap"]
)
def test_a_step_too_small_to_tell_changes_no_verdict(tmp_path: Path, name: str):
    capture = stored(name)
    file = tmp_path / "some.pcap"
    file.write_bytes(capture)
    before, at = analyze(file), times(capture)
    for frame in range(6, len(at), len(at) // 12):
        file.write_bytes(stepped(capture, -9 * MS, at[frame]))
        assert analyze(file).verdict == before.verdict


def test_disorder_of_capture_queues_and_of_interfaces_is_no_step(tmp_path: Path):
    """Two queues of one interface differ by a few milliseconds; two interfaces by more, each in order."""
    one, other = talk(server_held).segments, talk(server_held, client=("10.0.0.9", 5555)).segments
    file = tmp_path / "some.pcapng"
    for interfaces, behind in ((1, 5 * MS), (2, 30 * MS)):
        late = [replace(segment, interface=interfaces - 1) for segment in other]
        packets = sorted([*one, *late], key=lambda s: s.ts_ns + (behind if s in late else 0))
        assert any(a.ts_ns > b.ts_ns for a, b in pairwise(packets))
        file.write_bytes(pcapng_bytes(packets, interfaces=[Interface() for _ in range(interfaces)]))
        result = analyze(file)
        assert (result.verdict, result.quality.damage) == ("STALL", [])


@pytest.mark.parametrize(
    ("variant", "step_s", "verdict", "code"),
    [
        ("nodelay-on", 3600, "CLEAN", Exit.OK),
        ("nodelay-off", 3600, "STALL", Exit.OK),
        ("nodelay-on", -5, "INVALID", Exit.UNUSABLE),
        ("nodelay-off", -5, "INVALID", Exit.UNUSABLE),
    ],
)
def test_a_run_of_the_lab_in_which_the_clock_is_set(
    tmp_path: Path, variant: str, step_s: int, verdict: str, code: Exit
):
    """Both captures see the step, at one time."""
    folder = shutil.copytree(CAPTURES / "reference" / f"nginx-static-{variant}", tmp_path / "run")
    manifest = json.loads((folder / "manifest.json").read_text())
    at = times((folder / "server.pcap").read_bytes())
    for name in ("server.pcap", "client.pcap"):
        changed = stepped((folder / name).read_bytes(), step_s * SECOND, at[len(at) // 2])
        (folder / name).write_bytes(changed)
        manifest["files"][name]["sha256"] = hashlib.sha256(changed).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    run = judge(folder)
    assert (run.verdict, run.exit_code()) == (verdict, code), run.reason
    if verdict == "INVALID":
        assert "server.pcap: time goes back by " in run.reason
        assert "client.pcap: time goes back by " in run.reason
