"""The HTML report: what is in it, that nothing in it can be more than text, and the same bytes every time."""

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jinja2 import UndefinedError

from nagle_lab.capture.capture import open_capture
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.result.result import Histogram
from nagle_lab.diagnosis.result.spread import Spread
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.errors import Exit
from nagle_lab.evidence.examples import Examples, chosen_stalls, examples
from nagle_lab.evidence.excerpt import Excerpt, Step
from nagle_lab.evidence.ladder import ladder, ladder_of
from nagle_lab.evidence.sequence import time_sequence
from nagle_lab.experiments.matrix import Reproduction, claims_of
from nagle_lab.experiments.sweep import SweepPoint, SweepSeries, run_through
from nagle_lab.experiments.trials import TrialOutcome
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.reports.html.charts import Bar, Distribution, SizePoint, cliff_plot, distribution_plot, variant_plot
from nagle_lab.reports.html.ladder_drawing import _fitted, apart, ladder_drawing
from nagle_lab.reports.html.overview import matrix_page, sweep_page
from nagle_lab.reports.html.page import report_page
from nagle_lab.reports.html.shown import shown_capture
from nagle_lab.reports.html.template import ENVIRONMENT, attribute_lines, text, with_code
from nagle_lab.reports.html.time_axis import common_scale
from nagle_lab.reports.words.ladder_text import ladder_text
from nagle_lab.reports.words.reported import ReportedCapture
from nagle_lab.runs.figures import figures_of
from nagle_lab.runs.run import judge_run
from support.experiments import filled
from support.repository import CAPTURES, REFERENCE, REPOSITORY
from support.run_folders import change, shown_at
from support.stories import held_by_both, nodelay, server_held, talk
from support.synthetic import pcap_bytes

STALLED, CLEAN = REFERENCE / "nginx-static-nodelay-off", REFERENCE / "nginx-static-nodelay-on"
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m\u202e\x00"
VOID = {"meta", "br", "hr"}


