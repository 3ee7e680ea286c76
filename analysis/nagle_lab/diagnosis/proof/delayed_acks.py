"""Which pure ACKs are counted as delayed: the capture's side of the kernel's own count (TcpExtDelayedACKs)."""

from typing import Any

from nagle_lab.tcp.events import LATE, MS

# No delayed-ACK timer of Linux fires sooner than this: at HZ=100 one of 40 ms may lack the jiffy it began in. What is
# late and came sooner was sent because a program read its data late (tcp_cleanup_rbuf).
SOONEST_TIMER = 30 * MS

# No delayed ACK may wait for half a second (RFC 1122 §4.2.3.2): what took longer was not a delayed-ACK timer, but the
# network, the capturing machine, or its clock, which was set.
LONGEST_TIMER = 500 * MS  # beyond the fastest reaction


def is_late(wait: Any, reaction: Any) -> Any:
    """Whether an ACK took longer than its sender's fastest, its ``reaction``, by what a delayed-ACK timer adds.

    At this capture point, ns; at least :data:`LATE`, and less than :data:`LONGEST_TIMER`.
    """
    return (wait - reaction >= LATE) & (wait - reaction < LONGEST_TIMER)


def is_before_timer(wait: Any, reaction: Any) -> Any:
    """Whether a late ACK came sooner than a delayed-ACK timer can fire: something else sent it."""
    return wait - reaction < SOONEST_TIMER
