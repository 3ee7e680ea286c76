"""Two captures of the same traffic: what each shows, judged with the other one, and what both show together."""

from dataclasses import dataclass, replace

from nagle_lab.diagnosis.both_ends import BothEnds, candidate_key
from nagle_lab.diagnosis.result.json_text import json_text
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.spread import Spread, spread
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.diagnosis.same_connections import Row
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.tables import Tables

SCHEMA = "nagle-lab-pair/1"
_CANDIDATE = LAYOUTS["candidate"].columns

# The first of these that a capture has is the verdict: a stall is proved by its segments, CLEAN needs both captures.
_BEFORE_OTHERS = (Verdict.STALL, Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.CLEAN)


@dataclass(frozen=True)
class Pair:
    """What two captures of the same traffic show together; times in ms.

    Attributes
    ----------
    results : the result of each capture, judged with what the other one shows
    connections : how many are judged by both captures; what only one shows is judged by that one alone
    is_one : whether any connection is in both, by its sequence numbers
    are_apart : whether they were taken at different places
    matched : stalls that both show
    only_in : for each file, stalls that only this capture shows
    ack_delay_ms : from the trigger's arrival to the late ACK, at the capture nearer the delaying end
    hold_ms : from trigger to release: held data waited at most this long
    path_ms : how much of that is not the ACK's delay: the round trip, and the reaction of the end that held
    """

    results: tuple[Result, Result]
    connections: int
    is_one: bool
    are_apart: bool
    matched: int
    only_in: tuple[int, int]
    ack_delay_ms: Spread | None
    hold_ms: Spread | None
    path_ms: Spread | None

    @property
    def files(self) -> list[str]:
        """The names of both."""
        return [result.source.file for result in self.results]

    @property
    def verdict(self) -> Verdict:
        """The verdict of both together."""
        return min((result.verdict for result in self.results), key=_BEFORE_OTHERS.index)

    @property
    def nearer(self) -> Result:
        """The result to look at, of those with that verdict: nearer to the end that holds or, without stalls, to the
        server.

        There data comes sooner after the ACK, or after the request.
        """

        def how_soon(result: Result) -> float:
            soon = result.summary.release_us or result.summary.request_to_response_ms
            return soon.p50 if soon else 0.0

        return min((result for result in self.results if result.verdict is self.verdict), key=how_soon)

    def called(self, one: str, two: str) -> "Pair":
        """The pair with its files under other names."""
        first, second = self.results
        return replace(self, results=(first.of_file(one), second.of_file(two)))

    def to_json(self) -> str:
        """The pair as JSON, without the results: one line, ending in a newline."""
        content = {
            "schema": SCHEMA,
            "files": self.files,
            "verdict": self.verdict,
            "verdicts": [result.verdict for result in self.results],
            "nearer": self.nearer.source.file,
            "connections": self.connections,
            "matched": self.matched,
            "only_in": self.only_in,
            "ack_delay_ms": self.ack_delay_ms,
            "hold_ms": self.hold_ms,
            "path_ms": self.path_ms,
            "reply_ms": [result.summary.request_to_response_ms for result in self.results],
        }
        return json_text(content) + "\n"


def pair_of(results: tuple[Result, Result], tables: tuple[Tables, Tables], both_ends: BothEnds) -> Pair:
    """The pair of these results, by the tables that they were made from: the candidates left there are the stalls.

    ``both_ends`` is what the first result rests on.
    """
    one = {candidate_key(row): _times(row) for row in tables[0].candidate.rows()}
    two = [(both_ends.key_there(row), _times(row)) for row in tables[1].candidate.rows()]
    common = [(one[key], times) for key, times in two if key in one]
    delay = [min(wait, other) for (wait, _), (other, _) in common]
    hold = [max(whole, other) for (_, whole), (_, other) in common]
    return Pair(
        results=results,
        connections=both_ends.connections,
        is_one=both_ends.is_one,
        are_apart=both_ends.are_apart,
        matched=len(common),
        only_in=(len(one) - len(common), len(two) - len(common)),
        ack_delay_ms=spread(delay),
        hold_ms=spread(hold),
        path_ms=spread(whole - part for whole, part in zip(hold, delay, strict=True)),
    )


def _times(row: Row) -> tuple[float, float]:
    """The times of a stall from trigger to ACK, and from trigger to release, ms."""
    wait, release = row[_CANDIDATE["trigger_to_ack"]], row[_CANDIDATE["ack_to_release"]]
    return wait / 1e6, (wait + release) / 1e6