class Tree(HTMLParser):
    """Every element with its attributes; fails on tags that do not match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def of(self, tag: str, class_: str = "") -> list[dict[str, str | None]]:
        return [a for name, a in self.elements if name == tag and class_ in ["", *(a.get("class") or "").split()]]


@pytest.fixture(scope="module")
def page() -> str:
    return report_page([shown_at(STALLED)])


@pytest.fixture
def both(tmp_path) -> Path:
    path = tmp_path / "both.pcap"
    path.write_bytes(pcap_bytes(held_by_both()))
    return path


def test_a_run_has_its_verdict_proof_and_parts(page):
    run = judge_run(STALLED)
    stall = run.results["server"].stalls.typical()
    said = unescape(re.sub(r"<[^>]*>", "", page))
    assert "■ STALL nginx-static / nodelay-off" in said
    assert run.reason in said
    assert f"frame {stall.ack_frame}, {stall.wait_ms:.1f} ms later" in said
    for part in ("Stalls, segment by segment", "over time", "How long it took", "Where the time went", "Witnesses"):
        assert part in said
    for known in (run.results["server"].source.sha256, run.manifest.versions.kernel, "tcp_autocorking"):
        assert known in said
    assert all(about.sha256 in said for about in run.manifest.files.values())
    remedy = run.results["server"].summary.remedy
    assert remedy and remedy.replace("`", "") in said and "`" not in said[: said.index("segment by segment")]
    assert "<code>quickack 1</code>" in page


def test_every_stall_shown_has_its_three_frames_marked_once(page):
    tree = Tree(page)
    stalls = [one.stall for one in chosen_stalls(judge_run(STALLED).results["server"])]
    for kind, frames in (
        ("trigger", [s.trigger_frame for s in stalls]),
        ("late", [s.ack_frame for s in stalls]),
        ("release", [s.release_frame for s in stalls]),
    ):
        marked = Counter(int(a["data-frame"] or 0) for a in tree.of("g", kind))
        assert marked == Counter(frames)


def test_what_can_be_pointed_at_says_its_frame(page):
    result = judge_run(STALLED).results["server"]
    stall = result.stalls.typical()
    tips = [a["data-tip"] or "" for a in Tree(page).of("g", "late") if a["data-frame"] == str(stall.ack_frame)]
    assert tips[0].split("\n")[:2] == [f"frame {stall.ack_frame}", "late ACK"]
    assert "client → server" in tips[0] and "no data, ACK" in tips[0]
    marks = [a for a in Tree(page).of("g", "mark") if a.get("data-frame") == str(stall.release_frame)]
    assert len(marks) == 1 and all("server's bytes" in (a["data-tip"] or "") for a in marks)
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in marks)


def test_nothing_is_loaded_and_only_our_script_runs(page):
    tree = Tree(page)
    assert [name for name, _ in tree.elements if name in ("link", "img", "iframe", "object", "embed", "base")] == []
    for _, attributes in tree.elements:
        assert not {"src", "srcset", "action", "poster"} & attributes.keys()
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= {f"#{i}" for i in re.findall(r'id="([^"]+)"', page)}
    policy = next(a["content"] for a in tree.of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none'")
    assert len(tree.of("script")) == 1


def drawings(page: str) -> list[str]:
    """The drawings in a page or in a part of one."""
    return re.findall(r"<svg.*?</svg>", page, re.DOTALL)


def test_drawings_are_well_formed_and_take_the_pages_colours(page):
    found = drawings(page)
    assert len(found) == 6
    assert "font-family" not in "".join(found)
    for drawing in found:
        ElementTree.fromstring(drawing.replace("<svg", '<svg xmlns:xlink="x"', 1))
        assert set(re.findall(r"#[0-9a-fA-F]{6}\b", drawing)) <= {"#ffffff", "#000000"}
    names = set(re.findall(r"var\(--(\w+)\)", page))
    style = page[page.index("<style>") : page.index("</style>")]
    for block in style.split(":root")[1:]:
        assert names <= set(re.findall(r"--(\w+):", block[: block.index("}")]))


NS = {"µs": 10**3, "ms": 10**6, "s": 10**9}
BROKEN = 24  # units of a drawing that a break mark takes
APART = 18  # least distance of two arrows


@dataclass(frozen=True)
class Measured:
    """What can be measured in the drawing of a ladder: arrows, ticks (ns → place) and breaks (place → ns)."""

    arrows: list[float]
    ticks: dict[float, float]
    breaks: dict[float, int]
    bar: float | None  # units per ns of the bar that shows the scale

    def left_out(self, above: float, below: float) -> list[int]:
        return [ns for y, ns in self.breaks.items() if above < y < below]

    def scale(self) -> float:
        """Units per ns, as ticks and the scale bar have it: the same everywhere."""
        scales = [
            (y2 - y1) / (ns2 - ns1)
            for (ns1, y1), (ns2, y2) in pairwise(self.ticks.items())
            if not self.left_out(y1, y2)
        ]
        scales += [self.bar] if self.bar else []
        assert scales and scales == pytest.approx([scales[0]] * len(scales), rel=1e-3)
        return scales[0]


def measured(drawn: str) -> Measured:
    root = ElementTree.fromstring(drawn)
    unit = NS[next(e.text for e in root.iter("text") if e.text in NS)]
    bar = re.search(r'v([\d.]+)M[^>]*class="bar axis"', drawn)
    lasts = re.search(r">scale bar: (\d+) (\S+)<", drawn)
    breaks = [g for g in root.iter("g") if g.get("class") == "break"]
    return Measured(
        [float(e.get("y1", "")) for e in root.iter("line") if e.get("class") == "arrow"],
        {float(e.text) * unit: float(e.get("y")) - 5 for e in root.iter("text") if "tick" in e.get("class", "")},
        {float(g[0].get("y", "")) + 5: int(g.get("data-ns", "")) for g in breaks},
        float(bar[1]) / (int(lasts[1]) * NS[lasts[2]]) if bar and lasts else None,
    )


def true_to_time(drawn: str, times: Sequence[int]) -> float:
    """Every arrow is at its moment, or as little below as keeps it from the one above; gives the scale.

    A break between two of them says how much time it leaves out.
    """
    of = measured(drawn)
    scale = of.scale()
    assert len(of.arrows) == len(times)
    exact = lowest = of.arrows[0]
    for drawn_y, (ns1, ns2) in zip(of.arrows[1:], pairwise(times), strict=True):
        whole = exact + scale * (ns2 - ns1)
        out = [ns for y, ns in of.breaks.items() if exact < y < whole - scale * ns + BROKEN]
        exact = whole - scale * sum(out) + BROKEN * len(out)
        lowest = max(exact, lowest + APART)
        assert drawn_y == pytest.approx(lowest, abs=0.5, rel=1e-3)
    return scale


def drawn_at(*times: int) -> str:
    connection = analyze(STALLED / "server.pcap").connections[0]
    return ladder_drawing(ladder(connection, [Step(i, ns, True, 1, "ACK", 0, 0) for i, ns in enumerate(times)]))


def test_every_arrow_is_at_its_moment():
    run = judge_run(STALLED)
    result = run.results["server"]
    stall = result.stalls.typical()
    of = ladder_of([run.folder / "server.pcap"], result, stall)
    drawn = ladder_drawing(of)
    scale = true_to_time(drawn, [row.ns for row in of.rows])
    wait = re.search(r'y="([\d.]+)" width="6" height="([\d.]+)" class="scaled"', drawn)
    assert float(wait[2]) == pytest.approx(scale * (of.row("late ACK").ns - of.row("trigger").ns), abs=0.2)


def boxes(drawn: str) -> list[float]:
    """The heights of a ladder's waits, as shares of the axis beside them."""
    axis = re.search(r'y1="(\d+)" y2="([\d.]+)" class="axis"', drawn)
    heights = re.findall(r'height="([\d.]+)" class="wait"', drawn)
    return [float(height) / (float(axis[2]) - float(axis[1])) for height in heights]


