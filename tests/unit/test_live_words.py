"""Sockets and what is said of them: what is held, in which words, on which screens, and what is written down."""

import json
import os
import re

import pytest
from rich.console import Console

from nagle_lab.errors import NagleLabError
from nagle_lab.host import privileges
from nagle_lab.host.privileges import CAP_SYS_PTRACE
from nagle_lab.host.sock_diag import ListedSocket, TcpInfo
from nagle_lab.live.sockets import rights
from nagle_lab.live.sockets.inventory import HostSocket, Inventory
from nagle_lab.live.sockets.processes import Process
from nagle_lab.live.sockets.socket_options import Options, Waits, waits
from nagle_lab.live.sockets.undo_log import BOOT, FILE, Entry, changes
from nagle_lab.packet.segment import end_text
from nagle_lab.reports.experiments.nodelay import names
from nagle_lab.reports.screens.sockets import owner, show_sockets, sockets_json
from support.schemas import check

OFF, ON = Options(False, False, True), Options(True, False, False)


WAITING = TcpInfo(mss=1448, in_flight=1, unsent=600, cwnd=10, window=64_000)


def listed(unacknowledged: int = 200, info: TcpInfo | None = WAITING, **other) -> ListedSocket:
    """A connection; by default a header is on its way and a body waits."""
    fields = {
        "state": "ESTABLISHED", "local": ("10.0.0.1", 8080), "remote": ("10.0.0.2", 50123), "uid": 0, "inode": 7,
        "cookie": 9, "queued": unacknowledged + (info.unsent if info else 0), "info": info,
    }  # fmt: skip
    return ListedSocket(**{**fields, **other})


def found(one: ListedSocket | None = None, options: Options | None = OFF, **other) -> HostSocket:
    one = one or listed()
    nginx = Process(24703, "nginx", 0, 4026531833)
    fields = {"processes": [nginx], "holders": [(24703, 5)], "container": "", "waits": waits(one, options)}
    return HostSocket(**{"listed": one, "namespace": 4026531833, "options": options, **fields, **other})


@pytest.mark.parametrize(
    ("of", "options", "expected"),
    [
        (listed(), OFF, Waits.HELD),
        (listed(), ON, None),  # it leaves in a moment
        (listed(), None, Waits.MAYBE_HELD),
        (listed(), Options(False, True, True), Waits.CORKED),
        (listed(), Options(True, True, True), Waits.CORKED),  # TCP_CORK comes first
        (listed(0, TcpInfo(1448, 0, 600, 10, None)), OFF, None),  # nothing is unacknowledged
        (listed(1448, TcpInfo(1448, 1, 600, 10, 64_000)), OFF, None),  # only a full segment is: Minshall's variant
        (listed(1648, TcpInfo(1448, 2, 600, 10, 64_000)), OFF, Waits.HELD),
        (listed(200, TcpInfo(1448, 1, 1448, 10, 64_000)), OFF, None),  # a full segment is never held
        (listed(200, TcpInfo(1448, 1, 0, 10, 64_000)), OFF, None),
        (listed(200, TcpInfo(1448, 1, 600, 10, 700)), OFF, None),  # the other end has no room
        (listed(200, TcpInfo(1448, 1, 600, 1, 64_000)), OFF, None),  # the congestion window is full
        (listed(200, TcpInfo(1448, 1, 600, 10, None)), OFF, Waits.HELD),  # kernels before 5.4 do not tell the window
    ],
)
def test_what_waits_and_why(of, options, expected):
    assert waits(of, options) is expected


def screen(sockets: list[HostSocket], width: int, **more) -> str:
    to = Console(width=width, record=True, file=open(os.devnull, "w"), color_system=None)  # noqa: PTH123, SIM115
    show_sockets(Inventory(sockets, []), to, **more)
    return to.export_text()


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_screen_has_it_all_at_any_width(width):
    long = listed(local=("2001:db8:1111:2222:3333:4444:5555:6666", 65535), remote=("2001:db8::7", 50123))
    sockets = [
        found(container="shop_web_1"),
        found(long),
        found(listed(state="LISTEN", remote=("0.0.0.0", 0), queued=0, info=None), ON),
        found(listed(state="TIME-WAIT", inode=0, queued=0, info=None), None, processes=[]),
        found(listed(queued=0, info=None), None, processes=[]),
    ]
    text = screen(sockets, width, most=None)
    assert max(map(len, text.splitlines())) <= width
    together = re.sub(r"\s", "", text)
    for words in ("nginx 24703", "shop_web_1", "held now", "200 B", "600 B", "listens", "TIME-WAIT", "ESTABLISHED"):
        assert (words.replace(" ", "") in together) == (words != "ESTABLISHED"), text
    assert ("delayed" in text) == (width >= 112)
    assert text.splitlines()[-1] == "next: prove and try it: sudo nagle-lab nodelay --pid 24703 on --for 30s"
    totals = "5 TCP sockets, 3 established; 2 of these without TCP_NODELAY (1 may not be read), 2 held now"
    assert totals in " ".join(text.split())


