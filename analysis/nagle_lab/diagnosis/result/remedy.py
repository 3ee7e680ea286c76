"""What to do about the stalls of a capture, at either end, and what it saves."""

from nagle_lab.diagnosis.proof.judged import Ground
from nagle_lab.diagnosis.result.result import Summary, named

ONE_WRITE = "send header and body in one write"
NODELAY = "set TCP_NODELAY"


def remedy(summary: Summary, one_write: str = ONE_WRITE, nodelay: str = NODELAY) -> str | None:
    """In a sentence or two; None without stalls.

    Who knows the lines of code says what to do about them: ``one_write`` instead of two, ``nodelay`` so that no
    segment is held.
    """
    hold, grounds = summary.hold_ms, summary.grounds
    if not hold:
        return None
    held, delayed = named(summary.held_ends), named(summary.delayed_ends)
    is_from_afar = grounds.keys() == {Ground.REPETITION_ON_PATH}  # a program that waits for the ACK looks the same
    unless = " If TCP_NODELAY is set already, the program itself waits for the ACK." if is_from_afar else ""
    saving = (
        f"{hold.low:.1f} to {hold.high:.1f}" if hold.low and hold.high - hold.low > 0.1 else f"up to {hold.high:.1f}"
    )
    return (
        f"On {held}: {one_write}, or {nodelay}. Or on {delayed}: acknowledge at once "
        f"(TCP_QUICKACK, or `quickack 1` on the route). Saves {saving} ms per stalled exchange.{unless}"
    )
