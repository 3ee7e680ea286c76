"""Who answers: a person at a terminal, or a file of answers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from nagle_lab.demo.script import Question
from nagle_lab.errors import NagleLabError

QUIT = "q"


class Quit(Exception):  # noqa: N818  (no error: a wish)
    """The learner wants to leave."""


class Answers(Protocol):
    """Whoever is asked; both may raise :class:`Quit`."""

    def choose(self, question: Question) -> int:
        """Return the number, from 1, of the chosen answer."""
        ...

    def go_on(self) -> None:
        """Return when the learner has read the screen."""
        ...


class Person:
    """Somebody at a terminal, a line at a time: that works on every one, over ssh and without any capability.

    ``ask`` is :func:`input`: shows its argument and returns what was typed, without the newline.
    """

    def __init__(self, ask: Callable[[str], str] = input) -> None:
        self._ask = ask

    def choose(self, question: Question) -> int:
        """Ask until there is a number that can be chosen."""
        numbers = [str(number) for number in range(1, len(question.choices) + 1)]
        while True:
            answer = self._typed(f"Your answer, 1 to {numbers[-1]} (q: leave): ")
            if answer in numbers:
                return int(answer)

    def go_on(self) -> None:
        """Wait for Enter."""
        self._typed("Enter: go on (q: leave) ")

    def _typed(self, prompt: str) -> str:
        try:
            answer = self._ask(prompt).strip().lower()
        except EOFError:  # Ctrl-D
            print()
            raise Quit from None
        if answer == QUIT:
            raise Quit
        print()
        return answer


class Prepared:
    """Answers that are known beforehand, checked before anything runs."""

    def __init__(self, chosen: Sequence[int | None]) -> None:
        self._chosen = list(chosen)  # None: leave

    def choose(self, question: Question) -> int:  # noqa: ARG002
        """Return the next answer."""
        answer = self._chosen.pop(0)
        if answer is None:
            raise Quit
        return answer

    def go_on(self) -> None:
        """Nobody has to read."""


def prepared(source: str, questions: Sequence[Question]) -> Prepared:
    """The answers of ``source``: a file with a number per line for every question (or q: leave), or ``good``.

    Empty lines and those that begin with # are left out. Raises NagleLabError where the file cannot be read, holds
    something else, or more or fewer answers than there are questions.
    """
    if source == "good":
        return Prepared([question.right for question in questions])
    try:
        lines = Path(source).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NagleLabError(f"{source}: cannot be read ({error}): name a file with an answer per line") from error
    given = [(at, line.strip()) for at, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"]
    chosen: list[int | None] = []
    for (at, word), question in zip(given, questions, strict=False):
        if word.lower() == QUIT:
            return Prepared([*chosen, None])
        if word not in [str(number) for number in range(1, len(question.choices) + 1)]:
            raise NagleLabError(f"{source}: line {at}: {word!r} is no answer: 1 to {len(question.choices)}, or q")
        chosen.append(int(word))
    if len(given) != len(questions):
        raise NagleLabError(
            f"{source}: {len(given)} answers for {len(questions)} questions: one per line, or q to end"
        )
    return Prepared(chosen)
