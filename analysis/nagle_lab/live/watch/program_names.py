"""Which program has which end of a connection, looked up at intervals in a separate thread."""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple, Self

from msgspec.structs import replace

from nagle_lab.capture.kernel_answers import SocketAddress
from nagle_lab.diagnosis.result.result import Connection, EndProcess
from nagle_lab.errors import NagleLabError, printable
from nagle_lab.host.docker import container_names
from nagle_lab.host.namespace import namespace_of
from nagle_lab.live.sockets.owners import owners
from nagle_lab.live.sockets.processes import Process

EVERY_S = 2.0  # and at least five times as long as a look took
MOST_SOCKETS = 50_000  # read per namespace and family, listening ones first
MOST = 2 * MOST_SOCKETS  # ends whose process is remembered, even after the connection has ended
CONTAINERS_EVERY_S = 30.0
HELD_AGAIN, MOST_UNSEEN = 2, 20
_LISTENS: SocketAddress = ("", 0)
_ANY = ("0.0.0.0", "::")


class ProgramName(NamedTuple):
    """A process: its name, preceded by that of its container and a slash, and its number."""

    name: str
    pid: int


UNKNOWN = ProgramName("", 0)


class ProgramNames:
    """Names the ends of connections that are, or were, this host's; a context manager."""

    def __init__(self, pid: int | None = None, *, looks_elsewhere: bool = True) -> None:
        self._pid = pid  # the process whose network namespace is watched; None: all of this host
        self._looks_elsewhere = looks_elsewhere  # also for programs that hold data where no packet is seen
        self.unseen: list[str] = []  # which programs hold data where no packet is seen, a sentence each
        self._held: Counter[str] = Counter()  # how often each of these held data
        self._found: OrderedDict[tuple[SocketAddress, SocketAddress], ProgramName] = OrderedDict()
        self._containers: dict[str, str] = {}
        self._asked: set[str] = set()  # containers whose names were looked up: Docker does not know all
        self._next_container_look = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="names", daemon=True)

    def follow(self, pid: int | None) -> None:
        """From the next look on, name what is in the network namespace of this process; None: all of this host."""
        self._pid = pid

    def refresh(self) -> None:
        """Look up the programs of both ends now."""
        pid = self._pid  # once: it may change meanwhile
        found = owners(pid, MOST_SOCKETS)
        self._look_for_containers({process.container for process in found.by_ends.values()} - {""})
        if self._looks_elsewhere:
            self._take_unseen(found.held_elsewhere)
        watched = namespace_of("self" if pid is None else pid)
        for (local, remote), process in found.by_ends.items():
            # Every network namespace has these; there may be others elsewhere.
            if local[0] in _ANY or (ip_address(local[0]).is_loopback and process.namespace != watched):
                continue
            named = ProgramName(self._name(process), process.pid)
            self._remember((local, remote), named)
            self._remember((local, _LISTENS), named)
        while len(self._found) > MOST:
            self._found.popitem(last=False)

    def _take_unseen(self, held: Iterable[Process]) -> None:
        """Note a program at the second look at which it holds data: once may be chance."""
        for name, process in {self._name(process): process for process in held}.items():
            self._held[name] += 1
            if self._held[name] == HELD_AGAIN and len(self.unseen) < MOST_UNSEEN:
                container = self._containers.get(process.container)  # Docker must know it
                way = f"--container {container}" if container else f"--pid {process.pid}"
                self.unseen.append(
                    f"{name} {process.pid} holds data again and again on its own loopback, which is not seen here: "
                    f"nagle-lab watch {way}"
                )

    def _look_for_containers(self, ids: set[str]) -> None:
        """Look up names of new containers at once, and of all at intervals; a container that has ended keeps its
        name.
        """
        if ids <= self._asked and time.monotonic() < self._next_container_look:
            return
        self._next_container_look = time.monotonic() + CONTAINERS_EVERY_S
        self._containers |= container_names()
        self._asked |= ids

    def __enter__(self) -> Self:
        """Look now, and from then on in a separate thread; packets are judged without names, too."""
        self._try_to_refresh()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _keep_looking(self) -> None:
        took = 0.0
        while not self._over.wait(max(EVERY_S, 5 * took)):
            began = time.monotonic()
            self._try_to_refresh()
            took = time.monotonic() - began

    def _try_to_refresh(self) -> None:
        with suppress(OSError, NagleLabError):  # the next look may find more
            self.refresh()

    def processes(self, connections: Iterable[Connection]) -> list[EndProcess]:
        """The known processes at the ends of connections, those with the most stalls first."""
        stalls: Counter[EndProcess] = Counter()
        often: Counter[EndProcess] = Counter()
        for connection in connections if self._found else ():
            for end, named in zip((connection.server, connection.client), self.ends_of(connection), strict=True):
                if named is not UNKNOWN:
                    port = end.port if end.role == "server" else None
                    one = EndProcess(end.role, end.ip, port, named.pid, named.name, "", 0)
                    stalls[one] += connection.stalls
                    often[one] += 1
        most = sorted(often, key=lambda one: (-stalls[one], -often[one]))
        return [replace(one, connections=often[one]) for one in most]

    def ends_of(self, connection: Connection) -> tuple[ProgramName, ProgramName]:
        """The processes at its server and at its client; UNKNOWN where they are not known."""
        at_client, at_server = connection.sockets
        found = self._found.get
        # The process of one connection at a server's address and port has all of them; a client's port is reused.
        there = found(at_server) or found((at_server[0], _LISTENS), UNKNOWN)
        return there, found(at_client, UNKNOWN)

    def _remember(self, ends: tuple[SocketAddress, SocketAddress], named: ProgramName) -> None:
        self._found[ends] = named
        self._found.move_to_end(ends)

    def _name(self, process: Process) -> str:
        container = self._containers.get(process.container, process.container)
        return printable(f"{container}/{process.name}" if container else process.name)
