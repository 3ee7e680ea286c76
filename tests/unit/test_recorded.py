"""nagle-lab analyze --strace: an strace file beside a capture, in every view; and files that do not belong to it."""

import json
import os
import re
import subprocess
import sys
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.remedy import remedy
from nagle_lab.diagnosis.result.writes import Option, Place
from nagle_lab.errors import NagleLabError
from nagle_lab.evidence.examples import written_ladder
from nagle_lab.evidence.ladder import Ladder, LadderRow
from nagle_lab.experiments.writes.recorded import with_recorded
from nagle_lab.experiments.writes.running_program import not_clean_if_traced
from nagle_lab.reports.html.ladder_drawing import ladder_drawing
from nagle_lab.reports.words.ladder_text import ladder_text
from nagle_lab.reports.words.writes_text import place_of
from support.command import Ended, in_process
from support.schemas import check
from support.stories import BODY, HEADER, LATE, client_held, nodelay, server_held, talk
from support.straces import BEFORE, strace_text, write_strace
from support.synthetic import SECOND, US, Conversation, pcap_bytes

SERVER = ("10.0.0.2", 80)
SOURCE = (
    "\n".join(f"line {number}" for number in range(1, 15))
    + """
def reply(peer):
    peer.sendall(b"<header>")
    peer.sendall(b"</body>")
"""
)


@dataclass(frozen=True)
class Recorded:
    """A capture, the trace beside it, and the program of both."""

    capture: Path
    strace: Path
    program: Path

    def analyze(self, *options: object) -> Ended:
        with chdir(self.capture.parent):
            return in_process("analyze", f"--strace={self.strace}", *options, self.capture)


@pytest.fixture
def recorded(tmp_path) -> Recorded:
    program = tmp_path / "server.py"
    program.write_text(SOURCE)
    segments = talk(server_held, 12).segments
    capture = tmp_path / "stall.pcap"
    capture.write_bytes(pcap_bytes(segments))
    strace = write_strace(tmp_path, segments, server=SERVER, place=lambda size: place(program, size))
    return Recorded(capture, strace, program)


def place(program: Path, size: int) -> str:
    return f"{program};{ {HEADER: 16, BODY: 17}.get(size, 1) };reply"


def joined(capture: Path, strace: Path) -> Any:
    result = with_recorded([capture], analyze(capture), strace)
    assert result.writes
    return result


def test_the_two_calls_of_each_stall(recorded):
    result = joined(recorded.capture, recorded.strace)
    writes = result.writes
    assert (writes.named, writes.stalls, writes.problem) == (11, 11, "")
    (group,) = writes.groups
    lines = [(one.program.line, one.program.function, one.by, one.bytes) for one in (group.trigger, group.held)]
    assert lines == [(16, "reply", "sendall", HEADER), (17, "reply", "sendall", BODY)]
    assert writes.nodelay == "never set on the socket that held" and writes.untraced_exchanges is None
    for pair, stall in zip(writes.pairs, result.stalls, strict=True):
        assert pair.trigger_frame == stall.trigger_frame
        late = 0.3 + BEFORE / 1e6  # ms: the write, and what strace's time of it is early by
        assert pair.true_hold_ms == pytest.approx(stall.wait_ms - late, abs=0.03)
    assert writes.early_us == BEFORE / 1e3


def test_the_json_is_the_contracts(recorded):
    done = recorded.analyze("--json")
    content = json.loads(done.out)
    check("result", content)
    assert [content["writes"]["groups"][0][end]["program"]["line"] for end in ("trigger", "held")] == [16, 17]
    without = json.loads(in_process("analyze", "--json", recorded.capture).out)
    assert {name: value for name, value in content.items() if name != "writes"} == without


