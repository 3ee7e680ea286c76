"""Who answers: a person at a terminal, or a file of answers."""

import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from nagle_lab.cli.workshop.script import Question
from nagle_lab.errors import NagleLabError

QUIT = "q"


class Quit(Exception):  # noqa: N818  (not an error: the learner's choice)
    """Raised when the learner wants to leave."""


class Person:
    """A person at a terminal, line by line, which works on every terminal and over ssh.

    ``ask`` is :func:`input`: shows its argument and returns what was typed, without the newline. Both methods may
    raise :class:`Quit`.
    """

    turns = True  # the screens

    def __init__(self, ask: Callable[[str], str] = input) -> None:
        self._ask = ask

    def choose(self, question: Question) -> int:
        """Ask until there is the number, from 1, of one of the choices."""
        prompt = f"Your answer, 1 to {len(question.choices)} (q: quit): "
        while (answer := self._typed(prompt)) not in question.numbers:
            print(f"{answer!r} is not a valid answer; type {_either(question.numbers)}")
        print()
        return int(answer)

    def go_on(self) -> None:
        """Wait for Enter."""
        self._typed("Enter: continue (q: quit) ")
        print()

    def _typed(self, prompt: str) -> str:
        _forget_keys()
        try:
            answer = self._ask(prompt).strip().lower()
        except EOFError:  # Ctrl-D
            print()
            raise Quit from None
        if answer == QUIT:
            raise Quit
        return answer


def _forget_keys() -> None:
    """Drop keys typed before the question, as during a run: they would answer a question that nobody has read."""
    with suppress(OSError, ValueError, termios.error):  # no terminal
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


class Prepared:
    """Answers prepared beforehand, each a number, or None: quit."""

    turns = False

    def __init__(self, answers: Sequence[int | None]) -> None:
        self._answers = list(answers)

    def choose(self, question: Question) -> int:  # noqa: ARG002
        """The next answer."""
        answer = self._answers.pop(0)
        if answer is None:
            raise Quit
        return answer

    def go_on(self) -> None:
        """Do nothing: there is no reader."""


def prepared(source: str, questions: Sequence[Question]) -> Prepared:
    """The answers of ``source``: a file with a number per line for every question (or q: quit), or ``good``.

    Empty lines and those that begin with # are left out. Raises NagleLabError if the file cannot be read, contains
    anything else, or has more or fewer answers than there are questions.
    """
    if source == "good":
        return Prepared([question.right for question in questions])
    try:
        lines = Path(source).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "").lower() if isinstance(error, OSError) else "not UTF-8"
        raise NagleLabError(f"{source}: {why}: name a file with an answer per line, or good") from error
    given = [(at, line.strip()) for at, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"]
    answers: list[int | None] = []
    for (at, word), question in zip(given, questions, strict=False):
        if word.lower() == QUIT:
            return Prepared([*answers, None])
        if word not in question.numbers:
            raise NagleLabError(
                f"{source}: line {at}: {word!r} is not a valid answer; write {_either([*question.numbers, QUIT])}"
            )
        answers.append(int(word))
    if len(given) != len(questions):
        raise NagleLabError(
            f"{source}: {len(given)} answers for {len(questions)} questions: one per line, or q to end"
        )
    return Prepared(answers)
