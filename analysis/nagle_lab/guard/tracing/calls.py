"""The calls of a program in a trace: which wrote to which connection, and which set options."""

from bisect import bisect_right
from dataclasses import dataclass, field

from nagle_lab.capture.kernel_answers import SocketAddress

Direction = tuple[SocketAddress, SocketAddress]  # of the bytes: from, to


@dataclass(frozen=True, slots=True)
class Mark:
    """What a hook said about the call that follows."""

    fd: int  # -1: not known
    length: int  # bytes the program wrote; 0: not known, or not what the kernel gets (TLS)
    call: str  # its name in the program's language: "sendall"
    frames: tuple[
        tuple[str, int, str], ...
    ]  # file, line and function: those of libraries, innermost first; then of the program


@dataclass(slots=True, eq=False)
class Call:
    """A call that wrote to a connection, or set an option; two calls are never equal."""

    at: int  # ns since the epoch, when it began, to the µs
    thread: int
    process: int
    command: str  # the thread's name in the kernel: at most 15 characters
    name: str
    wrote: int = 0
    offset: int = 0  # of its first byte, among all bytes written in that direction
    option: str = ""  # the option it sets; SO_DEBUG is TCP_NODELAY at the wrong level, SOL_SOCKET: both are 1
    value: bool = False
    error: str = ""  # why an option was not set: "EINVAL"
    socket: str = ""  # of an option, as strace names it: "127.0.0.1:80", "127.0.0.1:80->127.0.0.1:5000", an inode
    mark: Mark | None = None
    stack: list[str] = field(default_factory=list)  # strace's lines of native frames
    until: int = 0  # ns, its end, if another call was seen meanwhile; otherwise 0
    at_once: bool = False  # whether another thread wrote to the same connection meanwhile


@dataclass(slots=True, eq=False)
class Stream:
    """One direction of one connection, as seen by the end that writes; two streams are never equal, either."""

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
        """All its calls that strace saw: on the listening socket, options, writes."""
        return [*self.listener, *self.options, *self.writes]

    def within(self, start: int, end: int) -> int:
        """How many calls wrote something between two offsets."""
        return sum(call.offset < end and call.offset + call.wrote > start for call in self.writes)


@dataclass(slots=True)
class Trace:
    """Everything that strace wrote."""

    streams: dict[Direction, list[Stream]] = field(default_factory=dict)
    cut: bool = False  # whether the file continues beyond what was read
    io_uring: bool = False  # whether io_uring was set up, which writes without calls
    hooked: set[int] = field(default_factory=set)  # processes in which a hook runs
    began: int = 0  # ns since the epoch: the first call in it, of any kind; 0: there is none
    ended: int = 0  # the last one
    options: list[Call] = field(default_factory=list)  # of all sockets
    programs: dict[str, str] = field(default_factory=dict)  # paths of files that are gone → copies to read

    def stream(self, way: Direction, before: int) -> Stream | None:
        """The stream from one end to the other; if ports were reused, the latest that began before the given time."""
        found = [stream for stream in self.streams.get(way, ()) if stream.began <= before]
        return found[-1] if found else None