@pytest.mark.parametrize("other", [None, CLEAN])
def test_the_wait_is_what_one_sees_of_a_stall(other):
    """It is nearly all of the time, and so it is of the drawing: alone, and beside an exchange of microseconds."""
    stalled = shown_at(STALLED).examples.typical
    clean = shown_at(other).examples.exchange if other else None
    drawn = ladder_drawing(stalled, common_scale([stalled, clean]) if clean else 0.0)
    (share,) = boxes(drawn)
    assert share > 0.9 and not measured(drawn).breaks


def test_what_takes_longer_than_the_wait_is_broken():
    stalled = shown_at(STALLED).examples.typical
    late = [replace(row, ns=row.ns + 5 * 10**9 * (row is not stalled.rows[0])) for row in stalled.rows]
    drawn = ladder_drawing(replace(stalled, rows=late))
    true_to_time(drawn, [row.ns for row in late])
    (share,) = boxes(drawn)
    (out,) = measured(drawn).breaks.values()
    assert share > 0.5 and out > 4.9e9


@pytest.mark.parametrize(
    "times",
    [
        (0, 10_000_000, 40_000_000, 43_000_000),
        (0, 36_200, 51_400, 63_200),
        (0, 270_000, 43_800_000),
        (0, 208_000, 43_813_000, 43_816_000, 43_969_000),
        (0, 3_000, 2_500_000_000, 2_500_004_000),
        tuple(i * i * 1_000_000 for i in range(16)),
    ],
)
def test_an_axis_without_a_stall_is_one_scale_without_a_break(times):
    drawn = drawn_at(*times)
    true_to_time(drawn, times)
    assert not measured(drawn).breaks


@pytest.mark.parametrize("name", ["client-held", "zero-window"])
def test_ladders_of_other_captures_are_true_to_time(name):
    shown = shown_at(CAPTURES / "lookalikes" / name / "client.pcap.gz").examples
    ladders = [of for _, of in shown.stalls] + [of for of in (shown.exchange,) if of]
    assert ladders
    for of in ladders:
        true_to_time(ladder_drawing(of), [row.ns for row in of.rows])


def test_ladders_side_by_side_are_on_one_scale():
    stalled, clean = shown_at(STALLED).examples.typical, shown_at(CLEAN).examples.exchange
    assert stalled and clean
    both = common_scale([stalled, clean])
    scales = [true_to_time(ladder_drawing(of, both), [row.ns for row in of.rows]) for of in (stalled, clean)]
    assert scales[0] == pytest.approx(scales[1], rel=1e-3)
    arrows = measured(ladder_drawing(clean, both)).arrows
    assert arrows[-1] - arrows[0] == APART * (len(arrows) - 1)  # microseconds, beside 40 ms


def test_a_page_of_a_comparison_has_one_scale(run, tmp_path):
    out = tmp_path / "out.html"
    run("compare", STALLED, CLEAN, "--html", out)
    ladders = re.findall(r'<svg class="ladder".*?</svg>', out.read_text(), re.DOTALL)
    scales = [measured(drawn).scale() for drawn in ladders]
    assert len(scales) == 4 and scales == pytest.approx([scales[0]] * 4, rel=1e-3)


def test_the_ladder_of_the_screen_says_that_it_is_not_to_scale():
    connection = analyze(STALLED / "server.pcap").connections[0]
    times = (0, 300_000, 20_300_000, 3_020_300_000)
    steps = [Step(i, ns, True, 1, "ACK", 0, 0) for i, ns in enumerate(times)]
    head, _, *rows = ladder_text(ladder(connection, steps)).plain.splitlines()
    assert head.endswith("not to scale")
    assert [row.partition("▶│")[2].strip() for row in rows] == ["", "", "+20.0 ms", "+3.0 s"]


