"""pytest --nagle on suites of somebody else: in real namespaces, with and without pytest-xdist."""

import errno
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

import nagle_lab
from nagle_lab.cli.pytest_plugin.expected import expected_of
from nagle_lab.cli.pytest_plugin.start import start_again
from nagle_lab.cli.pytest_plugin.xdist import prepare as prepare_workers
from nagle_lab.experiments.software.guarded import Selection
from nagle_lab.guard.tracing import strace_command
from support.rights import AS_ROOT, NOBODY, mount_refused, open_folder, reachable
from support.suites import Suite
from support.traced import C, line, program
from support.waiting import within

pytestmark = pytest.mark.long
FORBID = Path(__file__).parents[1] / "support" / "forbid.py"


# Of a failure whose two writes are known; it is what pytest's summary has.
_FIRST_LINE = r"STALL, \d+ stalls: net.py:\d+ answer  sendall 200 B, then net.py:"


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


EIGHT = """
    import pytest
    from net import *

    @pytest.fixture(scope="session")
    def servers():
        return {True: serve("two-writes", port=8080), False: serve("nodelay", port=8081)}

    @pytest.mark.parametrize("number", range(8))
    def test_it(servers, number):
        with socket.create_connection(servers[number in (1, 4, 6)]) as s: ask(s)
"""


def test_workers_of_xdist(suite):
    """Each in a namespace of its own: all of them listen on the same ports."""
    suite.write("test_eight.py", EIGHT)
    ended = suite.run("--nagle", "-n", "3")
    found = {name: (case.outcome, case.verdict) for name, case in ended.cases.items()}
    assert found == {
        f"test_it[{number}]": ("failure", "STALL") if number in (1, 4, 6) else ("passed", "CLEAN")
        for number in range(8)
    }, ended.out + ended.err
    assert ended.code == 1
    assert "ran in 3 namespaces, each a " in ended.out
    assert "tests: 3 STALL, 5 CLEAN\n" in ended.out
    assert suite.kept() == [f"test_eight.py_test_it_{number}.pcapng" for number in (1, 4, 6)]
    assert "late ACK" in ended.cases["test_it[4]"].said


def test_subtests_are_no_tests_of_their_own(suite):
    suite.write(
        "test_two.py",
        """
        from net import *

        def test_it(subtests):
            with subtests.test("before"): assert True
            talk()
            with subtests.test("after"): assert True
        """,
    )
    ended = suite.run("--nagle")
    assert ended.code == 1 and "tests: 1 STALL\n" in ended.out, ended.out


