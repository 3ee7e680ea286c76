"""The network namespaces of a live lab: which containers share one, and which captures are taken in it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.docker import Container
from nagle_lab.lab.scenarios.scenario import CapturePoint


@dataclass(frozen=True)
class Namespace:
    """One network namespace; ``services`` are all in it.

    ``name`` is the service for which it was made. If only loopback is captured, which all its services share, it is
    the name of the capture.
    """

    name: str
    services: tuple[str, ...]
    captures: tuple[str, ...]


def captured_namespaces(
    containers: Mapping[str, Container], captures: Mapping[str, CapturePoint]
) -> dict[str, Namespace]:
    """Return, by name, the namespaces that ``captures`` are taken in.

    ``containers`` are those of each service; a container whose NetworkMode is ``container:ID`` is in the namespace of
    container ID.
    """
    by_id = {container.id: service for service, container in containers.items()}
    home = {service: _home(service, containers, by_id) for service in containers}
    captured = {}
    for owner in dict.fromkeys(home[point.service] for point in captures.values()):
        services = tuple(service for service in sorted(home) if home[service] == owner)
        inside = tuple(capture for capture, point in captures.items() if home[point.service] == owner)
        looped = {captures[capture].interface for capture in inside} == {"lo"} and inside[0] not in home
        name = inside[0] if looped else owner
        captured[name] = Namespace(name, services, inside)
    return captured


def captured_namespace(service: str, captured: Iterable[Namespace]) -> Namespace:
    """The namespace of ``service``; NagleLabError if nothing is captured there."""
    for namespace in captured:
        if service in namespace.services:
            return namespace
    raise NagleLabError(
        f"nothing is captured in the network namespace of {service}: add a capture there to the lab in scenario.toml"
    )


def _home(service: str, containers: Mapping[str, Container], by_id: Mapping[str, str]) -> str:
    host = by_id.get(containers[service].host_config.network_mode.removeprefix("container:"))
    return _home(host, containers, by_id) if host else service