def test_the_screen_names_both_lines_before_the_ladder_and_in_it(recorded):
    text = recorded.analyze().out
    assert all(len(line) <= 100 for line in text.splitlines())
    said, ladder = text.split("A typical stall")
    words = " ".join(said.split())
    assert "remedy On the server (10.0.0.2:80): join server.py:16 and server.py:17 in one write, or set TCP" in words
    assert "writes 11 stalls: server.py:16 reply sendall 238 B, then server.py:17 reply sendall 615 B, 0.35" in words
    assert "the verdict is that of a traced run, in which 11 of 12 exchanges stalled" in words
    order = ["84 B", "server.py:16 reply ■  sendall 238 B", "trigger", "server.py:17 reply ■  sendall 615 B",
             "server holds 615 B,", "written 0.3 ms after the trigger,", "held ", "late ACK", "release"]  # fmt: skip
    places = [ladder.index(part) for part in order]
    assert places == sorted(places)
    assert re.search(r" held \d+\.\d ms, ", ladder)


def test_a_narrow_ladder_names_the_programs_line(recorded):
    write = joined(recorded.capture, recorded.strace).writes.groups[0].held
    inside = msgspec.structs.replace(write, library=Place("net/lib.py", 700, "send"))
    assert place_of(inside, 200).endswith("server.py:17 reply (net/lib.py:700 send)")
    assert place_of(inside, 30).endswith("server.py:17 reply")


def test_a_ladder_names_the_librarys_lines_if_one_line_of_the_program_called_for_both_writes(recorded):
    """As of a client library that is installed, and of a shared library of the project: it would be there twice."""
    result = joined(recorded.capture, recorded.strace)
    drawn = written_ladder([recorded.capture], result, result.writes)
    program = Place("tests/test_client_of_the_library.py", 26, "many")

    def of_library(write: Any, line: int) -> Any:
        return msgspec.structs.replace(write, program=program, library=Place("kvline/__init__.py", line, "set"))

    pair = drawn.writes
    both = msgspec.structs.replace(pair, trigger=of_library(pair.trigger, 13), held=of_library(pair.held, 15))
    calls = [line for line in ladder_text(replace(drawn, writes=both)).plain.splitlines() if "■" in line]
    assert ["kvline/__init__.py:13 set ■" in calls[0], "kvline/__init__.py:15 set ■" in calls[1]] == [True, True]
    drawing = ladder_drawing(replace(drawn, writes=both))
    assert re.findall(r'class="noted"[^>]*>kvline/([^<]*)', drawing) == ["__init__.py:13 set", "__init__.py:15 set"]


def test_without_lines_pairs_are_told_apart_by_their_triggers(tmp_path):
    """What is held may be of any size: a reply's body, say."""

    def exchange(c: Conversation, number: int) -> None:
        c.client_sends(84)
        c.server_sends(HEADER if number % 3 else 90, after_ns=200 * US)
        c.client_acks(after_ns=LATE)
        c.server_sends(BODY + number % 2, after_ns=15 * US)
        c.client_acks(after_ns=10 * US)

    segments = talk(exchange, 13).segments
    capture = tmp_path / "stall.pcap"
    capture.write_bytes(pcap_bytes(segments))
    groups = joined(capture, write_strace(tmp_path, segments, server=SERVER)).writes.groups
    assert [(one.stalls, one.trigger_bytes, one.held_bytes) for one in groups] == [
        (8, (HEADER, HEADER), (BODY, BODY + 1)), (4, (90, 90), (BODY, BODY + 1)),
    ]  # fmt: skip


def test_a_write_right_behind_the_trigger_is_not_said_to_be_at_once():
    write = SimpleNamespace(held=SimpleNamespace(at="0.000030"), true_hold_ms=44.1)
    shown = Ladder(None, [LadderRow(1, 0, True, "", "trigger", [])], None, writes=write)
    assert shown.hold == ("written 0.03 ms after the trigger,", "held 44.1 ms,")


def test_at_80_columns_nothing_of_the_calls_is_cut(recorded):
    result = joined(recorded.capture, recorded.strace)
    drawn = written_ladder([recorded.capture], result, result.writes)
    assert drawn
    lines = ladder_text(drawn).plain.splitlines()
    assert max(len(line.rstrip()) for line in lines if "■" in line) <= 80
    longer = replace(drawn, writes=in_a_long_file(drawn.writes))
    lines = [line for line in ladder_text(longer).plain.splitlines() if "■" in line]
    assert all(len(line.rstrip()) <= 80 and "…" in line for line in lines)