SESSION = """
    import pytest
    from net import *

    @pytest.fixture(scope="session")
    def client():
        with socket.create_connection(serve(port=8080)) as s: yield s

    def test_opens_it(client): ask(client, 1)
    def test_uses_it(client): ask(client)
    @pytest.mark.nagle(expect="any")
    def test_may_stall(client): ask(client)
    @pytest.mark.nagle(port=1)
    def test_judges_another(client): ask(client)
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_stall_on_a_connection_that_outlives_its_test(suite, options):
    suite.write("test_session.py", SESSION)
    ended = suite.run("--nagle", *options)
    session = ended.cases.pop("session")
    assert {case.outcome for case in ended.cases.values()} == {"passed"}
    assert ended.cases["test_uses_it"].properties["nagle.reason"].startswith("this test opened no connection")
    assert (ended.code, session.outcome) == (1, "failure")
    (stalls,) = re.findall(r"^stalls +(\d+) in test_session.py::test_uses_it$", session.said, re.MULTILINE)
    assert 6 < int(stalls) <= 12  # of 12: Linux acknowledges the first of a connection at once
    assert "late ACK" in session.said
    (capture,) = re.findall(r"^capture +(.*)$", session.said, re.MULTILINE)
    assert [Path(capture).name] == suite.kept()
    assert nagle_lab.analyze(capture).summary.stalled_exchanges > 10
    assert "1 failed, 4 passed" in ended.out


def test_a_stall_between_two_tests(suite):
    """In the teardown of the first; what is expected of the second does not excuse it."""
    suite.write(
        "test_teardown.py",
        """
        import pytest
        from net import *
        @pytest.fixture
        def client():
            with socket.create_connection(serve()) as s:
                yield s
                ask(s)
        def test_first(client): ask(client, 1)
        @pytest.mark.nagle(expect="any")
        def test_second(): talk("nodelay")
        """,
    )
    ended = suite.run("--nagle")
    assert [ended.cases[name].outcome for name in ("test_first", "test_second")] == ["passed", "passed"]
    assert ended.code == 1
    assert re.search(r"^stalls +\d+ between tests$", ended.cases["session"].said, re.MULTILINE), ended.out


def test_a_server_may_be_allowed_for_the_session(suite):
    suite.write("test_session.py", SESSION)
    for option, code in (
        ("--nagle-allow=127.0.0.1:8080", 0),
        ("--nagle-port=9", 0),
        ("--nagle-port=8080", 1),
    ):
        ended = suite.run("--nagle", option)
        assert (option, ended.code) == (option, code), ended.out


def test_only_the_first_test_with_a_connection_of_the_session_is_clean_and_the_next_says_why(suite):
    suite.write(
        "test_shared.py",
        """
        import socket
        import pytest
        from net import ask, serve

        pytestmark = pytest.mark.nagle(expect="clean")

        @pytest.fixture(scope="session")
        def client():
            with socket.create_connection(serve("nodelay")) as s:
                yield s

        def test_first(client): ask(client)
        def test_second(client): ask(client)
        """,
    )
    ended = suite.run("--nagle")
    assert (ended.code, ended.cases["test_first"].outcome) == (1, "passed"), ended.out
    said = " ".join(ended.cases["test_second"].said.split())
    assert "opened no connection to judge" in said and "with the session: give the test one of its own" in said


def test_reruns_by_workers_are_refused_in_a_line(suite):
    suite.write("rerunfailures.py", "")
    ended = suite.run("--nagle", "-n2", "-p", "rerunfailures")
    assert ended.code == 4 and "add -p no:rerunfailures, or leave out -n" in ended.err and "Error:" not in ended.err


def test_a_folder_without_a_name_is_not_the_working_directory(suite):
    ended = suite.run("--nagle", "--nagle-keep=")
    assert ended.code == 4 and "argument --nagle-keep: the name is empty: name a folder" in ended.err


def test_what_is_kept_where_it_is_asked_for(suite):
    suite.write("test_two.py", "from net import *\ndef test_clean(): talk('nodelay')\ndef test_nothing(): pass\n")
    for expected in (["session.pcapng", "test_two.py_test_clean.pcapng"], None):
        ended = suite.run("--nagle", "--nagle-keep=a/b")
        kept = sorted(path.name for path in (suite.folder / "a" / "b").iterdir())
        assert ended.code == 0, ended.out
        assert expected is None or kept == expected
    assert kept == [
        "session-2.pcapng", "session.pcapng", "test_two.py_test_clean-2.pcapng", "test_two.py_test_clean.pcapng",
    ]  # fmt: skip
    assert suite.kept() == []
    assert nagle_lab.analyze(suite.folder / "a" / "b" / "session.pcapng").verdict == "CLEAN"


def test_a_test_whose_name_is_long_in_bytes(suite):
    """150 letters of Japanese are 450 bytes, of which a file system takes 255."""
    suite.write("test_long.py", f"from net import *\ndef test_{'あ' * 145}(): talk('nodelay')\n")
    ended = suite.run("--nagle", "--nagle-keep=kept")
    assert ended.code == 0 and "tests: 1 CLEAN" in ended.out, ended.out
    assert len(list((suite.folder / "kept").glob("*あ.pcapng"))) == 1


def test_captures_for_which_a_folder_has_no_room_are_kept_beside_the_recording(suite):
    if refused := mount_refused():
        pytest.skip(refused)
    several = (
        "@pytest.mark.parametrize('number', '!?')\ndef test_clean(number): talk('nodelay')\n"  # one name for both
    )
    suite.write("test_two.py", f"import pytest\nfrom net import *\n{several}")
    small = suite.folder / "small"
    small.mkdir()
    mounting = f'mount -t tmpfs -o size=4k tmpfs {shlex.quote(str(small))} && exec "$@"'
    before = (*AS_ROOT, "unshare", "--mount", "sh", "-c", mounting, "sh")
    ended = suite.run("--nagle", f"--nagle-keep={small}", before=before)
    assert (ended.code, {one.verdict for one in ended.cases.values()}) == (0, {"CLEAN"}), ended.out + ended.err
    (said,) = re.findall(rf"^{small}: No space left on device: captures that could .* are in (.*)$", ended.out, re.M)
    name = "test_two.py_test_clean"
    assert suite.kept() == ["session.pcapng", f"{name}-2.pcapng", f"{name}.pcapng"]
    assert nagle_lab.analyze(Path(said) / "test_two.py_test_clean.pcapng").verdict == "CLEAN"


@pytest.mark.parametrize("folder", [None, "kept"])
def test_what_passed_before_a_crash_is_kept(suite, folder):
    suite.write(
        "test_two.py",
        "import os, signal\nfrom net import *\ndef test(): talk(); os.kill(os.getpid(), signal.SIGSEGV)\n",
    )
    keep = [f"--nagle-keep={suite.folder / folder}"] if folder else []
    ended = suite.run("--nagle", "-p", "no:faulthandler", *keep)
    (crashed,) = suite.folder.glob("kept/*") if folder else suite.temporary.glob("nagle-lab-*/crashed.pcapng")
    assert (
        ended.code == 139 and f"pytest was ended by signal 11; what passed is in {crashed}" in ended.out + ended.err
    )
    assert nagle_lab.analyze(crashed).verdict == "STALL"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ('"clean"', "'clean' must be a keyword argument: write expect='clean'"),
        ('expect="fast"', "expect='fast' is not one of 'clean', 'stall', 'any'"),
        ("prt=1", "unknown argument prt: use expect, one_write, port, ports or allow"),
        ("port=0", "0 is not a port"),
        ("ports=80", "ports=80 is not a list"),
        ('allow=["here"]', "'here' is not an address and a port"),
        ("one_write=True", 'one_write=True needs expect="clean"'),
        ("", 'it says nothing: write expect="clean", or leave it out'),
    ],
)
def test_a_wrong_marker_is_refused(arguments, says):
    item = Mock(nodeid="test_x.py::test_it")
    item.iter_markers.return_value = [eval(f"pytest.mark.nagle({arguments})").mark]
    with pytest.raises(pytest.UsageError) as refused:
        expected_of(item, Selection())
    assert str(refused.value).startswith("test_x.py::test_it: marker nagle: ")
    assert says in str(refused.value)


def test_a_marker_may_write_a_verdict_as_the_report_does():
    item = Mock(nodeid="test_x.py::test_it")
    item.iter_markers.return_value = [pytest.mark.nagle(expect="CLEAN", one_write=True).mark]
    assert expected_of(item, Selection()).expect == "clean"


def test_every_wrong_marker_is_reported_and_no_summary(suite):
    marked = "@pytest.mark.nagle(port=0)\ndef test_a(): pass\n@pytest.mark.nagle(prt=1)\ndef test_b(): pass\n"
    suite.write("test_wrong.py", f"import pytest\n{marked}")
    ended = suite.run("--nagle")
    assert (ended.code, ended.cases, ended.err.count("ERROR: ")) == (4, {}, 2)
    assert ended.err.startswith("ERROR: test_wrong.py::test_a: marker nagle: 0 is not a port")
    assert "test_b: marker nagle: unknown argument prt" in ended.err
    assert " nagle ====" not in ended.out


def test_a_wrong_marker_in_a_worker_fails_its_test(suite):
    suite.write(
        "test_wrong.py", "import pytest\n@pytest.mark.nagle(prt=1)\ndef test_it(): pass\ndef test_b(): pass\n"
    )
    ended = suite.run("--nagle", "-n", "1")
    assert (ended.code, ended.cases["test_b"].outcome) == (1, "passed")
    assert ended.cases["test_it"].said == "test_wrong.py::test_it: marker nagle: " + (
        "unknown argument prt: use expect, one_write, port, ports or allow"
    )


@pytest.mark.parametrize("options", [("--nagle-allow=x",), ("--nagle-allow=x", "-n", "2")])
def test_a_wrong_option_is_a_usage_error(suite, options):
    suite.write("test_one.py", "def test_it(): pass\n")
    ended = suite.run("--nagle", *options)
    assert ended.code == 4
    assert ended.err.strip().endswith("'x' is not an address and a port: write it as 127.0.0.1:5432 or :5432")
    assert "Traceback" not in ended.out + ended.err


def test_a_worker_elsewhere_is_a_usage_error(suite):
    suite.write("test_one.py", "def test_it(): pass\n")
    ended = suite.run("--nagle", "--dist=load", "--tx=ssh=nowhere")
    assert ended.code == 4 and "is on another machine" in ended.err


def test_without_the_option_nothing_happens(suite):
    """And little is imported."""
    suite.write(
        "test_plain.py",
        """
        import socket, sys
        import pytest
        def test_imports():
            ours = {name for name in sys.modules if name.startswith("nagle_lab")}
            assert ours == {"nagle_lab", "nagle_lab.cli", "nagle_lab.cli.pytest_plugin"}
        @pytest.mark.nagle(expect="stall")
        def test_marked(): pass
        def test_fixture(nagle): assert False
        """,
    )
    ended = suite.run()
    assert {name: case.outcome for name, case in ended.cases.items()} == {
        "test_imports": "passed", "test_marked": "passed", "test_fixture": "skipped",
    }  # fmt: skip
    assert "= nagle =" not in ended.out


def test_its_exit_codes_are_passed_on(suite):
    suite.write("test_one.py", "def test_it(): pass\n")
    assert suite.run("--nagle").code == 0
    assert suite.run("--nagle", "-k", "none").code == 5
    assert suite.run("--nagle", "--no-such-option").code == 4
    suite.write("test_one.py", "import os\ndef test_it(): os.kill(os.getpid(), 9)\n")
    assert suite.run("--nagle").code == 137
    assert suite.kept() == []


def test_options_from_a_file_and_pytest_without_xdist(suite):
    suite.write("pytest.ini", "[pytest]\naddopts = --nagle -p no:xdist\n")
    suite.write("test_one.py", "from net import *\ndef test_it(): talk()\n")
    ended = suite.run()
    assert (ended.code, ended.cases["test_it"].verdict) == (1, "STALL")


def test_a_pytest_started_by_a_test_has_a_namespace_of_its_own(suite):
    """It is not taken for the one that the recorder is there for."""
    suite.write("inner.py", "from net import *\ndef test_inner(): talk(port=8080)\n")
    suite.write(
        "test_outer.py",
        """
        import subprocess, sys
        from net import *
        def test_outer():
            serve(port=8080)
            command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nagle", "inner.py"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and "tests: 1 STALL" in done.stdout, done.stdout
        """,
    )
    ended = suite.run("--nagle")
    assert (ended.code, ended.cases["test_outer"].outcome) == (0, "passed"), ended.out
    assert ended.cases["test_outer"].verdict == ""


def test_lost_segments_fail_the_test(suite):
    """A recorder that stands still while more passes than its ring holds."""
    suite.write(
        "test_lost.py",
        """
        import os, signal
        from net import *
        def test_before(): talk("nodelay")
        def test_lost():
            os.kill(os.getppid(), signal.SIGSTOP)
            try: talk("nodelay", times=75_000)
            finally: os.kill(os.getppid(), signal.SIGCONT)
        def test_after(): talk("nodelay")
        """,
    )
    ended = suite.run("--nagle")
    assert (ended.code, ended.cases["test_lost"].verdict) == (1, "INVALID"), ended.out
    assert "TCP segments were lost while recording" in ended.cases["test_lost"].said
    assert [ended.cases[name].verdict for name in ("test_before", "test_after")] == ["CLEAN", "CLEAN"]
    assert ended.cases["recording"].outcome == "failure"
    assert not re.search(r"recorded, 0 lost", ended.out)


LONG = """
    import pathlib, time
    from net import *
    def test_stalls(): talk()
    def test_waits():
        pathlib.Path("ready").touch()
        time.sleep(60)
