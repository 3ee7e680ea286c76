"""Phrases that newcomers stumbled over, and what to write instead: they must not come back in what people read."""

import re

import pytest

from support.repository import REPOSITORY, named

READ = [
    *REPOSITORY.glob("*.md"),
    *REPOSITORY.glob("docs/**/*.md"),
    *REPOSITORY.glob("scenarios/**/*.md"),
    *REPOSITORY.glob("scenarios/*/*.toml"),
    *REPOSITORY.glob("setup/*.sh"),
    *REPOSITORY.glob("analysis/nagle_lab/**/*.py"),
    *REPOSITORY.glob("analysis/nagle_lab/**/*.j2"),
    REPOSITORY / "Makefile",
]
INSTEAD = {
    "Docker you may use": "Docker, usable by your account",
    "reader of the output": "output pipe closed",
    "Set-up listens to": "Set-up reads these variables",
    "with their handshake": "handshake captured",
    "at once what belongs together": "send each message in one write",
    "may be believed": "the capture is unusable",
    "Ask nobody": "Unattended",
    "to write over it": "use --force to overwrite",
    "is no answer": "is not a valid answer",
    "none any more": "0 (was 96)",
    "twentieth of a power": "20 bins per decade",
    "without its rights": "with all other capabilities dropped",
    "server think": "server processing",
    "packet table of a capture against": "Cross-check our decoding with tshark",
}


@pytest.mark.parametrize(("phrase", "instead"), INSTEAD.items(), ids=INSTEAD)
def test_a_phrase_that_nobody_understood_is_not_used(phrase: str, instead: str):
    pattern = re.compile(r"\s+".join(map(re.escape, phrase.split())), re.IGNORECASE)
    found = [named(path) for path in READ if pattern.search(path.read_text(encoding="utf-8"))]
    assert not found, f"write: {instead}"


def test_there_is_something_to_read():
    assert len(READ) > 200
