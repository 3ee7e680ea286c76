"""Hostile input through the command line: one line of error or a result marked as partial, in bounded memory."""

import errno
import gzip
import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import zstandard

from nagle_lab.capture.stored import Stored
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import Exit
from nagle_lab.tcp import tables
from support import schemas
from support.files import rewrite
from support.stories import nodelay, server_held, talk
from support.synthetic import pcap_bytes, pcapng_block, pcapng_bytes
from support.waiting import unread, within

pytestmark = pytest.mark.long
HEADERS = 74  # bytes: all of Ethernet, IPv4, and TCP with the options of a SYN
STALL = pcap_bytes(talk(server_held, 2).segments, snaplen=HEADERS)
CLEAN = pcap_bytes(talk(nodelay, 12).segments, snaplen=HEADERS)
STORED = {
    "pcap": STALL,
    "pcapng": pcapng_bytes(talk(server_held, 2).segments, snaplen=HEADERS),
    "clean pcap": CLEAN,
    "clean pcapng": pcapng_bytes(talk(nodelay, 12).segments, snaplen=HEADERS, byte_order=">"),
    "clean gzip": gzip.compress(CLEAN),
}
CODES = {"STALL": Exit.OK, "CLEAN": Exit.OK, "INCONCLUSIVE": Exit.INCONCLUSIVE, "INVALID": Exit.UNUSABLE}
LATER = struct.pack("<I", 1_700_000_100)  # seconds: after all that stalls
ENOUGH_MB = 150  # of memory, whatever the input: the design's bound


def diagnosed(run, path) -> dict | None:
    """The result of `analyze --json`, held to the contract; None where it was one line of error."""
    code, out, err = run("analyze", "--json", path)
    if not out:
        assert code == Exit.UNUSABLE
        assert err.startswith("nagle-lab: ") and err.count("\n") == 1 and err[:-1].isprintable()
        return None
    result = json.loads(out)
    schemas.check("result", result)
    assert (code, err) == (CODES[result["verdict"]], "")
    assert result["verdict"] != "CLEAN" or not result["quality"]["damage"]
    return result


def test_the_undamaged_captures_are_what_these_tests_take_them_for(run, tmp_path):
    for name, content in STORED.items():
        (tmp_path / "c").write_bytes(content)
        result = diagnosed(run, tmp_path / "c")
        assert result and result["verdict"] == ("CLEAN" if "clean" in name else "STALL")


def test_a_stall_capture_cut_at_every_byte(run, tmp_path):
    """Never clean; once the stall's last segment is in, always a stall; always said to be cut."""
    path, verdicts = tmp_path / "cut", []
    whole = record_ends(STALL)
    for size in range(len(STALL)):
        rewrite(path, STALL[:size])
        if size < 24:
            assert diagnosed(run, path) is None
            continue
        result = analyze(path)
        verdicts.append(result.verdict)
        assert bool(result.quality.damage) == (size not in whole)
        if size % 10 == 0:  # the command line, which takes most of the time, says the same
            said = diagnosed(run, path)
            assert said and said == json.loads(result.to_json())
    first = verdicts.index("STALL")
    assert set(verdicts[:first]) <= {"INVALID", "INCONCLUSIVE"}
    assert set(verdicts[first:]) == {"STALL"}


def record_ends(pcap: bytes) -> set[int]:
    """Where a cut leaves a whole file."""
    ends, at = {24}, 24
    while at < len(pcap):
        at += 16 + struct.unpack_from("<I", pcap, at + 8)[0]
        ends.add(at)
    return ends


@pytest.mark.parametrize("form", ["clean pcap", "clean pcapng", "clean gzip"])
def test_a_clean_capture_cut_anywhere_is_never_clean_from_a_part(run, tmp_path, form):
    """A cut between two records cannot be seen; then ten exchanges are still enough to say so."""
    content, path, seen = STORED[form], tmp_path / "cut", set()
    for size in range(0, len(content), 11):
        rewrite(path, content[:size])
        if result := diagnosed(run, path):
            seen.add(result["verdict"])
            assert result["verdict"] == "CLEAN" or result["quality"]["damage"] or result["summary"]["exchanges"] < 10
    assert "INVALID" in seen