"""


@pytest.mark.parametrize("send", [os.kill, os.killpg])
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_ctrl_c_still_reports(suite, options, send):
    """All processes in the foreground get it from a terminal or timeout(1), and pytest alone from a kill."""
    suite.write("test_long.py", LONG)
    process = subprocess.Popen(
        suite.command("--nagle", *options), cwd=suite.folder, env=suite.environment, stdout=subprocess.PIPE,
        text=True, process_group=0,
    )  # fmt: skip
    assert within(30, (suite.folder / "ready").exists)
    send(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "KeyboardInterrupt" in out
    assert "= nagle =" in out
    if not options:
        assert "tests: 1 STALL\n" in out


def test_nothing_is_left_when_pytest_is_killed(suite):
    suite.write("test_long.py", LONG)
    process = subprocess.Popen(
        suite.command("--nagle"), cwd=suite.folder, env=suite.environment, stdout=subprocess.DEVNULL
    )
    assert within(30, (suite.folder / "ready").exists)

    def none_left() -> bool:
        return not any(_leads_to(path, suite.folder) for path in Path("/proc").glob("[0-9]*/cwd"))

    assert not none_left()
    process.kill()
    process.wait(30)
    assert within(30, none_left)


def _leads_to(link: Path, folder: Path) -> bool:
    try:
        return link.readlink() == folder
    except OSError:
        return False


@pytest.mark.parametrize(
    ("options", "forbidden"),
    [((), False), (("-n", "2"), False), (("--nagle-trace",), False), ((), True), (("-n", "2"), True)],
)
def test_as_an_ordinary_user(options, forbidden):
    """In a user namespace; where these are forbidden, one line and exit code 2: no test passes unseen."""
    if refused := mount_refused():
        pytest.skip(refused)
    with open_folder() as folder:
        suite = Suite(folder)
        for path in (suite.folder, suite.temporary):
            path.chmod(0o777)
        _run_as_an_ordinary_user(suite, options, forbidden)


def _run_as_an_ordinary_user(suite: Suite, options: tuple[str, ...], forbidden: bool) -> None:
    suite.write("test_one.py", "from net import *\ndef test_it(): talk(port=80)\n")
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env", "HOME=/nowhere",
            "PATH=/usr/bin:/bin", "DOCKER_HOST=unix:///nowhere"]  # fmt: skip
    forbid = [sys.executable, str(FORBID)] if forbidden else []
    script = "; ".join([*reachable(), f'exec {shlex.join([*forbid, *user])} "$@"'])
    ended = suite.run("--nagle", *options, before=(*AS_ROOT, "unshare", "--mount", "sh", "-ec", script, "sh"))
    if forbidden:
        lines = [line for line in ended.err.splitlines() if line]
        assert (ended.code, ended.cases, len(lines)) == (2, {}, 1), ended.err
        assert lines[0].startswith(
            "nagle-lab: --nagle: no network namespace can be created here (Operation not permitted)"
        )
        return
    verdicts = {name: case.verdict for name, case in ended.cases.items()}
    assert (ended.code, verdicts) == (1, {"test_it": "STALL"}), ended.out + ended.err
    assert "a user namespace, without root; " in ended.out
    if "--nagle-trace" in options and not strace_command.why_no_command():
        assert re.match(_FIRST_LINE, ended.cases["test_it"].said)
    assert os.geteuid() != 0 or Path(suite.folder / "junit.xml").stat().st_uid == int(NOBODY)


TRACED = """
    import os
    from net import *

    def test_stalls(): talk()
    def test_clean(): talk("nodelay")
    def test_fails_by_itself(): talk(); assert False, "its own"
    def test_hides():
        talk("one-write" if "hooks" in os.environ.get("PYTHONPATH", "") else "two-writes")
