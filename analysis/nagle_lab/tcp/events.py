"""What the machine tells: when there is an event, and what the fields of its rows (engine.h) mean."""

from enum import IntEnum

MS = 1_000_000  # ns

# An ACK is late when it took this long. The shortest delayed-ACK timer in use is 40 ms (Linux, TCP_DELACK_MIN =
# HZ/25); half of it separates that from network and scheduling noise.
LATE = 20 * MS
IDLE = LATE  # a silence so long is an idle gap

# When a lone segment stays unacknowledged, TCP probes for a loss with the next one, held or not (RFC 8985 §7.3);
# Linux not sooner than this (TCP_RTO_MIN). What is sent so late behind a segment does not show that Nagle is off.
PROBE = 200 * MS

# Rows of reactions that leave of each kind of a program, and of its peers, but for the rest of a connection: more
# would say no more.
MOST_SAMPLES = 1 << 12


class EndedBy(IntEnum):
    """What ended an idle gap."""

    ACKNOWLEDGEMENT = 0  # a pure ACK of something new
    ANSWER = 1  # data, after data of the other side
    CONTINUATION = 2  # data, after data of the same side
    RETRANSMISSION = 3
    WINDOW = 4  # a window that was closed or full opened
    OTHER = 5


class Reaction(IntEnum):
    """What an end reacted with, to the latest segment of its peer."""

    HANDSHAKE = 0  # with its SYN or the ACK of one: its kernel did
    ACK = 1  # with a pure ACK: its kernel did, at once or when the delayed-ACK timer fired
    DATA = 2  # its program did
    RELEASE = 3  # with more data, to an ACK that came within SHORT


class Echo(IntEnum):
    """What the timestamps of data (RFC 7323) say of the ACK in question: had its sender received it already?"""

    UNKNOWN = -1
    BEFORE = 0  # it echoes an older segment
    AFTER = 1
