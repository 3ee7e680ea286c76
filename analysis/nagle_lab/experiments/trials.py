"""One run of a variant, made, judged and stored; and the part of it that is kept when many are made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments.opened import judged
from nagle_lab.lab.scenarios.scenario import Scenario, Variant
from nagle_lab.lab.session import record
from nagle_lab.runs.figures import Figures, figures_of
from nagle_lab.runs.run import Run, store
from nagle_lab.runs.witnesses import Untraced


@dataclass(frozen=True)
class TrialOutcome:
    """The outcome of one run."""

    code: Exit
    verdict: Verdict | None  # None: there is no run to judge
    reason: str  # why it is not as expected, in one line; empty if it is
    folder: str | None
    figures: Figures | None  # of a STALL or CLEAN run: others prove nothing

    @property
    def as_expected(self) -> bool:
        """Whether verdict, ends and share are what the variant expects."""
        return self.code is Exit.OK

    @property
    def name(self) -> str:
        """The verdict; ``error`` if there is none."""
        return self.verdict or "error"


def make_run(
    scenario: Scenario,
    variant: Variant,
    settings: Mapping[str, str],
    runs: Path,
    progress: Callable[[str], None],
    *,
    trace: bool = False,
) -> Run:
    """Run ``variant`` once (:func:`nagle_lab.lab.session.record`), judge it, and store the result in its folder.

    With ``trace`` a run that stalls is repeated under strace, and the repeated run is returned; the run without
    strace shows what strace changes.
    """

    def made(untraced: Untraced | None) -> Run:
        folder = record(scenario, variant, settings, runs, progress, untraced=untraced)
        progress("analysing")
        run = judged(folder)
        store(run)
        return run

    run = made(None)
    if not trace or run.verdict is not Verdict.STALL:
        return run
    progress("running it again under strace")
    s = run.results[run.best].summary
    return made(Untraced(run.folder.name, run.verdict, s.exchanges, s.stalled_exchanges, run.contradictions))


def outcome_of(run: Run) -> TrialOutcome:
    """The part of a run's result that is kept when many are made."""
    code, conclusive = run.exit_code(), run.verdict.is_conclusive
    reason = "; ".join(run.contradictions) if conclusive else run.reason
    if code is Exit.OK:
        reason = ""
    return TrialOutcome(code, run.verdict, reason, run.folder.name, figures_of(run) if conclusive else None)


def attempt(make: Callable[[], Run]) -> tuple[Run | None, TrialOutcome]:
    """Make a run; any failure becomes its outcome, so that later runs continue.

    A machine that lacks what the variant needs makes it INCONCLUSIVE. KeyboardInterrupt is let through.
    """
    try:
        run = make()
        return run, outcome_of(run)
    except NagleLabError as error:
        verdict = Verdict.INCONCLUSIVE if error.exit_code is Exit.INCONCLUSIVE else None
        return None, TrialOutcome(error.exit_code, verdict, str(error), None, None)
    except Exception as error:  # even a fault of ours must not lose an hour of other runs
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        return None, TrialOutcome(Exit.UNUSABLE, None, reason, None, None)
