"""What the screen says to do next: where the time went, which software holds, and lines to paste."""

import io
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from rich.console import Console

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.idle_gaps import CAUSES
from nagle_lab.diagnosis.result.result import EndProcess
from nagle_lab.diagnosis.result.writes import Place, Write
from nagle_lab.evidence.examples import Examples
from nagle_lab.evidence.file_names import distinct_names
from nagle_lab.evidence.software import software_seen
from nagle_lab.experiments.software.guarded import JudgedCommand
from nagle_lab.guard.recording.job import Outcome
from nagle_lab.guard.recording.run_command import Guarded
from nagle_lab.reports.screens.guard import language, language_of_command, show_guarded, to_paste
from nagle_lab.reports.screens.terminal import show_commands
from nagle_lab.reports.words.next_steps import commands, idle_gaps
from nagle_lab.reports.words.phrases import findings
from nagle_lab.reports.words.reported import ReportedCapture
from support.repository import CAPTURES, REFERENCE, STALLED
from support.stories import (
    BODY,
    LATE,
    REQUEST,
    client_held,
    nodelay,
    pauses_a_little_longer_than_the_timer,
    reply_in_two,
    server_held,
    talk,
    two_part_reply,
)
from support.stories import thinks_then_one_write as thinks
from support.synthetic import MS, US, Conversation, Frame, merge, packet_bytes, pcap_bytes

LOOKALIKES = CAPTURES / "lookalikes"


@pytest.mark.parametrize(
    ("case", "cause", "step"),
    [
        ("think-40", "server processing", "profile it"),
        ("rto", "retransmission timeout", "nstat -az TcpRetransSegs"),
        ("cork", "TCP_CORK", "clear it after the last write"),
        ("nagle-rtt-40", "Nagle's algorithm waiting for a round trip", "set TCP_NODELAY there"),
        ("nodelay-pause-45", "delayed ACK that nothing waited for", "a program paused, between its writes"),
        ("zero-window", "zero or full receive window", "ss -tim"),
        ("nodelay", "", "on another connection"),
    ],
)
def test_a_clean_capture_says_where_the_time_went_and_what_to_do(run, case, cause, step):
    _, out, _ = run("analyze", LOOKALIKES / case / "server.pcap.gz")
    words = " ".join(out.split())
    assert "CLEAN" in words and "next " in words
    assert cause in words and step in words


