"""What the kernel says of sockets and processes, read from bytes and lines as it writes them."""

import errno
import os
import shutil
import socket
import subprocess
from contextlib import ExitStack
from struct import pack

import pytest

from nagle_lab.host.privileges import CAP_SYS_PTRACE
from nagle_lab.host.sock_diag import TcpInfo, read_info, read_socket
from nagle_lab.live.sockets import inventory, rights
from nagle_lab.live.sockets.processes import container_of, process_name
from support.waiting import within

ID = "4a1f" * 16


def tcp_info(length: int = 248, **fields: int) -> bytes:
    """A struct tcp_info with some of its fields."""
    at = {"mss": 16, "in_flight": 24, "cwnd": 80, "unsent": 144, "window": 228}
    info = bytearray(length)
    for name, value in fields.items():
        info[at[name] : at[name] + 4] = pack("=I", value)
    return bytes(info[:length])


def message(family: int, local: bytes, remote: bytes, *, state: int = 1, queue: int = 0, info: bytes = b"") -> bytes:
    """A struct inet_diag_msg and its attributes: one that is nobody's first, for they come in any order."""
    head = pack("=BBBB2s2s", family, state, 0, 0, pack("!H", 8080), pack("!H", 50123))
    head += local.ljust(16, b"\0") + remote.ljust(16, b"\0") + pack("=IQ", 0, 77)
    head += pack("=IIIII", 0, 0, queue, 1000, 4711)
    return head + pack("=HHB3x", 5, 8, 0) + (pack("=HH", 4 + len(info), 2) + info if info else b"")


def test_a_connection_with_data_that_waits():
    info = tcp_info(mss=1448, in_flight=1, unsent=600, cwnd=10, window=65535)
    read = read_socket(message(socket.AF_INET, b"\x0a\0\0\1", b"\x0a\0\0\2", queue=838, info=info))
    assert (read.state, read.local, read.remote) == ("ESTABLISHED", ("10.0.0.1", 8080), ("10.0.0.2", 50123))
    assert (read.uid, read.inode, read.cookie) == (1000, 4711, 77)
    assert (read.unacknowledged, read.unsent) == (238, 600)
    assert read.info == TcpInfo(mss=1448, in_flight=1, unsent=600, cwnd=10, window=65535)


@pytest.mark.parametrize(
    ("packed", "shown"),
    [
        (bytes(10) + b"\xff\xff\x7f\0\0\1", "127.0.0.1"),  # as in packets: mapped IPv4 is IPv4 there
        (bytes(15) + b"\1", "::1"),
        (b"\xfe\x80" + bytes(13) + b"\2", "fe80::2"),
        (bytes(16), "::"),
    ],
)
def test_addresses_of_ipv6_sockets(packed: bytes, shown: str):
    assert read_socket(message(socket.AF_INET6, packed, packed)).local == (shown, 8080)


def test_the_queues_of_a_listener_are_no_bytes():
    """For it the kernel gives the lengths of its queue of connections in the same fields."""
    read = read_socket(message(socket.AF_INET, bytes(4), bytes(4), state=10, queue=511, info=tcp_info(in_flight=3)))
    assert (read.state, read.unacknowledged, read.unsent, read.info) == ("LISTEN", 0, 0, None)


def test_no_process_is_kept_open_after_its_socket_was_read(monkeypatch):
    """There may be more of them than files may be open."""
    real, opened = os.pidfd_open, list[int]()

    def pidfd_open(pid: int, flags: int = 0) -> int:
        for fd in opened:
            with pytest.raises(OSError, match="Bad file"):
                os.fstat(fd)
        opened.append(real(pid, flags))
        return opened[-1]

    with ExitStack() as stack:
        programs = []
        for _ in range(3):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                program = subprocess.Popen(["sleep", "60"], pass_fds=[listener.fileno()])
            stack.callback(program.wait)
            stack.callback(program.kill)
            programs.append(program.pid)
        monkeypatch.setattr(os, "pidfd_open", pidfd_open)
        found = inventory.inventory(programs)
    assert len(opened) == len(found.sockets) == 3 and all(one.options for one in found.sockets)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.EMFILE, "too many open files"),
        (errno.EPERM, "refused in spite of CAP_SYS_PTRACE: by seccomp or a security module, perhaps"),
        (errno.ENOSYS, "needs Linux 5.6 or newer"),
    ],
)
def test_only_a_refusal_is_said_to_be_one(monkeypatch, number, says):
    monkeypatch.setattr(rights, "has_capability", lambda _: True)
    assert rights.needs(CAP_SYS_PTRACE, OSError(number, os.strerror(number))) == says


def test_a_state_without_tcp_info():
    read = read_socket(message(socket.AF_INET, b"\x0a\0\0\1", b"\x0a\0\0\2", state=6))
    assert (read.state, read.unacknowledged, read.info) == ("TIME-WAIT", 0, None)


def test_kernels_that_say_less():
    assert read_info(tcp_info(232, window=5)).window == 5
    assert read_info(tcp_info(192, unsent=7)) == TcpInfo(mss=0, in_flight=0, unsent=7, cwnd=0, window=None)
    assert read_info(tcp_info(104)) is None


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"12:memory:/docker/{ID}\n0::/docker/{ID}\n", ID[:12]),
        (f"0::/system.slice/docker-{ID}.scope\n", ID[:12]),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope\n", ID[:12]),
        (f"0::/user.slice/user-1000.slice/libpod-{ID}.scope/container\n", ID[:12]),
        (f"0::/docker/{'0' * 64}/docker/{ID}\n", ID[:12]),  # an engine in a container
        ("0::/lxc/web/init.scope\n", "web"),
        ("0::/lxc.payload.web/system.slice\n", "web"),
        ("0::/system.slice/nginx.service\n", ""),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_containers_by_cgroup(cgroup: str, container: str):
    assert container_of(cgroup) == container


@pytest.mark.parametrize("name", ["short", "a-name-of-15-by", "a-name-of-more-than-15-bytes"])
def test_the_name_of_a_process_is_whole(tmp_path, name: str):
    program = shutil.copy(shutil.which("sleep") or "", tmp_path / name)
    with subprocess.Popen([program, "60"]) as process:
        try:  # the kernel names a process a moment after Popen has returned
            assert within(60, lambda: process_name(process.pid) == name), process_name(process.pid)
        finally:
            process.kill()
