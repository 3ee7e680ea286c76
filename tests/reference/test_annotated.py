"""nagle-lab annotate, read back with tshark: comments on the right frames, every packet as it was."""

import gzip
import json
import re
import struct
import subprocess
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from support.repository import REPOSITORY, STALLED
from support.stories import client_held, nodelay, server_held, talk, three_writes
from support.synthetic import (
    ETHERNET,
    NULL,
    RAW,
    SECOND,
    SLL,
    SLL2,
    Frame,
    Interface,
    merge,
    packet_bytes,
    pcap_bytes,
    pcapng_block,
    pcapng_bytes,
)

pytestmark = [pytest.mark.usefixtures("tshark"), pytest.mark.long]
TALK = talk(server_held, 6).segments
OTHER = talk(client_held, 6, client=("fd00::1", 5), server=("fd00::2", 80)).segments
BOTH = merge(TALK, [replace(segment, interface=1) for segment in OTHER])
SINCE_1970 = ("frame.number", "frame.time_epoch", "frame.len", "frame.cap_len", "frame.encap_type", "frame.protocols")


def fields(path: Path, *names: str, **options: str) -> list[list[str]]:
    command = ["tshark", "-r", str(path), "-T", "fields", "-E", "separator=\x1f", "-E", "aggregator=\x1e"]
    command += [part for name in names for part in ("-e", name)]
    command += ["-Y", options["where"]] if "where" in options else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("\x1f") for line in done.stdout.rstrip("\n").split("\n")]


class Seen(NamedTuple):
    """What tshark shows of a capture."""

    packets: list[tuple[list[str | None], str]]  # of each packet SINCE_1970, and its bytes in hexadecimal
    comments: dict[int, list[str]]  # by frame, where there are any


_SEEN: dict[bytes, Seen] = {}  # by a capture's bytes: a start of tshark takes longer than the rest of most tests here


def seen(path: Path) -> Seen:
    content = path.read_bytes()
    if content not in _SEEN:
        _SEEN[content] = _seen(path)
    return _SEEN[content]


