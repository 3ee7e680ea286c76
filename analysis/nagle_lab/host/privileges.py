"""What this process may do: capabilities(7), and what Yama allows with ptrace(2)."""

from pathlib import Path

from nagle_lab.host.proc import status_of

CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_PTRACE, CAP_SYS_ADMIN = 12, 13, 19, 21
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


def has_capability(number: int) -> bool:
    """Whether this process has a capability, by its number in capabilities(7)."""
    return bool(int(status_of("self").get("CapEff", "0"), 16) >> number & 1)


def may_join_namespaces() -> bool:
    """Whether this process may join other processes' network namespaces."""
    return has_capability(CAP_SYS_ADMIN)


def may_make_network() -> bool:
    """Whether this process may make, set up and record a network namespace without a user namespace."""
    return all(map(has_capability, (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW)))


def ptrace_scope() -> int:
    """How far the kernel keeps a user's own processes apart (Yama): from 0, not at all, to 3."""
    try:
        return int(YAMA.read_text())
    except (OSError, ValueError):
        return 0
