"""How long a sender's TCP held each segment, from the log of its writes alone; uses only Python's own library.

The recorder needs it without nagle-lab installed, and the tests need it, too. programs.py has the columns of the log.
"""

from collections.abc import Iterator

MS = 1_000_000  # ns

# A segment was held behind a delayed ACK if it stayed in its sender's TCP (otherwise it leaves in microseconds),
# left right behind the ACK of the data before it, and that ACK took longer than its path by half of the shortest
# delayed-ACK timer. All three by the sending socket's own timestamps.
HELD = 100_000  # ns
BEHIND_THE_ACK = 1 * MS
LATE = 20 * MS


def holds_of(writes: list[list[int]], path: int, late: int) -> Iterator[tuple[int, int]]:
    """The end of each segment that one end of a connection wrote, and how long it was held, ns.

    An ACK is late if it takes longer than ``path`` by more than ``late``, both ns.

    A segment carries several writes if the later ones were written while the first was held: the kernel has one time
    for all of them, and the segment was held since the first.
    """
    before_left = before_acked = 0
    oldest = None
    for last, _, sent, left, left_again, acked, *free in writes:
        oldest = sent if oldest is None else oldest
        if left is None:
            continue
        held = left - oldest > HELD and not any(free)
        behind_the_ack = 0 <= left - before_acked < BEHIND_THE_ACK
        was_late = before_acked - before_left - path > late
        yield last, left - oldest if held and behind_the_ack and was_late else 0
        before_left, before_acked, oldest = left_again, acked, None
