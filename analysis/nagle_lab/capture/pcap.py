"""The pcap format: a file header, then records of a small header and a packet.

Source: draft-ietf-opsawg-pcap; the "modified" variant (longer record headers) from libpcap's sf-pcap.c.
"""

from collections.abc import Iterator
from struct import Struct, unpack_from

from nagle_lab.capture.records import Facts, Interface, PcapFraming, Position, RecordTaker, StoppedError, TroubleKind
from nagle_lab.capture.window import Window
from nagle_lab.errors import NagleLabError

MICROSECOND, NANOSECOND, MODIFIED = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34
MAGICS = {
    magic.to_bytes(4, "little" if order == "<" else "big"): (order, magic)
    for magic in (MICROSECOND, NANOSECOND, MODIFIED)
    for order in ("<", ">")
}
FILE_HEADER = 24
OTHER_LINE_ENDS = "line ends were changed on the way: use ssh without -t, copy it as binary"
LONGEST_PACKET = 1 << 20  # captured bytes; libpcap's MAXIMUM_SNAPLEN is 262,144
_FOLLOWED_BYTES, _FOLLOWED_RECORDS, _SKIPPED_BYTES = 1 << 16, 5, 64  # to tell a file whose line ends were changed


class PcapReader:
    """Reads one pcap file through a window; raises NagleLabError for a header that cannot be used."""

    def __init__(self, window: Window, facts: Facts, name: str) -> None:
        if window.end < FILE_HEADER:
            raise NagleLabError(f"{name}: ends within the file header: nothing to analyse, record it again")
        order, magic = MAGICS[bytes(window.raw[:4])]
        major, minor, _, _, _, link_type = unpack_from(order + "HHiIII", window.raw, 4)
        if (major, minor) != (2, 4):
            raise NagleLabError(f"{name}: pcap version {major}.{minor} is not 2.4: convert it with editcap")
        link_type &= 0xFFFF  # the other bits describe a frame check sequence
        interface = Interface(0, 0, link_type, resolution=9 if magic == NANOSECOND else 6)
        self._window, self._at = window, FILE_HEADER
        self.reached: int | None = None  # the byte where reading ended before the file did
        self._framing = PcapFraming(order, 24 if magic == MODIFIED else 16, interface)
        facts.link_types[link_type] = None

    section = None  # the position is enough

    def go_to(self, position: Position) -> None:
        """Begin at a position that another reader of the same file has reached; call it before :meth:`read`."""
        self._window.go_to(position.at)
        self._at = 0

    def read(self, taker: RecordTaker, until: int | None = None) -> Iterator[None]:
        """Have ``taker`` take all records; yields after each window.

        With ``until``, ends after the first window that reaches that byte of the file; ``reached`` is then the
        position. Raises StoppedError where the file is cut or damaged.
        """
        window, at = self._window, self._at
        while True:
            at = taker.pcap(window, at, self._framing)
            yield
            if is_impossible(window, at, self._framing):
                raise self._damage(at)
            if window.at_end:
                break
            if until is not None and window.base + at >= until:
                self.reached = window.base + at
                return
            window.slide(at)
            at = 0
        if at < window.end:
            if has_other_line_ends(window, at, self._framing):
                raise self._damage(at)
            what = "the file ends in the middle of the record"
            raise StoppedError(TroubleKind.TRUNCATED, window.base + at, what)

    def _damage(self, at: int) -> StoppedError:
        start = bytes(self._window.raw[at : at + 16])
        if start[:4] in MAGICS:
            what = "another capture file begins (give joined files one by one, rotated ones with --rotated)"
        elif not any(start):
            what = "there are zeros instead of a record"
        elif has_other_line_ends(self._window, at, self._framing):
            what = f"records are out of place ({OTHER_LINE_ENDS})"
        else:
            what = "there is something else than a record"
        return StoppedError(TroubleKind.DAMAGED, self._window.base + at, what)


def heads(window: Window, at: int, framing: PcapFraming) -> Iterator[tuple[int, int, int, int, int]]:
    """Each complete record in the window from ``at`` on, up to bytes that cannot be a record.

    Yields where its packet begins in the window; its time, as seconds and a fraction in the file's unit; how many of
    its bytes were captured; and how many it had on the wire.
    """
    head_at = Struct(framing.order + "IIII").unpack_from
    header, end, raw = framing.header, window.end, window.raw
    while at + header <= end:
        seconds, fraction, captured, original = head_at(raw, at)
        at += header
        if at + captured > end or captured > LONGEST_PACKET or captured == original == 0:
            return
        yield at, seconds, fraction, captured, original
        at += captured


def is_impossible(window: Window, at: int, framing: PcapFraming) -> bool:
    """Whether the bytes at ``at`` in the window cannot be a record; False if there are too few bytes to decide."""
    if at + 12 > window.end:
        return False
    (captured,) = unpack_from(framing.order + "I", window.raw, at + 8)
    if captured or at + framing.header > window.end:
        return bool(captured > LONGEST_PACKET)
    return not any(window.raw[at + 12 : at + 16])  # there is no packet without bytes


def has_other_line_ends(window: Window, at: int, framing: PcapFraming) -> bool:
    """Whether records follow the bytes at ``at`` once each CR LF is LF again, and do not as these bytes are."""
    followed = bytes(window.raw[at : min(window.end, at + _FOLLOWED_BYTES)])
    return _has_records(followed.replace(b"\r\n", b"\n"), framing) and not _has_records(followed, framing)


def _has_records(raw: bytes, framing: PcapFraming) -> bool:
    """Whether several records in a row begin at one of the first bytes."""
    head_at = Struct(framing.order + "IIII").unpack_from
    for start in range(min(_SKIPPED_BYTES, len(raw))):
        at = start
        for _ in range(_FOLLOWED_RECORDS):
            if at + framing.header > len(raw):
                break
            seconds, _, captured, original = head_at(raw, at)
            if not seconds or not 0 < captured <= original <= LONGEST_PACKET:
                break
            at += framing.header + captured
        else:
            return True
    return False
