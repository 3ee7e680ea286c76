"""What the captures of a run show of its network namespaces, and which services are at the ends of a stall."""

from collections.abc import Iterator
from dataclasses import dataclass

from nagle_lab.runs.checks import Traffic, is_own
from nagle_lab.runs.run import Run


@dataclass(frozen=True)
class NamespaceTraffic:
    """A network namespace in every capture of a run, None where a capture has nothing of it, and in its kernel."""

    name: str
    traffic: list[Traffic | None]  # in the order of the captures
    kernel_segments: int
    kernel_delayed_acks: int


def namespace_traffic(run: Run) -> Iterator[NamespaceTraffic]:
    """What is known of every network namespace whose kernel was asked."""
    for name, counters in run.witnesses.counters.items():
        traffic = [run.traffic(name, capture) for capture in run.captures]
        seen = [of if of.segments_sent or of.packets_received else None for of in traffic]
        yield NamespaceTraffic(name, seen, counters.segments_sent, counters.grown("TcpExt.DelayedACKs"))


def services(run: Run) -> dict[str, str]:
    """The service at each end, by role, of a typical stall, where the run says and it is not named as the role."""
    m, stall = run.manifest, run.results[run.best].stalls.typical()
    sidecars = {capture.service for capture in m.captures.values()}
    here = m.captures[run.best].namespace
    by_role: dict[str, str] = {}
    for end in (stall.held_by, stall.delayed_by):
        homes = [of for name, of in m.namespaces.items() if is_own(end.ip, of.addresses, inside=name == here)]
        names = {service for of in homes for service in of.services} - sidecars
        is_server = end.role == "server" and end.port == m.server.port
        names = {m.server.service} if is_server else names - {m.server.service}
        if len(names) == 1 and names != {end.role}:
            by_role[end.role] = names.pop()
    return by_role