@pytest.mark.parametrize(("seen_at", "is_told"), [("server", True), ("client", False), ("middle", False)])
def test_away_from_the_server_its_time_is_not_told_from_that_of_the_path(diagnose, seen_at, is_told):
    def replies_late(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(BODY, after_ns=60 * MS)
        c.client_acks(after_ns=10 * US)

    words = " ".join(text for _, text in idle_gaps(diagnose(talk(replies_late, rtt_ns=10 * MS).seen_at(seen_at))))
    assert ("not because of TCP: profile it" in words) == is_told
    assert ("capture at the server, which tells" in words) != is_told


def test_where_nothing_can_be_told_no_late_ack_is_said_to_have_had_nothing_to_wait_for(run):
    _, out, _ = run("analyze", CAPTURES / "families" / "wait-stop-and-wait" / "server.pcap.gz")
    words = " ".join(out.split())
    assert "cannot tell" in words and "24 × delayed ACK, perhaps with data waiting for it" in words
    assert "nothing waited for" not in words


def test_every_cause_has_a_name_and_the_shares_are_of_all_idle_time(diagnose):
    result = diagnose(talk(thinks).segments)
    assert set(result.idle_gaps) <= set(CAUSES)
    rows = dict(idle_gaps(result))
    assert rows["idle gaps"].endswith("% of all idle time")
    total = sum(gaps.total_ms for gaps in result.idle_gaps.values())
    longest = max(gaps.total_ms for gaps in result.idle_gaps.values())
    assert f"{longest / total:.0%} of all idle time" in rows["idle gaps"]


def test_a_stall_that_explains_all_idle_time_is_not_said_twice(diagnose):
    assert idle_gaps(diagnose(talk(server_held).segments)) == []


@pytest.mark.parametrize(
    ("story", "find", "route"),
    [(server_held, "ss -tlnp 'sport = :80'", "10.0.0.2"), (client_held, "ss -tnp dst 10.0.0.2:80", "10.0.0.1")],
)
def test_commands_name_the_holding_process_and_the_route_to_it(diagnose, story, find, route):
    result = diagnose(talk(story).segments)
    which, settings, quick = commands(result, None)
    assert which[1] == [find]
    assert any("setNoDelay(true)" in line for line in settings[1])
    assert quick[1][0].startswith(f"ip route add {route} $(ip route get {route} | ")


def test_of_two_ends_that_held_each_has_its_lines(run):
    result = analyze(CAPTURES / "families" / "duplex-chat" / "server.pcap.gz")
    first, second = result.summary.held_ends
    look, other, _, quick, other_quick = commands(result, None)
    assert [first.ip in look[0], second.ip in other[0]] == [True, True] and look[1] != other[1]
    assert f"what {first.ip} sends" in quick[0] and f"what {second.ip} sends" in other_quick[0]
    assert other_quick[1][0].startswith(f"ip route add {second.ip} ")
    _, out, _ = run("analyze", CAPTURES / "families" / "duplex-chat" / "server.pcap.gz")
    assert look[1][0] in out and other[1][0] in out


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ({}, "It acts on all connections between the two, of every program"),
        (
            {"client": ("127.0.0.1", 50_000), "server": ("127.0.0.1", 80)},
            "This changes the local route there, for every program",
        ),
        (
            {"client": ("10.0.0.1", 50_000), "server": ("10.0.0.1", 80)},
            "is sent over 10.0.0.1. This changes the local route there, for every program",
        ),
    ],
)
def test_a_route_to_paste_says_whom_it_acts_on(diagnose, ends, says):
    (*_, (title, (change, undo, *others))) = commands(diagnose(talk(server_held, **ends).segments), None)
    assert says in title and undo.startswith("# to undo it: ip route ")
    assert ("route replace table local" in change) is bool(ends)
    assert any("FreeBSD" in line for line in others) is not bool(ends)


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize(
    "path",
    [*REFERENCE.glob("*/*.pcap"), LOOKALIKES / "think-40" / "server.pcap.gz", "loopback", "ipv6"],
    ids=lambda path: path if isinstance(path, str) else f"{path.parent.name}-{path.name}",
)
def test_a_shell_takes_the_whole_block(tmp_path, path, width):
    """Each line is one of a few commands or a comment, without a quotation mark, whose end zsh would look for."""
    lines = pasted(path if isinstance(path, Path) else _of_ends(tmp_path, path), width)
    assert lines or not isinstance(path, str)
    for line in lines:
        assert line.startswith("# ") or line.split()[0] in ("ss", "ip", "tcpdump", "nagle-lab"), line
        assert not line.startswith("#") or not set("'\"`") & set(line), line
        assert len(line) <= width or line.startswith(("#   ", "# to undo it: ", "ip ", "tcpdump ")), line
    done = subprocess.run(["bash", "-n"], input="\n".join(lines), text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    changes = [line for line in lines if "quickack 1" in line and not line.startswith("#")]
    assert len(changes) == sum("undo" in line for line in lines)


def pasted(path: Path, width: int, **more) -> list[str]:
    """The lines to paste for a capture, as a terminal of that width shows them."""
    result = analyze(path)
    to = Console(width=width, file=io.StringIO())
    show_commands(commands(result, software_seen([path], result), **more), to)
    return to.file.getvalue().splitlines()


def _of_ends(folder: Path, which: str) -> Path:
    """A capture with stalls between such ends."""
    client, server = {"loopback": ("127.0.0.1", "127.0.0.1"), "ipv6": ("2001:db8::1", "2001:db8::2")}[which]
    path = folder / "x.pcap"
    path.write_bytes(pcap_bytes(talk(server_held, client=(client, 50_000), server=(server, 80)).segments))
    return path


def test_a_process_of_this_host_is_looked_at_by_its_number(tmp_path):
    """watch knows it: nothing has to be looked for, and a container may lack ss and ip."""
    path = _of_ends(tmp_path, "loopback")
    there = [("server", 80, 4711, "shop-web/python3"), ("client", None, 4712, "ab")]
    at = [EndProcess(role, "127.0.0.1", port, pid, name, "", 1) for role, port, pid, name in there]
    first, _, (reach, (change, undo)) = commands(replace(analyze(path), processes=at), None, here=True)
    assert "shop-web/python3 4711" in first[0] and first[1][0] == "nagle-lab sockets --pid 4711"
    assert "nodelay --pid 4711 on" in first[1][1] and first[1][1].startswith("# ")
    assert "on this host" in reach and change.startswith("nsenter -t 4712 -n ip route ") and undo.startswith("# ")
    elsewhere = commands(replace(analyze(path), processes=at), None)
    assert elsewhere[0][1] == ["ss -tlnp 'sport = :80'"]


def test_without_a_stall_and_without_idle_gaps_there_is_nothing_to_paste(diagnose):
    assert commands(diagnose(talk(nodelay).segments), None) == []


def test_the_program_that_pauses_is_at_the_end_that_is_not_late(diagnose):
    result = diagnose(talk(pauses_a_little_longer_than_the_timer).segments)
    assert result.summary.delayed_acks_by["client"] and not result.summary.delayed_acks_by["server"]
    assert commands(result, None) == [
        (
            "In a shell on 10.0.0.2, as root, to see which program pauses between its writes",
            ["ss -tlnp 'sport = :80'"],
        )
    ]


def test_an_inconclusive_capture_gets_no_step_that_takes_sides(run):
    """What was not decided must not be called the server's processing, or harmless."""
    folder = CAPTURES / "families" / "wait-drained-rtt-10"
    _, out, _ = run("analyze", folder / "server.pcap.gz")
    assert "INCONCLUSIVE" in out and "\nidle gaps" in out
    assert "\nnext " not in out and "ss -t" not in out and "like a program" not in out


@pytest.mark.parametrize(("command", "steps"), [(["python3", "test.py"], 0), ([], 1)])
def test_pauses_need_a_next_step_in_running_software_not_in_a_guarded_test(diagnose, command, steps):
    result = diagnose(talk(thinks).segments)
    assert idle_gaps(result) != idle_gaps(result, slow=False)
    screen = Console(width=100, file=io.StringIO())
    recorded = Guarded(Path("recording"), "on the interface lo", Outcome(status=0, took_s=1.0), command)
    show_guarded(JudgedCommand(recorded, result), ReportedCapture(result, Examples(), slow=not command), screen)
    assert screen.file.getvalue().count("a program paused, between its writes") == steps


def test_one_direction_has_no_idle_gaps_to_explain(tmp_path):
    """What the other end did meanwhile is not in it: neither end can be said to have been late."""
    path = tmp_path / "s.pcap"
    both = talk(thinks).segments
    path.write_bytes(pcap_bytes([one for one in both if one.sport == both[0].sport]))
    result = analyze(path)
    assert "one direction is missing" in result.reason and result.idle_gaps
    ((name, step),) = idle_gaps(result)
    assert name == "next" and step.startswith("only packets from 10.0.0.1:") and "capture on 10.0.0.1 itself" in step
    assert idle_gaps(result, slow=False) == []
    ((where, (line,)),) = commands(result, None)
    assert where.startswith("In a shell on 10.0.0.1, ") and line.endswith("-w /tmp/both.pcap 'tcp'")


@pytest.mark.parametrize("answers", [True, False])
def test_packets_that_only_go_to_one_end_are_not_said_to_come_from_one_of_many(tmp_path, answers):
    """Several clients and one server: it is the server that they have in common. It may not even answer."""
    path = tmp_path / "s.pcap"
    talks = [talk(thinks, client=(f"10.0.1.{host}", 40_000)).segments for host in range(12)]
    to_server = [one for one in merge(*talks) if one.dport == 80]
    path.write_bytes(pcap_bytes([one for one in to_server if answers or "S" in one.flags]))
    result = analyze(path)
    ((_, step),) = idle_gaps(result)
    assert step.startswith("only packets to 10.0.0.2:80 are in it") and "capture on 10.0.0.2 itself" in step
    assert ("perhaps nobody answers" in step) != answers
    ((where, (line,)),) = commands(result, None)
    assert where.startswith("In a shell on 10.0.0.2, ") and line.endswith("-w /tmp/both.pcap 'tcp port 80'")


def test_a_capture_without_packets_has_no_direction(run, tmp_path):
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap_bytes([]))
    code, out, _ = run("analyze", path)
    assert (code, "direction" in out, "handshake" in out) == (2, False, False)
    assert "connections   none" in out and idle_gaps(analyze(path)) == []


