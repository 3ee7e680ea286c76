"""The command line: exit codes, one line of error, machine output alone on stdout."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from hashlib import sha256

import pytest
from rich.console import Console
from rich.table import Table

import nagle_lab
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import Exit
from nagle_lab.evidence.examples import Examples
from nagle_lab.evidence.ladder import ladder_of
from nagle_lab.reports.screens.terminal import console, show_capture
from nagle_lab.reports.words.reported import ReportedCapture
from support.repository import REFERENCE, REPOSITORY, STALLED
from support.stories import behind_small, client_held, nodelay, server_held, talk
from support.synthetic import MS, pcap_bytes

CLEAN = REFERENCE / "nginx-static-nodelay-on" / "server.pcap"
TWO_SERVERS = REPOSITORY / "captures" / "families" / "chain-question-beside" / "both.pcap.gz"


@pytest.mark.parametrize(
    ("capture", "expect", "code"),
    [
        (STALLED, None, Exit.OK),
        (STALLED, "stall", Exit.OK),
        (STALLED, "clean", Exit.CONTRADICTED),
        (CLEAN, None, Exit.OK),
        (CLEAN, "clean", Exit.OK),
        (CLEAN, "stall", Exit.CONTRADICTED),
        (CLEAN, "CLEAN", Exit.OK),  # as the screen writes it
        (STALLED, "Clean", Exit.CONTRADICTED),
    ],
)
def test_the_exit_code_is_the_verdict_against_the_expectation(run, capture, expect, code):
    got, _, err = run("analyze", capture, *(["--expect", expect] if expect else []))
    assert got == code
    assert ("expected" in err) is (code is Exit.CONTRADICTED)


def test_json_and_files_have_the_checksum_that_a_screen_does_without(run, tmp_path):
    checksum, page = sha256(STALLED.read_bytes()).hexdigest(), tmp_path / "report.html"
    _, out, _ = run("analyze", "--json", STALLED)
    assert json.loads(out)["source"]["sha256"] == checksum
    run("analyze", "--html", page, STALLED)
    assert checksum in page.read_text()
    with pytest.raises(ValueError, match="SHA-256"):
        analyze(STALLED, sha256=False).to_json()


@pytest.mark.parametrize("arguments", [["list"], ["analyze", STALLED], ["analyze", "--json", STALLED, STALLED]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_who_goes_away_is_no_verdict(arguments, unbuffered):
    """`nagle-lab analyze … | head -1`: neither the 1 of a contradiction nor the 0 of a pass, and not a word."""
    command = [sys.executable, "-c", "from nagle_lab.cli.main import main; main()", *map(str, arguments)]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, env=environment, check=False)
    assert (done.returncode, done.stderr) == (Exit.NO_READER, b"")


@pytest.mark.parametrize("command", [["analyze"], ["analyze", "--json"], ["compare"]])
def test_files_are_written_though_nobody_reads_the_screen(tmp_path, command):
    """As in ``analyze --html report.html a.pcap b.pcap | head -2``: of every capture, also of those not yet shown."""
    page, code = tmp_path / "page.html", "from nagle_lab.cli.main import main; main()"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        command = [sys.executable, "-uc", code, *command, "--html", page, STALLED, CLEAN]
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (Exit.NO_READER, b"")
    assert "STALL" in page.read_text() and "CLEAN" in page.read_text()


def test_json_is_alone_on_stdout_one_line_per_file(run):
    code, out, err = run("analyze", "--json", STALLED, CLEAN)
    assert (code, err) == (0, "")
    first, second = map(json.loads, out.splitlines())
    assert (first["verdict"], second["verdict"]) == ("STALL", "CLEAN")
    assert [one["source"]["file"] for one in (first, second)] == [
        f"{one.parent.name}/{one.name}" for one in (STALLED, CLEAN)
    ]


def test_the_result_does_not_depend_on_where_the_file_lies(run, tmp_path, monkeypatch):
    (tmp_path / "server.pcap").write_bytes(STALLED.read_bytes())
    monkeypatch.chdir(tmp_path)
    _, out, _ = run("analyze", "--json", "server.pcap")
    assert out == STALLED.with_suffix(".json").read_text()


def test_the_worst_of_several_files_decides_the_exit_code(run, tmp_path):
    short = tmp_path / "short.pcap"
    short.write_bytes(pcap_bytes(talk(nodelay, exchanges=3).segments))
    assert run("analyze", CLEAN, short)[0] == Exit.INCONCLUSIVE
    assert run("analyze", short, STALLED, CLEAN, "--expect", "clean")[0] == Exit.CONTRADICTED


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("there is no memory for 8 windows"), "there is no memory for 8 windows: name fewer files"),
        (MemoryError(), "out of memory: name fewer files"),
        (ZeroDivisionError("x"), "this is a fault of nagle-lab: please report it"),
        (OSError("no number"), "no number: check the path"),
    ],
)
def test_what_nobody_expected_is_no_verdict(run, monkeypatch, error, said):
    def fail(**_):
        raise error

    monkeypatch.setattr("nagle_lab.cli.captures.analyze.command", fail)
    code, _, err = run("analyze", STALLED)
    assert (code, said in err) == (Exit.UNUSABLE, True)
    assert ("Traceback" in err) is isinstance(error, ZeroDivisionError)


def test_a_path_that_may_not_be_looked_at_costs_itself(run):
    code, out, err = run("analyze", "x" * 300, STALLED)
    assert (code, "STALL" in out) == (Exit.UNUSABLE, True)
    assert "name too long" in err.lower()


def test_a_capture_without_packets_is_invalid(run, tmp_path):
    (tmp_path / "header-only.pcap").write_bytes(STALLED.read_bytes()[:24])
    code, out, err = run("analyze", "--json", tmp_path / "header-only.pcap")
    assert (code, err, json.loads(out)["verdict"]) == (Exit.UNUSABLE, "", "INVALID")


def test_a_cut_capture_is_never_called_clean(run, tmp_path):
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(CLEAN.read_bytes()[:-10])
    code, out, _ = run("analyze", "--json", cut)
    result = json.loads(out)
    assert (code, result["verdict"]) == (Exit.UNUSABLE, "INVALID")
    assert result["quality"]["damage"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "no-such", "nodelay-off"], "nginx-static"),
        (["run", "nginx-static", "no-such"], "nodelay-off, nodelay-on, no-keepalive"),
        (["run", "nginx-static", "nodelay-off", "--set", "REQUESTS"], "not NAME=VALUE"),
        (["run", "nginx-static", "nodelay-off", "--set", "TCP_NODELAY=maybe"], "TCP_NODELAY"),
        (["run", "nginx-static", "nodelay-off", "--set", "REQUESTS=many"], "REQUESTS"),
        (["run", "nginx-static", "nodelay-off", "--set", "REQUESTS=5"], "CONCURRENCY"),
        (["run", "nginx-static", "nodelay-off", "--set", "COLOUR=red"], "COLOUR"),
        (["show", "."], "not a run folder"),
        (["analyze"], "Missing argument"),
        (["analyze", "--html", "x.pcap"], "--html took x.pcap as the file to write: name both. (try"),
        (["analyze", "--expect", "maybe", "x"], "--expect"),
        (["dance"], "dance"),
        (["version"], "'version': use --version"),
        (["analyze", ""], "the name is empty: name a file"),
        (["analyze", "x", "--expect"], "try nagle-lab analyze --help"),
        (["annotate", "x", "-o", "-"], "name a file instead of - (try"),
        (["watch", "--seconds", "long"], "'long' is not a valid number of seconds. (try"),
        (["analyze", "--port", "http", "x"], "'http' is not a whole number. (try"),
        (["nodelay"], "'on|off'. Choose from: on, off"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what(run, arguments, says):
    code, out, err = run(*arguments)
    assert (code, out) == (Exit.UNUSABLE, "")
    assert says in err
    assert err.count("\n") == 1


def test_the_environment_is_checked_like_the_command_line(run, monkeypatch):
    monkeypatch.setenv("TCP_NODELAY", "maybe")
    code, _, err = run("run", "nginx-static", "nodelay-off")
    assert code == Exit.UNUSABLE
    assert "maybe" in err
    assert err.count("\n") == 1


def test_every_line_of_the_screen_fits_100_columns(run):
    for what in (STALLED, STALLED.parent, CLEAN.parent):
        _, out, _ = run("analyze", what)
        lines = [line for line in out.splitlines() if not line.startswith("ip route")]  # to paste: one line
        assert max(map(len, lines)) <= 100


def test_called_with_nothing_it_shows_its_help(run):
    code, out, err = run()
    assert (code, out) == (Exit.UNUSABLE, "")
    assert err.startswith("Usage: nagle-lab [OPTIONS] COMMAND") and "\n  analyze " in err and "\\n" not in err


def test_the_ladder_tells_the_story_in_order(run):
    _, out, _ = run("analyze", STALLED)
    lines = [line for line in out.splitlines() if "│" in line or "┊" in line]
    words = ["trigger", "holds 615 B", "client delays its ACK", "late ACK", "release"]
    at = [next(i for i, line in enumerate(lines) if word in line and "STALL" not in line) for word in words]
    assert at == sorted(at)
    trigger, late, release = lines[at[0]], lines[at[3]], lines[at[4]]
    assert "◀" in trigger and "238 B" in trigger
    assert "▶" in late and " ACK " in late
    assert "◀" in release and "615 B" in release


@pytest.mark.parametrize(("where", "code"), [("2>/dev/full", 0), (">/dev/full", 2)])
def test_a_full_disk_behind_stderr_changes_no_exit_code(where, code):
    """Where the progress of verify goes. Behind stdout it does: what was asked for is lost."""
    command = shlex.join([sys.executable, "-m", "nagle_lab", "verify", str(CLEAN)])
    assert subprocess.run(["sh", "-c", f"{command} {where}"], capture_output=True, check=False).returncode == code


def test_a_stored_run_shows_what_was_recorded(run):
    code, out, _ = run("show", STALLED.parent)
    assert code == 0
    for said in ("nginx/1.26.3", "tcp_nodelay off;", "ab -n 100 -c 4 -k", "96 (96.0%)", "as expected"):
        assert said in out


def test_only_connections_to_a_port_are_judged(run, tmp_path):
    pages = tmp_path / "page.html", tmp_path / "page.md"
    asked = ("--port", 7001, "--expect", "stall", "--html", pages[0], "--markdown", pages[1])
    code, out, _ = run("analyze", *asked, TWO_SERVERS)
    assert code == 0 and "36 of 40 exchanges waited" in out and "cannot tell" not in out
    assert "judged        4 of 8 connections: those to port 7001\n" in out
    assert all("4 of 8 connections: those to port 7001" in page.read_text() for page in pages)

    code, out, _ = run("analyze", "--port", 7000, "--json", TWO_SERVERS)
    connections = json.loads(out)["connections"]
    assert code == 3 and {one["server"]["port"] for one in connections if one["judged"]} == {7000}

    code, out, _ = run("analyze", "--port", 80, "--markdown", pages[1], TWO_SERVERS)
    assert code == 3 and "judged        0 of 8 connections: those to port 80; the servers have 7000, 7001\n" in out
    assert "busiest" not in out, "a connection that is not judged is not the one to look at"
    assert all("stalled 0" not in said for said in (out, pages[1].read_text())), "nobody knows"

    _, out, _ = run("analyze", "--port", 7000, "--port", 7001, TWO_SERVERS)
    assert "judged        8 of 8 connections: those to port 7000 or 7001\n" in out


@pytest.mark.parametrize("arguments", [["--same-traffic", STALLED, CLEAN], [STALLED.parent]])
def test_ports_select_connections_of_captures_only(run, arguments):
    code, _, err = run("analyze", "--port", 8080, *arguments)
    assert code == 2 and err == "nagle-lab: --port takes captures: no run folder, and not --same-traffic\n"


def test_a_client_that_is_held_gets_the_remedy_at_the_client(run, tmp_path):
    path = tmp_path / "c.pcap"
    path.write_bytes(pcap_bytes(talk(client_held).segments))
    _, out, _ = run("analyze", "--json", path)
    assert json.loads(out)["summary"]["remedy"].startswith(
        "On the client (10.0.0.1:40000): send each message in one write"
    )
    path.write_bytes(pcap_bytes(talk(server_held).segments))
    _, out, _ = run("analyze", "--json", path)
    assert json.loads(out)["summary"]["remedy"].startswith(
        "On the server (10.0.0.2:80): send each message in one write"
    )


def test_two_captures_of_the_same_traffic_tell_delay_and_hold_apart(run):
    both = [STALLED, STALLED.with_name("client.pcap")]
    code, out, _ = run("analyze", "--same-traffic", *both)
    assert code == 0
    assert "in both       4 connections, 96 stalls\n" in out
    code, out, _ = run("analyze", "--same-traffic", "--json", *both)
    pair = json.loads(out.splitlines()[0])
    assert (pair["schema"], pair["matched"], pair["only_in"]) == ("nagle-lab-pair/1", 96, [0, 0])
    assert pair["ack_delay_ms"]["p50"] <= pair["hold_ms"]["p50"]
    assert len(out.splitlines()) == 3


@pytest.mark.parametrize(
    ("captures", "said"),
    [
        ([STALLED], "takes two capture files"),
        ([STALLED] * 3, "join rotated files first: mergecap -w WHOLE.pcapng FILE…"),
        ([STALLED, STALLED.parent], "takes two capture files"),
        ([STALLED, CLEAN], "have no connection in common"),
    ],
)
def test_what_is_not_the_same_traffic_is_refused(run, captures, said):
    code, out, err = run("analyze", "--same-traffic", *captures)
    assert (code, out, said in err) == (Exit.UNUSABLE, "", True)
    assert err.count("\n") == 1


def test_an_empty_pipe_points_to_the_command_before_it(run, monkeypatch, tmp_path):
    (tmp_path / "nothing").touch()
    with (tmp_path / "nothing").open("rb") as nothing:
        saved = os.dup(0)
        try:
            os.dup2(nothing.fileno(), 0)
            code, _, err = run("analyze", "-")
        finally:
            os.dup2(saved, 0)
            os.close(saved)
    assert code == Exit.UNUSABLE
    assert "the command before the pipe wrote nothing" in err


def test_the_list_of_commands_is_not_cut_off(run):
    _, out, _ = run("--help")
    commands = out.partition("Commands:\n")[2].splitlines()
    assert len(commands) > 10 and not [line for line in commands if line.endswith("...")]


@pytest.mark.parametrize(("is_terminal", "ends"), [(False, ["a", "b"]), (True, ["a   ", "b   "])])
def test_lines_end_where_their_text_does_but_on_a_terminal(capsys, monkeypatch, is_terminal, ends):
    """There rich fills them up."""
    monkeypatch.setenv("FORCE_COLOR", "1" if is_terminal else "")
    monkeypatch.setenv("NO_COLOR", "1")
    table = Table(box=None, show_header=False, padding=0)
    table.add_column(width=4)
    for word in ("a", "b"):
        table.add_row(word)
    console().print(table)
    assert capsys.readouterr().out.splitlines() == ends


def test_a_ladder_says_that_data_was_not_held_before_full_segments_behind_the_trigger_left(run, tmp_path):
    path = tmp_path / "tail.pcap"
    path.write_bytes(pcap_bytes(talk(behind_small(), rtt_ns=20 * MS).segments))
    out = run("analyze", path).out
    said = r"server holds 81 B,.*written after frame \d+ left,.*held 1[4-8]\.\d ms at most,"
    assert re.search(said, out, re.DOTALL)


@pytest.mark.parametrize("width", [48, 60, 100])
def test_a_ladder_fits_a_narrow_terminal(width):
    result = analyze(STALLED)
    screen = Console(width=width, file=io.StringIO())
    ladder = ladder_of([STALLED], result, result.stalls.typical())
    show_capture(ReportedCapture(result, Examples(ladder), to_paste=()), screen)
    lines = screen.file.getvalue().partition("A typical stall")[2].splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    for part in ("trigger", "late ACK", "release"):
        assert sum(re.match(rf" +\d+ +[\d.]+  │.*│  {part} *$", line) is not None for line in lines) == 1


def test_a_terminal_without_lines_and_arrows_has_ascii():
    command = [sys.executable, "-m", "nagle_lab", "analyze", STALLED]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=ascii_only)
    assert "|-- " in done.stdout and "<----" in done.stdout and "\\u" not in done.stdout


def test_the_library_lists_its_names_and_says_what_is_no_path():
    assert set(nagle_lab.__all__) <= set(dir(nagle_lab))
    assert str(analyze(STALLED)).startswith("STALL server.pcap: 96 of 100 exchanges")
    for path in (None, b"/nope"):
        with pytest.raises(TypeError, match=r"give a str, a pathlib\.Path, or a sequence of them"):
            analyze(path)