@pytest.mark.parametrize("form", STORED)
def test_random_damage(run, tmp_path, form):
    rng, path = random.Random(form), tmp_path / "damaged"
    results = 0
    for _ in range(120):
        content = bytearray(STORED[form])
        for _ in range(rng.choice((1, 2, 8))):
            at = rng.randrange(len(content))
            piece = rng.randbytes(rng.choice((1, 2, 4)))
            content[at : at + rng.choice((0, len(piece)))] = piece
        rewrite(path, content)
        results += diagnosed(run, path) is not None
    assert results > 20  # most of the damage leaves something to be diagnosed


# ------------------------------------------------------------------------------------ memory and time


MEASURED = """
import pathlib, re
from nagle_lab.cli.main import main
try:
    main()
finally:  # of this process alone; what wait4 tells includes the process it was forked from
    peak = re.search(r"VmHWM:\\s*(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]
    pathlib.Path({!r}).write_text(peak)
"""


def measured(path: Path, seconds: int, *options: str) -> tuple[str, float]:
    """What `analyze` prints of a capture in a process of its own, and that process's peak memory in MB."""
    peak = path.parent / "peak"
    command = [sys.executable, "-c", MEASURED.format(str(peak)), "analyze", *options, str(path)]
    done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    assert done.stderr == b""
    return done.stdout.decode(), int(peak.read_text()) / 1024


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_bomb_takes_little_memory(tmp_path, compress):
    """200 MB of packets that hold nothing in a megabyte, behind a capture that stalls."""
    path, packets = tmp_path / "bomb", 2_300_000
    nothing = LATER + STALL[28:32] + struct.pack("<II", HEADERS, HEADERS) + bytes(HEADERS)
    path.write_bytes(compress(STALL + nothing * packets))
    assert path.stat().st_size < 1 << 20
    out, memory = measured(path, 60, "--json")
    result = json.loads(out)
    assert (result["verdict"], result["quality"]["damage"]) == ("STALL", [])
    assert result["source"]["packets"] == packets + result["source"]["tcp_packets"]
    assert memory < ENOUGH_MB


def test_a_bomb_of_blocks_that_say_nothing_takes_little_memory(tmp_path):
    """100 MB of a kind of block that is not known, in 0.1 MB."""
    path = tmp_path / "bomb"
    path.write_bytes(zstandard.compress(STORED["pcapng"] + pcapng_block(0x55, bytes(1 << 20)) * 100))
    assert path.stat().st_size < 1 << 18
    out, memory = measured(path, 60, "--json")
    result = json.loads(out)
    assert (result["verdict"], result["quality"]["damage"]) == ("STALL", [])
    assert memory < ENOUGH_MB


def test_a_bomb_in_one_record_is_refused(tmp_path):
    """A record that says it has 4 GB is damage, not an order for 4 GB."""
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(STALL + struct.pack("<IIII", 0, 0, 0xFFFF_FFF0, 0xFFFF_FFF0) + bytes(50 << 20)))
    out, memory = measured(path, 30, "--json")
    result = json.loads(out)
    assert result["verdict"] == "STALL" and result["quality"]["damage"]
    assert memory < ENOUGH_MB


def flood(connections: int) -> bytes:
    """SYNs, each from another address and port, as records of a pcap file."""
    first = pcap_bytes(talk(nodelay, 1).segments[:1])[24:]
    records = np.tile(np.frombuffer(LATER + first[4:], np.uint8), (connections, 1))
    number = np.arange(connections, dtype=">u4")
    records[:, 16 + 26 : 16 + 30] = (number + np.uint32(0x0B00_0000)).astype(">u4").view(np.uint8).reshape(-1, 4)
    records[:, 16 + 34 : 16 + 36] = (number % 60_000 + 1024).astype(">u2").view(np.uint8).reshape(-1, 2)
    return records.tobytes()


FLOOD_CONNECTIONS = 300_000
FLOOD_BYTES_EACH = 1024  # of memory per connection, at most


