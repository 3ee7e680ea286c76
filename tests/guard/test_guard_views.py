"""What the guard says of a program that stalls and of one that is clean: each runs once, and several tests look."""

import os
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.guarded import GuardEnded, guard, server

pytestmark = pytest.mark.long


def guard_once(folder: Path, *options: str, how: str) -> GuardEnded:
    """For several tests; what it keeps stays in the folder."""
    return guard(folder, *options, command=server(how), env=os.environ | {"TMPDIR": str(folder)})


@pytest.fixture(scope="module")
def stalls(tmp_path_factory) -> tuple[GuardEnded, Path]:
    """How the guard of a program that stalls ended, and the folder of junit.xml and page.html."""
    folder = tmp_path_factory.mktemp("stalls")
    views = (f"--junit={folder / 'junit.xml'}", f"--html={folder / 'page.html'}")
    return guard_once(folder, *views, how="two-writes"), folder


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> tuple[GuardEnded, Path]:
    """How the guard of one that is clean ended, and the folder of page.md and page.html."""
    folder = tmp_path_factory.mktemp("clean")
    views = (f"--markdown={folder / 'page.md'}", f"--html={folder / 'page.html'}")
    return guard_once(folder, *views, how="nodelay"), folder


@pytest.fixture(scope="module")
def clean_on_both_sides(tmp_path_factory) -> GuardEnded:
    return guard_once(tmp_path_factory.mktemp("both"), "--both-sides", how="nodelay")


def test_the_verdict_on_what_stalls(stalls):
    ended, folder = stalls
    assert_recorded(ended, 1, "STALL", " of 30 exchanges waited for a delayed ACK: the server")
    # Most of them; a busy machine spares the stall whom it delays by as much as the ACK's timer.
    assert ended.report["result"]["summary"]["stalled_exchanges"] >= 10
    assert list(folder.glob("nagle-lab-guard-*")), "the evidence of what is not as expected is kept"
    assert "held by" in ended.err


def test_the_verdict_on_what_is_clean(clean):
    ended, folder = clean
    assert_recorded(ended, 0, "CLEAN", "30 answered exchanges, none held")
    assert ended.report["result"]["summary"]["stalled_exchanges"] == 0
    assert not list(folder.glob("nagle-lab-guard-*"))
    assert "held by" not in ended.err


def assert_recorded(ended: GuardEnded, code: int, verdict: str, reason: str) -> None:
    assert (ended.code, ended.report["verdict"], ended.out) == (code, verdict, "done\n"), ended.err
    assert reason in ended.report["reason"]
    recorded = ended.report["recorded"]
    assert recorded["captured"] == recorded["sent_by_kernel"] > 30
    assert recorded["dropped"] == 0


def test_the_option_protects_a_clean_program(clean_on_both_sides):
    report = clean_on_both_sides.report
    assert (report["both_sides"]["protection"], report["verdict"]) == ("option", "CLEAN")
    assert report["reason"] == report["both_sides"]["sentence"]


def test_a_stall_comes_with_the_setting_to_paste_and_the_next_step(stalls):
    err = stalls[0].err
    assert "sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)" in err
    assert "run it again with --trace" in err and "ss -tlnp" not in err
    wait, exchange = (next(line for line in err.splitlines() if line.startswith(name)) for name in ("wait ", "exch"))
    assert "stalls" in wait and "exchanges" not in wait and wait != exchange


def test_a_clean_screen_names_the_ends_and_no_step_that_says_nothing(tmp_path, clean, clean_on_both_sides):
    err = clean[0].err
    assert "between       client 127.0.0.1:" in err
    assert "\nnext          run it once with --both-sides" in err
    err = guard(tmp_path, command=server("one-write")).err
    assert "\nnext          if single writes are your fix, run it again with --both-sides" in err
    assert "\nnext " not in clean_on_both_sides.err


