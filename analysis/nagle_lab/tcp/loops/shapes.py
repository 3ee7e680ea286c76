"""What the loops take that is no table of its own. The order of the fields is that of loops.c."""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nagle_lab.tcp.columns import Bools, Ints, Sides

ByteOrder = Literal["<", ">"]
Table = Any
"""A table of columns, always the same ones: an attribute for each, and all in order in ``columns``."""


KINDS = ("data", "consuming", "acking", "pure_ack")  # of rows of a timeline: its is_data and so on


class Framing(NamedTuple):
    """How the records of one format are chained. All values but the first in bytes."""

    byte_order: ByteOrder
    length_at: int  # where in a record its 32-bit length field is
    uncounted: int  # what the length field leaves out (pcap: the record header; pcapng: nothing)
    shortest: int  # record size; anything shorter is damage
    longest: int  # record size; anything longer is damage

    @property
    def header(self) -> int:
        """How many bytes of a record must be there for its size to be known."""
        return self.length_at + 4


class Grouped(NamedTuple):
    """The packets of a window, sorted by connection."""

    order: Ints  # (n,) which packet it is
    sender: NDArray[np.uint64]  # (packets,) hash of who sent it, in order of the packets
    start: Ints  # (connections,) index of the first one
    size: Ints  # (connections,) how many
    place: Ints  # (connections,) where in the tables of live connections it is
    segment_size: Ints  # (connections,) bytes, at least 1
    carried: Ints  # (connections,) rows of earlier windows that go before its own, those before it included


class Halves(NamedTuple):
    """What is remembered of every half-connection, (places, 2), and of both together."""

    seq: Ints  # unwrapped number of the latest segment; -1 unknown
    ack: Ints  # unwrapped number of the latest acknowledgement sent by that side; -1 unknown
    sent: Ints  # highest end sent; 0 none
    told: Ints  # highest acknowledgement sent; 0 none
    shift: NDArray[np.uint8]  # how far that side's window is scaled
    packets: Ints
    segments: Ints  # packets made by segmentation offload counted in parts
    payload: Ints  # bytes
    wire: Ints  # bytes of the whole packets
    last_ts: Ints  # (places,) ns, of the connection's latest packet
    opener: Sides  # (places,) side that sent the first data; -1 none yet
    closed: Bools  # FIN sent; both by a RST
    origin: NDArray[np.uint64]  # (places,) hash of side 0


class Answers(NamedTuple):
    """New rows that newly acknowledge the peer's latest segment: RTT samples, all shape (samples,)."""

    acker: Ints
    segment: Ints
    wait: Ints  # ns between them


class Waits(NamedTuple):
    """New data rows that follow data of their own side after a while, a pure ACK of the peer in between: (waits,)."""

    trigger: Ints  # the data before
    told: Ints  # the peer's latest acknowledgement before that; -1 none
    ack: Ints  # the latest of these ACKs
    release: Ints  # the row itself


class Pauses(NamedTuple):
    """New rows that follow the connection's previous one after a while, from its first data on: (pauses,)."""

    at: Ints  # the row itself
    own: Ints  # the latest data of its side; -1 none
    peer: Ints  # that of the other; -1 none
    told: Ints  # the other's latest acknowledgement; -1 none


class Behind(NamedTuple):
    """New data rows whose side had data unacknowledged, as far as the capture shows: (rows,)."""

    sent: Ints  # the row itself
    own: Ints  # the latest of that data


class Noticed(NamedTuple):
    """What the rows of a timeline (n,) are beside those before them on their connections. All columns are rows."""

    answers: Answers
    waits: Waits
    pauses: Pauses
    behind: Behind
    context: Bools  # (n,) what rows of later windows may look back at


NEVER = np.iinfo(np.int64).max


class Exchanges(NamedTuple):
    """The open exchange of each live connection, and those before it: all (places,). Times in ns."""

    number: NDArray[np.int32]  # -1 none yet
    asking: Bools  # the connection's last data came from the asking side
    full: NDArray[np.int32]  # exchanges before it that have request and answer
    repeat: NDArray[np.int32]  # those of them that follow another
    greeted: Bools  # exchange 0 has no request: the server spoke first
    asked: Ints  # first segment of the request; NEVER without one
    asked_last: Ints  # and its last; -1 without one
    acked: Ints  # acknowledgement of the request; -1 without one
    answered: Ints  # first segment of the answer; NEVER without one
    answered_last: Ints  # and its last; -1 without one


NO_EXCHANGES = Exchanges(-1, False, 0, 0, False, NEVER, -1, -1, NEVER, -1)  # type: ignore[arg-type]


class Ended(NamedTuple):
    """Exchanges that are over and have request and answer: all (n,). Times as in :class:`Exchanges`."""

    place: Ints  # of the connection
    number: NDArray[np.int32]
    asked: Ints
    asked_last: Ints
    acked: Ints
    answered: Ints
    answered_last: Ints
