"""Strace's output as records: which call put which bytes on which connection, and which options were set.

It depends on the file alone. The recording side is :mod:`nagle_lab.guard.tracing.strace_command`.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from nagle_lab.guard.tracing.calls import Call, Direction, Mark, Stream, Trace
from nagle_lab.guard.tracing.strace_lines import (
    MOST_BYTES,
    STOPPED,
    CallText,
    Line,
    Lines,
    SocketText,
    bound_way,
    call_text,
    number,
    socket_in,
    unescaped,
    way_of,
)
from nagle_lab.host.proc import NAME_KEPT

MARK = "/proc/nagle-lab;"  # the beginning of the path that a hook names right before a call

_OPTION = re.compile(r"(?:(?:SOL|IPPROTO)_TCP, (TCP_NODELAY|TCP_CORK)|SOL_SOCKET, (SO_DEBUG)), (?:\[(-?\d{1,10})\])?")
_MESSAGE = re.compile(r"\bmsg_len=(\d{1,10})\b")
# A frame in a mark of hooks/native.c.
_HOOKED = re.compile(r"([^+,]*)\+([0-9a-f]{1,16})(?:,([^+]+)\+([0-9a-f]{1,16}))?")
_FRAME_ADDRESS = re.compile(r"\[(0x[0-9a-f]+)\]$")

WRITES = frozenset(
    ("sendto", "sendmsg", "sendmmsg", "write", "writev", "pwritev2", "send", "sendfile", "sendfile64", "splice")
)
STARTS = frozenset(("clone", "clone3", "fork", "vfork"))


def read_trace(*paths: Path, threads: Path | None = None, most_bytes: int = MOST_BYTES) -> Trace:
    """Read strace's files, one after the other, up to so many bytes of each. Raises OSError.

    Each line of ``threads`` has the numbers of a thread and its process, for threads that existed when strace
    attached.
    """
    reader = _Reader(_pairs(threads) if threads else {})
    for path in paths:
        lines = Lines(path, most_bytes)
        for line in lines:
            reader.take(line)
        reader.trace.cut |= lines.cut
    return reader.close()


def _pairs(path: Path) -> dict[int, int]:
    found = (line.split() for line in path.read_text().splitlines())
    return {int(pair[0]): int(pair[1]) for pair in found if len(pair) == 2 and all(map(str.isdecimal, pair))}


_ThreadFd = tuple[int, int]  # a thread, and a file descriptor in its own numbering
_ProcessFd = tuple[int, int]  # a process, and a file descriptor of it


class _Reader:
    """Makes streams of calls."""

    def __init__(self, process_of: dict[int, int]) -> None:
        self.trace = Trace()
        self._process_of = process_of  # by thread
        self._marks: dict[_ThreadFd, Mark] = {}  # the latest
        self._left: dict[_ThreadFd, int] = {}  # bytes to which it still applies
        self._stacks: dict[_ThreadFd, list[str]] = {}  # what hooks/native.c says about the next call
        # Of sockets that are not connected, by process and file descriptor
        self._options: dict[int, dict[int, list[Call]]] = defaultdict(dict)
        self._names: dict[int, dict[int, str]] = defaultdict(dict)  # the text between the brackets
        # Sockets that were bound, and then connected: strace keeps their first name.
        self._ways: dict[str, Direction] = {}
        self._connecting: dict[_ProcessFd, int] = {}  # since when
        self._started: dict[int, tuple[str, str]] = {}  # by process: its command before execve, and since then

    def take(self, line: Line) -> None:
        """Take the next line: a call, or the end of one."""
        self.trace.began = self.trace.began or line.at
        self.trace.ended = max(self.trace.ended, line.at)
        if not (said := call_text(line.text)):
            return
        if said.name == "rmdir":
            self._mark(line.thread, said.arguments)
        elif said.name in STARTS:
            self._start(line.thread, said)
        elif said.name == "execve":
            if not said.failed:
                self._started[self._process(line.thread)] = line.command, _command(said.arguments)
        elif said.name == "io_uring_setup":
            self.trace.io_uring |= not said.failed
        elif socket := socket_in(said.arguments):
            process = self._process(line.thread)
            stack = _longer(line.stack, self._stacks.pop((line.thread, socket.fd), []))
            command = self._command_of(process, line)
            call = Call(line.at, line.thread, process, command, said.name, stack=stack, until=line.until)
            self._call(call, said, socket)

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
        return self._process_of.get(thread, thread)

    def _command_of(self, process: int, line: Line) -> str:
        """The command of a process: strace may go on printing the one that it had before its last execve.

        A thread may have a name of its own, as in Java and Erlang.
        """
        if not (started := self._started.get(process)):
            return line.command
        before, since = started
        is_renamed = line.thread == process and line.command not in (before, since[:NAME_KEPT])
        return line.command if is_renamed else since

    def _mark(self, thread: int, arguments: str) -> None:
        path = unescaped(arguments.partition('"')[2].rpartition('"')[0])
        if not path.startswith(MARK):
            return
        parts = path.removeprefix(MARK).split(";")
        if parts[0] == "hook":
            self.trace.hooked.add(self._process(thread))
            return
        if parts[0] == "stack" and len(parts) > 1:
            self._stacks[thread, number(parts[1])] = _frames(parts[2:])
            return
        numbers = [part for part in parts[:2] if re.fullmatch(r"-?\d{1,15}", part)]
        if len(numbers) == 2 and len(parts) >= 3:
            frames = zip(parts[3::3], parts[4::3], parts[5::3], strict=False)
            places = tuple((file, number(line), name) for file, line, name in frames)
            mark = Mark(int(parts[0]), int(parts[1]), parts[2], places)
            self._marks[thread, mark.fd], self._left[thread, mark.fd] = mark, mark.length

    def _start(self, thread: int, said: CallText) -> None:
        if not (child := number(said.result)):
            return
        parent = self._process(thread)
        if "CLONE_THREAD" in said.arguments:
            self._process_of[child] = parent
            return
        for fd, name in self._names[parent].items():  # a process has its parent's sockets
            self._names[child][fd], self._options[child][fd] = name, list(self._options[parent].get(fd, ()))

    def _call(self, call: Call, said: CallText, socket: SocketText) -> None:
        place, way = (call.process, socket.fd), way_of(socket.name) or self._ways.get(socket.name)
        if call.name in ("accept", "accept4"):
            if accepted := socket_in(said.result + said.rest):
                self._accepted(call, place, accepted)
        elif way is None:
            self._not_connected(call, place, said, socket)
        elif call.name == "setsockopt":
            self._set(call, said, socket, self._stream(way, place).options)
        elif call.name in WRITES and not said.failed and socket.is_first == (call.name != "splice"):
            is_many = call.name == "sendmmsg"
            call.wrote = sum(map(int, _MESSAGE.findall(said.arguments))) if is_many else number(said.result)
            if call.wrote:
                call.mark = self._mark_of(call, socket.fd)
                self._stream(way, place).writes.append(call)

    def _accepted(self, call: Call, place: _ProcessFd, accepted: SocketText) -> None:
        way = way_of(accepted.name)
        self._connecting.pop((call.process, accepted.fd), None)
        if way:
            began = call.until or call.at  # it may have waited since before the last connection of these ports
            stream = Stream(way, began, accepted=True, listener=list(self._options[call.process].get(place[1], ())))
            self.trace.streams.setdefault(way, []).append(stream)

    def _not_connected(self, call: Call, place: _ProcessFd, said: CallText, socket: SocketText) -> None:
        names, options = self._names[call.process], self._options[call.process]
        name, before = socket.name, names.get(socket.fd)
        if before != name and not (before and before.isdecimal() and not name.isdecimal()):
            options.pop(socket.fd, None)  # another socket; otherwise the same one, which has an address by now
        names[socket.fd] = name
        if call.name == "setsockopt":
            self._set(call, said, socket, options.setdefault(socket.fd, []))
        elif call.name == "connect":
            self._connecting[place] = call.at
            if way := bound_way(name, said.arguments):
                self._ways[name] = way

    def _set(self, call: Call, said: CallText, socket: SocketText, options: list[Call]) -> None:
        """An option that was set, or refused with an error."""
        if found := _OPTION.search(said.arguments):
            call.option = found[1] or found[2]
            call.value, call.error = found[3] != "0", said.error
            call.mark, call.socket = self._mark_of(call, socket.fd), socket.name
            options.append(call)
            self.trace.options.append(call)

    def _stream(self, way: Direction, place: _ProcessFd) -> Stream:
        streams = self.trace.streams.setdefault(way, [])
        since = self._connecting.pop(place, None)
        if since is not None:
            process, fd = place
            streams.append(Stream(way, since, options=self._options[process].pop(fd, [])))
        elif not streams:
            streams.append(Stream(way))
        return streams[-1]

    def _mark_of(self, call: Call, fd: int) -> Mark | None:
        """What the hook said right before in the same thread, about so many bytes, if it knew how many."""
        key = (call.thread, fd) if (call.thread, fd) in self._marks else (call.thread, -1)
        mark = self._marks.get(key)
        if mark is None or bool(call.option) != (mark.call == "setsockopt"):
            return None
        self._left[key] -= call.wrote
        if call.option or (mark.length and self._left[key] <= 0):
            del self._marks[key]
        return mark if not mark.length or self._left[key] >= 0 else None


def _command(arguments: str) -> str:
    """The name of a process that calls execve: the end of the path."""
    path = unescaped(arguments.partition('"')[2].partition('"')[0])
    return path.rpartition("/")[2]


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
    """Mark writes that others overlap: which of them the kernel took first is not known."""
    longest: Call | None = None
    for call in writes:
        if longest and call.at < longest.until:
            longest.at_once = call.at_once = True
        if not longest or call.until > longest.until:
            longest = call