def in_a_long_file(pair: Any) -> Any:
    """The same in a file with a long name."""

    def longer(write: Any) -> Any:
        place = msgspec.structs.replace(write.program, file=f"/srv/{'x' * 90}.py")
        return msgspec.structs.replace(write, program=place)

    return msgspec.structs.replace(pair, trigger=longer(pair.trigger), held=longer(pair.held))


def test_one_write_that_made_both_segments_stands_there_once(recorded):
    result = joined(recorded.capture, recorded.strace)
    drawn = written_ladder([recorded.capture], result, result.writes)
    assert drawn and drawn.writes
    both = msgspec.structs.replace(drawn.writes, held=drawn.writes.trigger, one_write=True)
    text = ladder_text(replace(drawn, writes=both)).plain
    assert text.count("■") == 1 and "written before the trigger left," in text
    one = msgspec.structs.replace(result.writes.groups[0], one_write=True)
    said = remedy(result.summary, msgspec.structs.replace(result.writes, groups=[one])) or ""
    assert "set TCP_NODELAY (the data is in one write already). Or on" in said


def test_several_pairs_are_each_named_and_the_remedy_says_so(recorded, tmp_path):
    sizes = iter(range(1000))

    def places(size: int) -> str:
        return place(recorded.program, size if size == HEADER or next(sizes) % 3 else 0)

    strace = write_strace(tmp_path, talk(server_held, 12).segments, server=SERVER, place=places)
    words = " ".join(replace(recorded, strace=strace).analyze().out.split())
    pairs = re.findall(
        r"(\d+) stalls: server.py:16 reply sendall 238 B, then server.py:(\d+) reply sendall 615", words
    )
    assert {line for _, line in pairs} == {"17", "1"} and sum(int(stalls) for stalls, _ in pairs) == 11
    assert "join server.py:16 and server.py:17 (and the other pairs below) in one write" in words


def with_places(writes: Any, trigger: Place | None, held: Place | None, library: Place) -> Any:
    """The same writes made through one ``library``, by these lines of the program."""
    (group,) = writes.groups
    changed = {
        name: msgspec.structs.replace(getattr(group, name), program=program, library=library)
        for name, program in (("trigger", trigger), ("held", held))
    }
    return msgspec.structs.replace(writes, groups=[msgspec.structs.replace(group, **changed)])


def test_the_remedy_names_the_programs_lines_and_a_librarys_where_these_are_not_known(recorded):
    result = joined(recorded.capture, recorded.strace)
    print_go = Place("fmt/print.go", 225, "fmt.Fprintf")
    one, other = (Place("/srv/server.go", line, "answer") for line in (24, 25))
    spaced = Place("/home/me/My Projects/a server.py", 24, "answer")
    for trigger, held, lines in (
        (one, other, "join srv/server.go:24 and srv/server.go:25 in one write"),
        (one, one, "join what srv/server.go:24 writes in one write"),
        (spaced, spaced, "join what My Projects/a server.py:24 writes in one write"),
        (None, None, "join what fmt/print.go:225 writes in one write"),
    ):
        assert lines in (remedy(result.summary, with_places(result.writes, trigger, held, print_go)) or "")


def test_what_is_written_behind_the_second_write_has_to_be_joined_too(recorded):
    result = joined(recorded.capture, recorded.strace)
    pairs = [msgspec.structs.replace(pair, held_writes=2) for pair in result.writes.pairs]
    said = remedy(result.summary, msgspec.structs.replace(result.writes, pairs=pairs)) or ""
    assert "server.py:17, and what it writes next, in one write, or set TCP_NODELAY" in said


def option(writes: Any, value: bool, line: int, *, on: str = "socket", late: bool = False, caller: int = 0) -> Option:
    place = Place("/srv/server.py", line, "accepted")
    write = msgspec.structs.replace(writes.groups[0].held, program=place)
    called = Place("/srv/server.py", caller, "main") if caller else None
    return Option("TCP_NODELAY", value, on, 1.0, "", late, write, called)