def test_the_unit_fits_and_a_clock_set_back_stands_still():
    for times, unit, last in (
        ((0, 15_000), "µs", "15.0 µs"),
        ((5, 2_000_005), "ms", "2.000 ms"),
        ((0, 5 * 10**9), "s", "5.000 s"),
    ):
        assert f">{unit}</text>" in drawn_at(*times) and f">{last}</tspan>" in drawn_at(*times)
    assert measured(drawn_at(0, 10**6, 3, 2 * 10**6)).arrows == [108, 323, 341, 538]
    assert drawn_at(7, 7) and drawn_at(7, 3) and drawn_at(7)


def test_rows_lie_as_near_to_their_time_as_they_can():
    assert apart([0, 100, 200], 42) == [0, 100, 200]
    assert apart([0, 300, 300, 300], 42) == [0, 258, 300, 342]
    assert apart([0, 1, 2, 500], 42) == [0, 42, 84, 500]  # the first has no room above it


def test_stalls_of_both_ends_are_chosen(both):
    result = analyze(both)
    found = chosen_stalls(result)
    assert {one.stall.held_by.role for one in found} == {"client", "server"}
    assert found[0].stall == result.stalls.typical()
    assert [result.stalls[one.number - 1] for one in found] == [one.stall for one in found]
    waits = [stall.wait_ms for stall in result.stalls]
    shown = [one.stall.wait_ms for one in found]
    assert max(waits) in shown and min(waits) in shown


def test_the_tiles_speak_of_two_ends_where_both_held(both):
    page = spaced(report_page([shown_at(both)]))
    assert "held by client and server their Nagle's algorithm" in page
    assert "delayed by client and server their delayed ACKs, timer" in page
    assert "held by server its Nagle's algorithm" in spaced(report_page([shown_at(STALLED)]))


def test_a_stretch_holds_the_whole_stall_and_says_where_it_begins():
    of = shown_at(STALLED)
    stall, shown = of.result.stalls.typical(), of.examples.over_time
    assert shown is not None and shown.held == stall.held_by.role
    parts = {point.frame: point.part for point in shown.points if point.part}
    for frame, part in ((stall.trigger_frame, "trigger"), (stall.ack_frame, "late ACK")):
        assert parts[frame] == part
    assert parts[stall.release_frame] in ("release", "trigger")
    at = {point.frame: point for point in shown.points}
    held = [hold for hold in shown.holds if hold.from_ms == at[stall.trigger_frame].ms]
    assert [hold.end - hold.begin for hold in held] == [stall.released_bytes]
    assert held[0].to_ms - held[0].from_ms == pytest.approx(stall.wait_ms + stall.release_us / 1e3, abs=0.001)
    assert 1 <= shown.first <= shown.last <= shown.connection.packets
    assert shown.last - shown.first + 1 == min(40, shown.connection.packets)


def test_examples_are_read_in_one_pass_and_are_those_read_alone(both, monkeypatch):
    result, opened = analyze(both), []
    monkeypatch.setattr(
        "nagle_lab.evidence.excerpt.open_capture", lambda *a, **k: opened.append(a) or open_capture(*a, **k)
    )
    found = examples([both], result)
    assert len(opened) == 1 and len(found.stalls) > 1
    for choice, drawn in found.stalls:
        assert drawn == ladder_of([both], result, choice.stall)
        assert drawn.row("late ACK").frame == choice.stall.ack_frame


def test_sequence_numbers_that_wrap_go_on(diagnose):
    result = diagnose(talk(server_held, 6).segments)
    connection, start = result.connections[0], (1 << 32) - 100
    sent = [Step(i, i, False, 60, "ACK", (start + 60 * i) % (1 << 32), 0) for i in range(4)]
    shown = time_sequence(Excerpt(connection, sent, 1), [])
    assert [(point.begin, point.end) for point in shown.points] == [(0, 60), (60, 120), (120, 180), (180, 240)]


def test_histograms_hold_everything_that_is_counted():
    for path in (STALLED / "server.pcap", CLEAN / "client.pcap"):
        result = analyze(path)
        for name, of in result.histograms.items():
            spread = getattr(result.summary, name)
            assert sum(count for _, _, count in of.bins) == of.count
            assert (of.count == 0) == (spread is None)
            for low, high, _ in of.bins:
                assert low < high <= low * 1.13 + 0.0011
            if spread:
                low, high, _ = of.bins[-1]
                assert low <= spread.max < high
        assert result.histograms["wait_ms"].count == result.summary.stalls
        assert result.histograms["wait_ms"].total_ms == result.summary.lost_ms_total
        assert result.histograms["exchange_ms"].count == result.summary.exchanges


