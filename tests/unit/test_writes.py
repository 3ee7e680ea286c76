"""Which of a write's places are named: the innermost at which the two writes of a stall differ."""

from types import SimpleNamespace
from typing import Any

import pytest

from nagle_lab.diagnosis.result.writes import nothing_found
from nagle_lab.evidence.software import setting_by_file
from nagle_lab.experiments.writes import call_sites
from nagle_lab.experiments.writes.stall_writes import CallPlaces, compared
from nagle_lab.guard.tracing.calls import Call, Mark, Stream, Trace
from nagle_lab.guard.tracing.native_frames import CallSite

SEND, HEADER, BODY, MAIN = ("/s.py", 5, "send"), ("/s.py", 9, "reply"), ("/s.py", 10, "reply"), ("/s.py", 99, "main")
WAY = ("127.0.0.1", 80), ("127.0.0.1", 5000)
LIB, LIB_1, LIB_2 = ("lib/a.py", 1, "write"), ("lib/b.py", 7, "head"), ("lib/b.py", 8, "body")


def named(trigger: Any, held: Any, *, native: bool = False) -> list[tuple[Any, Any]]:
    """Line of the program and of the library, of each of the two writes with those frames."""
    calls = [Call(at, 1, 1, "server", "sendto") for at in (1, 2)]
    wheres = {}
    for call, frames in zip(calls, (trigger, held), strict=True):
        if native:
            own = tuple(frame for frame in frames if frame[0].startswith("/"))
            wheres[call] = CallSite(own, tuple(frames[: len(frames) - len(own)]), "")
        else:
            call.mark = Mark(3, 0, "send", tuple(frames))
    pair: Any = SimpleNamespace(trigger=calls[0], held=calls[1])
    found = CallPlaces(wheres).pair(pair)
    return [(one.program and one.program.line, one.library and one.library.line) for one in found]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("trigger", "held", "expected"),
    [
        ([HEADER, MAIN], [BODY, MAIN], [(9, None), (10, None)]),
        ([SEND, HEADER, MAIN], [SEND, BODY, MAIN], [(9, None), (10, None)]),  # one helper sends
        ([SEND, HEADER, MAIN], [BODY, MAIN], [(5, None), (10, None)]),
        ([SEND, HEADER], [SEND, HEADER], [(5, None), (5, None)]),  # in a loop
        ([SEND], [SEND, BODY], [(5, None), (5, None)]),
        ([LIB, SEND, HEADER], [LIB, SEND, BODY], [(9, None), (10, None)]),  # the library's is the same
        ([LIB, LIB_1, MAIN], [LIB, LIB_2, MAIN], [(99, 7), (99, 8)]),
        ([LIB, LIB_1], [LIB, LIB_2], [(None, 7), (None, 8)]),
        ([LIB, LIB_1], [(*LIB[:2], "write<u8>"), LIB_2], [(None, 7), (None, 8)]),  # the same line of Rust
        ([LIB_1, HEADER], [LIB_2, BODY], [(9, 7), (10, 8)]),
    ],
)
def test_the_innermost_places_at_which_two_writes_differ(trigger, held, expected, native):
    assert named(trigger, held, native=native) == expected


@pytest.mark.parametrize(
    ("frames", "caller"),
    [
        ([SEND, HEADER, MAIN], 9),
        ([LIB, SEND, HEADER], 9),
        ([HEADER, MAIN], None),  # what a program begins in calls everything
        ([HEADER, ("/s.py", 120, "<module>")], None),
        ([HEADER, ("/S.java", 120, "Server.main")], None),
        ([HEADER], None),
        ([LIB], None),
    ],
)
def test_where_the_function_that_set_an_option_was_called(frames, caller):
    call = Call(1, 1, 1, "server", "setsockopt")
    call.mark = Mark(3, 0, "setsockopt", tuple(frames))
    _, place = CallPlaces().option(call)
    assert (place and place.line) == caller


def test_of_an_interpreter_any_of_its_stacks_says_why(monkeypatch):
    """Its calls come by several ways, and the run with stacks may have ended before this one came."""

    def traced(*stacks: str) -> Trace:
        writes = [Call(at, 1, 1, "java", "write", wrote=600, stack=[stack]) for at, stack in enumerate(stacks)]
        return Trace({WAY: [Stream(WAY, 1, writes=writes)]})

    wheres = {"a": CallSite((), (("", 0, "NET_Send"),), "no hook"), "b": CallSite((), (), "no hook")}
    monkeypatch.setattr(call_sites, "where", lambda stacks, **_: [wheres[stack[0]] for stack in stacks])
    wanted = traced("", "", "").streams[WAY][0].writes[2]
    trace = Trace({WAY: [Stream(WAY, 1, writes=[*traced("", "").streams[WAY][0].writes, wanted])]})
    assert call_sites.sites_in_another_run([wanted], trace, traced("a", "b"))[wanted] in wheres.values()
    wheres["b"] = CallSite((("/s.c", 7, "reply"),), (), "")
    assert call_sites.sites_in_another_run([wanted], trace, traced("a", "b")) == {}


@pytest.mark.parametrize(("traced", "exchanges", "stalled", "is_told"), [(10, 12, 11, False), (8, 12, 11, True)])
def test_one_exchange_more_or_less_is_no_change_by_tracing(traced, exchanges, stalled, is_told):
    writes = nothing_found(12, traced)
    notes = compared(writes, exchanges, stalled).notes
    assert any("tracing changed the share" in note for note in notes) == is_told


def test_c_has_its_setting_too():
    setting = setting_by_file("t.c")
    assert setting is not None and "TCP_NODELAY" in setting.setting