def test_one_direction_of_a_connection_is_no_missing_handshake(run, tmp_path):
    path = tmp_path / "s.pcap"
    path.write_bytes(pcap_bytes([one for one in talk(thinks).segments if one.sport == 80]))
    _, out, _ = run("analyze", path)
    assert "1 (one direction of each)" in out
    assert "\ntcpdump -i any -s 128 -B 16384 -n -c 200000 -w /tmp/both.pcap 'tcp port 80'\n" in out


def test_which_connections_stall_is_said_where_others_do_not(run, tmp_path):
    path = tmp_path / "s.pcap"
    stalled, clean = talk(server_held).segments, talk(nodelay, client=("10.0.0.9", 50_000)).segments
    path.write_bytes(pcap_bytes(merge(stalled, clean)))
    _, out, _ = run("analyze", path)
    assert "\nstalls on     1 of 2 connections: 10.0.0.1:40000 (connection 0)" in out
    path.write_bytes(pcap_bytes(stalled))
    _, out, _ = run("analyze", path)
    assert "\nstalls on" not in out


def test_the_route_to_paste_is_between_two_ends_of_one_stall(tmp_path):
    """The client that delays most often has nothing to do with the server that holds most often."""
    path = tmp_path / "s.pcap"
    ends = [
        ("10.0.0.6", ("10.0.0.2", 81), 12),
        ("10.0.0.1", ("10.0.0.2", 80), 20),
        ("10.0.0.3", ("10.0.0.2", 80), 25),
        ("10.0.0.4", ("10.0.0.5", 80), 30),
    ]
    talks = [
        talk(server_held, exchanges=exchanges, client=(client, 40_000), server=server)
        for client, server, exchanges in ends
    ]
    path.write_bytes(pcap_bytes(merge(*(one.segments for one in talks))))
    result = analyze(path)
    assert [end.ip for end in result.summary.delayed_ends] == ["10.0.0.4", "10.0.0.3", "10.0.0.1", "10.0.0.6"]
    *_, first, second = commands(result, None)
    for (where, (route, *_)), delayed, held in ((first, "10.0.0.1", "10.0.0.2"), (second, "10.0.0.4", "10.0.0.5")):
        assert where.startswith(f"Or in a shell on {delayed}, as root") and f"ip route add {held} " in route


