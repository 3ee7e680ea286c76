"""nagle-lab compare: figures side by side, gains in honest words, and only what differs."""

import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import Exit
from nagle_lab.experiments.comparison import QUANTITIES, Subject, compare, compared, gain
from nagle_lab.reports.experiments.comparison import show_comparison
from nagle_lab.reports.files.markdown import escaped
from support.repository import REFERENCE
from support.run_folders import change
from support.schemas import check
from support.stories import nodelay, server_held, talk
from support.synthetic import merge, pcap_bytes

OFF, ON = REFERENCE / "nginx-static-nodelay-off", REFERENCE / "nginx-static-nodelay-on"
QUANTITY = {quantity.name: quantity for quantity in QUANTITIES}


def copy(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to))


def compared_json(run, *paths) -> dict:
    code, out, err = run("compare", "--json", *paths)
    assert (code, err) == (0, "")
    found = json.loads(out)
    check("compare", found)
    return found


@pytest.mark.parametrize(
    ("name", "first", "value", "words", "short"),
    [
        ("requests_per_s", 2000.0, 26000.0, "13.0× more", "×13.0"),
        ("requests_per_s", 26000.0, 2000.0, "13.0× fewer", "÷13.0"),
        ("requests_per_s", 100.0, 150.0, "50% more", "+50%"),
        ("requests_per_s", 100.0, 128.0, "about the same", ""),
        ("packets_per_request", 100.0, 104.0, "about the same", ""),
        ("requests_per_s", 100.0, 100.0, "the same", ""),
        ("exchange_p50_ms", 43.8, 0.085, "515× shorter", "÷515"),
        ("request_p50_ms", 44.0, 0.0, "", ""),  # below what the load tool tells
        ("packets_per_request", 5.7, 4.8, "16% fewer", "−16%"),
        ("delayed_acks", 900, 0, "0 (was 900)", ""),
        ("delayed_acks", 0, 12345, "12,345 (was 0)", ""),
        ("delayed_acks", 0, 12, "12 (was 0)", ""),
        ("stalled_share", 1.0, 0.0, "no stalls (was 100% of repeats)", ""),
        ("stalled_share", 0.25, 0.75, "50 percentage points more stalls", ""),
        ("stalled_share", 0.0, 0.0, "the same", ""),
        ("wait_p50_ms", 43.0, None, "none (was 43.0)", ""),
        ("wait_p50_ms", None, 43.0, "", ""),
        ("requests_per_s", 100.0, None, "", ""),
    ],
)
def test_a_gain_is_told_only_where_it_means_something(name, first, value, words, short):
    found = gain(QUANTITY[name], first, value)
    assert (found.words, found.short) == (words, short)
    if first and value:
        assert found.ratio == pytest.approx(value / first)
        assert found.difference == pytest.approx(value - first)


def test_exchange_times_are_of_exchanges_that_may_stall(run, tmp_path):
    """However many connections there are: the first exchange of each, which does not stall, is left out."""
    ports = range(50_000, 50_012)
    captures = {
        "many": merge(*(talk(server_held, 2, client=("10.0.0.9", port)).segments for port in ports)),
        "few": talk(nodelay).segments,
        "once": merge(*(talk(nodelay, 1, client=("10.0.0.9", port)).segments for port in ports)),
    }
    for name, segments in captures.items():
        (tmp_path / name).write_bytes(pcap_bytes(segments))
    found = compared_json(run, *(tmp_path / name for name in captures))
    medians = [subject["figures"]["exchange_p50_ms"] for subject in found["subjects"]]
    of_all = [analyze(tmp_path / name).summary.exchange_ms.p50 for name in captures]
    assert medians[0] > 40 > of_all[0] and medians[1:] == of_all[1:]


def test_two_runs_with_all_their_figures(run):
    found = compared_json(run, OFF, ON)
    off, on = found["subjects"]
    assert (off["verdict"], on["verdict"]) == ("STALL", "CLEAN")
    assert (off["figures"]["stalled_share"], on["figures"]["stalled_share"]) == (1.0, 0.0)
    assert off["figures"]["wait_p50_ms"] == json.loads((OFF / "server.json").read_text())["summary"]["wait_ms"]["p50"]
    assert (
        off["figures"]["requests_per_s"] == json.loads((OFF / "witnesses.json").read_text())["load"]["requests_per_s"]
    )
    assert off["figures"]["delayed_acks"] == off["figures"]["kernel_delayed_acks"] == 96
    assert None not in off["figures"].values()
    gains = found["gains"][0]
    assert gains["requests_per_s"]["ratio"] == on["figures"]["requests_per_s"] / off["figures"]["requests_per_s"]


