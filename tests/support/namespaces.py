"""A network namespace, and what the kernel says about it in /proc/net: TCP sockets, segments sent, recorders."""

from contextlib import suppress
from pathlib import Path

# Runs a command in a network namespace of its own, whose loopback is up and has the MTU of Ethernet.
OWN_NETWORK = ["unshare", "--net", "sh", "-c", 'ip link set lo mtu 1500 up; exec "$@"', "sh"]
ESTABLISHED, FIN_WAIT_2, LISTEN = "01", "05", "0A"  # states of proc_net_tcp.rst in Linux's documentation


def sockets(tcp: str, port: int, state: str) -> int:
    """How many sockets of /proc/net/tcp are in that state and have the port at one of their ends."""
    rows = [line.split() for line in tcp.splitlines()[1:]]
    return sum(row[3] == state and f"{port:04X}" in (row[1][-4:], row[2][-4:]) for row in rows)


def sent(snmp: str) -> int:
    """TCP segments sent, by /proc/net/snmp, including retransmissions; 0 if the file is empty."""
    lines = [line.split() for line in snmp.splitlines() if line.startswith("Tcp:")]
    counts = dict(zip(*lines, strict=True)) if lines else {}
    return int(counts.get("OutSegs", 0)) + int(counts.get("RetransSegs", 0))


def receiving(packet: str) -> set[str]:
    """The inodes of packet sockets in /proc/net/packet that receive, or would receive if their interface were up."""
    rows = [line.split() for line in packet.splitlines()[1:]]
    return {row[8] for row in rows if row[5] == "1" or row[4] != "0"}


def is_recorded(pid: int) -> bool:
    """Whether a packet socket in the network namespace of that process receives and has its ring.

    A socket receives from its creation on, but packets that come before its ring is mapped are not recorded.
    """
    mapped = {f"socket:[{inode}]" for inode in receiving(Path(f"/proc/{pid}/net/packet").read_text())}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # the process has ended meanwhile
            if mapped & set(maps.read_text().split()):
                return True
    return False