def test_the_remedy_says_what_became_of_the_option(recorded):
    result = joined(recorded.capture, recorded.strace)
    writes = result.writes
    removed = "or remove srv/server.py:12, which clears TCP_NODELAY. Or on"
    helper = "leave TCP_NODELAY set, which srv/server.py:12 clears for srv/server.py:16. Or on"
    late = "set TCP_NODELAY before the first write (srv/server.py:9 sets it too late). Or on"
    for options, said in (
        ([option(writes, True, 9), option(writes, False, 12, caller=16)], removed),
        ([option(writes, True, 12, caller=15), option(writes, False, 12, caller=16)], helper),
        ([option(writes, True, 5, on="listener"), option(writes, False, 12)], removed),
        ([option(writes, True, 9, late=True)], late),
        ([option(writes, False, 12)], "or set TCP_NODELAY at srv/server.py:12, which clears it. Or on"),
        (
            [msgspec.structs.replace(option(writes, True, 9), error="EINVAL"), option(writes, False, 12)],
            "or set TCP_NODELAY at srv/server.py:12, which clears it. Or on",
        ),
    ):
        assert said in (remedy(result.summary, msgspec.structs.replace(writes, options=options)) or "")


def test_a_client_that_holds_has_its_calls_on_the_left(tmp_path):
    segments = talk(client_held, 12).segments
    capture = tmp_path / "stall.pcap"
    capture.write_bytes(pcap_bytes(segments))
    text = []
    for one in segments:
        if one.src == "10.0.0.1" and ("S" in one.flags or one.length):
            socket = f"5<TCP:[10.0.0.1:40000->10.0.0.2:{one.dport}]>"
            call = f'sendto({socket}, ""..., {one.length}, 0, NULL, 0) = {one.length}'
            if "S" in one.flags:
                call = (
                    "connect(5<TCP:[77]>, {sa_family=AF_INET, sin_port=htons(80), "
                    'sin_addr=inet_addr("10.0.0.2")}, 16) = 0'
                )
            text.append(f"9<client> {(one.ts_ns - 9000) // 10**9}.{(one.ts_ns - 9000) % 10**9 // 1000:06} {call}\n")
    (tmp_path / "strace.txt").write_text("".join(text))
    result = joined(capture, tmp_path / "strace.txt")
    drawn = written_ladder([capture], result, result.writes)
    assert drawn and result.writes.named == len(result.stalls)
    calls = [line for line in ladder_text(drawn).plain.splitlines() if "■" in line]
    assert len(calls) == 2 and all(re.match(r" +\d+\.\d+  ■ client, no line: +│  sendto 3 B", line) for line in calls)


def test_the_files_have_the_lines(recorded, tmp_path):
    done = recorded.analyze("--markdown=page.md", "--junit=junit.xml", "--html=page.html")
    assert done.code == 0, done.err
    markdown, junit = (tmp_path / "page.md").read_text(), (tmp_path / "junit.xml").read_text()
    assert (
        "| writes | 11 stalls: server.py:16 reply  sendall 238 B, |" in markdown
        and "server.py:17 reply ■" in markdown
    )
    assert "Writes: 11 stalls: server.py:16 reply  sendall 238 B, then server.py:17 reply" in junit
    page = (tmp_path / "page.html").read_text()
    section = page[page.index("<h2>The two writes</h2>") : page.index("segment by segment")]
    assert "peer.sendall(b&#34;&lt;header&gt;&#34;)" in section and '</body>")' not in section
    marked = re.findall(r'<tr class="(trigger|held)"><td class="figure">(\d+)</td>', section)
    assert marked == [("trigger", "16"), ("held", "17")]
    assert re.findall(r'<td class="figure">(\d+)</td>', section) == [str(n) for n in range(13, 19)]
    assert section.count('class="square"') == 2


