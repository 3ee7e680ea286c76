"""The walk: the order of stories, questions, runs and explanations, and the score."""

from collections.abc import Callable, Mapping

from rich.console import Console

from nagle_lab.cli.workshop import pages
from nagle_lab.cli.workshop.answers import Person, Prepared, Quit
from nagle_lab.cli.workshop.pages import Block, Page
from nagle_lab.cli.workshop.screens import print_screen, screens, whole
from nagle_lab.cli.workshop.script import Incident, Mystery, Question, Workshop
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import Exit, worst
from nagle_lab.experiments.trials import TrialOutcome
from nagle_lab.lab.scenarios.scenario import Scenario, Variant
from nagle_lab.runs.figures import Figures
from nagle_lab.runs.run import Run

Play = Callable[[Scenario, Variant, Mapping[str, str]], tuple[Run | None, TrialOutcome]]


class Walk:
    """One walk through ``script``: ``play`` makes or fetches a run, ``answers`` are asked, ``screen`` shows all."""

    def __init__(
        self, script: Workshop, answers: Person | Prepared, play: Play, screen: Console, *, without_lab: bool = False
    ) -> None:
        self._script, self._answers, self._play, self._screen = script, answers, play, screen
        self._without_lab = without_lab  # committed runs are shown instead of new ones
        self.asked = self.right = 0
        self._codes: list[Exit] = []

    def go(self) -> Exit:
        """Walk until the end or until the learner leaves; the exit code is that of the worst run."""
        left = False
        try:
            self._read(pages.welcome(self._script, self._without_lab))
            for incident in self._script.incidents:
                self._incident(incident)
            for number, mystery in enumerate(self._script.mysteries, 1):
                self._mystery(mystery, f"Mystery {number} of {len(self._script.mysteries)}")
        except Quit:
            left = True
        self._show(pages.score(self.right, self.asked, left))
        return worst(self._codes)

    def _incident(self, incident: Incident) -> None:
        scenario = incident.scenario
        columns: list[tuple[str, Figures]] = []  # of the runs so far
        title = f"Incident {incident.number}: {scenario.name}"
        asked = Page(title, [*pages.story(incident), *pages.question(incident.stalled)])
        chosen, stalled = self._predict(asked, incident.stalled, incident, scenario.stalled, columns)
        self._explain(title, incident.stalled, chosen, pages.typical_stall(incident, stalled) if stalled else [])

        title = f"{title}, the fix"
        asked = Page(title, [*pages.fix(incident), *pages.question(incident.fixed)])
        chosen, fixed = self._predict(asked, incident.fixed, incident, scenario.fixed, columns)
        ladders = pages.both(incident, stalled, fixed) if stalled and fixed else []
        self._explain(title, incident.fixed, chosen, ladders)

    def _predict(
        self, page: Page, question: Question, incident: Incident, name: str, columns: list[tuple[str, Figures]]
    ) -> tuple[int, Run | None]:
        """Ask, run the variant of that name, and show its verdict and figures: the answer given, and the run."""
        chosen = self._ask(page, question)
        variant = incident.scenario.variants[name]
        run, outcome = self._play(incident.scenario, variant, incident.settings)
        self._codes.append(outcome.code)
        columns += [(name, outcome.figures)] if outcome.figures else []
        if run is None:
            self._read(Page(page.title, pages.no_run(f"{incident.scenario.name} / {name}", outcome)))
        else:
            self._read(Page(page.title, pages.run(incident, run, columns, without_lab=self._without_lab)))
        return chosen, run

    def _mystery(self, mystery: Mystery, title: str) -> None:
        result = analyze(mystery.capture)
        self._codes.append(Exit.OK if result.verdict == mystery.verdict else Exit.CONTRADICTED)
        asked = Page(title, pages.mystery(mystery, result), pages.question(mystery.question))
        chosen = self._ask(asked, mystery.question)
        self._judge(mystery.question, chosen)
        words = [*pages.answer(mystery.question, chosen), *pages.diagnosis(mystery, result)]
        self._read(Page(title, pages.marked(mystery, result), words))

    def _explain(self, title: str, question: Question, chosen: int, ladders: list[Block]) -> None:
        """Show what was on the wire, and then the answer, while the ladders stay in view."""
        self._judge(question, chosen)
        self._read(Page(title, ladders, pages.answer(question, chosen), pause=True))

    def _judge(self, question: Question, chosen: int) -> None:
        self.asked += 1
        self.right += chosen == question.right

    def _ask(self, page: Page, question: Question) -> int:
        self._show(page)
        return self._answers.choose(question)

    def _read(self, page: Page) -> None:
        self._show(page)
        self._answers.go_on()

    def _show(self, page: Page) -> None:
        """Show a page, up to the prompt of its last screen; where somebody turns screens, each clears the last."""
        if not (self._answers.turns and self._screen.is_terminal):
            print_screen(whole(page), self._screen, clear=False)
            return
        for number, screen in enumerate(screens(page, self._screen)):
            if number:
                self._answers.go_on()
            print_screen(screen, self._screen, clear=True)
