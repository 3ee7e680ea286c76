"""What nagle-lab guard is asked to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.cli.shared.options import require_only_one
from nagle_lab.cli.shared.values import LONGEST_S
from nagle_lab.errors import NagleLabError
from nagle_lab.guard.recording.target import Target


@dataclass(frozen=True)
class GuardOptions:
    """The options of nagle-lab guard, but for the files that other commands write, too.

    Raises
    ------
    NagleLabError
        Some of them do not go together.
    """

    command_line: Sequence[str]
    ports: Sequence[int]
    allowed: Sequence[str]  # servers that may stall
    expect: str
    limit: str | None  # of the command's time
    both_sides: bool
    trace: bool
    network: bool
    keep: Path | None
    json: Path | None
    seconds: float | None  # to record what runs already
    pid: int | None = None
    container: str | None = None
    service: str | None = None
    interface: str | None = None

    @property
    def target(self) -> Target:
        """What is recorded where there is no command: of an interface only the ports asked for."""
        ports = sorted(set(self.ports)) if self.interface else []
        return Target(self.pid, self.container or "", self.service or "", self.interface or "", ports)

    @property
    def attached(self) -> Mapping[str, int | str]:
        """The same as the options say it: the option's name, and its value."""
        named = {
            "pid": self.pid,
            "container": self.container,
            "service": self.service,
            "interface": self.interface,
        }
        return {name: value for name, value in named.items() if value}

    def __post_init__(self) -> None:
        named = ["--compose-service" if name == "service" else f"--{name}" for name in self.attached]
        if not self.command_line and not named:
            raise NagleLabError(
                "guard needs a command (guard -- COMMAND…), --container, --compose-service, --pid or --interface"
            )
        if self.command_line and named:
            raise NagleLabError(f"{named[0]} records what is already running: leave out the command or {named[0]}")
        if "--nagle" in self.command_line and any(
            Path(part).name in ("pytest", "py.test") for part in self.command_line
        ):
            raise NagleLabError(
                "pytest --nagle makes a network namespace of its own, into which guard cannot see: "
                "run pytest --nagle without guard, or leave out --nagle"
            )
        require_only_one(named)
        for_commands = {"--time-limit": self.limit, "--both-sides": self.both_sides, "--network": self.network}
        for option, value in for_commands.items():
            if named and value:
                raise NagleLabError(f"{option} needs a command, and {named[0]} starts none: leave out {option}")
        if self.trace and self.interface:
            raise NagleLabError("--trace needs a process, and --interface has none: use --pid or --container")
        if self.seconds and not 0 < self.seconds <= LONGEST_S:
            raise NagleLabError(f"--seconds {self.seconds:g}: use at most {LONGEST_S:,} (a year)")
        if self.command_line and self.seconds:
            raise NagleLabError("--seconds is for recording what is already running: for a command use --time-limit")