def test_the_stacks_are_in_json_and_in_the_page(recorded, tmp_path):
    """The innermost place first: of what is in a file of a library, and of the program."""

    def stack(size: int) -> str:
        return f"lib/sockets.py;7;send;{place(recorded.program, size)};{recorded.program};40;serve"

    segments = talk(server_held, 12).segments
    strace = write_strace(tmp_path, segments, server=SERVER, place=stack)
    (group,) = joined(recorded.capture, strace).writes.groups
    expected = [
        [("sockets.py", 7, "send"), ("server.py", line, "reply"), ("server.py", 40, "serve")] for line in (16, 17)
    ]
    found = [[(Path(one.file).name, one.line, one.function) for one in stack_]
             for stack_ in (group.trigger_stack, group.held_stack)]  # fmt: skip
    assert found == expected
    done = replace(recorded, strace=strace).analyze("--html=page.html", "--json")
    check("result", json.loads(done.out))
    stacks = re.findall(r'<details class="stack">.*?</details>', (tmp_path / "page.html").read_text(), re.DOTALL)
    assert [re.findall(r"<code>(.*?)</code>", one) for one in stacks] == [
        ["lib/sockets.py:7 send", f"server.py:{line} reply", "server.py:40 serve"] for line in (16, 17)
    ]


