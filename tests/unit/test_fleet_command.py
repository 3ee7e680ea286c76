"""nagle-lab fleet and nagle-lab fleet ask, as they are typed; and the overview, in a browser."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nagle_lab.fleet.ask import Store
from nagle_lab.fleet.overview import Heat, overview
from nagle_lab.fleet.results_folder import Folder
from nagle_lab.reports.html.fleet import LONGEST_NAME, fleet_page, heat_map, level
from nagle_lab.reports.words.numbers import shortened
from support.browser import chromium
from support.command import Ended, in_process
from support.stalls import stalled
from support.synthetic import SECOND, pcap_bytes
from support.waiting import within

NAGLE_LAB = Path(sys.executable).with_name("nagle-lab")
T0 = 1_700_000_000 * SECOND
HERE = ("--workers", 1, "--on", "concurrent.futures:ThreadPoolExecutor")


def fleet(*arguments: object, code: int = 0) -> Ended:
    done = in_process("fleet", *arguments)
    assert done.code == code, done.out + done.err
    return done


@pytest.fixture(scope="module")
def captures(tmp_path_factory) -> Path:
    """Three hosts; of one a file is damaged, and one connection stalls from a file to the next."""
    folder = tmp_path_factory.mktemp("fleet") / "in"
    for host in range(3):
        (folder / f"web-{host}").mkdir(parents=True)
        packets = stalled(
            12, ("10.0.0.9", 40_000 + host), ("10.0.1.1", 80 + host), T0 + host * 5000 * SECOND
        ).segments
        for n, part in enumerate((packets[:30], packets[30:]), 1):
            (folder / f"web-{host}" / f"eth0_{n:05}_2023111422{n:04}.pcap").write_bytes(pcap_bytes(part))
    (folder / "web-1" / "eth0_00003_20231114220003.pcap").write_bytes(b"<script>alert(1)</script>")
    return folder


@pytest.fixture(scope="module")
def out(captures) -> Path:
    said = fleet(captures, "--out", captures.parent / "out", *HERE)
    assert said.err == ""
    assert "3 series, 198 packets: 3 STALL" in said.out
    assert re.search(r"web-0/eth0 +12 +12 +12 +4\d\d ms", said.out)
    assert "Files with a problem: 1" in said.out and "not a capture" in said.out
    return captures.parent / "out"


def test_results_are_not_written_over_and_resume_reads_nothing_again(captures, out):
    assert "already has results: add --resume" in fleet(captures, "--out", out, code=2).err
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    again = fleet(captures, "--out", out, "--resume", *HERE)
    assert "3 series, 198 packets: 3 STALL" in again.out
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == before


def test_results_are_not_written_among_the_captures(captures, monkeypatch):
    before = sorted(captures.rglob("*"))
    monkeypatch.chdir(captures)
    for sources, out in (([captures], captures), (["."], "."), (["web-0"], captures), ([captures], "web-1")):
        refused = fleet(*sources, "--out", out, *HERE, code=2)
        assert refused.err == (
            f"nagle-lab: {out}: contains captures that are to be read: name another folder for the results\n"
        )
    assert sorted(captures.rglob("*")) == before


def test_resume_says_that_results_of_files_which_are_no_longer_sources_go(captures, tmp_path):
    """A ring of files, of which the oldest was deleted; and another week's folder, which would leave nothing."""
    out, ring = tmp_path / "out", shutil.copytree(captures, tmp_path / "ring")
    fleet(ring, "--out", out, *HERE)
    assert fleet(ring, "--out", out, "--resume", *HERE).err == ""
    (oldest := next((ring / "web-0").glob("eth0_00001*"))).unlink()
    said = fleet(ring, "--out", out, "--resume", *HERE)
    assert f"results of 1 file not among the sources now, such as {oldest}: they are removed" in said.err
    stored = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    said = fleet(captures, "--out", out, "--resume", *HERE, code=2)
    assert "all its results are of 6 files not among" in said.err and "name another folder" in said.err
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == stored


def test_the_exit_code_is_that_of_the_worst_series(captures, out):
    contradicted = fleet(captures, "--out", out, "--resume", "--expect", "clean", code=1)
    assert "nagle-lab: web-0/eth0: expected CLEAN, found STALL\n" in contradicted.err
    broken = captures.parent / "broken" / "eth0.pcap"
    broken.parent.mkdir()
    broken.write_bytes(b"nothing")
    said = fleet(broken.parent, "--out", captures.parent / "out2", *HERE, code=2)
    assert "1 series, 0 packets: 1 INVALID" in said.out and "Neither STALL nor CLEAN: 1" in said.out


