"""What strace wrote of a program: which call put which bytes on which connection, and which options were set.

A function of the file alone. The recording side is :mod:`nagle_lab.guard.tracing.strace_command`.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from nagle_lab.capture.waiting import End

MOST_BYTES = 100_000_000  # of a trace, that are kept and read: about half a million calls
LONGEST_LINE = 1 << 20  # bytes: a longer one is none of strace's
MARK = "/proc/nagle-lab;"  # how the path begins that a hook names right before a call

Direction = tuple[End, End]  # of the bytes: from, to

_LINE = re.compile(r"(\d{1,10})(?:<(.*?)>)? +(\d{1,12})\.(\d{6}) (.*)")
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\w+)(.*)", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)")
_UNFINISHED = " <unfinished ...>"
_SOCKET = re.compile(r"(?<!\d)(\d{1,10})<(?:MP)?TCP(?:v6)?:\[(.+?)\]>(?=[,)\s]|$)")
_ADDRESS = re.compile(r"(?:\[(.*)\]|([^\[\]]*)):(\d{1,5})")
_OPTION = re.compile(r"(?:(?:SOL|IPPROTO)_TCP, (TCP_NODELAY|TCP_CORK)|SOL_SOCKET, (SO_DEBUG)), (?:\[(-?\d{1,10})\])?")
_PEER = re.compile(r'sin6?_port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )"([^"]*)"')
_MESSAGE = re.compile(r"\bmsg_len=(\d{1,10})\b")
_HOOKED = re.compile(
    r"([^+,]*)\+([0-9a-f]{1,16})(?:,([^+]+)\+([0-9a-f]{1,16}))?"
)  # a frame in a mark of hooks/native.c
_FRAME_ADDRESS = re.compile(r"\[(0x[0-9a-f]+)\]$")
STOPPED = "unexpected_backtracing_error"  # what strace writes for a frame where its unwinder is lost
_DIGITS = 15  # of a number that is believed: so many keep their value in JSON
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-f]{2}|.)")

WRITES = frozenset(
    ("sendto", "sendmsg", "sendmmsg", "write", "writev", "pwritev2", "send", "sendfile", "sendfile64", "splice")
)
STARTS = frozenset(("clone", "clone3", "fork", "vfork"))


@dataclass(frozen=True, slots=True)
class Mark:
    """What a hook said of the call that follows it."""

    fd: int  # -1: not known
    length: int  # bytes the program wrote; 0: not known, or not what the kernel gets (TLS)
    call: str  # as the program's language has it: "sendall"
    frames: tuple[
        tuple[str, int, str], ...
    ]  # file, line and function: of libraries, the innermost first; the program


@dataclass(slots=True, eq=False)
class Call:
    """A call that wrote to a connection, or set an option; no two are equal, whatever they have in common."""

    at: int  # ns since the epoch, when it began, to the µs
    thread: int
    process: int
    command: str  # of the thread, as the kernel has it: at most 15 characters
    name: str
    wrote: int = 0
    offset: int = 0  # of its first byte, in all that was written that way
    option: str = ""  # that it sets; SO_DEBUG is TCP_NODELAY at the level of sockets: both are 1
    value: bool = False
    error: str = ""  # why an option was not set: "EINVAL"
    socket: str = ""  # of an option, as strace names it: "127.0.0.1:80", "127.0.0.1:80->127.0.0.1:5000", an inode
    mark: Mark | None = None
    stack: list[str] = field(default_factory=list)  # strace's lines of native frames
    until: int = 0  # ns, when it ended, where another one was seen meanwhile; else 0
    at_once: bool = False  # whether another thread wrote to the same connection meanwhile


@dataclass(slots=True, eq=False)
class Stream:
    """One direction of one connection, as the end that writes has it; no two are equal, either."""

    way: Direction
    began: int = 0  # ns: connected or accepted; 0: not seen
    accepted: bool = False
    writes: list[Call] = field(default_factory=list)
    options: list[Call] = field(default_factory=list)  # set on this socket
    listener: list[Call] = field(default_factory=list)  # set on the listening socket before it was accepted

    def covering(self, offset: int) -> Call | None:
        """The call that wrote the byte at that offset."""
        at = bisect_right(self.writes, offset, key=lambda call: call.offset) - 1
        if at < 0 or offset >= self.writes[at].offset + self.writes[at].wrote:
            return None
        return self.writes[at]

    def calls(self) -> list[Call]:
        """All calls that strace saw of it: on the listening socket, options, writes."""
        return [*self.listener, *self.options, *self.writes]

    def within(self, start: int, end: int) -> int:
        """How many calls wrote something between two offsets."""
        return sum(call.offset < end and call.offset + call.wrote > start for call in self.writes)


@dataclass(slots=True)
class Trace:
    """Everything that strace wrote."""

    streams: dict[Direction, list[Stream]] = field(default_factory=dict)
    cut: bool = False  # whether the file goes on behind what was read
    io_uring: bool = False  # whether something was set up that writes without calls
    hooked: set[int] = field(default_factory=set)  # processes in which a hook runs
    began: int = 0  # ns since the epoch: the first call in it, of any kind; 0: there is none
    ended: int = 0  # the last one
    options: list[Call] = field(default_factory=list)  # of all sockets

    def stream(self, way: Direction, before: int) -> Stream | None:
        """The stream from one end to the other; where ports were used again, the latest that began before a time."""
        found = [stream for stream in self.streams.get(way, ()) if stream.began <= before]
        return found[-1] if found else None


def read_trace(*paths: Path, threads: Path | None = None, most_bytes: int = MOST_BYTES) -> Trace:
    """Read what strace wrote, one file after the other, up to so many bytes of each. Raises OSError.

    ``threads`` has lines of a thread's number and its process's, of those that were there when strace attached.
    """
    reader = _Reader(_pairs(threads) if threads else {})
    for path in paths:
        for line in _calls(path, most_bytes, reader.trace):
            reader.trace.began = reader.trace.began or line.at
            reader.trace.ended = max(reader.trace.ended, line.at)
            reader.take(line)
    return reader.close()


def _pairs(path: Path) -> dict[int, int]:
    found = (line.split() for line in path.read_text().splitlines())
    return {int(pair[0]): int(pair[1]) for pair in found if len(pair) == 2 and all(map(str.isdecimal, pair))}


@dataclass(slots=True)
class _Line:
    """A call as it was printed; one that was interrupted is put together."""

    at: int
    until: int  # 0: nothing else was printed meanwhile
    thread: int
    command: str
    text: str
    stack: list[str] = field(default_factory=list)


def _calls(path: Path, most_bytes: int, trace: Trace) -> Iterator[_Line]:
    unfinished: dict[int, tuple[int, str]] = {}
    last: _Line | None = None
    with path.open("rb") as file:
        for raw in iter(lambda: file.readline(LONGEST_LINE), b""):
            most_bytes -= len(raw)
            if most_bytes < 0 or not raw.endswith(b"\n"):
                trace.cut = True
                break
            line = raw.decode(errors="replace").rstrip("\n")
            if line.startswith(" > "):
                if last:
                    last.stack.append(line[3:])
                continue
            if last:
                yield last
            last = None
            if found := _LINE.fullmatch(line):
                thread, command, text = int(found[1]), found[2] or "", found[5]
                at = int(found[3]) * 1_000_000_000 + int(found[4]) * 1000
                if text.endswith(_UNFINISHED):
                    unfinished[thread] = at, text.removesuffix(_UNFINISHED)
                    continue
                until = 0
                if resumed := _RESUMED.fullmatch(text):
                    if thread not in unfinished:
                        continue
                    until = at
                    at, begun = unfinished.pop(thread)
                    text = begun + resumed[2]
                last = _Line(at, until, thread, command, text)
    if last:
        yield last


class _Reader:
    """Makes streams of calls."""

    def __init__(self, parents: dict[int, int]) -> None:
        self.trace = Trace()
        self._parents = parents  # of threads
        self._marks: dict[tuple[int, int], Mark] = {}  # the latest of each thread on each fd
        self._left: dict[tuple[int, int], int] = {}  # bytes that it still speaks of
        self._stacks: dict[
            tuple[int, int], list[str]
        ] = {}  # by thread and fd: what hooks/native.c says of the next call
        self._options: dict[tuple[int, int], list[Call]] = defaultdict(list)  # process, fd: of what is not connected
        self._names: dict[tuple[int, int], str] = {}  # what stands between the brackets of such a socket
        # Of a socket that was bound, and then connected: strace keeps its first name.
        self._ways: dict[str, Direction] = {}
        self._connecting: dict[tuple[int, int], int] = {}  # process, fd: since when

    def take(self, line: _Line) -> None:
        """Take the next line: a call, or the end of one."""
        found = _CALL.fullmatch(line.text)
        if not found:
            return
        name, arguments, result, rest = found.groups()
        thread = line.thread
        if name == "rmdir":
            self._mark(thread, arguments)
        elif name in STARTS:
            self._start(thread, arguments, result)
        elif name == "io_uring_setup":
            self.trace.io_uring |= not result.startswith("-")
        elif socket := _SOCKET.search(arguments):
            process = self._process(thread)
            stack = _longer(line.stack, self._stacks.pop((thread, int(socket[1])), []))
            call = Call(line.at, thread, process, line.command, name, stack=stack, until=line.until)
            self._call(call, socket, arguments, result, rest)

    def close(self) -> Trace:
        """Finish the trace, as no more lines follow, and return it."""
        for streams in self.trace.streams.values():
            for stream in streams:
                stream.writes.sort(key=lambda call: call.at)
                _tell_apart(stream.writes)
                offset = 0
                for call in stream.writes:
                    call.offset, offset = offset, offset + call.wrote
        return self.trace

    def _process(self, thread: int) -> int:
        return self._parents.get(thread, thread)

    def _mark(self, thread: int, arguments: str) -> None:
        path = unescaped(arguments.partition('"')[2].rpartition('"')[0])
        if not path.startswith(MARK):
            return
        parts = path.removeprefix(MARK).split(";")
        if parts[0] == "hook":
            self.trace.hooked.add(self._process(thread))
            return
        if parts[0] == "stack" and len(parts) > 1:
            self._stacks[thread, _number(parts[1])] = _frames(parts[2:])
            return
        numbers = [part for part in parts[:2] if re.fullmatch(r"-?\d{1,15}", part)]
        if len(numbers) == 2 and len(parts) >= 3:
            frames = zip(parts[3::3], parts[4::3], parts[5::3], strict=False)
            places = tuple((file, _number(line), name) for file, line, name in frames)
            mark = Mark(int(parts[0]), int(parts[1]), parts[2], places)
            self._marks[thread, mark.fd], self._left[thread, mark.fd] = mark, mark.length

    def _start(self, thread: int, arguments: str, result: str) -> None:
        if not _number(result):
            return
        child, parent = int(result), self._process(thread)
        if "CLONE_THREAD" in arguments:
            self._parents[child] = parent
            return
        for (process, fd), name in list(self._names.items()):  # a process has its parent's sockets
            if process == parent:
                self._names[child, fd] = name
                self._options[child, fd] = list(self._options.get((process, fd), ()))

    def _call(self, call: Call, socket: re.Match[str], arguments: str, result: str, rest: str) -> None:
        fd, failed = int(socket[1]), result.startswith("-")
        place, way = (call.process, fd), _way(socket[2]) or self._ways.get(socket[2])
        if call.name in ("accept", "accept4"):
            if accepted := _SOCKET.search(result + rest):
                self._accepted(call, place, accepted)
        elif way is None:
            self._not_connected(call, place, socket, arguments, rest if failed else "")
        elif call.name == "setsockopt":
            self._set(call, arguments, rest if failed else "", self._stream(way, place).options, socket)
        elif call.name in WRITES and not failed and (socket.start() > 0) == (call.name == "splice"):
            call.wrote = sum(map(int, _MESSAGE.findall(arguments))) if call.name == "sendmmsg" else _number(result)
            if call.wrote:
                call.mark = self._mark_of(call, fd)
                self._stream(way, place).writes.append(call)

    def _accepted(self, call: Call, place: tuple[int, int], accepted: re.Match[str]) -> None:
        way = _way(accepted[2])
        self._connecting.pop((call.process, int(accepted[1])), None)
        if way:
            stream = Stream(way, call.at, accepted=True, listener=list(self._options.get(place, ())))
            self.trace.streams.setdefault(way, []).append(stream)

    def _not_connected(
        self, call: Call, place: tuple[int, int], socket: re.Match[str], arguments: str, error: str
    ) -> None:
        name, before = socket[2], self._names.get(place)
        if before != name and not (before and before.isdecimal() and not name.isdecimal()):
            self._options.pop(place, None)  # another socket; else the same one, that has an address by now
        self._names[place] = name
        if call.name == "setsockopt":
            self._set(call, arguments, error, self._options[place], socket)
        elif call.name == "connect":
            self._connecting[place] = call.at
            if way := _bound_way(name, arguments):
                self._ways[name] = way

    def _set(self, call: Call, arguments: str, error: str, options: list[Call], socket: re.Match[str]) -> None:
        """An option that was set, or refused with an error."""
        if found := _OPTION.search(arguments):
            call.option = found[1] or found[2]
            call.value, call.error = found[3] != "0", error.split(maxsplit=1)[0] if error else ""
            call.mark, call.socket = self._mark_of(call, int(socket[1])), socket[2]
            options.append(call)
            self.trace.options.append(call)

    def _stream(self, way: Direction, place: tuple[int, int]) -> Stream:
        streams = self.trace.streams.setdefault(way, [])
        since = self._connecting.pop(place, None)
        if since is not None:
            streams.append(Stream(way, since, options=self._options.pop(place, [])))
        elif not streams:
            streams.append(Stream(way))
        return streams[-1]

    def _mark_of(self, call: Call, fd: int) -> Mark | None:
        """What the hook said right before, in the same thread; of so many bytes, if it knew how many."""
        key = (call.thread, fd if (call.thread, fd) in self._marks else -1)
        mark = self._marks.get(key)
        if mark is None or bool(call.option) != (mark.call == "setsockopt"):
            return None
        self._left[key] -= call.wrote
        if call.option or (mark.length and self._left[key] <= 0):
            del self._marks[key]
        return mark if not mark.length or self._left[key] >= 0 else None


def _frames(words: Sequence[str]) -> list[str]:
    """The frames of a mark of hooks/native.c, as strace prints them: "/bin/server(main+0x16) [0x91906]"."""
    frames = []
    file = ""
    for word in words:
        if found := _HOOKED.fullmatch(word):
            file = found[1] or file
            frames.append(
                f"{file}({found[3]}+0x{found[4]}) [0x{found[2]}]" if found[3] else f"{file}() [0x{found[2]}]"
            )
    return frames


def _longer(strace: list[str], hook: list[str]) -> list[str]:
    """The longer of two stacks of a call: strace's has more symbols, but its unwinder may have stopped."""
    whole = next((i for i, line in enumerate(strace) if STOPPED in line), len(strace))
    if len(hook) < whole:
        return strace
    symbols = {_address(line): line for line in strace[:whole]}
    return [symbols.get(_address(line), line) for line in hook]