"""
needs_strace = pytest.mark.skipif(bool(why := strace_command.why_no_command()), reason=why)


@needs_strace
def test_the_two_lines_of_a_test_that_stalls_come_first(suite):
    suite.write("test_it.py", TRACED)
    ended = suite.run("--nagle", "--nagle-trace")
    assert ended.code == 1, ended.out + ended.err
    lines = (suite.folder / "net.py").read_text().splitlines()
    header, body = (next(i for i, one in enumerate(lines, 1) if f"bytes({size})" in one) for size in (200, 600))
    first = [
        rf"STALL, (\d+) stalls: net.py:{header} answer  sendall 200 B, "
        rf"then net.py:{body} answer  sendall 600 B, .* ms later",
    ]
    found = ended.cases["test_stalls"]
    said = found.said.splitlines()
    assert found.outcome == "failure" and all(map(re.fullmatch, first, said)), said
    assert said[1].startswith("STALL: ") and f"join net.py:{header} and net.py:{body} in one write" in found.said
    assert "exchanges stalled while traced (" in found.said and "A typical stall of the traced run" in found.said
    assert f"net.py:{header} answer ■  sendall 200 B" in found.said
    assert f"STALL, {found.properties['nagle.writes']}" == said[0] and found.verdict == "STALL"
    assert re.search(first[0] + "\nSTALL: ", ended.out.partition("Captured nagle call")[2])
    hides = ended.cases["test_hides"]
    assert hides.outcome == "failure" and hides.said.startswith("STALL: "), "the verdict is that without tracing"
    words = " ".join(hides.said.split())
    assert "the traced run did not stall" in words
    assert re.search(r"tracing changed the share of stalled exchanges by -[5-9]\d points", words)
    assert (ended.cases["test_clean"].outcome, ended.cases["test_clean"].verdict) == ("passed", "CLEAN")
    assert len(ended.cases) == 4 and "tests: 3 STALL, 1 CLEAN" in ended.out, "what is run again counts for nothing"
    traced = {f"test_it.py_{name}-traced.pcapng" for name in ("test_stalls", "test_fails_by_itself", "test_hides")}
    assert traced < set(suite.kept()) and len(suite.kept()) == 6, "and no traces"


@needs_strace
@pytest.mark.skipif(not strace_command.has_stacks(), reason="this strace prints no stacks")
@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
def test_native_code_in_a_test_gets_the_hook_that_guard_trace_gives_it(suite):
    """The run with native stacks loads the hook that follows what strace's unwinder cannot."""
    source = program(suite.folder, "server.c", C)
    subprocess.run(["cc", "-g", "-pthread", "-w", "-o", suite.folder / "server", source], check=True)
    suite.write("test_it.py", """
        import os, subprocess
        def test_stalls():
            with open("loaded.txt", "a") as file: print(os.environ.get("LD_PRELOAD"), file=file)
            subprocess.run(["./server"], check=True)
    """)  # fmt: skip
    ended = suite.run("--nagle", "--nagle-trace")
    said = ended.cases["test_stalls"].said
    first, second = (f"server.c:{line(source, call)} reply" for call in ("send(peer", "write(peer"))
    assert re.match(rf"STALL, \d+ stalls: {first}  sendto 200 B, then {second}  write 600 B", said), said
    loaded = (suite.folder / "loaded.txt").read_text().splitlines()
    assert [Path(each).name.split(".")[0] for each in loaded] == ["None", "None", "_native"]