@pytest.mark.parametrize(
    ("case", "took"), [("think-40", "40 ms"), ("cork", "272 ms"), ("nodelay", ""), ("nodelay-rtt-40", "")]
)
def test_a_clean_capture_that_is_slow_says_so_in_its_headline(case, took):
    """Not where the path alone is slow."""
    result = analyze(LOOKALIKES / case / "server.pcap.gz")
    assert result.verdict == "CLEAN"
    said = f"; not this stall, but they took {took} each (median)"
    assert result.reason.endswith(said if took else "none held behind a delayed ACK")


def test_a_corked_server_is_named_with_a_line_to_find_it():
    result = analyze(LOOKALIKES / "cork" / "server.pcap.gz")
    ((where, (line,)),) = commands(result, None)
    server = result.connections[0].server
    assert where.startswith(f"In a shell on {server.ip}, as root, while it is slow")
    assert line == f"nagle-lab sockets --port {server.port}"


def test_a_clean_capture_names_its_ends_and_finds_the_program_that_is_late(run):
    _, out, _ = run("analyze", LOOKALIKES / "think-40" / "server.pcap.gz")
    words = " ".join(out.split())
    assert "between client 10.77.0.1:" in words and "and server 10.77.0.2:7000" in words
    assert "# In a shell on 10.77.0.2, as root, to see which program replies late: ss -tlnp 'sport = :7000'" in words
    assert "tcpdump -i any" in words