def _address(frame: str) -> str:
    found = _FRAME_ADDRESS.search(frame)
    return found[1] if found else frame


def _tell_apart(writes: Sequence[Call]) -> None:
    """Find those that others overlapped: which of them the kernel took first cannot be told."""
    longest: Call | None = None
    for call in writes:
        if longest and call.at < longest.until:
            longest.at_once = call.at_once = True
        if not longest or call.until > longest.until:
            longest = call


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else 0


def _way(text: str) -> Direction | None:
    """ "127.0.0.1:1->127.0.0.1:2", "[::1]:1->[::1]:2"; None of what is not connected."""
    here, arrow, there = text.partition("->")
    ends = _end(here), _end(there)
    return (ends[0], ends[1]) if arrow and ends[0] and ends[1] else None


def _bound_way(name: str, arguments: str) -> Direction | None:
    """The ends of a bound socket that connects: its name has the port; a missing address is the peer's (loopback)."""
    here, found = _end(name), _PEER.search(arguments)
    there = _end(f"[{found[2]}]:{found[1]}") if found else None
    if not here or not there:
        return None
    if ip_address(here[0]).is_unspecified:
        here = there[0], here[1]
    return here, there


def _end(text: str) -> End | None:
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
    """A string as strace prints it, as it was; what is no UTF-8 is replaced."""
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
