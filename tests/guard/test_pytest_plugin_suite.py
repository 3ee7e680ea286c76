"""pytest --nagle on one suite that has a bit of everything: it runs once, and each of its tests is looked at."""

import re
from pathlib import Path

import pytest

import nagle_lab
from support.suites import Suite

pytestmark = pytest.mark.long

EVERYTHING = """
    import asyncio, subprocess, sys, unittest
    import pytest
    from net import *

    def test_without_traffic(): pass
    def test_stalls(): talk()
    def test_clean(): talk("nodelay")
    def test_one_write(): talk("one-write")
    def test_too_few(): talk("nodelay", times=3)
    def test_fails_by_itself(): talk(); assert False, "its own"
    def test_skips(): talk("nodelay"); pytest.skip("no")

    clean = pytest.mark.nagle(expect="clean")

    @clean
    def test_clean_as_expected(): talk("nodelay")
    @clean
    def test_clean_without_traffic(): pass
    @clean
    def test_clean_one_write(): talk("one-write")
    @pytest.mark.nagle(expect="clean", one_write=True)
    def test_clean_one_write_meant(): talk("one-write")
    @pytest.mark.nagle(expect="clean", one_write=True)
    def test_clean_one_write_and_too_few(): talk("one-write", times=3)
    @clean
    def test_clean_stalls(): talk()

    @pytest.mark.nagle(expect="stall")
    def test_stall_as_expected(): talk()
    @pytest.mark.nagle(expect="stall")
    def test_stall_missing(): talk("nodelay")
    @pytest.mark.nagle(expect="any")
    def test_any(): talk()

    @pytest.mark.nagle(port=8001)
    def test_the_other_port_stalls(): talk(port=8002); talk("nodelay", port=8001)
    @pytest.mark.nagle(ports=[8003, 8004])
    def test_one_of_the_ports_stalls(): talk(port=8003); talk("nodelay", port=8004)
    @pytest.mark.nagle(allow=["127.0.0.1:8005"])
    def test_allowed(): talk(port=8005); talk("nodelay")
    @pytest.mark.nagle(allow=":8006")
    def test_allowed_is_another(): talk()

    @pytest.mark.nagle(expect="any", ports=[8007, 8009])
    class TestNearest:
        @pytest.mark.nagle(expect="clean")
        def test_the_nearer_marker_counts(self): talk("nodelay", times=3, port=8007)
        def test_the_class_counts(self): talk(port=8008); talk("nodelay", port=8009)

    @pytest.mark.xfail(strict=True)
    def test_known_to_stall(): talk()

    class TestOfUnittest(unittest.TestCase):
        def test_case(self): talk()

    def test_in_asyncio():
        async def answer(reader, writer):
            while await reader.read(4096):
                for size in (200, 600):
                    writer.write(bytes(size)); await writer.drain()
            writer.close()
        async def main():
            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            # asyncio sets TCP_NODELAY: take it away at the server's end
            for _ in range(12):
                writer.write(bytes(100)); await reader.readexactly(800)
            writer.close()
        asyncio.run(main())

    def test_of_a_server_that_is_a_process():
        with subprocess.Popen([sys.executable, "net.py", "two-writes"], stdout=subprocess.PIPE) as server:
            with socket.create_connection(("127.0.0.1", int(server.stdout.readline()))) as s: ask(s)
            server.terminate()

    def test_fixture(nagle):
        assert (nagle.result().verdict, nagle.result().reason) == ("INCONCLUSIVE", "no TCP segment passed")
        talk("nodelay")
        before = nagle.result()
        assert (before.verdict, before.exchanges, before.stalled, before.ladder()) == ("CLEAN", 12, 0, "")
        talk()
        now = nagle.result()
        assert (now.verdict, now.exchanges) == ("STALL", 24) and now.stalled == len(now.stalls) > 2, now
        assert {stall.held_by.role for stall in now.stalls} == {"server"}
        assert "late ACK" in now.ladder()

    @pytest.mark.parametrize("silent", [True, False])
    def test_that_replaces_open(monkeypatch, silent):
        def refuse(*_, **__): raise OSError("no files here")
        names = ("builtins.open", "io.open", "os.open", "os.unlink", "os.stat")
        if not silent: talk()
        for name in names: monkeypatch.setattr(name, refuse)
"""