def test_a_syn_flood_takes_bounded_memory_per_connection(tmp_path):
    path = tmp_path / "flood.pcap"
    path.write_bytes(STALL + flood(FLOOD_CONNECTIONS))
    out, memory = measured(path, 60)
    assert "STALL" in out
    assert f" {FLOOD_CONNECTIONS + 1:,} (" in out
    assert memory < ENOUGH_MB + FLOOD_CONNECTIONS * FLOOD_BYTES_EACH / (1 << 20)


# ------------------------------------------------------------------------------------ where it comes from


def test_a_file_that_grows_while_it_is_read_is_marked(run, tmp_path, monkeypatch):
    path, real = tmp_path / "growing", Stored.readinto
    path.write_bytes(CLEAN)

    def readinto(self, view):
        with path.open("ab") as more:
            more.write(CLEAN[24:60] if path.stat().st_size == len(CLEAN) else b"")
        return real(self, view)

    monkeypatch.setattr(Stored, "readinto", readinto)
    result = diagnosed(run, path)
    assert result and result["verdict"] == "INVALID"
    assert any("grew" in damage for damage in result["quality"]["damage"])


def test_a_pipe_is_read_once_and_has_no_ladder(run, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for json_flag in (["--json"], []):
        writer = threading.Thread(target=pipe.write_bytes, args=(STALL,))
        writer.start()
        code, out, err = run("analyze", *json_flag, pipe)
        writer.join()
        assert (code, err) == (0, "")
        assert "STALL" in out and "A typical stall" not in out


def test_standard_input(tmp_path):
    """As in: tcpdump -w - | nagle-lab analyze -"""
    program = [sys.executable, "-c", "from nagle_lab.cli.main import main; main()", "analyze", "-"]
    for content, code in ((STALL, Exit.OK), (STALL[:-1], Exit.OK), (CLEAN[:-1], Exit.UNUSABLE), (b"", Exit.UNUSABLE)):
        done = subprocess.run(program, input=content, capture_output=True, check=False)
        assert done.returncode == code
        assert b"Traceback" not in done.stderr and done.stderr.count(b"\n") == (not content)


def test_rotated_files_are_one_capture_only_when_said_so(run, tmp_path):
    """The cut goes through the stall: neither part has it, both together do, and the ladder spans them."""
    at = sorted(record_ends(STALL))[11]
    one, two = tmp_path / "c.pcap0", tmp_path / "c.pcap1"
    one.write_bytes(STALL[:at])
    two.write_bytes(STALL[:24] + STALL[at:])
    _, out, _ = run("analyze", "--json", one, two)
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == ["INCONCLUSIVE", "INCONCLUSIVE"]
    code, as_one, err = run("analyze", "--json", "--rotated", one, two)
    result = json.loads(as_one)
    assert (code, err, result["verdict"]) == (0, "", "STALL")
    assert result["source"]["file"] == "c.pcap0 c.pcap1"
    (tmp_path / "whole").write_bytes(STALL)
    assert result["stalls"] == json.loads(run("analyze", "--json", tmp_path / "whole")[1])["stalls"]
    _, out, _ = run("analyze", "--rotated", one, two)
    assert "frames of c.pcap0 … c.pcap1" in out and "release" in out
    assert run("analyze", "--json", "--rotated", two, one)[1] == as_one, "a ring begins anywhere"


def test_an_unusable_file_among_several_costs_only_itself(run, tmp_path):
    (tmp_path / "good").write_bytes(STALL)
    (tmp_path / "bad").write_bytes(b"not a capture at all")
    code, out, err = run("analyze", "--json", tmp_path / "bad", tmp_path / "good")
    assert code == Exit.UNUSABLE
    assert json.loads(out)["verdict"] == "STALL"
    assert "bad: not a capture" in err and err.count("\n") == 1


@pytest.mark.parametrize("command", ["analyze", "show", "verify"])
def test_what_is_no_file_is_one_line(run, tmp_path, command):
    for path in (tmp_path, tmp_path / "missing", "", "/dev/null", "n" * 300):
        code, out, err = run(command, path)
        assert (code, out) == (Exit.UNUSABLE, "")
        assert err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize("locked", ["file", "folder"])
def test_what_one_may_not_read_is_one_line(run, tmp_path, locked):
    path = tmp_path / "folder" / "secret"
    path.parent.mkdir()
    path.write_bytes(STALL)
    (path if locked == "file" else path.parent).chmod(0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # root may read everything; nobody may not
        code, out, err = run("analyze", path)
    finally:
        os.seteuid(user)
        path.parent.chmod(0o755)
    assert (code, out) == (Exit.UNUSABLE, "")
    assert "permission denied" in err
    assert err.count("\n") == 1


# ------------------------------------------------------------------------------------ what reaches the terminal

NAMES = (
    "\x1b[31mred\x1b[0m",
    "new\nline",
    "\x9b31m",
    "\u202efdp.pcap",
    "[red]markup",
    ":boom:",
    os.fsdecode(b"\xff\xfe"),
)
COMMANDS = (["analyze"], ["analyze", "--expect", "clean"], ["show"], ["verify"])


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize(
    ("content", "codes"),
    [
        pytest.param(STALL, (Exit.OK, Exit.CONTRADICTED, Exit.OK, Exit.OK), id="stall"),
        pytest.param(CLEAN[:-1], (Exit.UNUSABLE, Exit.UNUSABLE, Exit.OK, Exit.OK), id="cut"),
        pytest.param(b"no capture", (Exit.UNUSABLE,) * len(COMMANDS), id="unusable"),
    ],
)
def test_a_hostile_file_name_reaches_neither_screen_nor_error_line(run, tmp_path, name, content, codes):
    path = tmp_path / name
    path.write_bytes(content)
    for command, expected in zip(COMMANDS, codes, strict=True):
        code, out, err = run(*command, path)
        assert code == expected
        assert (out + err).replace("\n", "").isprintable()
        assert err.count("\n") <= 1
        shown = name if name.isprintable() else name.encode("unicode_escape").decode()
        assert shown in (out + err).replace("│\n│ ", "")


def test_json_says_even_a_name_that_is_no_text(tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.pcap")
    path.write_bytes(STALL)
    assert json.loads(measured(path, 30, "--json")[0])["source"]["file"] == "\udcff.pcap"


def test_hostile_arguments_are_shown_escaped(run):
    for arguments in (
        ["analyze", "--\x1b[2J"],
        ["\x1b[2J"],
        ["show", "x", "--stall", "\x1b[2J"],
        ["run", "\x1b", "x"],
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (Exit.UNUSABLE, "")
        assert "\x1b" not in err and "x1b" in err and err.count("\n") == 1


def test_whoever_interrupts_does_not_wait_for_a_pipe_that_brings_nothing(tmp_path):
    """`… | nagle-lab analyze -`: Ctrl-C waits a while for the last packets, then says what those before it show."""
    records = pcap_bytes(talk(server_held, exchanges=400).segments)
    head, body = records[:24], records[24:]
    ended, begun = os.pipe()
    command = [sys.executable, "-c", "from nagle_lab.cli.main import main; main()", "analyze", "-"]
    process = subprocess.Popen(command, stdin=ended, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(ended)
    with os.fdopen(begun, "wb") as pipe:
        pipe.write(head + body * (6_000_000 // len(body)))  # more than one window, so that reading ahead has begun
        pipe.flush()
        assert within(20, lambda: not unread(pipe))
        process.send_signal(signal.SIGINT)
        shown, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (2, "")
    assert "INVALID   standard input" in shown and "time goes back" in shown, "the same packets again and again"


def test_no_room_for_temporary_files_is_one_line(run, tmp_path, monkeypatch):
    """What an analysis puts aside may not fit on the disk: said in one line, and nothing is called clean."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(tables, "IN_MEMORY", 1_000)
    path = tmp_path / "stall.pcap"
    path.write_bytes(pcap_bytes(talk(server_held, 100).segments))
    code, out, err = run("analyze", path)
    assert (code, out, err.count("\n")) == (Exit.UNUSABLE, "", 1)
    assert err.startswith("nagle-lab: no room for temporary files in ")
