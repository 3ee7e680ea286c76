"""What to do about the stalls of a capture, at either end, and how much sooner held data then leaves."""

from pathlib import Path

from msgspec.structs import replace

from nagle_lab.diagnosis.proof.outcomes import Ground
from nagle_lab.diagnosis.result.result import Summary
from nagle_lab.diagnosis.result.writes import Option, Place, Write, Writes, is_asked, place_text

ONE_WRITE = "send each message in one write"
NODELAY = "set TCP_NODELAY"
FAR_MS = 5  # if a hold is longer than the timer by this, the rest is a round trip, which no quick ACK saves
_OTHERWISE = "the program itself waits for the ACK, or passes on what another connection held, or the path keeps data"


def is_behind_full(summary: Summary) -> bool:
    """Whether most were held behind a *full* segment (RFC 9293 §3.7.4): then data of one write may wait, too.

    It does in lwIP, smoltcp and ns-3; FreeBSD and gVisor send all of one write at once.
    """
    return 2 * summary.behind_full > summary.stalls


def remedy(summary: Summary, writes: Writes | None = None, here: Path | None = None) -> str | None:
    """The remedy in a sentence or two; None without stalls.

    It names the lines of the ``writes``, if these are known; files below the folder ``here`` are named relative to
    it.
    """
    hold, grounds = summary.hold_ms, summary.grounds
    if not hold:
        return None
    held, delayed = summary.who_held, summary.who_delayed
    # Some programs look the same from there; what timestamps prove is like the other stalls.
    is_from_afar = grounds.keys() <= {Ground.REPETITION_ON_PATH, Ground.REPETITION_NEARBY, Ground.TIMESTAMPS}
    unless = f" If TCP_NODELAY is set already, {_OTHERWISE}." if is_from_afar else ""
    saving = (
        f"{hold.low:.1f} to {hold.high:.1f}" if hold.low and hold.high - hold.low > 0.1 else f"up to {hold.high:.1f}"
    )
    one_write, nodelay = _one_write(writes, here), _nodelay(writes, here)
    write = f"{one_write}, or {nodelay}" if one_write else f"{nodelay} (the data is in one write already)"
    if is_behind_full(summary):
        write = f"{nodelay}; one write may not help, for some systems hold the end of that, too (RFC 9293 §3.7.4)"
    quick = "acknowledge at once (TCP_QUICKACK, or `quickack 1` on the route)"
    done = f"On {held}: {write}; or {quick}" if summary.is_mutual else f"On {held}: {write}. Or on {delayed}: {quick}"
    timer = summary.ack_timer_ms
    is_far = timer is not None and hold.high - timer > FAR_MS
    quick_saving = f"; if ACKs are sent at once, up to {timer:.1f} ms" if is_far else ""
    return f"{done}. Held data then leaves {saving} ms sooner{quick_saving}.{unless}"


def _one_write(writes: Writes | None, here: Path | None) -> str | None:
    """How to change the two writes, by their lines; None if they are one write."""
    group = writes.groups[0] if writes and writes.groups else None
    if not writes or not group:
        return ONE_WRITE
    if group.one_write:
        return None
    first, second = (_line(write, here) for write in (group.trigger, group.held))
    if not first or not second:
        return ONE_WRITE
    lines = f"what {first} writes" if first == second else f"{first} and {second}"
    if 2 * sum(pair.held_writes > 1 for pair in writes.pairs) > len(writes.pairs):
        lines += ", and what it writes next,"
    others = " (and the other pairs below)" if len(writes.groups) > 1 else ""
    return f"join {lines}{others} in one write"


def _set_late(writes: Writes | None) -> Option | None:
    """What set TCP_NODELAY on the socket that held, if it did so only after the first stall; else None."""
    own = _on_the_socket(writes)
    in_time = any(one.value and not one.after_stall for one in own)
    return own[-1] if own and own[-1].value and not in_time else None


def _on_the_socket(writes: Writes | None) -> list[Option]:
    """What changed TCP_NODELAY on the socket that held, in order; what it inherited from its listener comes first."""
    asked = writes.options if writes else []
    return [one for one in asked if one.took_effect and one.on in ("listener", "socket")]


def cleared(writes: Writes | None) -> Option | None:
    """What cleared TCP_NODELAY on the socket that held, after it had been set; None if nothing did."""
    was_set = any(one.value for one in _on_the_socket(writes))
    return _last_clears(writes) if was_set else None


def _last_clears(writes: Writes | None) -> Option | None:
    """What cleared TCP_NODELAY last on the socket that held, whether it had been set or not; None if nothing did."""
    own = _on_the_socket(writes)
    return own[-1] if own and own[-1].on == "socket" and not own[-1].value else None


def _nodelay(writes: Writes | None, here: Path | None) -> str:
    """What to do about TCP_NODELAY: if it was set and then cleared, setting it once more would not last either."""
    if late := _set_late(writes):
        line = _line(late.write, here)
        return f"{NODELAY} before the first write{f' ({line} sets it too late)' if line else ''}"
    if not (lost := cleared(writes)):
        clears = _last_clears(writes)
        line = _line(clears.write, here) if clears and clears.write.program else ""
        return f"{NODELAY} at {line}, which clears it" if line else NODELAY
    by = lost.write
    is_of_library = by.library is not None and not is_asked(by)
    sets_it_too = any(one.value and one.write.program == by.program for one in _on_the_socket(writes))
    if by.program and by.program.line and not is_of_library and not sets_it_too:
        return f"remove {_file_and_line(by.program, here)}, which clears TCP_NODELAY"
    inner, outer = (by.library, by.program) if is_of_library else (by.program, lost.caller)
    if not inner or not inner.line:
        return "leave TCP_NODELAY set"
    asked = f" for {_file_and_line(outer, here)}" if outer and outer.line else ""
    return f"leave TCP_NODELAY set, which {_file_and_line(inner, here)} clears{asked}"


def _line(write: Write, here: Path | None) -> str:
    """File and line only: the program's if known, else a library's; empty if neither is known."""
    places = [place for place in (write.program, write.library) if place and place.line]
    return _file_and_line(places[0], here) if places else ""


def _file_and_line(place: Place, here: Path | None) -> str:
    return place_text(replace(place, function=""), here)