@needs_strace
def test_what_a_traced_test_leaves_running_is_ended_with_it(suite):
    suite.write("test_it.py", """
        import subprocess
        from net import *
        def test_stalls():
            subprocess.Popen(["sleep", "4713"], start_new_session=True)
            talk()
    """)  # fmt: skip
    started = time.monotonic()
    ended = suite.run("--nagle", "--nagle-trace")
    assert ended.code == 1 and re.match(_FIRST_LINE, ended.cases["test_stalls"].said)
    assert time.monotonic() - started < 90, "and not only when a traced test may take no longer"


@needs_strace
def test_a_worker_of_xdist_traces_its_tests(suite):
    suite.write("test_it.py", "from net import *\ndef test_stalls(): talk()\ndef test_clean(): talk('nodelay')\n")
    ended = suite.run("--nagle", "--nagle-trace", "-n2")
    said = ended.cases["test_stalls"].said
    assert ended.code == 1 and re.match(_FIRST_LINE, said), said
    assert len(ended.cases) == 2 and "tests: 1 STALL, 1 CLEAN" in ended.out


@needs_strace
def test_a_test_that_cannot_be_run_again_keeps_its_verdict(suite):
    suite.write(
        "conftest.py", "import os\nif 'hooks' in os.environ.get('PYTHONPATH', ''): raise RuntimeError('no')\n"
    )
    suite.write("test_it.py", "from net import *\ndef test_stalls(): talk()\n")
    ended = suite.run("--nagle", "--nagle-trace")
    said = " ".join(ended.cases["test_stalls"].said.split())
    assert ended.code == 1 and said.startswith("STALL: ") and "the traced run failed: it recorded nothing (" in said