def test_a_time_below_the_load_tools_millisecond_is_not_called_zero(run):
    on = json.loads((ON / "witnesses.json").read_text())["load"]["percentiles_ms"]
    assert on["50"] == 0
    _, out, _ = run("compare", OFF, ON)
    (median,) = [line.split() for line in out.splitlines() if line.startswith("request, median, ms")]
    assert median[3:] == ["44.0", "<", "1"]


def test_only_what_differs_is_listed(run):
    found = compared_json(run, OFF, ON)
    listed = {(d["section"], d["name"]): d["values"] for d in found["differences"]}
    assert listed == {
        ("setting", "in effect"): ["tcp_nodelay off;", "tcp_nodelay on;"],
        ("parameter", "TCP_NODELAY"): ["off", "on"],
    }


def test_a_sysctl_an_offload_an_mtu_and_a_version_are_found(run, tmp_path):
    other = copy(OFF, tmp_path / "other")

    def edit(m):
        m["namespaces"]["client"]["sysctls"]["net.ipv4.tcp_autocorking"] = "7"
        m["captures"]["server"]["mtu"] = 9000
        m["versions"]["kernel"] = "9.9"
        m["images"]["server"]["id"] = "sha256:" + "ab" * 32

    change(other, "manifest.json", edit)
    listed = {d["name"]: d["values"][1] for d in compared_json(run, OFF, other)["differences"]}
    assert listed["net.ipv4.tcp_autocorking"] in ("server 1, client 7", "client 7, server 1")
    assert sorted(listed["MTU"].split(", ")) == ["client 1500", "server 9000"]
    assert listed["kernel"] == "9.9"
    assert listed["server"].endswith(" abababababab")
    assert len(listed) == 4


def test_a_run_and_itself_differ_in_nothing(run):
    assert compared_json(run, OFF, OFF)["differences"] == []
    _, out, _ = run("compare", OFF, OFF)
    assert "nothing that was recorded of the set-up" in out
    assert "×" not in out and "fewer" not in out


def test_a_capture_has_no_figures_of_a_load_and_says_what_it_cannot_compare(run, tmp_path):
    held, free = tmp_path / "held.pcap", tmp_path / "free.pcap"
    held.write_bytes(pcap_bytes(talk(server_held).segments))
    free.write_bytes(pcap_bytes(talk(nodelay, server=("10.0.0.2", 81)).segments))
    found = compared_json(run, held, free)
    assert found["subjects"][0]["figures"]["requests_per_s"] is None
    assert found["subjects"][0]["figures"]["packets_per_request"] > 0
    assert [d["values"] for d in found["differences"]] == [["80", "81"]]
    mixed = compared_json(run, OFF, held)
    assert {"parameter", "sysctl", "version"} <= set(mixed["not_compared"])
    assert "because only run folders have them: lab" in run("compare", OFF, held)[1]


def test_captures_of_the_same_file_name_are_told_apart(run, tmp_path):
    """As in every folder of captures/lookalikes; the same file twice cannot be."""
    paths = [tmp_path / case / "at" / "server.pcap" for case in ("held", "free")]
    for path, story in zip(paths, (server_held, nodelay), strict=True):
        path.parent.mkdir(parents=True)
        path.write_bytes(pcap_bytes(talk(story).segments))
    _, out, _ = run("compare", *paths)
    assert "free/at/server.pcap against held/at/server.pcap: no stalls" in " ".join(out.split())
    assert [each["name"] for each in compared_json(run, paths[0], paths[0])["subjects"]] == ["server.pcap"] * 2


def test_an_invalid_run_has_no_figures_and_no_gain(run, tmp_path):
    lossy = copy(ON, tmp_path / "lossy")
    change(lossy, "witnesses.json", lambda w: w["captures"]["server"].update(dropped=1))
    code, out, _ = run("compare", "--json", OFF, lossy)
    found = json.loads(out)
    assert code == Exit.UNUSABLE
    assert set(found["subjects"][1]["figures"].values()) == {None}
    assert all(gain["ratio"] is None for gain in found["gains"][0].values())
    _, out, _ = run("compare", OFF, lossy, "--markdown", page := tmp_path / "page.md")
    assert "against" not in out and "\n\n\n" not in out
    reason = found["subjects"][1]["reason"]
    assert reason in " ".join(out.split()) and f": {escaped(reason)}\n" in page.read_text()