def test_what_would_be_read_can_be_listed(captures):
    lines = fleet(captures, "--list").out.splitlines()
    assert lines[0].startswith("web-0/eth0: 2 files, ")
    assert lines[3].startswith("web-1/eth0: 3 files, ")
    assert "no place for the results: add --out DIR" in fleet(captures, code=2).err


def test_questions_are_listed_and_answered(out):
    assert re.search(r"^worst-services +Which services lost the most time", fleet("ask").out, re.MULTILINE)
    answer = fleet("ask", "worst-services", "--out", out)
    assert [re.search(rf"^10\.0\.1\.1 +{port} +12 ", answer.out, re.MULTILINE) is None for port in (80, 82)] == [
        False
    ] * 2
    rows = [json.loads(line) for line in fleet("ask", "longest", "--out", out, "--json").out.splitlines()]
    assert {row["host"] for row in rows} == {"web-0", "web-1", "web-2"}
    assert fleet("ask", "SELECT count(*) AS n FROM stalls", "--out", out, "--json").out == '{"n":36}\n'
    nasty = fleet("ask", "SELECT chr(155) || '2J' AS clears", "--out", out, "--json").out  # CSI, in one byte
    assert nasty == '{"clears":"\\u009b2J"}\n'
    assert "release_frame" in fleet("ask", "schema").out
    assert "which results? Add --out" in fleet("ask", "longest", code=2).err
    assert "no such question" in fleet("ask", "longer", "--out", out, code=2).err
    assert "no results of nagle-lab fleet there" in fleet("ask", "longest", "--out", out.parent / "in", code=2).err


def test_the_results_are_not_written_over_by_the_page(out):
    table = sorted(out.rglob("*.parquet"))[0]
    before = table.read_bytes()
    assert "it is an input of this command" in fleet("ask", "--out", out, "--html", table, code=2).err
    assert table.read_bytes() == before


def test_an_answer_is_never_folded(captures, out):
    file = str(captures / "web-0" / "eth0_00002_20231114220002.pcap")
    lines = fleet("ask", "longest", "--out", out).out.splitlines()
    assert lines[0].split()[-1] == "file" and any(line.endswith(file) for line in lines)
    assert len(lines) == 22
    many = fleet("ask", "SELECT * FROM stalls ORDER BY file DESC", "--out", out).out.splitlines()
    assert many[0] == "row 1 of 36" and any(line.split()[0] == "file" for line in many)
    assert any(line.endswith(f" {file}") for line in many)
    (_, _, row) = fleet("ask", "unusable", "--out", out).out.splitlines()
    assert row.count("web-1/eth0_00003") == 1 and "  not a capture, but text: record one with tcpdump -w  /" in row


def test_a_problem_that_a_verdict_names_is_listed_once(captures):
    broken = captures.parent / "only-broken"
    broken.mkdir()
    for number in range(12):
        (broken / f"host{chr(97 + number)}.pcap").write_bytes(b"nothing")
    out = captures.parent / "out three"
    said = fleet(broken, "--out", out, *HERE, code=2).out
    assert "Neither STALL nor CLEAN: 12" in said and "with a problem" not in said
    assert f"… and 2 more: nagle-lab fleet ask verdicts --out '{out}'\n" in said
    assert f"questions: nagle-lab fleet ask worst-services --out '{out}'\n" in said


def test_each_of_the_worst_has_a_ladder_with_its_file_and_frames(out, captures):
    shown = overview(Store(Folder(str(out))))
    assert [one.service["server_port"] for one in shown.worst] == [80, 81, 82]
    assert (shown.totals["stalled_hosts"], shown.totals["hosts"]) == (3, 3)
    page = (out / "overview.html").read_text()
    assert " on 3 of 3 hosts, from " in page and "count for each host" not in page
    for one in shown.worst:
        assert one.ladder and one.ladder.file in one.stall["file"]
        assert one.ladder.row("release").frame == one.stall["frame"]
    split = "SELECT * FROM stalls WHERE trigger_frame <= 30 AND release_frame > 30"
    across = Store(Folder(str(out))).ask(split).named()[0]
    assert across["frame"] == across["release_frame"] - 30


def test_a_capture_that_has_gone_costs_its_ladder_and_nothing_else(captures, tmp_path):
    moved = tmp_path / "moved"
    subprocess.run(["cp", "-r", captures, moved], check=True)
    fleet(moved, "--out", tmp_path / "out", *HERE)
    for path in moved.rglob("web-0/*"):
        path.unlink()
    store = Store(Folder(str(tmp_path / "out")))
    worst = overview(store).worst
    assert [one.ladder is None for one in worst] == [True, False, False]
    assert "no such file" in worst[0].problem
    fleet("ask", "--out", tmp_path / "out", "--html", tmp_path / "page.html")
    assert "No ladder: " in (tmp_path / "page.html").read_text()


