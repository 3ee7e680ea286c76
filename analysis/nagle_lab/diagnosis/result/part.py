"""The verdict on some connections of a capture alone: those under test in a run, those of a row of `watch`."""

from collections.abc import Mapping, Sequence

from nagle_lab.diagnosis.proof.outcomes import Obstacle
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import Verdict, VerdictInput, decide


def decide_part(
    result: Result,
    *,
    packets: int,
    exchanges: int,
    stalls: int,
    unresolved: Mapping[Obstacle, int],
    damage: Sequence[str] = (),
    one_way: float = 0.0,
) -> tuple[Verdict, str]:
    """What the rule for a whole capture says of a part of it, for which there is less evidence.

    How often data followed ACKs and was not held is counted for the whole capture only: of a part without answers
    nothing tells whether a stall would have been seen, so it is not CLEAN. Segments may be astray on any of the
    connections.
    """
    evidence = VerdictInput(
        packets,
        exchanges,
        stalls,
        damage,
        one_way=one_way,
        astray_share=result.quality.astray_share,
        unresolved=unresolved,
    )
    return decide(evidence)
