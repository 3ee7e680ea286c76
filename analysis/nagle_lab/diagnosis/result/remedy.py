"""What to do about the stalls of a capture, at either end, and what it saves."""

from nagle_lab.diagnosis.proof.outcomes import Ground
from nagle_lab.diagnosis.result.result import Summary, named

ONE_WRITE = "send header and body in one write"
NODELAY = "set TCP_NODELAY"


def is_behind_full(summary: Summary) -> bool:
    """Whether most were held behind a *full* segment, as RFC 896 has it: then data of one write waits, too."""
    return 2 * summary.behind_full > summary.stalls


def remedy(summary: Summary, one_write: str | None = ONE_WRITE, nodelay: str = NODELAY) -> str | None:
    """In a sentence or two; None without stalls.

    Who knows the lines of code says what to do about them: ``one_write`` instead of two (None: it is one already),
    ``nodelay`` so that no segment is held.
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
    write = f"{one_write}, or {nodelay}" if one_write else f"{nodelay} (the data is in one write already)"
    if is_behind_full(summary):
        write = f"{nodelay}; one write does not help, as its TCP holds the end of that, too (RFC 896)"
    return (
        f"On {held}: {write}. Or on {delayed}: acknowledge at once "
        f"(TCP_QUICKACK, or `quickack 1` on the route). Saves {saving} ms per stalled exchange.{unless}"
    )
