"""Wireshark's view of a capture, through tshark: full detail of some frames, and its rows to compare ours with.

Nothing here is needed to reach a verdict. tshark runs as a program, with default settings whatever the user's are.
"""

import io
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from heapq import merge
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Self

from nagle_lab.capture.capture import Capture, open_capture
from nagle_lab.capture.take import records
from nagle_lab.errors import NagleLabError
from nagle_lab.packet.headers import Packet
from nagle_lab.packet.kinds import kind_name
from nagle_lab.packet.segment import Segment, address_text, decode, peel

MISSING = "tshark is not installed: as root on Debian or Ubuntu: apt-get install tshark"

# TCP, but not the header that an ICMP error quotes; and IPv6 without a length, which tshark does not decode.
FILTER = "(tcp && !icmp && !icmpv6) || ipv6.plen == 0"
# Each packet by itself: no reassembly of fragments or segments, no state.
PREFERENCES = {
    "ip.defragment": "FALSE",
    "ipv6.defragment": "FALSE",
    "tcp.analyze_sequence_numbers": "FALSE",
    "tcp.desegment_tcp_streams": "FALSE",
}
FIELDS = (
    "frame.number", "frame.time_epoch", "frame.protocols", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst",
    "tcp.srcport", "tcp.dstport", "tcp.seq_raw", "tcp.ack_raw", "tcp.flags", "tcp.window_size_value", "tcp.len",
    "tcp.options.mss_val", "tcp.options.wscale.shift", "tcp.options.timestamp.tsval", "tcp.options.timestamp.tsecr",
)  # fmt: skip

OPTIONS = ("mss", "wscale", "tsval", "tsecr")
ROW_ARGUMENTS = (
    "-d", "udp.port==8472,vxlan",  # Linux's own port, which Wireshark does not know
    "-Y", FILTER, "-T", "fields", "-E", "occurrence=l", *(a for name in FIELDS for a in ("-e", name)),
)  # fmt: skip
NOISE = re.compile(
    r"^ *(?:[01. ]{9,}= |Frame \d|Kind: |Length: |Protocol: |Header Checksum|Checksum: |TCP Option - No-Op"
    r"|\[?(?:Source|Destination) (?:Port|Address|Host)|Urgent Pointer: 0$|Timestamp (?:value|echo reply): "
    r"|\[(?:TCP Flags|Stream index|TCP Segment Len|Header checksum|Checksum Status|Next Sequence|Conversation compl"
    r"|Window size scaling|Time since first frame|Bytes sent since))"
)


_FRAME = attrgetter("frame")


class SegmentRow(NamedTuple):
    """One TCP segment. None: an option is absent, or tshark gives no value because it cannot read further."""

    frame: int
    ts_ns: int
    src: str
    dst: str
    sport: int | None
    dport: int | None
    seq: int | None
    ack: int | None
    flags: int | None
    window: int | None
    length: int | None
    mss: int | None
    wscale: int | None
    tsval: int | None
    tsecr: int | None


def segment_row(s: Segment) -> SegmentRow:
    """A segment of ours as the row that tshark should have for it."""
    wscale = s.wscale if s.wscale >= 0 else None
    timestamps = (s.tsval, s.tsecr) if s.timestamps else (None, None)
    return SegmentRow(
        s.frame, s.ts, address_text(s.src), address_text(s.dst), s.sport, s.dport, s.seq, s.ack, s.flags, s.window,
        s.length, s.mss or None, wscale, *timestamps,
    )  # fmt: skip


class OurFrame(NamedTuple):
    """One frame as we decode it, and reasons for which tshark may decode it differently."""

    frame: int
    row: SegmentRow | None
    left_out: str = ""  # without a row: what the packet is
    cut: bool = False  # fewer bytes captured than were on the wire
    beyond: bool = False  # its IP header says that it is longer than the frame was on the wire


def our_frames(capture: Capture) -> Iterator[OurFrame]:
    """Every frame of an open capture, in file order."""
    for record in records(capture):
        packet = Packet(record.buffer, record.at, record.captured, record.original, record.link_type)
        peel(packet)
        segment = decode(*record)
        if isinstance(segment, int):
            yield OurFrame(record.frame, None, kind_name(segment))
        else:
            is_cut = packet.captured_end < packet.wire_end
            yield OurFrame(segment.frame, segment_row(segment), "", is_cut, packet.end > packet.wire_end)


