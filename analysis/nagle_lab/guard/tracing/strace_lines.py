"""Parsing strace's lines: calls, sockets, addresses and strings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from nagle_lab.capture.kernel_answers import SocketAddress
from nagle_lab.guard.tracing.calls import Direction

MOST_BYTES = 100_000_000  # of a trace that are kept and read: about half a million calls
LONGEST_LINE = 1 << 20  # bytes; strace writes no longer line
STOPPED = "unexpected_backtracing_error"  # what strace writes instead of a frame if its unwinder fails

_LINE = re.compile(r"(\d{1,10})(?:<(.*?)>)? +(\d{1,12})\.(\d{6}) (.*)")
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\w+)(.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)")
_UNFINISHED = " <unfinished ...>"
_SOCKET = re.compile(r"(?<!\d)(\d{1,10})<(?:MP)?TCP(?:v6)?:\[(.+?)\]>(?=[,)\s]|$)")
_ADDRESS = re.compile(r"(?:\[(.*)\]|([^\[\]]*)):(\d{1,5})")
_PEER = re.compile(r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )"([^"]*)"')
_DIGITS = 15  # most digits of an accepted number: so many keep their value in JSON
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-f]{2}|.)")


@dataclass(slots=True)
class Line:
    """A call as it was printed; an interrupted one is joined again."""

    at: int
    until: int  # 0: nothing else was printed meanwhile
    thread: int
    command: str
    text: str
    stack: list[str] = field(default_factory=list)


class CallText(NamedTuple):
    """The parts of a call as it was printed."""

    name: str
    arguments: str
    result: str
    rest: str  # the text after the result: the error, or the accepted connection

    @property
    def failed(self) -> bool:
        """Whether it did."""
        return self.result.startswith("-")

    @property
    def error(self) -> str:
        """Why it failed, such as "EINVAL"; empty if it did not fail, or does not say."""
        return next(iter(self.rest.split()), "") if self.failed else ""


class SocketText(NamedTuple):
    """A TCP socket as it was printed."""

    fd: int
    name: str  # its addresses if it has any, otherwise its inode
    is_first: bool  # whether it is the first in the text


class Lines:
    """The lines in the first ``most_bytes`` of a file; to be iterated over once. Raises OSError."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.cut = False  # after the last line, whether the file continues beyond what was read
        self._path, self._left = path, most_bytes

    def __iter__(self) -> Iterator[Line]:
        unfinished: dict[int, tuple[int, str]] = {}
        last: Line | None = None
        for text in self._texts():
            if text.startswith(" > "):
                if last:
                    last.stack.append(text[3:])
                continue
            if last:
                yield last
            last = _line(text, unfinished)
        if last:
            yield last

    def _texts(self) -> Iterator[str]:
        with self._path.open("rb") as file:
            for raw in iter(lambda: file.readline(LONGEST_LINE), b""):
                self._left -= len(raw)
                if self._left < 0 or not raw.endswith(b"\n"):
                    self.cut = True
                    break
                yield raw.decode(errors="replace").rstrip("\n")


def _line(text: str, unfinished: dict[int, tuple[int, str]]) -> Line | None:
    """The call that ends on a line, or None. Calls that are interrupted are kept in ``unfinished``, by thread."""
    found = _LINE.fullmatch(text)
    if not found:
        return None
    thread, command, said = int(found[1]), found[2] or "", found[5]
    at, until = int(found[3]) * 1_000_000_000 + int(found[4]) * 1000, 0
    if said.endswith(_UNFINISHED):
        unfinished[thread] = at, said.removesuffix(_UNFINISHED)
        return None
    if resumed := _RESUMED.fullmatch(said):
        if thread not in unfinished:
            return None
        until = at
        at, begun = unfinished.pop(thread)
        said = begun + resumed[2]
    return Line(at, until, thread, command, said)


def call_text(text: str) -> CallText | None:
    """The parts of a call; None for another line, such as a signal."""
    found = _CALL.fullmatch(text)
    return CallText(*found.groups()) if found else None


def socket_in(text: str) -> SocketText | None:
    """The first TCP socket in a text."""
    found = _SOCKET.search(text)
    return SocketText(int(found[1]), found[2], found.start() == 0) if found else None


def number(text: str) -> int:
    """A number; 0 for any other text, or one with too many digits."""
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0


def way_of(text: str) -> Direction | None:
    """The direction in a socket's name, such as "[::1]:1->[::1]:2"; None if it is not connected."""
    here, arrow, there = text.partition("->")
    ends = _end(here), _end(there)
    return (ends[0], ends[1]) if arrow and ends[0] and ends[1] else None


def bound_way(name: str, arguments: str) -> Direction | None:
    """The ends of a bound socket that connects: its name has the port; a missing address is the peer's (loopback)."""
    here, found = _end(name), _PEER.search(arguments)
    there = _end(f"[{found[2]}]:{found[1]}") if found else None
    if not here or not there:
        return None
    if ip_address(here[0]).is_unspecified:
        here = there[0], here[1]
    return here, there


def _end(text: str) -> SocketAddress | None:
    found = _ADDRESS.fullmatch(text)
    if not found:
        return None
    try:
        address = ip_address(found[1] or found[2])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), int(found[3])


def unescaped(text: str) -> str:
    """The original of a string that strace printed; bytes that are not UTF-8 are replaced."""
    simple = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f"}
    out = bytearray()
    at = 0
    for found in _ESCAPE.finditer(text):
        out += text[at : found.start()].encode()
        code = found[1]
        if code[0] in "01234567":
            out.append(int(code, 8) & 255)
        elif len(code) == 3:
            out.append(int(code[1:], 16))
        else:
            out += simple.get(code, code).encode()
        at = found.end()
    return (out + text[at:].encode()).decode(errors="replace")
