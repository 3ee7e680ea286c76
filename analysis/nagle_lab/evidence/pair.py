"""Two captures of the same traffic: the ACK delay and the hold, each measured where it happens.

Neither clock is compared with the other: the ACK delay runs from the trigger's arrival to the late ACK at the capture
nearest the delaying end, the hold from trigger to release at any capture, both within one file.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.result import Result, Stall
from nagle_lab.diagnosis.result.spread import Spread, spread
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import NagleLabError

SCHEMA = "nagle-lab-pair/1"


@dataclass(frozen=True)
class Pair:
    """What two captures of the same traffic show together; times in ms."""

    files: list[str]
    verdicts: list[Verdict]  # of each capture alone
    matched: int  # stalls that both captures show
    only_in: list[int]  # stalls that only that capture shows, by file
    ack_delay_ms: Spread | None  # trigger's arrival to late ACK, at the capture nearer the delaying end
    hold_ms: Spread | None  # trigger to release: what was held waited at most this long
    path_ms: Spread | None  # how much of the hold is not the ACK's delay: round trip, and reaction of the held end
    reply_ms: list[Spread | None]  # request to first reply data in each capture, by file

    @property
    def disagreement(self) -> str:
        """What to make of it where the two have different verdicts; empty where they agree."""
        if len(set(self.verdicts)) == 1:
            return ""
        said = ", ".join(f"{file} is {verdict}" for file, verdict in zip(self.files, self.verdicts, strict=True))
        return f"{said}: trust the capture taken nearer the end that is said to hold"

    def called(self, files: list[str]) -> "Pair":
        """The pair with its files under other names."""
        return replace(self, files=files)

    def to_json(self) -> str:
        """The pair as JSON: one line, ending in a newline."""
        return json_text({"schema": SCHEMA, **asdict(self)}) + "\n"


def match(result: Result, two: Result) -> Pair:
    """Match the stalls of two captures by connection, exchange and key within it.

    Raises
    ------
    NagleLabError
        The captures have no connection in common.
    """
    if not {one.ends for one in result.connections} & {one.ends for one in two.connections}:
        raise NagleLabError(
            f"{result.source.file} and {two.source.file} have no connection in common: not the same traffic "
            "(or addresses were translated in between)"
        )
    left, right = dict(_keyed(result)), dict(_keyed(two))
    common = [(left[key], right[key]) for key in left if key in right]
    delay = [min(a.wait_ms, b.wait_ms) for a, b in common]
    hold = [max(a.wait_ms + a.release_us / 1e3, b.wait_ms + b.release_us / 1e3) for a, b in common]
    return Pair(
        files=[result.source.file, two.source.file],
        verdicts=[result.verdict, two.verdict],
        matched=len(common),
        only_in=[len(left) - len(common), len(right) - len(common)],
        ack_delay_ms=spread(delay),
        hold_ms=spread(hold),
        path_ms=spread([whole - part for whole, part in zip(hold, delay, strict=True)]),
        reply_ms=[result.summary.request_to_response_ms, two.summary.request_to_response_ms],
    )


def _keyed(result: Result) -> Iterator[tuple[tuple[str, str, int, int], Stall]]:
    """Each stall under a key that both captures share: the two ends, the exchange, its number in that."""
    count: dict[tuple[str, str, int], int] = {}
    for stall in result.stalls:
        key = (str(stall.held_by), str(stall.delayed_by), stall.exchange)
        count[key] = count.get(key, 0) + 1
        yield (*key, count[key]), stall