def test_the_overview_loads_nothing_and_fits_a_phone(out):
    page_file = out / "overview.html"
    assert "<script>alert" not in page_file.read_text()
    with chromium() as page:
        for width, dark in ((1200, False), (390, False), (390, True)):
            page.open(page_file, width=width, dark=dark)
            assert page.complaints() == []
            assert page.fetched() == [page_file.as_uri()]
            assert page.js("document.documentElement.scrollWidth") <= width
        page.hover("svg.heat .mark")
        assert "lost in" in page.js("document.getElementById('tip').textContent")
        edge = "[...document.querySelectorAll('svg.heat {}')].map((e) => e.getBoundingClientRect().{})"
        names = max(page.js(edge.format(".host", "right")))
        first = min(page.js(edge.format("rect", "left")))
        assert names <= first


def test_the_map_says_how_many_hosts_are_not_drawn(out, monkeypatch):
    monkeypatch.setattr("nagle_lab.fleet.overview.MOST_HOSTS", 2)
    page = fleet_page(overview(Store(Folder(str(out)))), "out")
    assert "the hosts that lost most first; hosts that lost less and are not drawn: 1. Grey: traffic" in page
    assert "each stronger shade is four times as much" in page  # darker on white, brighter on black


def test_levels_names_and_columns_of_the_heat_map():
    assert [level(lost, 64) for lost in (64, 17, 16, 15.9, 1, 0.001, 0)] == [5, 5, 4, 4, 2, 1, 0]
    assert shortened("web-10.dc1.example.net", LONGEST_NAME) == "web-10.d…mple.net"
    from datetime import datetime, timedelta  # noqa: PLC0415

    begins = [datetime(2026, 11, 1) + n * timedelta(hours=24) for n in range(30)]
    heat = Heat(["a"], begins, 24, [[(1.0, 20, 100)] * 30], 0)
    drawn = heat_map(heat)
    assert drawn.count("<rect") == 30 and "2026-11-01" in drawn and "1.00 s lost in 20 stalls" in drawn


def test_ctrl_c_ends_a_run_that_resume_goes_on_with(captures, tmp_path):
    command = [NAGLE_LAB, "fleet", captures, "--out", tmp_path / "out", "--on", "support.fragile:slow"]
    tests = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, env=tests, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert within(30, lambda: list((tmp_path / "out").glob("work/*.checkpoint")))
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=30)
    assert (process.returncode, shown, said.strip()) == (130, "", "nagle-lab: interrupted")
    done = sorted((tmp_path / "out").glob("work/*.checkpoint"))
    before = [path.stat().st_mtime_ns for path in done]
    assert 1 <= len(done) < 3
    finish = f"finish it with nagle-lab fleet {captures} --out {tmp_path / 'out'} --resume"
    asked = in_process("fleet", "ask", "worst-services", "--out", tmp_path / "out")
    assert re.match(rf"nagle-lab: [012] of 3 series were judged: {re.escape(finish)}\n", asked.err)
    assert "3 series, 198 packets" in fleet(captures, "--out", tmp_path / "out", "--resume", *HERE).out
    assert [path.stat().st_mtime_ns for path in done] == before
    assert fleet("ask", "worst-services", "--out", tmp_path / "out").err == ""


def test_a_full_disk_says_how_to_go_on(captures, tmp_path, monkeypatch):
    whole = Folder.write

    def write(self: Folder, name: str, content: bytes) -> None:
        if name.endswith(".judged"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.at(name))
        whole(self, name, content)

    monkeypatch.setattr(Folder, "write", write)
    out = tmp_path / "out"
    full = fleet(captures, "--out", out, *HERE, code=2)
    assert full.err == (
        f"nagle-lab: disk full while writing the results: make room in {out}, "
        f"then go on with nagle-lab fleet {captures} --out {out} --resume\n"
    )
    monkeypatch.undo()
    assert "3 series, 198 packets: 3 STALL" in fleet(captures, "--out", out, "--resume", *HERE).out


@pytest.mark.parametrize("missing", ["fsspec", "pyarrow", "duckdb"])
def test_without_its_extra_packages_one_line_says_what_to_install(captures, tmp_path, missing):
    program = (
        f"import sys; sys.modules[{missing!r}] = None; from nagle_lab.cli.main import main;"
        f"sys.argv = ['nagle-lab', 'fleet', {str(captures)!r}, '--out', {str(tmp_path / 'out')!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"nagle-lab: fleet needs {missing}: {sys.executable} -m pip install fsspec pyarrow duckdb\n"
    )
