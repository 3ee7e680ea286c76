"""What the loops take that is no table of its own. The order of the fields is that of loops.c."""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nagle_lab.columns import Ints, Sides

ByteOrder = Literal["<", ">"]
Table = Any
"""A table of columns: an attribute for each, and all in order in ``columns``."""


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
    """The packets of a window (n,), sorted by connection."""

    order: Ints  # (n,) which packet it is
    side: Sides  # (n,) who sent it
    start: Ints  # (connections,) index of the first one
    size: Ints  # (connections,) how many
    place: Ints  # (connections,) where in the tables of live connections it is
    segment_size: Ints  # (connections,) bytes, at least 1
    carried: Ints  # (connections,) rows of earlier windows that go before its own, those before it included


class Halves(NamedTuple):
    """What is remembered of every half-connection: (places, 2), but for ``last_ts`` (places,)."""

    seq: Ints  # unwrapped number of the latest segment; -1 unknown
    ack: Ints  # unwrapped number of the latest acknowledgement sent by that side; -1 unknown
    sent: Ints  # highest end sent; 0 none
    told: Ints  # highest acknowledgement sent; 0 none
    shift: NDArray[np.uint8]  # how far that side's window is scaled
    packets: Ints
    segments: Ints  # packets made by segmentation offload counted in parts
    payload: Ints  # bytes
    wire: Ints  # bytes of the whole packets
    last_ts: Ints  # ns, of the connection's latest packet


NEVER = np.iinfo(np.int64).max
ASKS, ACKNOWLEDGES, ANSWERS = 1, 2, 4  # what a row does in its exchange; one that answers may acknowledge, too


class Times(NamedTuple):
    """Of each exchange: first and last segment of the request, its acknowledgement, first and last of the answer."""

    asked: Any
    asked_last: Any
    acked: Any
    answered: Any
    answered_last: Any


UNSEEN = Times(NEVER, -1, -1, NEVER, -1)  # ns
TOGETHER = Times(np.minimum, np.maximum, np.maximum, np.minimum, np.maximum)  # puts pieces of one exchange together