@pytest.mark.parametrize("width", [100, 60])
def test_no_name_and_no_figure_is_cut_in_two(run, tmp_path, width):
    names = ["r-two-writes.server.pcap", "averylongnamewithoutanyend-of-a-word.pcap"]
    results = []
    for name, story in zip(names, (nodelay, server_held), strict=True):
        (tmp_path / name).write_bytes(pcap_bytes(talk(story).segments))
        results.append(analyze(tmp_path / name))
    screen = Console(width=width, file=io.StringIO())
    show_comparison(compare(results), screen)
    lines = [line.rstrip() for line in screen.file.getvalue().splitlines()]
    assert [f" CLEAN   A: {names[0]}", f" STALL   B: {names[1]}"] == lines[:2]
    assert any(re.fullmatch(r" +A +B", line) for line in lines)
    assert any(re.match(r"repeat exchanges stalled +0% +\d+% +\d+ perc", line) for line in lines)


def test_the_head_of_a_column_is_divided_where_a_word_ends(tmp_path):
    results = []
    for name in ("r-two-writes.server.pcap", "b.pcap"):
        (tmp_path / name).write_bytes(pcap_bytes(talk(server_held).segments))
        results.append(analyze(tmp_path / name))
    screen = Console(width=90, file=io.StringIO())
    show_comparison(compare(results), screen)
    assert re.search(r"^ +r-two-[a-z.-]+ ", screen.file.getvalue(), re.MULTILINE)


@pytest.mark.parametrize("several", [2, 3, 5, 9])
def test_the_screen_fits_100_columns(run, tmp_path, several):
    paths = [
        copy((OFF, ON)[n % 2], tmp_path / f"20261121T0120{n:02}.000Z-nginx-static-nodelay") for n in range(several)
    ]
    code, out, err = run("compare", *paths)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    assert all(path.name in out for path in paths)


def test_what_comes_from_files_is_harmless(run, tmp_path):
    bad = tmp_path / "a|b<script>\x1b[31m`@you`\n# x.pcap"
    bad.write_bytes(pcap_bytes(talk(server_held).segments))
    page = tmp_path / "page.md"
    code, out, _ = run("compare", bad, OFF, "--markdown", page)
    assert code == 0 and "\x1b" not in out
    text = page.read_text()
    assert "<script>" not in text and "\x1b" not in text and "@you" not in text and "\n# x" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows[: rows.index("") if "" in rows else 4]} == {5}


def test_markdown_has_every_figure_and_difference(run, tmp_path):
    page = tmp_path / "page.md"
    run("compare", OFF, ON, "--markdown", page)
    text = page.read_text()
    words = "no stalls (was 100% of repeats)"
    for said in ("**STALL**", "**CLEAN**", words, "| requests per second |", "tcp\\_nodelay on;"):
        assert said in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [([OFF], "two or more"), ([OFF, REFERENCE], "not a run folder"), ([OFF, "missing.pcap"], "no such file")],
)
def test_wrong_usage_is_one_line(run, arguments, says):
    code, out, err = run("compare", *arguments)
    assert (code, out) == (Exit.UNUSABLE, "")
    assert says in err and err.count("\n") == 1


def test_a_page_needs_captures_that_can_be_read_again(run, tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")  # as of bash's <(ssh HOST cat x.pcap)
    for path in ("-", pipe):
        code, _, err = run("compare", OFF / "server.pcap", path, "--html", tmp_path / "o.html")
        assert code == Exit.UNUSABLE
        assert err == f"nagle-lab: {path}: --html reads a capture twice: save it to a file first\n"


def test_for_a_recording_of_guard_its_capture_is_named(run, tmp_path):
    (tmp_path / "capture.pcapng").write_bytes(b"")
    for command in (["compare", OFF, tmp_path], ["show", tmp_path]):
        code, _, err = run(*command)
        assert code == Exit.UNUSABLE
        assert err.endswith(f": name its capture, {tmp_path / 'capture.pcapng'}\n") and err.count("\n") == 1


def test_the_worst_verdict_decides_the_exit_code():
    def subject(verdict):
        return Subject("s", "s", False, verdict, "", None, dict.fromkeys(QUANTITY), {})

    for verdicts, code in ((("STALL", "CLEAN"), Exit.OK), (("STALL", "INCONCLUSIVE"), Exit.INCONCLUSIVE)):
        assert compared([subject(verdict) for verdict in verdicts]).code is code