@pytest.mark.parametrize("width", [80, 100, 112, 120])
def test_addresses_and_processes_are_whole_and_a_container_is_cut_in_its_middle(width):
    ends = {"local": ("192.168.80.2", 8080), "remote": ("192.168.80.2", 49942)}
    container = "nagle-lab-" + "-".join("abcdefghijklmnop") + "-0"
    lines = screen([found(listed(**ends), container=container)], width).splitlines()
    for whole in ("192.168.80.2:8080 ", "192.168.80.2:49942 "):
        assert sum(whole in line for line in lines) == 1
    assert lines[2].startswith("nginx 24703 ") and sum("nagle" in line and "p-0 " in line for line in lines) == 1
    assert len(lines) <= 7 and max(map(len, lines)) <= width


def test_in_60_columns_the_ends_are_below_their_process_and_whole():
    of = {"local": ("192.168.80.2", 8080), "remote": ("192.168.80.2", 9942)}
    lines = screen([found(listed(**of))], 60).splitlines()
    assert re.match(r"nginx 24703 .* held now *$", lines[lines.index(next(one for one in lines if "──" in one)) + 1])
    assert {"192.168.80.2:8080", "192.168.80.2:9942"} < {line.strip() for line in lines}
    assert max(map(len, lines)) <= 60


def test_what_may_be_held_is_counted_and_nothing_is_to_be_tried_on_it():
    text = screen([found(options=None)], 100)
    assert "0 held now by Nagle's algorithm, 1 perhaps" in " ".join(text.split()) and "next:" not in text


def test_where_nothing_is_held_at_this_moment_there_will_be_another():
    idle, on = found(listed(queued=0), OFF), found(listed(queued=0), ON)
    again = "next: this is one moment only: look again, or see what stalls meanwhile: nagle-lab watch"
    assert again in " ".join(screen([idle, on], 80, as_root="nagle-lab").split())
    assert "next:" not in screen([on], 100) and "next: prove" in screen([idle, found()], 100)


@pytest.mark.parametrize(
    ("user", "by_sudo", "typed"),
    [
        (0, False, "nagle-lab"),
        (0, True, 'sudo "$(command -v nagle-lab)"'),
        (1000, False, 'sudo "$(command -v nagle-lab)"'),
    ],
)
def test_the_next_command_can_be_pasted_where_it_is_shown(run, monkeypatch, user, by_sudo, typed):
    monkeypatch.setattr("nagle_lab.cli.live.sockets.inventory", lambda *_: Inventory([found()], []))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.delenv("SUDO_USER", raising=False)
    if by_sudo:
        monkeypatch.setenv("SUDO_USER", "somebody")
    shown = " ".join(run("sockets").out.split())
    assert shown.endswith(f"next: prove and try it: {typed} nodelay --pid 24703 on --for 30s")


def test_many_are_cut_unless_all_are_asked_for():
    sockets = [found(listed(local=("10.0.0.1", port))) for port in range(1000, 1100)]
    assert "… and 60 more: --all shows them" in screen(sockets, 100)
    assert " more: " not in screen(sockets, 100, most=None)
    time_wait = found(listed(state="TIME-WAIT", inode=0, queued=0, info=None), None, processes=[])
    text = screen([found(), time_wait], 100)
    assert text.count("TIME-WAIT") == 1 and "… and 1 in TIME-WAIT: --all shows them" in text
    assert "… and 61 more, 1 of them in TIME-WAIT: --all" in screen([*sockets, time_wait], 100)


def test_names_are_safe_to_print():
    nasty = found(processes=[Process(1, "a\x1b[2Jb\nc", 0, 1), Process(2, "d", 0, 1)], container="\x9b")
    assert owner(nasty) == "a\\x1b[2Jb\\nc 1 +1 in \\x9b"
    assert end_text("::1", 80) == "[::1]:80"
    assert "\x1b" not in screen([nasty], 100)


