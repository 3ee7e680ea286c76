"""Some connections of a result, judged by themselves: those under test in a run, or those of a row of `watch`."""

from dataclasses import dataclass

from nagle_lab.diagnosis.result.result import Connection, Result
from nagle_lab.diagnosis.result.verdict import Decision, Verdict, VerdictInput, decide


@dataclass(kw_only=True)
class Part:
    """Some connections of a result, added up: what a verdict on them alone rests on."""

    count: int = 0  # connections
    one_way: int = 0  # of how many only one end is seen
    packets: int = 0
    exchanges: int = 0
    stalled: int = 0  # exchanges with a stall
    stalls: int = 0
    unresolved: int = 0
    mostly_open: int = 0  # undecided candidates of the connections on which they outnumber the other exchanges
    late_without_stall: int = 0  # as in VerdictInput, and so are chances
    chances: int = 0

    def add(self, connection: Connection) -> None:
        """Count a connection."""
        self.count += 1
        is_one_way = connection.is_one_way
        self.one_way += is_one_way
        self.packets += connection.packets
        self.exchanges += connection.exchanges
        self.stalled += connection.stalled_exchanges
        self.stalls += connection.stalls
        self.unresolved += connection.unresolved
        self.mostly_open += connection.unresolved * (2 * connection.unresolved > connection.exchanges)
        self.late_without_stall += connection.late_without_stall
        if not is_one_way:  # without ACKs, all data seems to be sent ahead of them
            self.chances += connection.chances

    def decide(self, result: Result) -> Decision:
        """The verdict by the rule for whole captures; that of the result, if this is all of it or nothing in it
        counts.
        """
        if self.count == len(result.connections) or result.verdict is Verdict.INVALID:
            return Decision(result.verdict, result.reason, result.undecided)
        quality, unresolved = result.quality, result.quality.unresolved
        if self.unresolved < sum(unresolved.values()):  # which of the reasons are those of the part is not known
            most = max(unresolved, key=lambda obstacle: unresolved[obstacle])
            unresolved = {most: self.unresolved} if self.unresolved else {}
        return decide(
            VerdictInput(
                self.packets,
                self.exchanges,
                self.stalls,
                quality.damage,
                one_way=self.one_way / max(self.count, 1),
                astray_share=quality.astray_share,
                unresolved=unresolved,
                mostly_open=self.mostly_open,
                asked=quality.kernel_asked,
                late_without_stall=self.late_without_stall,
                chances=self.chances,
                is_of_both_ends=result.summary.captured_near == "both",
            )
        )