@pytest.mark.parametrize("options", [[], ["--both-sides"]])
def test_a_command_without_traffic_is_told_what_opens_none(tmp_path, options):
    err = " ".join(guard(tmp_path, *options, command=["true"]).err.split())
    assert "next see that it opens a TCP connection over loopback" in err and "go test without -count=1" in err
    assert "next see" not in guard(tmp_path, *options, command=["false"]).err


def test_every_view_says_how_it_was_recorded(clean):
    ended, folder = clean
    pages = (folder / "page.html").read_text(), (folder / "page.md").read_text()
    for said in ("ran in", "sent by the namespace's kernel, 0 lost"):
        assert all(said in page for page in (ended.err, *(page.replace("&#39;", "'") for page in pages)))


def test_no_view_of_a_command_has_steps_for_what_is_slow_or_still_runs(stalls, clean):
    assert "no idle gap" not in (clean[1] / "page.html").read_text() + (clean[1] / "page.md").read_text()
    text = (stalls[1] / "page.html").read_text()
    assert "TCP_NODELAY in Python, the language of " in text and "the capture does not show" not in text
    assert "socket.TCP_NODELAY, 1" in text and "ss -tlnp" not in text and "ip route" not in text


def test_the_files_for_ci(stalls):
    ended, folder = stalls
    junit = (folder / "junit.xml").read_text()
    assert ended.code == 1
    assert 'failures="1"' in junit and "STALL" in junit
    assert f'<testcase name="{shlex.quote(sys.executable)}' in junit, "named for the command"
    assert 'testsuite name="guard"' in junit and 'classname="nagle-lab.guard"' in junit
    took_s = ended.report["took_s"]
    assert took_s > 0.4 and junit.count(f'time="{took_s:.3f}"') == 2, "of the suite and of its case"
    page = (folder / "page.html").read_text()
    assert "<svg" in page
    assert "Frames are those of capture.pcapng," in page and ">capture.pcapng<" in page


@pytest.mark.parametrize(
    ("how", "ends", "options", "kind", "says"),
    [
        ("nodelay", "exit 4", (), "error", "the command failed with exit code 4; CLEAN: 30 answered exchanges"),
        ("nodelay", "exec sleep 60", ("--time-limit=3s",), "error", "the command was ended by --time-limit; CLEAN: "),
        ("no-keepalive", "exit 4", (), "error", "the command failed with exit code 4; INCONCLUSIVE: nothing in it"),
        ("two-writes", "exit 4", (), "failure", "the command failed with exit code 4; STALL: expected CLEAN, found"),
    ],
)
def test_a_command_that_failed_is_green_in_no_file(tmp_path, how, ends, options, kind, says):
    files = {name: tmp_path / f"page.{name}" for name in ("junit", "markdown", "html")}
    views = [f"--{name}={file}" for name, file in files.items()]
    ended = guard(tmp_path, *views, *options, command=["sh", "-c", f'"$@"; {ends}', "sh", *server(how)])
    assert ended.code == (124 if options else 4), ended.err
    failure, verdict = says.split("; ")[0], ended.report["verdict"]
    (suite,) = ElementTree.parse(files["junit"]).getroot()
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        ("1", "0", "0") if kind == "failure" else ("0", "1", "0")
    )
    (found,) = suite.findall(f".//{kind}")
    assert found.get("message").startswith(says) and found.get("message").count(failure) == 1
    assert found.get("type") == ("STALL" if kind == "failure" else "command failed")
    assert files["markdown"].read_text().startswith(f"### 🔴 {verdict} · {failure} · sh -c")
    assert f">✕ {failure.capitalize()}.</p>" in files["html"].read_text()
    assert files["markdown"].read_text().count(failure) == 1


def test_the_kernel_says_that_the_data_waited(stalls):
    """However late a busy machine lets it go."""
    grounds, hold = (stalls[0].report["result"]["summary"][name] for name in ("grounds", "hold_ms"))
    assert grounds["seen_waiting"] >= 3, grounds  # a busy machine asks the kernel less often
    assert hold["low"] > 0  # without the kernel's answers it would be 0