def test_of_a_strangers_trace_no_file_outside_the_working_directory_is_shown(recorded, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("\n" * 15 + "not for the page\n" * 2)
    here = tmp_path / "here"
    here.mkdir()
    strace = write_strace(here, talk(server_held, 12).segments, server=SERVER, place=lambda size: place(secret, size))
    moved = replace(recorded, capture=recorded.capture.rename(here / "stall.pcap"), strace=strace)
    assert moved.analyze("--html=page.html").code == 0
    page = (here / "page.html").read_text()
    assert "secret:16" in page and "not for the page" not in page


@pytest.mark.parametrize(
    ("before", "times", "verdict", "says"),
    [(nodelay, 40, "CLEAN", ""), (server_held, 41, "INCONCLUSIVE", "; but 40 of 41 did before strace was attached, "),
     (nodelay, 2, "INCONCLUSIVE", "; but strace slowed what it recorded, and may have hidden a stall")],
)  # fmt: skip
def test_what_is_clean_while_traced_is_clean_if_it_was_before(tmp_path, before, times, verdict, says):
    """As an attached recording is: first without strace, then with it."""
    results = []
    for name, story, count in (("before", before, times), ("traced", nodelay, 40)):
        (tmp_path / name).write_bytes(pcap_bytes(talk(story, count).segments))
        results.append(analyze(tmp_path / name))
    found = not_clean_if_traced(results[1], results[0])
    assert (found.verdict, results[1].verdict) == (verdict, "CLEAN")
    assert found.reason.startswith(results[1].reason) and says in found.reason


def test_clean_while_traced_is_not_clean(tmp_path):
    segments = talk(nodelay, 20).segments
    capture = tmp_path / "clean.pcap"
    capture.write_bytes(pcap_bytes(segments))
    assert analyze(capture).verdict == "CLEAN"
    result = joined(capture, write_strace(tmp_path, segments, server=SERVER))
    assert result.verdict == "INCONCLUSIVE"
    assert result.reason.endswith("may have hidden a stall: record it again without tracing")


def test_a_connection_that_began_before_the_trace(recorded, tmp_path):
    strace = write_strace(tmp_path, talk(server_held, 12).segments, server=SERVER, begun=False)
    result = joined(recorded.capture, strace)
    (group,) = result.writes.groups
    assert result.verdict == "STALL" and group.stalls >= 8
    assert (group.trigger.bytes, group.held.bytes) == (HEADER, BODY)
    assert group.stalls == 11 or "the connection began before the trace" in result.writes.problem
    assert result.writes.nodelay == "not set while it was traced; the connection began before that"


def test_without_hooks_and_stacks_it_says_how_to_get_lines(recorded, tmp_path):
    strace = write_strace(tmp_path, talk(server_held, 12).segments, server=SERVER)
    (group,) = joined(recorded.capture, strace).writes.groups
    assert group.held.program is None
    assert group.held.why_no_line == "server: the trace has no stack of such a call: record it with -k"


@pytest.mark.parametrize(("elsewhere", "named"), [(1, True), (2, False)])
def test_a_call_without_a_stack_is_where_nine_tenths_of_those_like_it_were(recorded, tmp_path, elsewhere, named):
    """strace writes stacks in the first seconds only; one call like it in twelve came from another place."""
    left = {HEADER: elsewhere, BODY: elsewhere}

    def stack(size: int) -> list[str]:
        left[size] = left.get(size, 0) - 1
        where = "main" if left[size] >= 0 else "reply"
        return [f"/srv/server({where}+0x1) [0x{size:x}{'0' if where == 'main' else '1'}]"]

    lines = write_strace(tmp_path, talk(server_held, 12).segments, server=SERVER, stack=stack).read_text()
    head, frames, tail = lines.rpartition(" > ")
    strace = tmp_path / "cut.txt"
    strace.write_text(head + tail.partition("\n")[2])  # the last call has none
    writes = joined(recorded.capture, strace).writes
    held = [pair.held.program.function if pair.held.program else "" for pair in writes.pairs]
    assert frames == " > " and held[-1] == ("reply" if named else "")
    notes = ["1 calls have no stack; their place is that of nine tenths or more of the calls like them"]
    assert writes.notes == (notes if named else [])


def test_native_stacks(recorded, tmp_path):
    def stack(size: int) -> list[str]:
        return [
            f"/nowhere/server({'head' if size == HEADER else 'body'}+0x1) [0x11]",
            "/nowhere/server(main+0x2) [0x12]",
        ]

    strace = write_strace(tmp_path, talk(server_held, 12).segments, server=SERVER, stack=stack)
    (group,) = joined(recorded.capture, strace).writes.groups
    assert [one.program.function for one in (group.trigger, group.held)] == ["head", "body"]


GOOD = strace_text(talk(server_held, 12).segments, server=SERVER)
LATER = strace_text(talk(server_held, 12, t0_ns=1_700_009_000 * SECOND).segments, server=SERVER)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not written by strace"),
        ("hello\nworld\n", "not written by strace"),
        ("\0\xff" * 100, "not written by strace"),
        (re.sub(r"^\d+<server> ", "", GOOD, flags=re.M), "recorded without -f"),
        (re.sub(r"^(\d+<server>) ", "[pid   700] ", GOOD, flags=re.M), "recorded from the terminal: use -o FILE"),
        (re.sub(r" 17\d+\.", " 10:11:12.", GOOD), "recorded without -ttt, so that no line has the date"),
        (re.sub(r" 17\d+\.\d+", "", GOOD), "recorded without -ttt, so that no line has a time"),
        (re.sub(r"<TCP:\[[^]]*\]>", "<socket:[77]>", GOOD), "recorded without -yy"),
        (re.sub(r"<TCP:\[[^]]*\]>", "", GOOD), "recorded without -yy"),
        (re.sub(r"sendto\(.*", "close(3) = 0", GOOD), "nothing in it writes to a TCP connection"),
        (GOOD.replace("10.0.0.1", "10.9.9.9"), "of other connections: it has none of the capture's 1, but "),
        (LATER, "recorded at another time, 9,000 s after the capture ended: "),
    ],
)  # fmt: skip
def test_what_does_not_belong_to_it_is_one_line(recorded, tmp_path, text, says):
    other = tmp_path / "other.txt"
    other.write_text(text)
    with pytest.raises(NagleLabError) as error:
        joined(recorded.capture, other)
    assert str(error.value).startswith(f"{other}: {says}") and "\n" not in str(error.value)


