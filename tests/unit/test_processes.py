"""Processes at the ends of connections, by comments on packets as ptcpdump writes them."""

import json
import struct
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.result import EndProcess
from nagle_lab.evidence.process_comments import processes_of
from support.command import in_process
from support.schemas import check
from support.stories import server_held, talk
from support.synthetic import ETHERNET, Segment, packet_bytes, pcap_bytes, pcapng_block

# What ptcpdump says of a process, and in a comment of its own of its parent.
SERVER = (
    "PID: 4711\nCmd: /usr/bin/python3.11\nArgs: python3 server.py --port 80",
    "ParentPID: 1\nParentCmd: /sbin/init\nParentArgs: init",
)
CLIENT = ("PID: 4712\nCmd: /usr/bin/curl\nArgs: curl http://10.0.0.2/",)
INBOUND, OUTBOUND = 1, 2

Said = Callable[[Segment], tuple[Sequence[str], int]]


def commented(path: Path, said: Said, *, name: str = "eth0", order: str = "<") -> Path:
    """A capture that stalls, with comments and a direction on each packet."""

    def option(code: int, value: bytes) -> bytes:
        return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)

    section = struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)
    described = option(2, name.encode()) + option(9, b"\x09") + bytes(4)
    interface = struct.pack(order + "HHI", ETHERNET, 0, 2000) + described
    parts = [pcapng_block(0x0A0D0D0A, section, order), pcapng_block(1, interface, order)]
    for segment in talk(server_held, 12).segments:
        data = packet_bytes(segment, ETHERNET)
        head = struct.pack(order + "IIIII", 0, segment.ts_ns >> 32, segment.ts_ns & 0xFFFFFFFF, len(data), len(data))
        comments, way = said(segment)
        options = b"".join(option(1, text.encode()) for text in comments)
        options += option(2, struct.pack(order + "I", way)) + bytes(4)
        parts.append(pcapng_block(6, head + data + bytes(-len(data) % 4) + options, order))
    path.write_bytes(b"".join(parts))
    return path


def of_source(segment: Segment) -> tuple[Sequence[str], int]:
    """Both processes known: each packet names its sender's."""
    return (SERVER, OUTBOUND) if segment.sport == 80 else (CLIENT, INBOUND)


def only(comments: Sequence[str], from_server: int, from_client: int) -> Said:
    """One process known: all packets name it."""
    return lambda segment: (comments, from_server if segment.sport == 80 else from_client)


def found(path: Path) -> list[EndProcess]:
    return processes_of([path], analyze(path))


AT_SERVER = EndProcess("server", "10.0.0.2", 80, 4711, "/usr/bin/python3.11", "python3 server.py --port 80", 1)
AT_CLIENT = EndProcess("client", "10.0.0.1", None, 4712, "/usr/bin/curl", "curl http://10.0.0.2/", 1)


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_process_at_each_end(tmp_path, order):
    assert found(commented(tmp_path / "a.pcapng", of_source, name="lo", order=order)) == [AT_CLIENT, AT_SERVER]


def test_one_process_is_at_the_end_that_sends_outbound(tmp_path):
    assert found(commented(tmp_path / "a.pcapng", only(SERVER, OUTBOUND, INBOUND))) == [AT_SERVER]
    assert found(commented(tmp_path / "b.pcapng", only(CLIENT, INBOUND, OUTBOUND))) == [AT_CLIENT]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (only(SERVER, INBOUND, OUTBOUND), "veth18618a4a"),
        (only(SERVER, OUTBOUND, INBOUND), "docker0"),
        (only(SERVER, 0, 0), "eth0"),
        (lambda segment: (SERVER, 1 + segment.ts_ns % 2), "lo"),
    ],
    ids=["veth", "docker0", "no direction", "loopback"],
)
def test_where_the_end_cannot_be_told_it_is_not(tmp_path, said, name):
    (one,) = found(commented(tmp_path / "a.pcapng", said, name=name))
    assert (one.role, one.ip, one.port, one.pid) == (None, "10.0.0.2", 80, 4711)
    assert str(one).startswith("one end of connections to 10.0.0.2:80: PID 4711, /usr/bin/python3.11: python3 server")


@pytest.mark.parametrize(
    "comments",
    [
        (), ("a comment of nagle-lab's",), ("PID: x\nCmd: y",), ("PID: 0\nCmd: y",), ("PID: -4",), ("PID",),
        ("PID: " + "9" * 4000,), ("ParentPID: 4711\nParentCmd: sh",), ("Cmd: /bin/sh",), ("\0\n\n:\n::",),
    ],
)  # fmt: skip
def test_other_comments_name_no_process(tmp_path, comments):
    assert found(commented(tmp_path / "a.pcapng", only(comments, OUTBOUND, INBOUND))) == []


def test_a_few_other_packets_change_nothing(tmp_path):
    """As when a port was reused: most packets count."""

    def said(segment: Segment) -> tuple[Sequence[str], int]:
        comments, way = of_source(segment)
        return (("PID: 9\nCmd: /bin/other\nArgs: other",) if "S" in segment.flags else comments), way

    assert found(commented(tmp_path / "a.pcapng", said)) == [AT_CLIENT, AT_SERVER]


def test_what_has_no_comments_has_no_processes(tmp_path):
    path = tmp_path / "plain.pcap"
    path.write_bytes(pcap_bytes(talk(server_held, 12).segments))
    assert found(path) == []
    assert "processes" not in json.loads(analyze(path).to_json())


def test_on_the_screen_in_json_and_in_files(tmp_path):
    evil = ("PID: 4711\nCmd: /bin/\x1b[31m<b>\nArgs: <script>alert(1)</script> | x",)
    path = commented(tmp_path / "a.pcapng", lambda one: (evil, OUTBOUND) if one.sport == 80 else (CLIENT, INBOUND))

    def run(*options: str) -> str:
        with chdir(tmp_path):
            done = in_process("analyze", "a.pcapng", *options)
        assert (done.code, done.err) == (0, "")
        return done.out

    screen = " ".join(run("--html=a.html", "--markdown=a.md").split())
    assert "process the client (10.0.0.1): PID 4712, /usr/bin/curl: curl http://10.0.0.2/" in screen
    assert "the server (10.0.0.2:80): PID 4711, /bin/\\x1b[31m<b>: <script>" in screen and "\x1b" not in screen
    content = json.loads(run("--json"))
    check("result", content)
    assert content["processes"][1] == {
        "role": "server", "ip": "10.0.0.2", "port": 80, "pid": 4711, "command": "/bin/\x1b[31m<b>",
        "arguments": "<script>alert(1)</script> | x", "connections": 1,
    }  # fmt: skip
    page, markdown = (tmp_path / "a.html").read_text(), (tmp_path / "a.md").read_text()
    assert "PID 4711" in page and "<script>alert" not in page and "\x1b" not in page
    assert "PID 4712" in markdown and "<script>" not in markdown
    assert path.exists()