# Outcome, verdict, and what its failure says.
IN_EVERYTHING = {
    "test_without_traffic": ("passed", "", ""),
    "test_stalls": ("failure", "STALL", "exchanges waited for a delayed ACK: the server (127.0.0.1:"),
    "test_clean": ("passed", "CLEAN", ""),
    "test_one_write": ("passed", "INCONCLUSIVE", ""),
    "test_too_few": ("passed", "INCONCLUSIVE", ""),
    "test_fails_by_itself": ("failure", "STALL", "AssertionError: its own"),
    "test_skips": ("skipped", "CLEAN", "no"),
    "test_clean_as_expected": ("passed", "CLEAN", ""),
    "test_clean_without_traffic": ("failure", "INCONCLUSIVE", "expected CLEAN, found INCONCLUSIVE: no TCP segment"),
    "test_clean_one_write": (
        "failure",
        "INCONCLUSIVE",
        "several writes that TCP_CORK or MSG_MORE joins look so, too (if",
    ),
    "test_clean_one_write_meant": ("passed", "INCONCLUSIVE", ""),  # counted apart
    "test_clean_one_write_and_too_few": ("failure", "INCONCLUSIVE", "10 are needed to say so"),
    "test_clean_stalls": ("failure", "STALL", "STALL: "),
    "test_stall_as_expected": ("passed", "STALL", ""),
    "test_stall_missing": ("failure", "CLEAN", "expected STALL, found CLEAN: 12 answered exchanges"),
    "test_any": ("passed", "STALL", ""),
    "test_the_other_port_stalls": ("passed", "CLEAN", ""),
    "test_one_of_the_ports_stalls": ("failure", "STALL", "127.0.0.1:8003"),
    "test_allowed": ("passed", "CLEAN", ""),
    "test_allowed_is_another": ("failure", "STALL", "STALL: "),
    "test_the_nearer_marker_counts": ("failure", "INCONCLUSIVE", "3 exchanges, none stalled, but 10 are needed"),
    "test_the_class_counts": ("passed", "CLEAN", ""),
    "test_known_to_stall": ("skipped", "STALL", ""),
    "test_case": ("failure", "STALL", "STALL: "),
    "test_in_asyncio": ("passed", "CLEAN", ""),
    "test_of_a_server_that_is_a_process": ("failure", "STALL", "STALL: "),
    "test_fixture": ("failure", "STALL", "STALL: "),
    "test_that_replaces_open[True]": ("passed", "", ""),
    "test_that_replaces_open[False]": ("failure", "STALL", "late ACK"),
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory):
    suite = Suite(tmp_path_factory.mktemp("everything"))
    suite.write("test_everything.py", EVERYTHING)
    return suite, suite.run("--nagle", "--dist=no")  # with xdist, as most have it, and no workers


def test_every_test_was_seen(everything):
    _, ended = everything
    assert set(ended.cases) == set(IN_EVERYTHING), ended.out + ended.err
    assert ended.code == 1


@pytest.mark.parametrize("name", IN_EVERYTHING)
def test_a_test_is_judged(everything, name):
    outcome, verdict, says = IN_EVERYTHING[name]
    case = everything[1].cases[name]
    assert (case.outcome, case.verdict) == (outcome, verdict), case.said
    assert says in " ".join(case.said.split())
    assert bool(case.said) is bool(says) or outcome == "skipped"


def test_a_failure_has_the_proof(everything):
    """Verdict, who held, who delayed, remedy, ladder, and the capture, which shows the same."""
    suite, ended = everything
    for name in ("test_stalls", "test_case", "test_fixture"):
        said = ended.cases[name].said
        for part in ("held by       the server", "delayed by    the client", "remedy        On the server"):
            assert part in said
        assert re.search(r"ms: server holds 600 B, .*late ACK\n.*release\n", said, re.DOTALL)
        (capture,) = re.findall(r"^capture +(.*)$", said, re.MULTILINE)
        assert Path(capture).parent.parent == suite.temporary
        result = nagle_lab.analyze(capture)
        assert result.verdict == "STALL"
        assert ended.cases[name].properties["nagle.stalled"] == str(result.summary.stalled_exchanges)
        assert ended.cases[name].properties["nagle.exchanges"] == str(result.summary.exchanges)
        assert ended.cases[name].properties["nagle.reason"] == result.reason


def test_one_that_fails_by_itself_tells_what_was_found(everything):
    section = everything[1].out.partition("Captured nagle call")[2]
    assert section.lstrip("- \n").startswith("STALL: ")


def test_only_captures_of_failures_are_kept(everything):
    suite, ended = everything
    failed = [
        name for name, case in ended.cases.items() if case.outcome == "failure" or name == "test_known_to_stall"
    ]
    with_capture = [name for name in failed if name != "test_clean_without_traffic"]
    kept = suite.kept()
    assert len(kept) == len(with_capture)
    assert all(
        any(f"_{name.rstrip(']').replace('[', '_')}.pcapng" in file for file in kept) for name in with_capture
    ), kept


def test_the_summary(everything):
    _, ended = everything
    verdicts = [case.verdict for name, case in ended.cases.items() if name != "test_clean_one_write_meant"]
    said = ", ".join(f"{verdicts.count(one)} {one}" for one in ("STALL", "CLEAN", "INCONCLUSIVE"))
    assert f"tests: {said}, 1 in single writes, as marked, 2 without TCP\n" in ended.out
    unsure = [case.outcome for case in ended.cases.values() if case.verdict == "INCONCLUSIVE"]
    assert f"\nINCONCLUSIVE: {unsure.count('failure')} failed; in these tests no stall was possible" in ended.out
    assert re.search(
        r"^ran in a (user|network) namespace, .*; [\d,]+ TCP segments recorded, 0 lost$", ended.out, re.M
    )