def test_a_clean_capture_of_several_connections_names_the_busiest_and_its_software(run):
    _, out, _ = run("analyze", REFERENCE / "nginx-static-nodelay-on" / "server.pcap")
    assert "server 172.27.0.2:8080, nginx: the busiest connection, 26 of 100 exchanges" in " ".join(out.split())


def test_without_idle_gaps_nothing_is_next_where_nobody_said_it_is_slow(diagnose):
    result = diagnose(talk(nodelay).segments)
    assert [name for name, _ in idle_gaps(result)] == ["next"]
    assert idle_gaps(result, slow=False) == []


def test_the_screen_says_of_what_the_waits_are_and_of_what_the_exchanges(run):
    _, out, _ = run("analyze", STALLED)
    lines = [line.strip() for line in out.splitlines()]
    assert any(line.startswith("wait ") and line.endswith("in the 96 stalls") for line in lines)
    assert any(line.startswith("exchange ") and line.endswith("in all 100 exchanges") for line in lines)


def test_the_software_is_named_by_its_own_header():
    software = software_seen([STALLED], analyze(STALLED))
    assert software is not None and software.software == "nginx"


def test_a_pipe_is_not_said_to_lack_the_name_of_the_software(tmp_path):
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "nagle_lab", "analyze", "-", "--html", page]
    done = subprocess.run(command, input=STALLED.read_bytes(), capture_output=True, check=True)
    for shown in (done.stdout.decode().replace("\n# ", " "), page.read_text()):
        assert "Which software it is, is not known, because a pipe cannot be read twice; in some it is:" in shown


def test_software_that_is_not_known_may_be_in_c_or_ruby(diagnose):
    _, (_, lines), _ = commands(diagnose(talk(server_held).segments), None)
    assert {line.split()[1] for line in lines} >= {"C", "Ruby", "Python", "nginx"}


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\n", "Python"),
        (b"HTTP/1.1 200 OK\r\nserver: Apache-Coyote/1.1\r\n", "Java"),
        (b"HTTP/1.1 200 OK\r\nX-Powered-By: Express\r\n", "Node.js"),
        (b"HTTP/1.1 200 OK\r\nServer: Kestrel\r\n", ".NET"),
        (b"HTTP/1.1 200 OK\r\nServer: Microsoft-IIS/10.0\r\n", None),
        (b"HTTP/1.1 200 OK\r\nServer: node_exporter\r\n", None),
        (b"HTTP/1.1 200 OK\r\nServer: Rocket.Chat\r\n", None),
        (b"HTTP/1.1 200 OK\r\nServer: Hyperscale\r\n", None),
        (b"HTTP/1.1 200 OK\r\nServer: hyper/1.4\r\n", "Rust"),
        (b"HTTP/1.1 200 OK\r\nServer: something of its own\r\n", None),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", "OpenSSH"),
        (b"SSH-2.0-APACHE-SSHD-2.9.2\r\n", "Java"),
        (b"SSH-2.0-dropbear_2022.83\r\n", None),
        (b"@RSYNCD: 32.0 sha512\n", "rsync"),
        (b"+OK\r\n", None),
    ],
)
def test_headers_of_the_holding_end_alone_count(tmp_path, header, named):
    """The other end's header says nothing of who holds."""
    frames = []
    for segment in talk(server_held).segments:
        text = header if segment.src == "10.0.0.2" else b"GET / HTTP/1.1\r\nUser-Agent: Go-http-client/1.1\r\n"
        plain = Frame(segment.ts_ns, _ethernet(segment, text))
        frames.append(plain)
    path = tmp_path / "s.pcap"
    path.write_bytes(pcap_bytes(frames))
    result = analyze(path)
    assert result.verdict == "STALL"
    software = software_seen([path], result)
    assert (software and software.software) == named


