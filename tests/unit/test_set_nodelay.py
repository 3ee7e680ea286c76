"""Which sockets lose TCP_NODELAY again when it is taken back; the sockets themselves are made up."""

import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.host.sock_diag import LISTEN, ListedSocket
from nagle_lab.live.sockets import inventory, set_nodelay, undo_log
from nagle_lab.live.sockets.inventory import HostSocket, Inventory
from nagle_lab.live.sockets.owners import Namespaces
from nagle_lab.live.sockets.processes import SocketTable
from nagle_lab.live.sockets.set_nodelay import (
    TargetProgram,
    UndoPlan,
    those_without_nodelay,
    to_take_back,
    turn_back,
    turn_on,
)
from nagle_lab.live.sockets.socket_options import Options

REAL_SET = set_nodelay._set
PROGRAM = TargetProgram("web 1", {1: 1}, None, "--pid 1")


class Kernel:
    """The sockets of a namespace: cookie → port, whether it listens, TCP_NODELAY."""

    def __init__(self) -> None:
        self.sockets: dict[int, list] = {}

    def add(self, cookie: int, port: int, nodelay: bool, listens: bool = False) -> None:
        self.sockets[cookie] = [port, listens, nodelay]

    def found(self) -> list[HostSocket]:
        return [
            HostSocket(
                ListedSocket(
                    LISTEN if listens else "ESTABLISHED", ("", port), ("", cookie), 0, cookie, cookie, 0, None,
                ),
                7, [], [], "", Options(nodelay, False, False), None,
            )
            for cookie, (port, listens, nodelay) in self.sockets.items()
        ]  # fmt: skip

    def switch(self, those: list[HostSocket], value: bool) -> list[HostSocket]:
        for one in those:
            self.sockets[one.listed.cookie][2] = value
        return those

    def on(self) -> set[int]:
        return {cookie for cookie, (_, _, nodelay) in self.sockets.items() if nodelay}


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    kernel = Kernel()
    monkeypatch.setattr(undo_log, "folder", lambda: tmp_path / "run")
    monkeypatch.setattr(set_nodelay, "living", lambda of: [1])
    monkeypatch.setattr(set_nodelay, "namespace_of", lambda pid: 7)
    monkeypatch.setattr(set_nodelay, "inside", lambda pid, look: [one.listed for one in kernel.found()])
    monkeypatch.setattr(set_nodelay, "_set", kernel.switch)
    return kernel


def test_what_may_not_be_looked_into_is_not_said_to_have_no_socket(kernel, monkeypatch):
    monkeypatch.setattr(set_nodelay, "inventory", lambda *_: Inventory([], ["the sockets of process 1 (refused)"]))
    with pytest.raises(NagleLabError, match=r"web 1: no socket of it can be reached: the sockets of process 1 \(ref"):
        set_nodelay.sockets(PROGRAM)
    monkeypatch.setattr(set_nodelay, "inventory", lambda *_: Inventory([], []))
    with pytest.raises(NagleLabError, match="web 1 has no TCP socket"):
        set_nodelay.sockets(PROGRAM)


def test_a_process_that_is_named_and_may_not_be_looked_into_is_told_of(monkeypatch):
    table = SocketTable({}, {}, [1])
    monkeypatch.setattr(inventory, "processes", lambda _: table)
    monkeypatch.setattr(inventory, "_require_visible", lambda *_: None)
    monkeypatch.setattr(inventory, "namespaces", lambda *_: Namespaces({}, []))
    assert inventory.inventory([1, 2]).missing[0].startswith("the sockets of process 1 (")


def turn_all_on(kernel: Kernel) -> None:
    turn_on(PROGRAM, kernel.found(), those_without_nodelay(kernel.found()))


def test_connections_come_and_go_between(kernel):
    """None of those before had it, so those accepted since have it from their listener, even if the old are gone."""
    kernel.add(1, 80, False, listens=True)
    kernel.add(2, 80, False)
    turn_all_on(kernel)
    assert kernel.on() == {1, 2}
    del kernel.sockets[2]
    kernel.add(3, 80, True)
    kernel.add(4, 45_000, True)  # opened by the program, with the option: not our doing
    turn_all_on(kernel)  # nothing is without it; what is known stays known
    done = turn_back(PROGRAM, kernel.found())
    assert kernel.on() == {4}
    assert done.kept == []
    assert to_take_back(PROGRAM, kernel.found()).back == []


def test_where_one_socket_is_refused_all_are_as_before(kernel, monkeypatch):
    """Nor is anything noted to be taken back."""
    kernel.add(1, 80, False, listens=True)
    kernel.add(2, 80, False)

    def set_one(one: HostSocket, value: bool) -> bool:
        if one.listed.cookie == 2:
            raise PermissionError(1, "Operation not permitted")
        return bool(kernel.switch([one], value))

    monkeypatch.setattr(set_nodelay, "_set_one", set_one)
    monkeypatch.setattr(set_nodelay, "_set", REAL_SET)
    monkeypatch.setattr(set_nodelay, "_unchanged", lambda *_: NagleLabError("web 1: no permission"))
    with pytest.raises(NagleLabError, match="no permission"):
        turn_all_on(kernel)
    assert kernel.on() == set()
    kernel.add(3, 80, True)
    assert to_take_back(PROGRAM, kernel.found()) == UndoPlan([], [])


@pytest.mark.parametrize("first", [None, True])
def test_where_the_program_may_have_set_it_itself_it_stays(kernel, first):
    """One of the connections had it before, or there was none to tell by."""
    kernel.add(1, 80, False, listens=True)
    if first is not None:
        kernel.add(2, 80, first)
        kernel.add(3, 80, False)
    turn_all_on(kernel)
    kernel.add(9, 80, True)
    done = turn_back(PROGRAM, kernel.found())
    assert [one.listed.cookie for one in done.kept] == [9]
    assert kernel.on() == ({9} if first is None else {2, 9})


def test_what_was_on_before_is_not_touched_and_two_listeners_are_told_apart(kernel):
    for port, has in ((80, False), (81, True)):
        kernel.add(port, port, has, listens=True)
        kernel.add(port + 100, port, has)
    turn_all_on(kernel)
    kernel.add(500, 80, True)
    kernel.add(501, 81, True)
    turn_back(PROGRAM, kernel.found())
    assert kernel.on() == {81, 181, 501}