def test_json_obeys_its_schema():
    nasty = found(processes=[Process(1, "a\x1b[2J", 0, None)])
    gone = found(listed(state="TIME-WAIT", inode=0, queued=0, info=None), None, processes=[], holders=[])
    listener = found(listed(state="LISTEN", queued=0, info=None), ON)
    text = sockets_json(Inventory([found(), nasty, gone, listener], ["something"]))
    assert text.rstrip("\n").isprintable()
    content = json.loads(text)
    check("sockets", content)
    first, _, time_wait, last = content["sockets"]
    assert (first["waits"], first["delays_acks"], first["mss"]) == ("held now", True, 1448)
    assert (time_wait["nodelay"], time_wait["processes"], time_wait["in_flight"]) == (None, [], None)
    assert (last["remote"], last["delays_acks"], last["nodelay"]) == (None, None, True)


def test_sockets_are_named_one_by_one_up_to_twenty():
    lines = names([found(listed(local=("10.0.0.1", port))) for port in range(1000, 1025)])
    assert lines[0] == "nginx 24703: 10.0.0.1:1000 ↔ 10.0.0.2:50123"
    assert (len(lines), lines[-1]) == (21, "and 5 more")
    assert names([found(listed(state="LISTEN"))]) == ["nginx 24703: 10.0.0.1:8080 listens"]


def test_which_right_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(privileges, "YAMA", tmp_path / "ptrace_scope")
    has: set[int] = set()
    monkeypatch.setattr(rights, "has_capability", lambda number: number in has)
    assert rights.missing([4, 5, 6], 2, 1, 1, PermissionError()) == [
        "the sockets of 3 processes (needs CAP_SYS_PTRACE)",
        "TCP_NODELAY of 1 socket (needs CAP_SYS_PTRACE)",
        "1 other network namespace (needs CAP_SYS_ADMIN)",
    ]
    (tmp_path / "ptrace_scope").write_text("1\n")
    (line,) = rights.missing([], 0, 5, 0, PermissionError())
    assert line == "TCP_NODELAY of 5 sockets (needs CAP_SYS_PTRACE, for kernel.yama.ptrace_scope is set)"
    (line,) = rights.missing([], 0, 5, 0, OSError(38, "Function not implemented"))
    assert line == "TCP_NODELAY of 5 sockets (needs Linux 5.6 or newer)"
    has.add(CAP_SYS_PTRACE)
    assert rights.missing([4], 0, 0, 0, None) == []  # kept even from root, and no socket lacks its process
    (line,) = rights.missing([4], 1, 0, 0, None)
    assert line == (
        "the sockets of process 4 (refused in spite of CAP_SYS_PTRACE: by seccomp or a security module, perhaps)"
    )


ENTRY = Entry(namespace=1, cookie=2, had=False, listens_on=80)


def test_what_was_changed_is_written_down_and_forgotten(tmp_path):
    where = tmp_path / "run"
    with changes(where) as known:
        assert known.entries == []
        known.entries.append(ENTRY)
    assert where.stat().st_mode & 0o777 == 0o700
    with changes(where) as known:
        assert known.entries == [ENTRY]
        known.entries.clear()
    assert not (where / FILE).exists()


def test_of_another_boot_nothing_is_known(tmp_path, monkeypatch):
    with changes(tmp_path) as known:
        known.entries.append(ENTRY)
    boot = tmp_path / "boot_id"
    boot.write_text("another\n")
    assert BOOT.read_text() != boot.read_text()
    monkeypatch.setattr("nagle_lab.live.sockets.undo_log.BOOT", boot)
    with changes(tmp_path) as known:
        assert known.entries == []


def test_a_failure_changes_nothing_that_is_written_down(tmp_path):
    with pytest.raises(ZeroDivisionError), changes(tmp_path) as known:
        known.entries.append(ENTRY)
        raise ZeroDivisionError
    with changes(tmp_path) as known:
        assert known.entries == []


def test_a_list_that_cannot_be_written_is_an_error_in_one_line(tmp_path):
    with pytest.raises(NagleLabError, match="check the path"), changes(tmp_path) as known:
        known.entries.append(ENTRY)
        (tmp_path / "lock").unlink()
        tmp_path.rmdir()


@pytest.mark.parametrize("content", [b"", b"{", b'{"boot": 3}', b"\xff"])
def test_a_damaged_file_is_as_none(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with changes(tmp_path) as known:
        assert known.entries == []


def test_a_folder_that_others_may_write_is_refused(tmp_path):
    where = tmp_path / "run"
    where.mkdir()
    where.chmod(0o777)
    with pytest.raises(NagleLabError, match="others may write there: remove it"), changes(where):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(NagleLabError, match="could not be undone"), changes(tmp_path / "file"):
        pass