def _ethernet(segment, text: bytes) -> bytes:
    """The segment's packet, with ``text`` at the beginning of its payload."""
    data = packet_bytes(segment)
    if not segment.length:
        return data
    at = len(data) - segment.length
    put = text[: segment.length]
    return data[:at] + put + data[at + len(put) :]


def test_files_of_one_name_are_told_apart(tmp_path):
    paths = [Path("a/x/c.pcap"), Path("b/x/c.pcap"), Path("a/y/d.pcap"), Path("-"), Path("/dev/fd/63")]
    assert distinct_names(paths) == {
        Path("-"): "standard input", Path("a/y/d.pcap"): "d.pcap", Path("a/x/c.pcap"): "a/x/c.pcap",
        Path("b/x/c.pcap"): "b/x/c.pcap", Path("/dev/fd/63"): "/dev/fd/63",
    }  # fmt: skip


def test_views_tell_files_of_one_name_apart(run, tmp_path):
    files = [LOOKALIKES / case / "server.pcap.gz" for case in ("cork", "rto")]
    markdown, junit = tmp_path / "m.md", tmp_path / "j.xml"
    _, out, _ = run("analyze", *files, "--markdown", markdown, "--junit", junit)
    for text in (out, markdown.read_text(), junit.read_text()):
        assert "cork/server.pcap.gz" in text and "rto/server.pcap.gz" in text
    _, out, _ = run("analyze", "--json", files[0])
    assert '"file":"server.pcap.gz"' in out


def test_the_html_report_has_the_lines_to_paste_and_the_next_step(run, tmp_path):
    page = tmp_path / "r.html"
    run("analyze", STALLED, LOOKALIKES / "think-40" / "server.pcap.gz", "--html", page)
    text = page.read_text()
    assert "ss -tlnp &#39;sport = :8080&#39;" in text and "tcp_nodelay on;" in text
    assert "<b>Next: </b>server processing: the server replies late" in text


def test_a_comment_to_paste_opens_no_string(capsys):
    show_commands([("to see what it's `holding`", ["ss -tn"])], Console(width=80))
    assert capsys.readouterr().out == "# to see what it’s ’holding’:\nss -tn\n"


WRITE = Write("sendto", "", 200, "1.0", 7, 7, "python3", None, None, "")


@pytest.mark.parametrize(
    ("changed", "named", "known_by"),
    [
        ({"program": Place("/srv/app.rb", 3, "reply")}, "Ruby", "the language of app.rb"),
        ({"library": Place("lib/http.js", 3, "end")}, "Node.js", "the language of http.js"),
        (
            {"program": Place("/a.py", 3, "app"), "library": Place("uvicorn/protocols/http/h11_impl.py", 5, "send")},
            "uvicorn", "which wrote what was held (uvicorn/protocols/http/h11_impl.py)",
        ),
        (
            {"library": Place("webrick-1.8.1/lib/webrick/httpresponse.rb", 5, "send")},
            "WEBrick", "which wrote what was held (webrick-1.8.1/lib/webrick/httpresponse.rb)",
        ),
        ({"library": Place("gevent/_socketcommon.py", 5, "send")}, "Python", "the language of _socketcommon.py"),
        ({"program": Place("<string>", 1, "<module>")}, "Python", "which wrote what was held (python3)"),
        ({}, "Python", "which wrote what was held (python3)"),
        ({"command": "nginx"}, "nginx", "which wrote what was held (nginx)"),
        ({"command": "of-its-own"}, None, ""),
    ],
)  # fmt: skip
def test_the_language_of_what_was_traced(changed, named, known_by):
    """By the server, else by the file of the line, or else by what the process is called."""
    found = language(replace(WRITE, **changed), WRITE)
    assert (found and found[0].software) == named
    assert not found or found[1] == known_by


