"""Limits from which on the machine reports something, ns, and the enumerations in its rows (engine.h)."""

from enum import IntEnum

US, MS = 1_000, 1_000_000  # ns

# `ahead` of a candidate whose release has no timestamps; it is OPTIONS_CUT if the capture cut them off.
NO_TIMESTAMPS = -1

# From this delay on a pure ACK counts as delayed; the proof has its own bounds (diagnosis/proof/late_acks.py).
# The timer of Linux takes at least 40 ms (TCP_DELACK_MIN = HZ/25); half of that separates it from network and
# scheduling.
DELAYED = 20 * MS
IDLE = DELAYED  # a connection without packets for so long has an idle gap

# When a lone segment stays unacknowledged, TCP probes for a loss with the next one, held or not (RFC 8985 §7.3);
# Linux not sooner than PROBE (TCP_RTO_MIN), and when several do, after two round trips and two jiffies
# (TCP_TIMEOUT_MIN). Data sent so late behind a segment does not show that Nagle is off.
PROBE, PROBE_JIFFIES = 200 * MS, 2 * MS

# Reactions of one kind are added for a connection until both its programs, and the peers of both, have so many rows.
MOST_SAMPLES = 1 << 12


class EndedBy(IntEnum):
    """What ended an idle gap."""

    ACKNOWLEDGEMENT = 0  # a pure ACK of something new
    ANSWER = 1  # data, after data of the other side
    CONTINUATION = 2  # data, after data of the same side
    RETRANSMISSION = 3
    WINDOW = 4  # the opening of a window that was closed or full
    OTHER = 5
    READING = 6  # a pure ACK of more than a full segment: sent at once when the program reads that much


class Reaction(IntEnum):
    """What an end reacted with, to the latest segment of its peer."""

    HANDSHAKE = 0  # with its SYN or the ACK of one: the kernel reacted
    ACK = 1  # with a pure ACK: the kernel reacted, at once or when the delayed-ACK timer fired
    DATA = 2  # the program reacted
    RELEASE = 3  # with more data, to the ACK of its data, within SHORT of that data
    NO_NEW_ACK = 4  # with data, to data that acknowledged nothing new, so it released nothing


class KeptBy(IntEnum):
    """What else than Nagle's algorithm may have kept data until the ACK."""

    NOTHING = 0
    MSG_MORE = 1  # the data lacks the PSH that ends a write: its sender announced more
    WINDOW = 2  # until this ACK the window was full, unless it is scaled, which is not known


class Echo(IntEnum):
    """Whether data was sent after its sender had received the ACK in question, by its timestamps (RFC 7323)."""

    UNKNOWN = -1
    BEFORE = 0  # the data echoes an older segment: it was sent before
    AFTER = 1  # it echoes the ACK