def test_where_nothing_can_be_told_the_exchange_is_not_said_to_be_without_a_stall(run, tmp_path):
    out = tmp_path / "open.html"
    family = CAPTURES / "families" / "wait-stop-and-wait"
    assert run("analyze", family / "server.pcap.gz", "--html", out)[0] == 3
    page = out.read_text()
    assert "an exchange without a proved stall" in page and "delayed ACK alone" not in page


def test_a_clean_capture_shows_an_exchange(run, tmp_path):
    out = tmp_path / "clean.html"
    assert run("analyze", CLEAN / "server.pcap", "--html", out)[0] == 0
    page = out.read_text()
    assert "✓ CLEAN" in page and "an exchange without a stall" in page
    assert not Tree(page).of("g", "trigger") and Tree(page).of("g", "seg")


@pytest.fixture
def hostile(tmp_path) -> Path:
    """The stalled run with hostile text wherever text can be."""
    folder = tmp_path / "hostile"
    shutil.copytree(STALLED, folder)

    def say_evil(manifest) -> None:
        manifest |= dict.fromkeys(("scenario", "variant", "title", "question", "teaches", "started"), EVIL)
        manifest["versions"] = dict.fromkeys(manifest["versions"], EVIL)
        manifest["parameters"] = {EVIL: EVIL}
        manifest["images"] = {EVIL: {"name": EVIL, "id": EVIL, "base": None}}
        manifest["namespaces"]["server"]["sysctls"]["net.ipv4.tcp_autocorking"] = EVIL
        manifest["captures"]["server"]["offloads"] = {"generic-receive-offload": EVIL}

    change(folder, "witnesses.json", lambda w: (w["load"].update(command=EVIL), w["option"].update(demanded=EVIL)))
    change(folder, "manifest.json", say_evil)
    return folder


def harmless(page: str) -> None:
    tree = Tree(page)
    assert len(tree.of("script")) == 1 and not tree.of("img")
    assert not [name for _, attributes in tree.elements for name in attributes if name.startswith("on")]
    assert EVIL not in page and "<img" not in page
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", page)


def test_a_hostile_run_is_only_text(run, hostile, tmp_path):
    out = tmp_path / "out.html"
    assert run("show", hostile, "--html", out)[0] == Exit.OK  # what it calls itself changes no verdict
    page = out.read_text()
    harmless(page)
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10 and "\\x1b[31m" in page
    run("compare", STALLED, hostile, "--html", out)
    harmless(out.read_text())


def test_a_hostile_file_name_is_only_text(run, tmp_path):
    path = tmp_path / EVIL.replace("/", "∕").replace("\0", "")
    path.write_bytes((STALLED / "server.pcap").read_bytes())
    broken = tmp_path / "<∕title><script>alert(3).pcap"
    broken.write_bytes(b"no capture at all, but long enough to be looked at")
    out = tmp_path / "out.html"
    code, _, _ = run("analyze", path, broken, "--html", out)
    assert code == Exit.UNUSABLE
    harmless(out.read_text())
    assert "unusable: &lt;∕title&gt;&lt;script&gt;alert(3)" in out.read_text()


def test_a_name_that_looks_like_style_stays_as_it_is(run, tmp_path):
    """Colours and sizes of a plot are the style sheet's, but its texts are nobody's."""
    names = ["#0000a3.pcap", "font-size: 3px; x.pcap", ' id="text_1".pcap']
    for name in names:
        (tmp_path / name).write_bytes((STALLED / "server.pcap").read_bytes())
    out = tmp_path / "out.html"
    assert run("compare", *(tmp_path / name for name in names), "--html", out)[0] == Exit.OK
    titles = re.findall(r"<text [^>]*>([^<]*\.pcap: [^<]*)</text>", out.read_text())
    assert [title.partition(": 4")[0] for title in titles] == names


@pytest.mark.parametrize("value", [EVIL, "a\nb", "\ud800", "</svg>"])
def test_what_is_not_markup_is_text(value):
    template = ENVIRONMENT.from_string('<p title="{{ v }}" data-tip="{{ [v, v] | attribute_lines }}">{{ v ~ v }}</p>')
    made = template.render(v=value)
    assert ElementTree.fromstring(made.replace("&#10;", " ")).tag == "p"
    assert made == f'<p title="{text(value)}" data-tip="{attribute_lines([value, value])}">{text(value) * 2}</p>'
    assert made.isprintable() and made.count("<") == 2