def test_the_library_that_wrote_the_trigger_has_a_setting_of_its_own():
    trigger = replace(WRITE, library=Place("http/server.py", 5, "flush_headers"))
    found = language(replace(WRITE, program=Place("/a.py", 3, "do_GET")), trigger)
    assert found and (found[0].software, found[1]) == ("http.server", "which wrote the trigger (http/server.py)")


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("python3 -m pytest tests", ("Python", "python3")),
        ("./serve.pl --port 80", ("Perl", "serve.pl")),
        ("python3 drive.py node server.js", None),
        ("sh -c ./run", None),
        ("sh -c 'perl serve.pl & exec ask 80'", ("Perl", "serve.pl")),
        ("bash -lc 'node server.js & python3 drive.py'", None),
        ("sh -c 'echo \"unfinished'", None),
    ],
)
def test_the_language_of_a_command_is_known_if_all_it_names_has_one(command, named):
    """A test in one language may start a server in another."""
    found = language_of_command(shlex.split(command))
    assert (found and (found[0].software, found[1])) == named


def guarded(command: list[str], result: object, writes: SimpleNamespace) -> JudgedCommand:
    return JudgedCommand(Guarded(Path("x"), "", Outcome(status=0), command), result, writes=writes)


@pytest.mark.parametrize(
    ("writer", "says"), [("of-its-own", "the capture does not show"), ("ruby", "in Ruby, which")]
)
def test_the_language_of_the_command_is_not_taken_for_that_of_another_writer(diagnose, writer, says):
    held = SimpleNamespace(groups=[SimpleNamespace(held=replace(WRITE, command=writer), trigger=WRITE)], options=[])
    ((title, _),) = to_paste(guarded(["python3", "test.py"], diagnose(talk(server_held).segments), held), None)
    assert says in title


def test_each_language_that_held_is_named_once(diagnose):
    groups = [
        SimpleNamespace(held=replace(WRITE, command=name), trigger=WRITE)
        for name in ("python3", "ruby", "python3.11")
    ]
    held = SimpleNamespace(groups=groups, options=[])
    run = guarded(["./serve-and-ask"], diagnose(talk(server_held).segments), held)
    titles = [title for title, _ in to_paste(run, None)]
    assert ["in Python, which wrote" in titles[0], "in Ruby, which wrote" in titles[1], len(titles)] == [
        True,
        True,
        2,
    ]


@pytest.mark.parametrize(
    ("asks_from", "may_have_waited"),
    [("10.0.0.5", True), ("10.1.0.5", True), ("127.0.0.1", True), ("10.0.0.1", False)],
)
def test_a_slow_server_may_have_waited_for_stalls_of_the_same_capture(diagnose, asks_from, may_have_waited):
    """A proxy in front of the server that stalls: its clients wait for both, and it is the server to look at.

    It may have another address towards that server. But a client of both is no proxy.
    """

    def behind(c: Conversation, _: int) -> None:
        two_part_reply(c, ack=LATE)
        c.pause(10 * MS)

    def in_front(c: Conversation, _: int) -> None:
        c.client_sends(REQUEST)
        c.server_sends(BODY, after_ns=LATE + 5 * MS)
        c.client_acks(after_ns=10 * US)
        c.pause(5 * MS)

    proxy = "10.0.0.5"
    front = talk(in_front, exchanges=20, client=("10.0.0.1", 50_000), server=(proxy, 80))
    back = talk(behind, exchanges=20, client=(asks_from, 50_001), server=("10.0.0.9", 8_000))
    step = dict(idle_gaps(diagnose(merge(front.segments, back.segments))))["next"]
    waited = step.startswith("the other servers may have waited for their own connections to 10.0.0.9:8000")
    assert waited is may_have_waited


