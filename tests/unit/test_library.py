"""import nagle_lab, as other programs do."""

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

import nagle_lab
from nagle_lab.tcp import tables
from support.stories import server_held, talk
from support.synthetic import pcap_bytes


@pytest.fixture
def stalls(tmp_path):
    path = tmp_path / "stalls.pcap"
    path.write_bytes(pcap_bytes(talk(server_held, 12).segments))
    return path


def test_after_the_result_no_loop_goes_on(stalls):
    """The engine is gone by then: reading on crashed the interpreter."""
    analysis = nagle_lab.Analysis(stalls)
    began = iter(analysis)
    next(began)
    result = analysis.result()
    assert list(began) == list(analysis) == []
    assert analysis.connections == len(result.connections) == 1
    assert analysis.result() is result and result.verdict == "STALL"


def test_an_analysis_whose_end_failed_has_ended(stalls, monkeypatch):
    analysis = nagle_lab.Analysis(stalls)
    monkeypatch.setattr(nagle_lab.Analysis, "_summarize", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        analysis.result()
    with pytest.raises(RuntimeError, match="has ended: make a new one"):
        analysis.result()


@pytest.mark.parametrize("in_memory", [None, 0])
def test_a_result_can_be_pickled_and_copied(stalls, monkeypatch, in_memory):
    """Also where its rows are on disk."""
    if in_memory is not None:
        monkeypatch.setattr(tables, "IN_MEMORY", in_memory)
    result = nagle_lab.analyze(stalls)
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert again.to_json() == result.to_json()
        assert again.stalls.typical() == result.stalls.typical() and list(again.exchanges) == list(result.exchanges)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_returns_a_result(stalls, method):
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as workers:
        assert workers.submit(nagle_lab.analyze, stalls).result().to_json() == nagle_lab.analyze(stalls).to_json()


def test_what_is_no_path_is_told_in_a_line():
    with pytest.raises(TypeError, match=r"give a str, a pathlib\.Path") as raised:
        nagle_lab.analyze(bytes(10_000))  # type: ignore[arg-type]
    assert len(str(raised.value)) < 120