def test_backticks_make_code_and_nothing_else():
    assert with_code("set `a < b`, not `c") == "set <code>a &lt; b</code>, not `c"
    assert with_code(f"`{EVIL}`") == f"<code>{text(EVIL)}</code>"


def test_the_footer_speaks_of_segments_only_where_there_are_some(page):
    def footer(of: str) -> str:
        return of[of.index("<footer>") : of.index("</footer>")]

    assert "Point at a segment" in footer(page)
    piped = report_page([shown_capture(ReportedCapture(analyze(STALLED / "server.pcap"), Examples()))])
    assert "Point at a mark of a plot" in footer(piped) and "segment" not in footer(piped)
    assert "Point at" not in footer(report_page([], [("a.pcap", "no capture")]))


def test_a_template_that_asks_for_what_is_not_there_fails():
    with pytest.raises(UndefinedError):
        ENVIRONMENT.from_string("{{ missing }}").render()


def test_the_same_input_gives_the_same_bytes_anywhere(page, run, tmp_path):
    folder = tmp_path / "elsewhere" / STALLED.name
    shutil.copytree(STALLED, folder)
    out = tmp_path / "again.html"
    assert run("show", folder, "--html", out)[0] == 0
    assert out.read_text() == page
    assert str(tmp_path) not in page and str(REPOSITORY) not in page
    assert len(page) < 1_000_000


def test_a_pipe_has_no_ladder_but_the_rest():
    page = report_page([shown_capture(ReportedCapture(analyze(STALLED / "server.pcap"), Examples()))])
    assert "came through a pipe" in page and not Tree(page).of("svg", "ladder") and Tree(page).of("svg", "chart")


def test_captures_that_tell_little_have_a_report(tmp_path, run):
    few = tmp_path / "few.pcap"
    few.write_bytes(pcap_bytes(talk(nodelay, 2).segments))
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(pcap_bytes([]))
    out = tmp_path / "out.html"
    assert run("analyze", few, empty, "--html", out)[0] == Exit.UNUSABLE
    said = out.read_text()
    Tree(said)
    assert "? INCONCLUSIVE" in said and "✕ INVALID" in said


def test_several_captures_are_listed_first(run, tmp_path):
    out, broken = tmp_path / "out.html", tmp_path / "broken.pcap"
    broken.write_bytes(b"no capture")
    run("analyze", STALLED / "server.pcap", CLEAN / "server.pcap", broken, "--html", out)
    page = out.read_text()
    ids = set(re.findall(r'<article id="([^"]+)"', page))
    links = re.findall(r'<a href="#([^"]+)"', page)
    assert len(links) == 3 and set(links) == ids and page.index("<nav") < page.index("<article")
    run("analyze", CLEAN / "server.pcap", "--html", out)
    assert "<nav" not in out.read_text()


def test_captures_side_by_side_are_named_once_in_a_row(run, tmp_path):
    out = tmp_path / "out.html"
    run("compare", STALLED / "server.pcap", CLEAN / "server.pcap", "--html", out)
    head = out.read_text().partition("</header>")[0]
    rows = re.findall(r'<p class="reason">(.*?)</p>', head, re.DOTALL)
    assert [row.count("server.pcap") for row in rows] == [1, 1]


