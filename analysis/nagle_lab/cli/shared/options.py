"""Options that several commands have."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from nagle_lab.errors import Exit, NagleLabError

RUNS = Path(__file__).parents[4] / "captures" / "runs"


class InputPath(click.Path):
    """A file or folder to read. Its reader reports in our words why it cannot be read."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click does; but an empty name, which would be the working folder, fails."""
        if not str(value):
            self.fail("the name is empty: name a file", param, ctx)
        return super().convert(value, param, ctx)


class OutputFile(click.Path):
    """A file to write. ``-`` is refused: standard output has the report."""

    def __init__(self, *, may_be_stream: bool = True) -> None:
        super().__init__(path_type=Path, readable=False)
        self.may_be_stream = may_be_stream  # such as /dev/stdout

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click does; but ``-`` fails."""
        if str(value) == "-":
            or_stdout = ", or /dev/stdout for standard output" if self.may_be_stream else ""
            self.fail(f"name a file instead of -{or_stdout}", param, ctx)
        return super().convert(value, param, ctx)


PATH = InputPath()
OUTPUT = OutputFile()
REGULAR_OUTPUT = OutputFile(may_be_stream=False)


def require_only_one(named: Sequence[str]) -> None:
    """Raise NagleLabError if several options are given that exclude each other."""
    if len(named) > 1:
        raise NagleLabError(f"{' and '.join(named)} exclude each other: use one of them")


def runs_option(folder: Path = RUNS) -> Callable[[Callable[..., Exit]], Callable[..., Exit]]:
    """The option for the folder of runs; runs of special sizes get another, so that latest-… stays meaningful."""
    where = folder.relative_to(RUNS.parents[1])
    return click.option(
        "--runs", type=PATH, default=folder, metavar="DIR", help=f"Store runs in DIR, not in {where}."
    )


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter; overrides the environment variable NAME. Repeatable.",
)
junit_option = click.option("--junit", type=OUTPUT, metavar="FILE", help="Write JUnit XML to FILE, for CI.")
markdown_option = click.option("--markdown", type=OUTPUT, metavar="FILE", help="Write a Markdown summary to FILE.")
rotated_option = click.option(
    "--rotated", is_flag=True, help="Treat the FILEs as one rotated capture (tcpdump -C, -G, -W), in any order."
)
html_option = click.option("--html", type=OUTPUT, metavar="FILE", help="Write a report with plots to FILE, one page.")


def ports_option(does: str) -> Callable[[Any], Any]:
    """The option --port; ``does`` is the verb of its help."""
    return click.option(
        "--port",
        "ports",
        multiple=True,
        type=click.IntRange(1, 65535),
        metavar="P",
        help=f"{does} only connections to this port. Repeatable.",
    )


allowed_option = click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="IP:PORT",
    help="Ignore this server; :PORT means any address. Repeatable.",
)
