"""The rule: what the proof of a whole capture amounts to."""

from enum import StrEnum

from nagle_lab.errors import Exit

# Fewer answered exchanges than this without a stall say nothing: the first ones of a connection never stall.
ENOUGH_EXCHANGES = 10


class Verdict(StrEnum):
    """What a capture shows."""

    STALL = "STALL"  # proved, with frame numbers
    CLEAN = "CLEAN"  # enough exchanges, none stalled
    INCONCLUSIVE = "INCONCLUSIVE"  # too little to say
    INVALID = "INVALID"  # no verdict can be based on it


def decide(
    tcp_packets: int, exchanges: int, stalls: int, damage: list[str], *, set_back: bool = False
) -> tuple[Verdict, str]:
    """The verdict on one capture and, for all but STALL, what a person can do about it.

    ``damage`` lists what is wrong with the file. A stall is proved by the three segments that show it, so damage
    elsewhere does not take it back; but nothing can be called clean from a part of a capture. A clock that was seen
    ``set_back`` proves nothing: its times cannot be compared.
    """
    if not tcp_packets:
        return Verdict.INVALID, "no TCP packet in it; capture with the filter 'tcp' on the interface in use"
    if stalls and not set_back:
        return Verdict.STALL, ""
    if damage:
        return Verdict.INVALID, "; ".join(damage)
    if exchanges < ENOUGH_EXCHANGES:
        return Verdict.INCONCLUSIVE, (
            f"{exchanges} answered exchange{'s' * (exchanges != 1)}, none stalled, "
            f"but {ENOUGH_EXCHANGES} are needed to say so; capture for longer"
        )
    return Verdict.CLEAN, f"{exchanges} answered exchanges, none held behind a delayed ACK"


def exit_code(verdict: Verdict, expected: Verdict | None = None) -> Exit:
    """The exit code of a verdict; with an expectation, whether it was met."""
    if verdict is Verdict.INVALID:
        return Exit.UNUSABLE
    if verdict is Verdict.INCONCLUSIVE:
        return Exit.INCONCLUSIVE
    return Exit.OK if expected in (None, verdict) else Exit.CONTRADICTED