def spaced(page: str) -> str:
    """The text of a page, a blank for each tag."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page)))


def test_where_nothing_can_be_told_no_tile_says_that_nothing_stalled(tmp_path):
    empty = tmp_path / "empty.pcap"
    empty.write_bytes(pcap_bytes([]))
    assert "stalled ? no exchange to judge" in spaced(report_page([shown_at(empty)]))
    family = CAPTURES / "families" / "wait-stop-and-wait" / "server.pcap.gz"
    page = spaced(report_page([shown_at(family)]))
    assert re.search(r"stalled \? of \d+ exchanges; in \d+ a stall would have been seen", page)
    assert "stalled 0 0% of 100 exchanges " in spaced(report_page([shown_at(CLEAN)]))


@pytest.mark.parametrize(
    ("capture", "name"),
    [
        ("lookalikes/nodelay-pause-45", "delayed ACK that nothing waited for"),
        ("families/wait-stop-and-wait", "delayed ACK, perhaps with data waiting"),
    ],
)
def test_a_late_ack_without_a_stall_is_not_simply_called_delayed(capture, name):
    page = spaced(report_page([shown_at(CAPTURES / capture / "server.pcap.gz")]))
    assert f"{name}: " in page and f"{name} " in page.replace(f"{name}: ", "")  # in the picture, and in the table


@pytest.mark.parametrize("place", ["server", "client"])
def test_the_proof_says_no_more_than_how_sure_it_is(place):
    shown = shown_at(CAPTURES / "lookalikes" / "server-held-rtt-20" / f"{place}.pcap.gz")
    page = spaced(report_page([shown]))
    is_sender = place == "server"
    assert ("How sure: certain" in page) is ("The proof, in a typical stall" in page) is is_sender
    assert (" it is likely that Nagle's algorithm held" in page) is not is_sender
    assert re.search(r"after that ACK they left in" if is_sender else r"ms after that ACK they were seen in", page)


def test_an_axis_of_shares_ends_at_a_round_figure_and_no_bar_lies_below_it():
    bins = [(1.0, 1.12, 97), (1.12, 1.26, 3)]
    drawn = distribution_plot([Distribution("x", Histogram(100, 1.0, bins), Spread(1.0, 1.0, 1.2, 1.2))], "x")
    (drawing,) = drawings(drawn)
    assert ">100</text>" in drawing and len(axis_labels(drawing)) >= 3  # time spans more than its one or two bins
    shapes = re.findall(r'<g class="mark".*?<path d="([^"]*)"', drawing, re.DOTALL)
    feet = {max(float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", shape)) for shape in shapes}
    assert len(feet) == 1 and "stroke-width: 5" not in drawing  # all stand on the axis, and nothing lies across it


def test_a_comparison_has_gains_differences_and_both_ladders(run, tmp_path):
    out = tmp_path / "out.html"
    assert run("compare", STALLED, CLEAN, "--html", out)[0] == 0
    page = out.read_text()
    tree = Tree(page)
    assert "<h1>nginx-static / nodelay-off against nginx-static / nodelay-on</h1>" in page
    assert page.count("no stalls (was 100% of repeats)") == 1 and "TCP_NODELAY" in page
    assert len(tree.of("article")) == 2 and tree.of("g", "trigger")


def test_a_matrix_has_its_tables_and_claims():
    off, on = figures_of(judge_run(STALLED)), figures_of(judge_run(CLEAN))
    scenario = find_scenario("nginx-static")
    rows = len(scenario.variants)
    bad = TrialOutcome(Exit.CONTRADICTED, Verdict.CLEAN, EVIL, "a-run", on)
    stalls, clean = (TrialOutcome(Exit.OK, v, "", "a-run", f) for v, f in ((Verdict.STALL, off), (Verdict.CLEAN, on)))
    failed = TrialOutcome(Exit.UNUSABLE, None, "no", None, None)
    found = filled(scenario, stalls, clean, bad, failed, *[clean] * (rows - 4))
    page = matrix_page(found)
    harmless(page)
    said = unescape(re.sub(r"<[^>]*>", "\n", page))
    assert all(row.variant.name in said for row in found.rows)
    (scenario, of), *_ = found.by_scenario()
    assert all(" ".join(claim.claim.published.split()) in " ".join(said.split()) for claim in claims_of(scenario, of))
    assert {str(claim.mark) for claim in claims_of(scenario, of)} <= {str(m) for m in Reproduction} & set(
        said.split("\n")
    )
    assert len(Tree(page).of("g", "mark")) == rows - 1


def test_a_sweep_marks_its_cliff():
    figures = figures_of(judge_run(STALLED))

    def measure(size: int) -> SweepPoint:
        stalls = 1387 < size < 2835
        outcome = TrialOutcome(
            Exit.OK, Verdict.STALL if stalls else Verdict.CLEAN, "", "a-run", figures if stalls else None
        )
        return SweepPoint(size, outcome, {}, {})

    series = SweepSeries("writes", "nagle", 6379)
    run_through(series, 64, 16384, measure)
    page = sweep_page(EVIL, "VALUE_BYTES", [series, SweepSeries("empty", "nagle", 1)])
    harmless(page)
    assert page.count("1387 | 1388") == page.count("2834 | 2835") == 1
    assert "starts to stall at VALUE_BYTES=1388" in page and f"Of the {len(series.points)} sizes, those that" in page
    assert len(Tree(page).of("g", "mark")) == len(series.points)


def axis_labels(drawing: str) -> list[float]:
    """The figures below a drawing's axis of x."""
    ticks = re.findall(r"text-anchor: middle[^>]*>([\d.,]+)</text>", drawing)
    return [float(tick.replace(",", "")) for tick in ticks]


