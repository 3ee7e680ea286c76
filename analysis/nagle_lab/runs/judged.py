"""The judged connections of a capture, those to one TCP port, apart from the others in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nagle_lab.diagnosis.result import Connection, Result, Stall


@dataclass(frozen=True)
class Share:
    """What some of a capture's connections add up to; the fields mean what they mean in the capture's summary."""

    connections: int
    exchanges: int
    repeat_exchanges: int
    stalled_exchanges: int
    stalls: int
    packets: int
    wire_bytes: int
    payload_bytes: int
    delayed_acks: int
    held_by: str | None
    delayed_by: str | None

    @property
    def stalled_after_first(self) -> float:
        """The share, 0 to 1, of stalled exchanges among those that follow another on their connection."""
        return self.stalled_exchanges / self.repeat_exchanges if self.repeat_exchanges else 0.0


@dataclass(frozen=True)
class Seen:
    """One capture of a run, its connections parted by the port they go to."""

    result: Result
    port: int | None  # None: every connection is judged
    connections: list[Connection]
    judged: Share
    elsewhere: Share
    ports_elsewhere: list[int]  # those with a stall


def part(result: Result, port: int | None) -> Seen:
    """Part the connections of a capture: those whose server's port is ``port`` (None: all) and the others."""
    connections = list(result.connections)
    chosen = [c for c in connections if port in (None, c.server.port)]
    others = [c for c in connections if port not in (None, c.server.port)]
    ports = sorted({c.server.port for c in others if c.stalls})
    return Seen(result, port, connections, _share(chosen, result.stalls), _share(others, result.stalls), ports)


def _share(connections: Sequence[Connection], stalls: Iterable[Stall]) -> Share:
    ids = {c.id for c in connections}
    mine = [stall for stall in stalls if stall.connection in ids]
    sent = [each for c in connections for each in c.sent.values()]
    return Share(
        connections=len(connections),
        exchanges=sum(c.exchanges for c in connections),
        repeat_exchanges=sum(max(0, c.exchanges - 1) for c in connections),
        stalled_exchanges=sum(c.stalled_exchanges for c in connections),
        stalls=len(mine),
        packets=sum(s.packets for s in sent),
        wire_bytes=sum(s.wire_bytes for s in sent),
        payload_bytes=sum(s.payload_bytes for s in sent),
        delayed_acks=sum(s.delayed_acks for s in sent),
        held_by=_role({stall.held_by.role for stall in mine}),
        delayed_by=_role({stall.delayed_by.role for stall in mine}),
    )


def _role(roles: set[str]) -> str | None:
    return "both" if len(roles) > 1 else next(iter(roles), None)