@pytest.mark.parametrize("option", ["--nagle-trace", "--nagle-keep=a", "--nagle-port=80", "--nagle-allow=:80"])
def test_an_option_without_nagle_is_refused_on_the_command_line_only(suite, option):
    """In a configuration file it waits for a run with --nagle, which may be given there, too."""
    suite.write("test_it.py", "def test_it(): pass\n")
    ended = suite.run(*option.split("="))
    name = option.partition("=")[0]
    assert ended.code == 4 and f"{name} does nothing without --nagle: add --nagle, or leave out {name}" in ended.err
    suite.write("pytest.ini", f"[pytest]\naddopts = {option}\n")
    assert suite.run().code == 0
    suite.write("pytest.ini", "[pytest]\naddopts = --nagle\n")
    assert suite.run("--collect-only", option).code == 0


def test_tracing_without_strace(suite, tmp_path, monkeypatch):
    suite.write("test_it.py", "from net import *\ndef test_stalls(): talk()\n")
    (tmp_path / "tools").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    ended = suite.run("--nagle", "--nagle-trace")
    said = " ".join(ended.cases["test_stalls"].said.split())
    assert said.startswith("STALL: ") and "trace strace is not installed: install the package strace" in said


@pytest.mark.parametrize("start", [lambda _: start_again(None), prepare_workers], ids=["here", "in workers"])
def test_a_disk_without_room_to_record_is_said_in_one_line(start, monkeypatch, capsys, pytestconfig):
    """Before a test has run: no traceback, and no exit code of pytest."""

    def refuse(**_: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/nagle-lab-pytest-x")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    monkeypatch.setattr("os._exit", sys.exit)
    monkeypatch.setattr("nagle_lab.cli.pytest_plugin.xdist.options_of", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        sys.exit(start(pytestconfig))
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert (
        said == "nagle-lab: --nagle: /tmp/nagle-lab-pytest-x: disk full: make room, or name a path on another disk\n"
    )
