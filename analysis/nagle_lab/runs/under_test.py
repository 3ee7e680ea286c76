"""The connections of a capture that are under test, those to one TCP port, apart from the others in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nagle_lab.diagnosis.result.result import Connection, Count, Result, Role, Roles, Stall
from nagle_lab.runs.record import StrictRecord


class Totals(StrictRecord):
    """Sums over some of a capture's connections; the fields have the same meaning as in the capture's summary."""

    connections: Count
    exchanges: Count
    repeat_exchanges: Count
    stalled_exchanges: Count
    stalls: Count
    packets: Count
    wire_bytes: Count
    payload_bytes: Count
    delayed_acks: Count
    held_by: Roles | None
    delayed_by: Roles | None

    @property
    def stalled_share(self) -> float:
        """The share, 0 to 1, of stalled exchanges among all."""
        return self.stalled_exchanges / self.exchanges if self.exchanges else 0.0

    @property
    def packets_per_exchange(self) -> float | None:
        """Packets for each exchange; None where there is none."""
        return self.packets / self.exchanges if self.exchanges else None

    @property
    def wire_bytes_per_payload_byte(self) -> float | None:
        """Bytes on the wire for each byte of payload; None where there is none."""
        return self.wire_bytes / self.payload_bytes if self.payload_bytes else None

    @property
    def stalled_after_first(self) -> float:
        """The share, 0 to 1, of stalled exchanges among those that follow another on their connection."""
        return self.stalled_exchanges / self.repeat_exchanges if self.repeat_exchanges else 0.0


@dataclass(frozen=True)
class RunCapture:
    """One capture of a run, its connections split by the server's port."""

    result: Result
    port: int
    connections: list[Connection]
    tested: list[Connection]  # those to the port
    under_test: Totals  # of them
    others: Totals  # of all the others
    other_ports: list[int]  # of the others that stalled

    def tested_stalls(self) -> list[Stall]:
        """The stalls of the connections under test."""
        return _stalls_of(self.tested, self.result.stalls)


def split_by_port(result: Result, port: int) -> RunCapture:
    """Split the connections of a capture into those whose server's port is ``port``, and the others."""
    connections = list(result.connections)
    tested = [c for c in connections if c.server.port == port]
    others = [c for c in connections if c.server.port != port]
    return RunCapture(
        result=result,
        port=port,
        connections=connections,
        tested=tested,
        under_test=totals_of(tested, result.stalls),
        others=totals_of(others, result.stalls),
        other_ports=sorted({c.server.port for c in others if c.stalls}),
    )


def totals_of(connections: Sequence[Connection], stalls: Iterable[Stall]) -> Totals:
    """Sums over some connections of a capture; ``stalls`` are all those of the capture."""
    mine = _stalls_of(connections, stalls)
    sent = [each for c in connections for each in c.sent.values()]
    return Totals(
        connections=len(connections),
        exchanges=sum(c.exchanges for c in connections),
        repeat_exchanges=sum(c.repeat_exchanges for c in connections),
        stalled_exchanges=sum(c.stalled_exchanges for c in connections),
        stalls=len(mine),
        packets=sum(s.packets for s in sent),
        wire_bytes=sum(s.wire_bytes for s in sent),
        payload_bytes=sum(s.payload_bytes for s in sent),
        delayed_acks=sum(s.delayed_acks for s in sent),
        held_by=_role({stall.held_by.role for stall in mine}),
        delayed_by=_role({stall.delayed_by.role for stall in mine}),
    )


def _stalls_of(connections: Iterable[Connection], stalls: Iterable[Stall]) -> list[Stall]:
    ids = {c.id for c in connections}
    return [stall for stall in stalls if stall.connection in ids]


def _role(roles: set[Role]) -> Roles | None:
    if len(roles) > 1:
        return "both"
    return next(iter(roles), None)