@pytest.mark.parametrize(
    ("name", "host", "role", "because"),
    [
        ("wait-drained", "10.77.0.2", "server", "like_a_program"),
        ("duplex-ticks-rtt-10", "10.77.0.1", "client", "ack_on_data"),
    ],
)
def test_where_packets_do_not_tell_the_lines_ask_the_sender_s_kernel(name, host, role, because):
    result = analyze(CAPTURES / "families" / name / "server.pcap.gz")
    (end,) = result.summary.undecided_ends
    assert (end.ip, end.role, end.unresolved) == (host, role, result.quality.unresolved)
    assert list(end.unresolved) == [because]
    ask, without = commands(result, None)
    assert ask == (
        f"In a shell on {host}, as root, while it is slow, to ask its kernel what waits in the {role}'s sockets",
        ["nagle-lab watch --port 7000 --seconds 60", "# if it runs in a container, also: --container NAME"],
    )
    assert without[1] == ["tcpdump -i any -s 128 -B 16384 -n -c 200000 -w /tmp/all.pcap tcp"]
    left_open = dict(findings(result))["cannot tell"]
    assert left_open.startswith(f"whether data that the {role} ({end}) sent after a late ACK was held")


@pytest.mark.parametrize(("seen_at", "is_certain"), [("server", True), ("client", False)])
def test_a_stall_that_is_only_likely_has_a_line_that_asks_the_kernel(diagnose, seen_at, is_certain):
    result = diagnose(talk(server_held, rtt_ns=10 * MS).seen_at(seen_at))
    assert (result.verdict, result.summary.is_certain) == ("STALL", is_certain)
    _, lines = commands(result, None)[0]
    assert lines == ["ss -tlnp 'sport = :80'", *([] if is_certain else ["nagle-lab watch --port 80 --seconds 60"])]


def test_an_end_of_which_several_things_are_not_known_is_named_once():
    """Its data followed late ACKs, and ACKs with data."""
    result = analyze(CAPTURES / "held-out" / "sixteenth-telnet-late.client.pcap.gz")
    (end,) = result.summary.undecided_ends
    assert end.unresolved == result.quality.unresolved and len(end.unresolved) == 2


def test_of_several_servers_the_lines_are_for_the_one_that_the_reason_names(diagnose):
    """Another one has more left open, but among so many pauses that it hides nothing."""

    def seldom_as_a_program(c: Conversation, number: int) -> None:
        late = 130 if number % 30 == 0 else 3_000 + number % 9 * 1_000
        two_part_reply(c, ack=LATE + number % 5 * MS, body=late * US)

    busy = talk(seldom_as_a_program, exchanges=1_000, client=("10.0.0.9", 50_000), server=("10.0.0.2", 82))
    waits = talk(reply_in_two(LATE, lambda number: (130 + number % 7 * 10) * US), server=("10.0.0.3", 81))
    result = diagnose(merge(busy.segments, waits.segments))
    assert [str(end) for end in result.summary.undecided_ends] == ["10.0.0.2:82", "10.0.0.3:81"]
    assert result.reason.startswith("10.0.0.3:81: ")
    where, (line, _) = commands(result, None)[0]
    assert where.startswith("In a shell on 10.0.0.3, ") and "--port 81 " in line


def test_where_the_path_hides_it_the_lines_record_at_both_ends():
    """And then have both judged together; of one host there is no other end."""
    result = analyze(CAPTURES / "held-out" / "fifteenth-radio-server.server.pcap.gz")
    assert result.reason.endswith("capture at both ends (`--same-traffic`)")
    tcpdump = "tcpdump -i any -s 128 -B 16384 -n -c 200000 -w /tmp"
    assert commands(result, None) == [
        ("In a shell on 10.11.0.1, as root, while it is slow", [f"{tcpdump}/client.pcap 'tcp port 5432'"]),
        ("At the same time, in a shell on 10.11.0.2, as root", [f"{tcpdump}/server.pcap 'tcp port 5432'"]),
        ("Then, with both files on one host", ["nagle-lab analyze --same-traffic /tmp/client.pcap /tmp/server.pcap"]),
    ]
    one = result.connections[0]
    here = replace(one, client=replace(one.client, ip="127.0.0.1"), server=replace(one.server, ip="127.0.0.1"))
    assert commands(replace(result, connections=[here]), None) == []