class Tshark:
    """A run of tshark over one file: a context manager that iterates over its lines; `complaint` is its error.

    Raises NagleLabError if tshark is not installed.
    """

    def __init__(self, path: Path, arguments: Sequence[str], preferences: dict[str, str]) -> None:
        program = shutil.which("tshark")
        if program is None:
            raise NagleLabError(MISSING)
        self.complaint = ""
        self._folder = tempfile.TemporaryDirectory()  # an empty configuration, and its stderr
        self._stderr = Path(self._folder.name) / "stderr"
        options = [part for name, value in preferences.items() for part in ("-o", f"{name}:{value}")]
        environment = {**os.environ, "WIRESHARK_CONFIG_DIR": self._folder.name, "LC_ALL": "C.UTF-8"}
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [program, "-n", "-r", str(path.absolute()), *options, *arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, env=environment,
            )  # fmt: skip
        assert self._process.stdout
        # Only a newline ends a line: carriage returns come from the capture.
        self._lines = io.TextIOWrapper(
            self._process.stdout, encoding="utf-8", errors="backslashreplace", newline="\n"
        )

    def __enter__(self) -> Self:
        return self

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            yield line.removesuffix("\n")
        if self._process.wait():
            written = self._stderr.read_text(errors="replace").splitlines()
            errors = [line for line in written if line.startswith("tshark:")]
            self.complaint = errors[-1] if errors else f"tshark: ended with code {self._process.returncode}"

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._lines.close()
        self._process.wait()
        self._folder.cleanup()


def version() -> str:
    """Such as "TShark (Wireshark) 4.0.17"."""
    done = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0].split(" (Git")[0].rstrip(".") or "tshark"


def tshark_rows(lines: Iterable[str]) -> Iterator[SegmentRow]:
    """The TCP segments, innermost headers, from the lines of tshark with :data:`ROW_ARGUMENTS`."""
    for line in lines:
        yield row_from(dict(zip(FIELDS, line.split("\t"), strict=True)))


def row_from(fields: dict[str, str]) -> SegmentRow:
    """A row from the texts of Wireshark's fields; absent or empty: None."""

    def number(name: str) -> int | None:
        return int(fields[name], 0) if fields.get(name) else None

    layers = fields["frame.protocols"].split(":")
    before = layers[: layers.index("tcp")] if "tcp" in layers else layers
    ip = next((layer for layer in reversed(before) if layer in ("ip", "ipv6")), "ip")
    values = [number(name) for name in FIELDS[7:]]
    ts_ns = int(Decimal(fields["frame.time_epoch"]) * 1_000_000_000)
    return SegmentRow(int(fields["frame.number"]), ts_ns, fields[f"{ip}.src"], fields[f"{ip}.dst"], *values)


def detail(path: Path, frames: Sequence[int]) -> list[tuple[int, list[str]]]:
    """What Wireshark says of some frames of a capture file: (frame, lines indented as a tree).

    Lines that repeat another line (single bits, kinds and lengths of options, ports) are left out, and so are
    checksums, which offload leaves to the card. Raises NagleLabError if tshark is missing, or cannot read the file.
    """
    chosen = " || ".join(f"frame.number == {frame}" for frame in frames)
    separator = secrets.token_hex(16)  # which no capture can contain
    arguments = ("-c", str(max(frames)), "-Y", chosen, "-O", "ip,ipv6,tcp", "-V", "-S", separator)
    with Tshark(path, arguments, {"tcp.track_bytes_in_flight": "TRUE"}) as lines:
        packets: list[list[str]] = [[]]
        for line in lines:
            if line == separator:
                packets.append([])
            else:
                packets[-1].append(line)
    if not any(packets):
        raise NagleLabError(lines.complaint or "tshark does not find these frames")
    # The name of an interface, in "Frame 1: … on interface NAME, id 0", may hold newlines.
    if any(sum(bool(re.search(r"^Frame \d+: |, id \d+$", line)) for line in packet) > 1 for packet in packets):
        raise NagleLabError("a name in this capture has lines that imitate it")
    shown = [[line for line in packet if line and not NOISE.search(line)] for packet in packets]
    return list(zip(frames, shown, strict=False))


