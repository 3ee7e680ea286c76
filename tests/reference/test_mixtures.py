"""A server that does two things on one port: neither may hide the other, nor be taken for it."""

import pytest

from nagle_lab.diagnosis.analysis import analyze
from support.mixtures import Mixture, can_be_mixed, mixtures
from support.truth import Judgement, Labelled, families, lookalikes

pytestmark = pytest.mark.long
EACH = 2


def is_judged_right_alone(capture: Labelled) -> bool:
    return analyze(capture.path).verdict == capture.verdict


@pytest.fixture(scope="module")
def mixed() -> list[Mixture]:
    return [*mixtures([one for one in can_be_mixed(families() + lookalikes()) if is_judged_right_alone(one)], EACH)]


def test_there_are_some_of_each_kind(mixed):
    verdicts = {(mixture.one.position, mixture.one.verdict, mixture.other.verdict) for mixture in mixed}
    ways = {(mixture.one.position, mixture.are_side_by_side, mixture.have_one_client) for mixture in mixed}
    assert len(mixed) == 652 and len(verdicts) == 3 * 2 * 2 and len(ways) == 2 * 3 + 2


@pytest.fixture(scope="module")
def judged(mixed: list[Mixture], tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Mixture, Judgement]]:
    path, found = tmp_path_factory.mktemp("mixtures") / "both.pcap", []
    for mixture in mixed:
        mixture.write(path)
        found.append((mixture, mixture.judge(analyze(path))))
    return found


def test_two_behaviours_on_one_port_neither_hide_nor_accuse_each_other(judged):
    wrong = {mixture.name for mixture, judgement in judged if judgement is Judgement.WRONG}
    assert wrong == set()


def test_hardly_any_of_them_are_left_open(judged):
    unsure = [mixture.name for mixture, judgement in judged if judgement is Judgement.UNSURE]
    assert len(unsure) <= 0.06 * len(judged)
