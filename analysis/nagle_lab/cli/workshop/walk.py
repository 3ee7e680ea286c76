"""The walk: in which order things are shown, asked, run and shown, and what the answers add up to."""

from collections.abc import Callable, Mapping

from rich.console import Console

from nagle_lab.cli.workshop import screens
from nagle_lab.cli.workshop.answers import Person, Prepared, Quit
from nagle_lab.cli.workshop.script import Incident, Mystery, Question, Workshop
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import Exit, worst
from nagle_lab.experiments.trials import Outcome
from nagle_lab.lab.scenario import Scenario, Variant
from nagle_lab.runs.figures import Figures
from nagle_lab.runs.run import Run

Play = Callable[[Scenario, Variant, Mapping[str, str]], tuple[Run | None, Outcome]]


class Walk:
    """One walk through ``script``; ``play`` makes or fetches a run, ``answers`` are asked, ``to`` shows it all."""

    def __init__(
        self, script: Workshop, answers: Person | Prepared, play: Play, to: Console, *, without_lab: bool = False
    ) -> None:
        self._script, self._answers, self._play, self._to = script, answers, play, to
        self._without_lab = without_lab  # what is played are committed runs
        self.asked = self.right = 0
        self._codes: list[Exit] = []

    def go(self) -> Exit:
        """Walk until the end or until the learner leaves; the exit code is that of the worst run."""
        left = False
        try:
            screens.welcome(self._script, self._without_lab, self._to)
            self._answers.go_on()
            for incident in self._script.incidents:
                self._incident(incident)
            for number, mystery in enumerate(self._script.mysteries, 1):
                self._mystery(mystery, number)
        except Quit:
            left = True
        screens.score(self.right, self.asked, left, self._to)
        return worst(self._codes)

    def _incident(self, incident: Incident) -> None:
        scenario = incident.scenario
        columns: list[tuple[str, Figures]] = []
        screens.incident(incident, self._to)
        self._act(incident, scenario.variants[scenario.stalled], incident.stalled, columns)
        screens.fix(incident, self._to)
        self._act(incident, scenario.variants[scenario.fixed], incident.fixed, columns)

    def _act(
        self, incident: Incident, variant: Variant, question: Question, columns: list[tuple[str, Figures]]
    ) -> None:
        """Predict, run, reveal, explain; ``columns`` are the figures of the incident so far."""
        chosen = self._ask(question)
        run, outcome = self._play(incident.scenario, variant, incident.settings)
        self._codes.append(outcome.code)
        if run is None:
            screens.no_run(f"{incident.scenario.name} / {variant.name}", outcome.reason, self._to)
        else:
            screens.evidence(run, self._without_lab, self._to)
        self._answers.go_on()
        columns += [(variant.name, outcome.figures)] if outcome.figures else []
        screens.comparison(columns, self._to)
        self._judge(question, chosen)

    def _mystery(self, mystery: Mystery, number: int) -> None:
        result = analyze(mystery.capture)
        self._codes.append(Exit.OK if result.verdict == mystery.verdict else Exit.CONTRADICTED)
        screens.mystery(mystery, number, len(self._script.mysteries), result, self._to)
        chosen = self._ask(mystery.question)
        screens.diagnosis(mystery, result, self._to)
        if result.stalls:  # and so a ladder
            self._answers.go_on()
        self._judge(mystery.question, chosen)

    def _ask(self, question: Question) -> int:
        screens.question(question, self._to)
        return self._answers.choose(question)

    def _judge(self, question: Question, chosen: int) -> None:
        self.asked += 1
        self.right += chosen == question.right
        screens.answer(question, chosen, self._to)
        self._answers.go_on()