@dataclass
class RowComparison:
    """How our rows and Wireshark's compare."""

    compared: int = 0  # frames that are a TCP segment for both
    differing: int = 0  # frames that differ
    columns: Counter[str] = field(default_factory=Counter)  # differences by column, and rows that only one side has
    explained: Counter[str] = field(default_factory=Counter)  # differences by definition, by reason
    first: list[str] = field(default_factory=list)  # the first differences, in words
    notes: list[str] = field(default_factory=list)  # what either reader says about the file
    tshark: str = ""  # its version

    @property
    def equal(self) -> bool:
        """Whether there are no differences except those by definition."""
        return not self.differing


def verify(path: Path) -> RowComparison:
    """Compare our segments of a capture file with tshark's, frame by frame, in bounded memory.

    Raises NagleLabError if the file is unusable, cannot be read twice, or tshark is missing or cannot read it.
    """
    if str(path) == "-" or path.is_fifo():
        raise NagleLabError(f"{path}: is read twice, by us and by tshark: save it to a file first")
    with open_capture(path) as capture, Tshark(path, ROW_ARGUMENTS, PREFERENCES) as lines:
        comparison = compare_rows(our_frames(capture), tshark_rows(lines))
        comparison.tshark = version()
        comparison.notes = [*map(str, capture.trouble), *filter(None, [lines.complaint])]
        if lines.complaint and not capture.trouble:
            raise NagleLabError(f"{path}: cannot be compared: {lines.complaint}")
    return comparison


def compare_rows(ours: Iterable[OurFrame], theirs: Iterable[SegmentRow], most: int = 10) -> RowComparison:
    """Compare two tables that are in order of frames."""
    comparison, last = RowComparison(), 0
    rows: Iterator[OurFrame | SegmentRow] = merge(ours, theirs, key=_FRAME)
    for frame, of_frame in groupby(rows, key=_FRAME):
        both = list(of_frame)
        our = next((row for row in both if isinstance(row, OurFrame)), None)
        their = next((row for row in both if isinstance(row, SegmentRow)), None)
        if frame <= last or len(both) != (our is not None) + (their is not None):
            raise NagleLabError(f"frame {frame} comes after frame {last}: a table is not in order of frames")
        last = frame
        faults = list(_faults(our, their, comparison.explained))
        comparison.compared += bool(our and our.row and their)
        comparison.differing += bool(faults)
        comparison.columns.update(column for column, _ in faults)
        comparison.first += [f"frame {frame}: {text}" for _, text in faults[: most - len(comparison.first)]]
    return comparison


def _faults(our: OurFrame | None, their: SegmentRow | None, explained: Counter[str]) -> Iterator[tuple[str, str]]:
    """The faults in one frame: (column, in words); differences by definition are counted in `explained` instead."""
    if their and their.sport is None:
        their = None
        if our and our.row:
            explained["IPv6 that tells no length (segmentation offload): tshark does not look into it"] += 1
            return
    if not (our and our.row):
        if their and our and our.left_out.startswith("TCP "):
            explained[f"{our.left_out}: tshark shows what there is of it, ours leaves it out"] += 1
        elif their:
            yield "only in tshark's", "only in tshark's" + (f" (ours: {our.left_out})" if our else "")
        return
    if not their:
        yield "only in ours", "only in ours"
        return
    for name, mine, other in zip(SegmentRow._fields, our.row, their, strict=True):
        if mine == other:
            continue
        if why := _definition(name, our, mine, other):
            explained[why] += 1
        else:
            yield name, f"{name} is {mine} in ours, {other} in tshark's"


def _definition(column: str, our: OurFrame, mine: object, other: object) -> str:
    """The reason for a difference by definition; empty if it is a fault."""
    if column == "length":
        if other is None:
            return "length of a fragment: tshark gives none, ours is to the end of this fragment"
        if our.beyond:
            return "length, where the IP header tells more bytes than the frame had: ours believes the header"
    if column in OPTIONS and mine is None and our.cut:
        return f"{column} in options cut by the snaplen: tshark shows half of them, ours only whole ones"
    return ""
