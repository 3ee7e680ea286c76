"""nagle-lab demo: the workshop in a terminal, or unattended with prepared answers."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from nagle_lab.cli.shared.exports import require_outputs, write_export
from nagle_lab.cli.workshop.answers import Person, prepared
from nagle_lab.cli.workshop.screens import WIDTH, show_outline
from nagle_lab.cli.workshop.script import Workshop, workshop
from nagle_lab.cli.workshop.walk import Walk
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments.trials import TrialOutcome, attempt, make_run
from nagle_lab.lab.containers.docker import engine_version
from nagle_lab.lab.folder import require_runs_folder
from nagle_lab.lab.scenarios.parameters import refuse_misspelled
from nagle_lab.lab.scenarios.scenario import REPOSITORY, Scenario, Variant
from nagle_lab.reports.screens.terminal import console
from nagle_lab.runs.run import Run, is_run, judge_run

COMMITTED = tuple(REPOSITORY / "captures" / folder for folder in ("reference", "workshop"))


def command(
    parts: tuple[str, ...], answers: str | None, without_lab: bool, outline: bool, slides: Path | None, runs: Path
) -> Exit:
    """Walk through the workshop, all of it or the ``parts`` named; ``answers`` is a file, ``good``, or None to ask.

    With ``outline`` or ``slides`` only print or write these, from committed runs.
    """
    script = workshop()
    script = script.part(parts) if parts else script
    screen = console(at_most=WIDTH)
    screen.width = min(screen.width, WIDTH)  # the same without a terminal
    if outline:
        show_outline(script, screen)
        return Exit.OK
    if slides:
        return _write_slides(script, slides)
    if answers is None and not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise NagleLabError("the workshop asks questions: run it in a terminal, or with --answers good (or a FILE)")
    answering = prepared(answers, script.questions) if answers is not None else Person()
    if not without_lab and script.incidents:
        refuse_misspelled(incident.scenario for incident in script.incidents)
        _require_docker()
        require_runs_folder(runs)
    play = _stored if without_lab else partial(_live, runs, screen)
    return Walk(script, answering, play, screen, without_lab=without_lab).go()


def _write_slides(script: Workshop, file: Path) -> Exit:
    from nagle_lab.cli.workshop.slides import slides_page  # noqa: PLC0415  (Jinja, which nothing else here needs)

    require_outputs([file], COMMITTED)
    write_export(file, slides_page(script, _stored))
    return Exit.OK


def _require_docker() -> None:
    try:
        engine_version()
    except NagleLabError as error:
        raise NagleLabError(f"{error}; --without-lab shows committed runs instead") from error


def _live(
    runs: Path, screen: Console, scenario: Scenario, variant: Variant, settings: Mapping[str, str]
) -> tuple[Run | None, TrialOutcome]:
    """Run the variant in the lab, with the current stage on the screen."""
    with _stages(screen, f"{scenario.name} {variant.name}") as progress:
        return attempt(lambda: make_run(scenario, variant, settings, runs, progress))


@contextmanager
def _stages(screen: Console, name: str) -> Iterator[Callable[[str], None]]:
    """Shows the stages of a run in one changing line; on a dumb terminal it grows; a log has a line for each."""
    if screen.is_terminal and not screen.is_dumb_terminal:
        with screen.status(name) as status:
            yield lambda stage: status.update(f"{name}: {stage}"[: WIDTH - 2])
    elif screen.is_terminal:
        yield lambda stage: screen.print(f"{stage[: WIDTH // 2]} … ", end="")
        screen.print("\n")
    else:
        yield lambda stage: screen.print(f"… {stage}", soft_wrap=True)


def _stored(scenario: Scenario, variant: Variant, _: Mapping[str, str]) -> tuple[Run | None, TrialOutcome]:
    """Judge the committed run of the variant, whatever its settings were."""
    folders = [home / f"{scenario.name}-{variant.name}" for home in COMMITTED]
    return attempt(lambda: judge_run(next(filter(is_run, folders), folders[-1])))