@pytest.mark.parametrize(("low", "high"), [(1300, 1500), (64, 300), (64, 16384), (700, 701)])
def test_a_sweep_of_any_span_has_an_axis_to_read(low, high):
    (drawing,) = drawings(cliff_plot([SizePoint(size, "CLEAN", 0.0) for size in (low, high)], [], "SIZE"))
    assert len(set(axis_labels(drawing))) >= 2


@pytest.mark.parametrize(
    "bins", [[(0.45, 0.5, 3)], [(0.0, 0.001, 1)], [(40.0, 44.7, 5)], [(0.001, 0.002, 1), (1e5, 1.2e5, 1)]]
)
def test_a_distribution_of_any_span_has_an_axis_to_read(bins):
    histogram = Histogram(sum(count for *_, count in bins), 1.0, bins)
    spread = Spread(bins[0][0], bins[-1][0], bins[-1][0], bins[-1][0])
    drawn = distribution_plot([Distribution("exchanges", histogram, spread)], "x")
    (drawing,) = drawings(drawn)
    assert any(bins[0][0] / 2 <= tick <= bins[-1][1] * 2 for tick in axis_labels(drawing))


def test_bars_of_a_distribution_are_as_wide_as_their_bins():
    edges = [10 ** (place / 20) for place in (0, 1, 2, 20, 21)]
    bins = [(edges[0], edges[1], 1), (edges[1], edges[2], 2), (edges[3], edges[4], 1)]
    drawn = distribution_plot([Distribution("x", Histogram(4, 1.0, bins), Spread(1.0, 1.2, 10.0, 10.0))], "x")
    shapes = re.findall(r'<g class="mark".*?<path d="([^"]*)"', drawn, re.DOTALL)
    at = [sorted({float(x) for x in re.findall(r"[ML] ([\d.]+)", shape)}) for shape in shapes]
    widths = [right - left for left, right in at]
    assert len(widths) == 3 and widths == pytest.approx([widths[0]] * 3, rel=1e-3)
    assert at[2][0] - at[0][0] == pytest.approx(20 * widths[0], rel=1e-3)


def test_variants_of_any_span_have_an_axis_to_read():
    for values in ((2.1, 4.0), (43.0, 44.0), (0.05, 250.0)):
        drawn = variant_plot([Bar("a", "CLEAN", values[0]), Bar("b", "STALL", values[1])], "x", "ms")
        (drawing,) = drawings(drawn)
        assert [tick for tick in axis_labels(drawing) if values[0] / 2 <= tick <= values[1] * 2]


def test_a_report_that_cannot_be_written_is_told_before_anything_runs(run, tmp_path):
    code, out, err = run("analyze", STALLED, "--html", tmp_path / "no" / "where.html")
    assert (code, out, err.count("\n")) == (Exit.UNUSABLE, "", 1)
    code, out, err = run("sweep", "redis-proxy", "--html", tmp_path / "no" / "where.html")
    assert (code, out, err.count("\n")) == (Exit.UNUSABLE, "", 1)


def test_the_screen_says_the_same_with_a_report(run, tmp_path):
    plain = run("analyze", STALLED / "server.pcap")
    assert run("analyze", STALLED / "server.pcap", "--html", tmp_path / "r.html") == plain


def test_lines_to_paste_stand_below_each_other(run, tmp_path):
    out = tmp_path / "stalled.html"
    assert run("analyze", STALLED / "server.pcap", "--html", out)[0] == 0
    blocks = re.findall(r'<pre class="paste">(.*?)</pre>', out.read_text(), re.DOTALL)
    assert any(block.count("\n") > 1 for block in blocks) and not any("\\n" in block for block in blocks)


def test_what_is_for_an_editor_is_no_comment_of_a_shell_in_a_page(run, tmp_path):
    out = tmp_path / "stalled.html"
    assert run("analyze", STALLED / "server.pcap", "--html", out)[0] == 0
    assert '<pre class="paste">tcp_nodelay on;  # for static files' in out.read_text()
    assert "\n#   FreeBSD and macOS, instead" in out.read_text()  # among commands it stays one


def test_without_a_script_only_what_is_surely_too_long_is_squeezed():
    assert "textLength" not in _fitted("written 0.1 ms after the trigger,", 240, 0.84)
    assert 'textLength="240"' in _fitted("written by who knows what, and held for a long time, " * 2, 240, 0.84)
