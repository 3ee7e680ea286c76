"""Network namespaces: making one whose loopback shows stalls, and looking into those of other processes.

Linux only; no program is needed for it.
"""

import ctypes
import fcntl
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from struct import pack, unpack_from
from typing import TypeVar

from nagle_lab.host.libc import LIBC, last_error
from nagle_lab.host.privileges import may_make_network

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
OF_PROCESS = ("user", "net")  # to join, in this order: being in the first gives the right to join the second
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFMTU, _SIOCETHTOOL = 0x8913, 0x8914, 0x8922, 0x8946
_IFF_UP = 1
T = TypeVar("T")
_ETHTOOL_STSO, _ETHTOOL_SGSO, _ETHTOOL_SGRO = 0x1F, 0x24, 0x2C


def unshare(flags: int) -> None:
    """Move into new namespaces: unshare(2). Raises OSError."""
    if LIBC.unshare(flags):
        raise last_error()


def make(uid: int, gid: int) -> None:
    """Move into a new network namespace; without CAP_SYS_ADMIN into a new user namespace, too, as the same user.

    Raises OSError if the machine does not allow it.
    """
    if may_make_network():
        unshare(CLONE_NEWNET)
        return
    unshare(CLONE_NEWUSER | CLONE_NEWNET)
    map_ids((uid, uid), (gid, gid))


def join(pid: int, kinds: Sequence[str] = ("net",)) -> None:
    """Let the calling thread join namespaces of a process that differ from its own: setns(2). Raises OSError.

    ``kinds`` are their names in /proc/PID/ns, in the order in which they are joined.
    """
    for kind in kinds:
        theirs = Path(f"/proc/{pid}/ns/{kind}")
        if theirs.stat().st_ino == Path(f"/proc/self/ns/{kind}").stat().st_ino:
            continue
        with theirs.open("rb") as namespace:
            if LIBC.setns(namespace.fileno(), 0):
                raise last_error()


def namespace_of(pid: int | str) -> int | None:
    """The inode of a process's network namespace; None without the right to read it, or if the process has ended."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None


def inside(pid: int, look: Callable[[], T]) -> T:
    """What ``look`` returns in the network namespace of a process. Raises OSError.

    If that is another namespace, a separate thread joins it: setns(2) moves one thread, and takes CAP_SYS_ADMIN.
    """
    if namespace_of(pid) == namespace_of("self"):
        return look()

    def there() -> T:
        join(pid)
        return look()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(there).result()


def map_ids(uid: tuple[int, int], gid: tuple[int, int]) -> None:
    """Map a user and a group of this user namespace (first) to those of its parent (second). Raises OSError."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid[0]} {uid[1]} 1")
    Path("/proc/self/gid_map").write_text(f"{gid[0]} {gid[1]} 1")


def prepare_loopback(mtu: int) -> None:
    """Bring loopback up, with segments as on a network: with that MTU and without segmentation offload. Raises
    OSError.
    """
    set_up_interface("lo", mtu)
    # A user inside the namespace needs no root for this: nobody else uses ports below 1024 here.
    with suppress(OSError):
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")


def set_up_interface(name: str, mtu: int | None) -> None:
    """Bring an interface up, without segmentation offload; with that MTU, if one is given. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:

        def ioctl(request: int, argument: bytes) -> bytes:
            return fcntl.ioctl(any_socket, request, pack("16s24s", name.encode(), argument))

        if mtu:
            ioctl(_SIOCSIFMTU, pack("i", mtu))
        for command in (_ETHTOOL_STSO, _ETHTOOL_SGSO, _ETHTOOL_SGRO):
            value = ctypes.create_string_buffer(pack("II", command, 0))
            with suppress(OSError):  # a driver that cannot switch it off has none, or the capture shows it
                ioctl(_SIOCETHTOOL, pack("P", ctypes.addressof(value)))
        (flags,) = unpack_from("h", ioctl(_SIOCGIFFLAGS, b""), 16)
        ioctl(_SIOCSIFFLAGS, pack("h", flags | _IFF_UP))


def segments_sent() -> int | None:
    """TCP segments that the kernel of this namespace has sent so far; None if it does not say.

    OutSegs leaves out retransmissions (RFC 4022), which a busy machine makes, too.
    """
    with suppress(OSError, ValueError, StopIteration, KeyError):
        lines = (line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:"))
        counters = dict(zip(next(lines), next(lines), strict=True))
        return int(counters["OutSegs"]) + int(counters["RetransSegs"])
    return None
