"""Progress of a long series of runs: a bar and the time left on a terminal, a line per run elsewhere."""

from collections.abc import Callable
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from nagle_lab.reports.screens.terminal import console

_FOREVER = 1e9  # estimate the time left from all work so far, not from the last half minute


class ProgressBar:
    """A bar between a task's description and ``figures``, while it runs; nothing without a terminal."""

    def __init__(self, total: int | None, *figures: ProgressColumn) -> None:
        self._screen = console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            *figures,
            console=self._screen,
            speed_estimate_period=_FOREVER,
            transient=True,
            disable=not self._screen.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class RunsProgress(ProgressBar):
    """Progress of ``planned`` runs, a number that :meth:`more` increases."""

    def __init__(self, planned: int) -> None:
        super().__init__(planned, MofNCompleteColumn(), TimeRemainingColumn())
        self._planned, self._done, self._what = planned, 0, ""

    def more(self, runs: int) -> None:
        """Add runs to those planned."""
        self._planned += runs
        self._bar.update(self._task, total=self._planned)

    def begin(self, what: str) -> Callable[[str], None]:
        """Begin a run; the function returned is to be called with each of its stages."""
        self._what = what
        self.stage("starting")
        return self.stage

    def stage(self, stage: str) -> None:
        """Show the run's current stage."""
        self._bar.update(self._task, description=f"{self._what}: {stage}"[:60])

    def end(self, outcome: str, *, notable: bool) -> None:
        """End the run. On a terminal only what is ``notable`` stays; elsewhere every run has its line."""
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        if notable or not self._screen.is_terminal:
            self._screen.print(Text(f"{self._done}/{self._planned} {self._what}: {outcome}"), soft_wrap=True)
