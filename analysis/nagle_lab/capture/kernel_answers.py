"""What the kernel said while a capture was recorded: whether data waited in a socket whose last segment was small.

The answers are in the capture itself, as comments of interface statistics blocks (draft-ietf-opsawg-pcapng §4.6), so
that they stay with the capture. Other readers ignore them.
"""

import re
from functools import lru_cache
from typing import NamedTuple

SLOWEST_NS = 5_000_000  # of an answer: after more its time is too uncertain, as the kernel is asked before it answers
MOST = 200_000  # of a capture; more would take too much memory
_TEXT = "nagle-lab: {unsent} bytes wait in {sender} for {receiver}, behind a small segment that is not acknowledged"
_COMMENT = re.compile(r"nagle-lab: (\d{1,9}) bytes wait in (\S+:\d{1,5}) for (\S+:\d{1,5}), ", re.ASCII)

SocketAddress = tuple[str, int]  # IP address, as ipaddress writes it, IPv4 not mapped into IPv6; port


class KernelAnswer(NamedTuple):
    """Whether data waited in a socket behind an unacknowledged small segment, although the windows had room for
    it.
    """

    at: int  # ns since 1970, when the kernel had answered
    sender: SocketAddress
    receiver: SocketAddress
    unsent: int  # bytes; 0: nothing waited, so data that left later was not written yet


def comment(answer: KernelAnswer) -> str:
    """The text of the comment that is written into a capture; :func:`read` parses it."""
    sender, receiver = (f"{address}:{port}" for address, port in (answer.sender, answer.receiver))
    return _TEXT.format(unsent=answer.unsent, sender=sender, receiver=receiver)


def read(text: str, at: int) -> KernelAnswer | None:
    """The answer in a comment of the time ``at`` (ns since 1970); None if it is another comment."""
    if found := _COMMENT.match(text):
        unsent, sender, receiver = found.groups()
        return KernelAnswer(at, _end(sender), _end(receiver), int(unsent))
    return None


@lru_cache(1 << 14)
def _end(text: str) -> SocketAddress:
    """An end, the same object for the same text, because hundreds of thousands are kept."""
    address, _, port = text.rpartition(":")
    return address, int(port)
