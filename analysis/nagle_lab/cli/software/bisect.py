"""nagle-lab bisect: which release of a package changed the verdict on a program."""

import json as json_module
from collections.abc import Sequence
from pathlib import Path

from nagle_lab.cli.shared.exports import require_outputs, write_export
from nagle_lab.cli.shared.progress import RunsProgress
from nagle_lab.cli.shared.values import allowed_server, duration_s
from nagle_lab.errors import Exit, NagleLabError, tell
from nagle_lab.experiments.software.guarded import Selection
from nagle_lab.experiments.software.releases import TriedRelease, code_of, span, try_each
from nagle_lab.reports.experiments.releases import releases_json, show_releases
from nagle_lab.reports.screens.terminal import console


def command(
    package: str,
    between: str,
    command_line: Sequence[str],
    ports: Sequence[int],
    allowed: Sequence[str],
    limit: str | None,
    both_sides: bool,
    json: Path | None,
) -> Exit:
    """Try each release in turn, print the table and the changes."""
    if command_line and command_line[0] == "--":  # click keeps it after an argument
        command_line = command_line[1:]
    if not command_line:
        raise NagleLabError("bisect needs a command: nagle-lab bisect pypi:NAME A..B -- COMMAND…")
    if command_line[0].startswith("-"):
        raise NagleLabError(f"bisect takes {command_line[0]} for the command: options go before the package")
    require_outputs([json])
    limit_s = duration_s(limit) if limit else None
    selection = Selection(frozenset(ports), frozenset(map(allowed_server, allowed)))
    of = span(package, between)
    tried: list[TriedRelease] = []
    interrupted = False
    try:
        with RunsProgress(len(of.versions)) as progress:
            attempts = try_each(of, command_line, selection, limit_s=limit_s, both_sides=both_sides)
            for version in of.versions:
                progress.begin(f"{of.name} {version}")
                tried.append(next(attempts))
                progress.end(tried[-1].verdict or tried[-1].problem, notable=False)
    except KeyboardInterrupt:
        interrupted = True
    show_releases(of, tried, console(at_most=140))
    if json:
        write_export(json, json_module.dumps(releases_json(of, command_line, tried)) + "\n")
    if interrupted:
        tell("interrupted")
        return Exit.INTERRUPTED
    return code_of(tried)