def _seen(path: Path) -> Seen:
    command = ["tshark", "-r", str(path), "-T", "json", "-x", "-j", "frame pkt_comment", "--no-duplicate-keys"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    layers = [packet["_source"]["layers"] for packet in json.loads(done.stdout)]
    packets = [([of["frame"].get(name) for name in SINCE_1970], of["frame_raw"][0]) for of in layers]
    comments = {}
    for of in layers:
        if found := of.get("pkt_comment"):
            texts = found["frame.comment"]  # a list where there is more than one
            comments[int(of["frame"]["frame.number"])] = [texts] if isinstance(texts, str) else texts
    return Seen(packets, comments)


def wanted(stalls: list[dict]) -> dict[int, set[str]]:
    """The stall and role that must be told, by frame."""
    found = defaultdict(set)
    for number, stall in enumerate(stalls, 1):
        for role, key in (("trigger", "trigger_frame"), ("late ACK", "ack_frame"), ("release", "release_frame")):
            found[stall[key]].add(f"nagle-lab stall {number} of {len(stalls)}, {role}: ")
    return found


def ours(texts: list[str]) -> set[str]:
    return {text[: text.index(": ") + 2] for text in texts if text.startswith("nagle-lab stall")}


def check(run, tmp_path, *files, compare_with: Path | None = None) -> Path:
    """Annotate, and hold every packet and comment against the capture and its result."""
    out = tmp_path / "out.pcapng"
    rotated = ["--rotated"] if len(files) > 1 else []
    code, said, err = run("annotate", *files, *rotated, "-o", out)
    assert (code, said) == (0, "") and err.count("\n") == 1
    result = json.loads(run("analyze", "--json", *files, *rotated)[1])
    assert seen(out).packets == seen(compare_with or files[0]).packets
    told = seen(out).comments
    assert {frame: ours(texts) for frame, texts in told.items() if ours(texts)} == wanted(result["stalls"])
    verdict = f"nagle-lab verdict: {result['verdict']}: {result['reason']}"
    assert told[min(told)][0].startswith(verdict)
    capinfos = subprocess.run(["capinfos", "-k", str(out)], capture_output=True, text=True, check=True)
    assert verdict in capinfos.stdout
    again = json.loads(run("analyze", "--json", out)[1])
    assert (again["verdict"], again["stalls"]) == (result["verdict"], result["stalls"])
    return out


FORMS = {
    "pcap, ns": lambda: pcap_bytes(TALK),
    "pcap, µs": lambda: pcap_bytes(TALK, nanosecond=False),
    "pcap, big-endian": lambda: pcap_bytes(TALK, byte_order=">"),
    "pcap, big-endian loopback": lambda: pcap_bytes(TALK, NULL, byte_order=">"),
    "pcap, modified": lambda: pcap_bytes(TALK, modified=True),
    "pcap, cooked": lambda: pcap_bytes(TALK, SLL),
    "pcap, cooked v2": lambda: pcap_bytes(OTHER, SLL2),
    "pcap, raw IP, odd lengths": lambda: pcap_bytes(TALK, RAW, snaplen=61),
    "pcapng": lambda: pcapng_bytes(TALK),
    "pcapng, big-endian": lambda: pcapng_bytes(TALK, byte_order=">"),
    "pcapng, two interfaces": lambda: pcapng_bytes(
        BOTH, interfaces=[Interface(ETHERNET, 6), Interface(RAW, 9, offset_s=3600)]
    ),
    "pcapng, two sections": lambda: pcapng_bytes(TALK[:20]) + pcapng_bytes(TALK[20:], RAW, byte_order=">"),
    "pcapng, obsolete blocks": lambda: pcapng_bytes(TALK, block="OPB"),
    "no stall": lambda: pcap_bytes(talk(nodelay).segments),
    "frames that play two parts": lambda: pcap_bytes(talk(three_writes).segments),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_packet_as_it_was_and_comments_where_they_belong(run, tmp_path, form):
    path = tmp_path / "in.cap"
    path.write_bytes(FORMS[form]())
    check(run, tmp_path, path)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_compressed_input(run, tmp_path, compress):
    for name, content in (("a.pcap", pcap_bytes(TALK)), ("b.pcapng", pcapng_bytes(TALK))):
        (tmp_path / name).write_bytes(content)
        (tmp_path / f"{name}.packed").write_bytes(compress(content))
        check(run, tmp_path, tmp_path / f"{name}.packed", compare_with=tmp_path / name).unlink()


def test_rotated_files_become_sections_of_one(run, tmp_path):
    whole, one, two, three = (tmp_path / name for name in ("whole.pcap", "1.pcap", "2.pcapng", "3.pcap.gz"))
    whole.write_bytes(pcap_bytes(TALK))
    one.write_bytes(pcap_bytes(TALK[:9]))
    two.write_bytes(pcapng_bytes(TALK[9:20]))
    three.write_bytes(gzip.compress(pcap_bytes(TALK[20:])))
    check(run, tmp_path, one, two, three, compare_with=whole)


def test_real_captures(run, tmp_path):
    check(run, tmp_path, STALLED).unlink()
    code, _, _ = run("annotate", STALLED.parent, "-o", tmp_path / "run.pcapng")
    assert code == 0
    assert seen(tmp_path / "run.pcapng").packets == seen(STALLED).packets


def test_the_page_shows_what_tshark_prints(run, tmp_path):
    page = (REPOSITORY / "docs" / "views.md").read_text()
    where = re.search(r"tshark -r proof.pcapng -Y '(.+?)'", page)
    assert where
    run("annotate", STALLED, "-o", tmp_path / "proof.pcapng")
    rows = fields(tmp_path / "proof.pcapng", "frame.number", "frame.comment", where=where[1])
    assert len(rows) == 3
    assert "".join(f"{number}  {comment}\n" for number, comment in rows) in page


def commented(number: int, text: str) -> bytes:
    """The talk as pcapng with a comment on one packet, a comment on the section, a name and an unknown block."""
    content = pcapng_bytes(TALK)
    at, frame = 0, 0
    while True:
        kind, length = struct.unpack_from("<II", content, at)
        frame += kind == 6
        if frame == number:
            break
        at += length
    option = struct.pack("<HH", 1, len(text)) + text.encode() + bytes(-len(text) % 4) + bytes(4)
    block = pcapng_block(6, content[at + 8 : at + length - 4] + option)
    section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, len(content) - 28) + option
    names = pcapng_block(4, struct.pack("<HH4s8s", 1, 12, bytes((10, 0, 0, 1)), b"held.ex\0") + bytes(4))
    custom = pcapng_block(0x0BADBEEF, b"whatever this is")
    return pcapng_block(0x0A0D0D0A, section) + content[28:at] + block + names + custom + content[at + length :]


@pytest.mark.parametrize("number", [1, 9, 12])
def test_what_a_pcapng_says_besides_packets_is_kept(run, tmp_path, number):
    path = tmp_path / "in.pcapng"
    path.write_bytes(commented(number, "seen by hand"))
    out = check(run, tmp_path, path)
    assert "seen by hand" in seen(out).comments[number]
    for kept in (b"held.ex\0", b"whatever this is"):
        assert kept in out.read_bytes()
    stated = subprocess.run(["capinfos", "-k", str(out)], capture_output=True, text=True, check=True).stdout
    assert "seen by hand" in stated


def test_frames_without_a_time_are_counted_but_not_commented(run, tmp_path):
    path, out = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    simple = pcapng_bytes([Frame(0, packet_bytes(TALK[0]))], block="SPB")
    path.write_bytes(simple + pcapng_bytes(TALK))
    assert run("annotate", path, "-o", out)[0] == 0
    told = seen(out).comments
    assert min(told) == 2
    stalls = json.loads(run("analyze", "--json", path)[1])["stalls"]
    assert {frame: ours(texts) for frame, texts in told.items() if ours(texts)} == wanted(stalls)


def test_a_cut_capture_is_annotated_as_far_as_it_goes(run, tmp_path):
    for name, content in (("a.pcap", pcap_bytes(TALK)), ("b.pcapng", pcapng_bytes(TALK))):
        path, out = tmp_path / name, tmp_path / f"{name}.out"
        path.write_bytes(content[:-10])
        code, _, err = run("annotate", path, "-o", out)
        assert code == 0 and "ends in the middle" in err
        assert len(seen(out).packets) == len(TALK) - 1


def selected(path: Path, where: str) -> list[int]:
    return [int(number) for (number,) in fields(path, "frame.number", where=where)]


def test_both_filters_select_the_frames_of_the_stalls(run, tmp_path):
    out = tmp_path / "out.pcapng"
    by_number = run("annotate", STALLED, "--filter")[1].strip()
    by_comment = run("annotate", STALLED, "-o", out, "--filter")[1].strip()
    stalls = json.loads(run("analyze", "--json", STALLED)[1])["stalls"]
    frames = sorted(wanted(stalls))
    assert selected(STALLED, by_number) == selected(out, by_comment) == frames
    third = [stalls[2][key] for key in ("trigger_frame", "ack_frame", "release_frame")]
    assert selected(out, 'frame.comment contains "stall 3 of "') == third


def test_the_filter_of_thousands_of_stalls_is_one_that_tshark_takes(run, tmp_path):
    path, out = tmp_path / "many.pcap", tmp_path / "out.pcapng"
    talks = [
        talk(server_held, 201, client=("10.0.0.1", 1000 + n), t0_ns=1_700_000_000 * SECOND + n * 700_123)
        for n in range(27)
    ]
    path.write_bytes(pcap_bytes(merge(*(each.segments for each in talks))))
    code, text, err = run("annotate", path, "--filter")
    assert code == 0 and len(text) < 131_072
    assert "of 5,400 stalls" in err and 'frame.comment contains "nagle-lab stall"' in err
    stalls = json.loads(run("analyze", "--json", path)[1])["stalls"]
    told = int(err.split("the first ")[1].split(" ")[0].replace(",", ""))
    assert 2000 < told < 5400
    assert selected(path, text.strip()) == sorted(wanted(stalls[:told]))
    _, short, _ = run("annotate", path, "-o", out, "--filter")
    assert selected(out, short.strip()) == sorted(wanted(stalls))
