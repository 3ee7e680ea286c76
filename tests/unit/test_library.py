"""import nagle_lab, as other programs do."""

import pytest

import nagle_lab
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
    assert analysis.result() is result and result.verdict == "STALL"


def test_an_analysis_whose_end_failed_has_ended(stalls, monkeypatch):
    analysis = nagle_lab.Analysis(stalls)
    monkeypatch.setattr(nagle_lab.Analysis, "_summarize", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        analysis.result()
    with pytest.raises(RuntimeError, match="has ended: make a new one"):
        analysis.result()


def test_what_is_no_path_is_told_in_a_line():
    with pytest.raises(TypeError, match=r"give a str, a pathlib\.Path") as raised:
        nagle_lab.analyze(bytes(10_000))  # type: ignore[arg-type]
    assert len(str(raised.value)) < 120