def test_a_capture_that_changed_since_it_was_judged(recorded):
    result = analyze(recorded.capture)
    os.truncate(recorded.capture, recorded.capture.stat().st_size // 2)
    with pytest.raises(NagleLabError, match="changed while it was read"):
        with_recorded([recorded.capture], result, recorded.strace)


def test_wrong_usage(recorded, tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")  # as of bash's <(xzcat strace.txt.xz)
    for what, says in (
        (replace(recorded, strace=pipe).analyze(), "pipe: --strace reads a file several times: save it to one first"),
        (replace(recorded, strace=tmp_path / "missing").analyze(), "missing: no such file"),
        (recorded.analyze(recorded.capture), "--strace takes one capture file"),
        (replace(recorded, capture=tmp_path).analyze(), "--strace takes one capture file"),
    ):
        assert what.code == 2 and says in what.err.lower() and what.err.count("\n") == 1, what.err


EVIL = "/srv/\\33[31m<script>alert(1)</script>|`x`\\n.py;16;\\33]0;owned\\7"


def test_what_a_hostile_trace_says_is_text(recorded, tmp_path):
    strace = write_strace(tmp_path, talk(server_held, 12).segments, server=SERVER, place=lambda _: EVIL)
    hostile = replace(recorded, strace=strace)
    done = hostile.analyze("--html=page.html", "--markdown=page.md", "--junit=junit.xml")
    assert done.code == 0 and "\\x1b[31m" in done.out
    for text in (done.out, *((tmp_path / name).read_text() for name in ("page.html", "page.md", "junit.xml"))):
        assert not {"\x1b", "\7"} & set(text)
    assert "<script>alert" not in (tmp_path / "page.html").read_text() + (tmp_path / "page.md").read_text()
    content = json.loads(hostile.analyze("--json").out)
    check("result", content)


@pytest.mark.parametrize("number", ["9" * 16, "9" * 5000, "-" + "9" * 5000])
def test_numbers_that_are_too_long_are_not_believed(recorded, tmp_path, number):
    strace = tmp_path / "long.txt"
    socket = "5<TCP:[10.0.0.2:80->10.0.0.1:40000]>"
    lines = [
        f"{number}<server> 1700000000.000000 write({socket}, ..., 5) = 5",
        f"700<server> {number}.000000 write({socket}, ..., 5) = 5",
        f"700<server> 1700000000.100000 write({number}<TCP:[10.0.0.2:80->10.0.0.1:40000]>, ..., 5) = 5",
        f"700<server> 1700000000.100000 write({socket}, ..., 5) = {number}",
        f"700<server> 1700000000.100000 write(5<TCP:[10.0.0.2:{number}->10.0.0.1:40000]>, ..., 5) = 5",
        f"700<server> 1700000000.100000 clone(child_stack=NULL, flags=CLONE_THREAD) = {number}",
        f"700<server> 1700000000.100000 sendmmsg({socket}, [{{msg_len={number}}}], 1, 0) = 1",
        f"700<server> 1700000000.100000 setsockopt({socket}, SOL_TCP, TCP_NODELAY, [{number}], 4) = 0",
        f'700<server> 1700000000.100000 rmdir("/proc/nagle-lab;{number};{number};send;/a.py;{number};f") = -1 ENOENT',
    ]
    strace.write_text("\n".join(lines) + "\n" + recorded.strace.read_text())
    assert joined(recorded.capture, strace).writes.named == 11


def test_a_trace_without_ends_of_lines_costs_no_memory(recorded, tmp_path):
    strace = tmp_path / "long.txt"
    with strace.open("wb") as file:
        file.write(b"700<server> 1700000000.000000 write(")
        file.truncate(600 << 20)
    command = [sys.executable, "-m", "nagle_lab", "analyze", f"--strace={strace}", str(recorded.capture)]
    limited = ["sh", "-c", 'ulimit -v 500000; exec "$@"', "sh", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 2 and "nothing in it writes to a TCP connection" in done.stderr, done.stderr


def test_a_binary_that_is_a_pipe_is_not_opened(recorded, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    strace = write_strace(
        tmp_path, talk(server_held, 12).segments, server=SERVER, stack=lambda _: [f"{tmp_path}/pipe(f+0x1) [0x11]"]
    )
    (group,) = joined(recorded.capture, strace).writes.groups
    assert group.held.program and group.held.program.function == "f"
