"""The two writes of the museum's bad halves: what is expected is data, held against what the trace names."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.writes import Group, Place, Write, nothing_found
from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments.software.guarded import JudgedCommand
from nagle_lab.experiments.software.installs import Installed
from nagle_lab.experiments.software.museum import OtherWrites, exhibits
from nagle_lab.experiments.writes import museum_writes
from nagle_lab.experiments.writes.museum_writes import TracedExhibit, is_at
from nagle_lab.guard.recording.job import Outcome
from nagle_lab.guard.recording.run_command import Guarded
from nagle_lab.reports.experiments.museum_writes import traced_line, traced_page
from support.repository import REFERENCE

EVERY = [exhibit for exhibit in exhibits() if exhibit.writes]
LANGUAGES = {"pypi": "Python", "npm": "Node.js", "maven": "Java", "crates": "Rust", "go": "Go"}
OWN, THEIRS = Place("/cache/app/exhibit.py", 15, "ask"), Place("lib/client.py", 7, "send")


def write(program: Place | None, library: Place | None) -> Write:
    return Write("sendto", "send", 10, "1.000000", 1, 1, "python", program, library, "")


def traced(exhibit: Any, trigger: Write, held: Write) -> TracedExhibit:
    group = Group(29, trigger, held, (10, 10), (10, 10), False, 0.2, [], [])
    found = nothing_found(30, 29, untraced=(30, 29))
    writes = msgspec.structs.replace(found, named=29, stalls=29, groups=[group])
    return TracedExhibit(exhibit, writes, "", 1.0, 2.0)


def test_ctrl_c_is_the_end_and_no_row(monkeypatch):
    outcome = Outcome(status=130, interrupted=True)
    result = analyze(REFERENCE / "nginx-static-nodelay-on" / "server.pcap")
    run = JudgedCommand(Guarded(Path(), "a namespace", outcome), result)
    monkeypatch.setattr(museum_writes, "install_half", lambda *_: Installed(Path(), {}))
    monkeypatch.setattr(museum_writes, "guard", lambda *_, **__: run)
    with pytest.raises(KeyboardInterrupt):
        museum_writes.trace(EVERY[0])


def test_what_cannot_be_recorded_costs_its_own_row(monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise NagleLabError("disk full while writing the recording")

    monkeypatch.setattr(museum_writes, "install_half", lambda *_: Installed(Path(), {}))
    monkeypatch.setattr(museum_writes, "guard", refused)
    found = museum_writes.trace(EVERY[0])
    assert (found.problem, found.code) == ("disk full while writing the recording", Exit.INCONCLUSIVE)


def test_every_exhibit_says_where_its_writes_are():
    assert exhibits() == EVERY
    assert {one.writes.language for one in EVERY} >= {"Python", "Node.js", "Java", "Rust", "Go", "C"}


def test_what_an_exhibit_says_of_its_writes_can_be():
    """The language of its ecosystem, and lines that its own files have."""
    looked_up = 0
    for exhibit in EVERY:
        language = exhibit.writes.language
        assert language == LANGUAGES.get(exhibit.ecosystem, language), exhibit.name
        for place in (place for pair in exhibit.writes.pairs for place in pair):
            file = re.sub(r"(:\d+)? .*|:\d+$", "", place)
            own = Path(exhibit.folder) / file
            line = re.search(r":(\d+)", place.removeprefix("node:"))
            if own.is_file() and line:
                assert int(line[1]) <= len(own.read_text().splitlines()), (exhibit.name, place)
                looked_up += 1
    assert looked_up


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        ("lib/client.py:7 send", True), ("client.py send", True), ("client.py", True), ("client.py:7", True),
        ("exhibit.py:15 ask", True), ("lib/client.py:8 send", False), ("lib/client.py:7 recv", False),
        ("ent.py:7 send", False), ("other.py", False),
    ],
)  # fmt: skip
def test_a_write_is_at_its_line_of_the_program_and_of_the_library(expected, found):
    assert is_at(expected, write(OWN, THEIRS)) is found


def test_where_threads_race_the_source_allows_another_pair_and_no_mixture():
    others = [OtherWrites("other.py:8", "client.py:7", "")]
    writes = msgspec.structs.replace(EVERY[0].writes, trigger="client.py:7", held="client.py:8", others=others)
    exhibit = msgspec.structs.replace(EVERY[0], writes=writes)
    one, other = write(None, Place("client.py", 8, "")), write(None, Place("other.py", 8, ""))
    assert traced(exhibit, other, write(None, THEIRS)).code is Exit.OK
    assert traced(exhibit, other, one).right == (False, True)


def test_a_function_without_debug_information():
    place = Place("", 0, "ngx_writev")
    assert is_at("ngx_writev", write(place, None)) and not is_at("ngx_linux_sendfile", write(place, None))


def test_files_of_node_itself():
    place = Place("node:_http_outgoing", 1177, "_flushOutput")
    assert is_at("node:_http_outgoing _flushOutput", write(None, place))
    assert not is_at("node:_http_client _flushOutput", write(None, place))


def test_right_is_both_and_the_page_says_what_is_not():
    exhibit = msgspec.structs.replace(
        EVERY[0],
        writes=msgspec.structs.replace(EVERY[0].writes, trigger="lib/client.py:7 send", held="exhibit.py:15"),
    )
    right = traced(exhibit, write(OWN, THEIRS), write(OWN, None))
    wrong = traced(exhibit, write(OWN, None), write(OWN, None))
    failed = replace(right, writes=None, could_run=False, problem="pip is not here")
    assert [one.code for one in (right, wrong, failed)] == [Exit.OK, Exit.CONTRADICTED, Exit.INCONCLUSIVE]
    assert (right.right, wrong.right) == ((True, True), (False, True))
    ones = [right, wrong, failed]
    assert traced_line(ones) == (
        "both writes named as the source has them in 1 of 2 bad halves, 1 could not run here"
    )  # fmt: skip
    page = traced_page(ones)
    assert "| Python | 2 | 1 |" in page
    assert "`lib/client.py:7 send`" in page and "2.0 ×" in page
    assert "trigger: the source has lib/client.py:7 send, the trace cache/app/exhibit.py:15 ask" in page
    assert "pip is not here" in page


def test_what_was_not_named_is_not_right():
    nothing = TracedExhibit(EVERY[0], None, "the traced run did not stall")
    assert nothing.group is None and (nothing.right, nothing.code) == ((False, False), Exit.CONTRADICTED)
