"""What is recorded that already runs."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """One of these, or none: all interfaces of this network namespace."""

    pid: int | None = None
    container: str = ""
    service: str = ""  # of Docker Compose
    interface: str = ""
    ports: list[int] = field(default_factory=list)  # recorded alone; empty: all

    def __str__(self) -> str:
        named = {"process": self.pid, "container": self.container, "service": self.service}
        what = next((f"{kind} {name}" for kind, name in named.items() if name), "")
        return what or (f"interface {self.interface}" if self.interface else "all interfaces")
