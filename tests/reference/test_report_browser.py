"""Reports in a real browser: they open without complaint and without network, fit, and can be pointed at."""

import re
import shutil
from pathlib import Path

import pytest

from nagle_lab.cli.lab.demo import _stored
from nagle_lab.cli.workshop.script import workshop
from nagle_lab.cli.workshop.slides import slides_page
from nagle_lab.experiments.comparison import compare
from nagle_lab.experiments.opened import opened
from nagle_lab.reports.html.overview import comparison_page
from nagle_lab.reports.html.page import report_page
from support import hostile
from support.browser import Page
from support.repository import REFERENCE
from support.run_folders import shown_at

pytestmark = pytest.mark.long

STALLED = REFERENCE / "nginx-static-nodelay-off"
WIDE, PHONE = (1200, 800), (390, 800)
TEXTS = "[...document.querySelectorAll('svg text')].filter((t) => t.getClientRects().length && t.textContent)"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page([shown_at(STALLED)]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def stall():
    return shown_at(STALLED).result.stalls.typical()


def tip(page: Page) -> str | None:
    """What the tip says; None while it is hidden."""
    return page.js("document.getElementById('tip').hidden ? null : document.getElementById('tip').innerText")


def late(stall) -> str:
    return f"svg.ladder .seg.late[data-frame='{stall.ack_frame}'] .hit"


@pytest.mark.parametrize("size", [WIDE, PHONE])
@pytest.mark.parametrize(("words", "is_squeezed"), [("written 0.1 ms after", False), ("held " * 20, True)])
def test_a_text_is_squeezed_where_it_is_too_long_and_never_stretched(
    browser, report, tmp_path, size, words, is_squeezed
):
    path = tmp_path / "page.html"
    holds = r'(<text [^>]*class="holds" data-most="240")[^>]*>[^<]*'
    changed, count = re.subn(holds, rf'\1 textLength="240">{words}', report.read_text())
    assert count
    path.write_text(changed)
    browser.open(path, *size)
    of = "document.querySelector('svg.ladder .holds')"
    assert browser.js(f"{of}.hasAttribute('textLength')") == is_squeezed
    width = browser.js(f"{of}.getComputedTextLength()")
    assert width == pytest.approx(240) if is_squeezed else width < 235


@pytest.mark.parametrize("size", [WIDE, PHONE])
@pytest.mark.parametrize("dark", [False, True])
def test_it_opens_quietly_and_fits(browser, report, size, dark):
    browser.open(report, *size, dark=dark)
    assert browser.complaints() == []
    assert browser.fetched() == [report.as_uri()]
    assert browser.js("document.documentElement.scrollWidth") <= size[0]
    drawn = "[...document.querySelectorAll('svg')].map((e) => e.getBoundingClientRect().width).filter((w) => w)"
    widths = browser.js(drawn)
    assert len(widths) >= 4 and all(300 < width <= size[0] for width in widths)
    background = browser.js("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(15, 19, 23)" if dark else "rgb(255, 255, 255)")
    assert browser.js("[...document.querySelectorAll('h2')].length") >= 5


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080), (1024, 768)])
def test_every_slide_has_room_for_what_is_on_it(browser, tmp_path, size):
    """Nothing is cut off, and no words run into the number of the slide."""
    path = tmp_path / "slides.html"
    path.write_text(slides_page(workshop(), _stored), encoding="utf-8")
    browser.open(path, *size)
    beyond = browser.js(
        "slides.flatMap((slide, i) => { turn(i); const edge = slide.getBoundingClientRect(),"
        "number = slide.querySelector('footer').getBoundingClientRect();"
        "return [...slide.querySelectorAll('p, li, svg text')].map((e) => [e, e.getBoundingClientRect()])"
        ".filter(([e, b]) => b.height && (b.bottom > edge.bottom || b.right > edge.right || b.left < edge.left ||"
        " (b.bottom > number.top && b.right > number.left)))"
        ".map(([e]) => `${i + 1}: ${e.textContent}`); })"
    )
    assert beyond == []


def test_words_beside_a_stall_on_a_slide_stay_between_its_lines(browser, tmp_path):
    path = tmp_path / "slides.html"
    path.write_text(slides_page(workshop(), _stored), encoding="utf-8")
    browser.open(path, *WIDE)
    too_long = browser.js(
        "slides.flatMap((slide, i) => { turn(i); return [...slide.querySelectorAll('text[data-most]')]"
        ".filter((e) => e.getComputedTextLength() > Number(e.dataset.most) + 1)"
        ".map((e) => `${i + 1}: ${e.textContent}`); })"
    )
    assert too_long == []


def test_words_in_drawings_are_large_enough(browser, report):
    smallest = (
        f"Math.min(...{TEXTS}.map((t) => {{ const m = t.getScreenCTM();"
        "return parseFloat(getComputedStyle(t).fontSize) * Math.hypot(m.a, m.b); }))"
    )
    browser.open(report, *WIDE)
    assert browser.js(smallest) >= 14
    browser.open(report, *PHONE)
    assert browser.js(smallest) >= 9


def test_nothing_drawn_is_cut_off(browser, report):
    for size in (WIDE, PHONE):
        browser.open(report, *size)
        beyond = browser.js(
            f"{TEXTS}.filter((t) => {{ const b = t.getBoundingClientRect();"
            "return b.left < 0 || b.right > innerWidth; }).map((t) => t.textContent)"
        )
        assert beyond == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_table_that_is_cut_off_shows_that_it_goes_on(browser, report, dark):
    """What is wider than a phone scrolls in a box of its own, with a shadow at the edge; nothing else is as wide."""
    browser.open(report, *PHONE, dark=dark)
    outside = "[...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, svg'))"
    assert browser.js(f"{outside}.filter((e) => e.getBoundingClientRect().right > innerWidth).length") == 0
    boxes = "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth)"
    assert browser.js(f"{boxes}.length") >= 1
    assert browser.js(f"{boxes}.every((e) => getComputedStyle(e).overflowX === 'auto')")
    attached = browser.js(f"{boxes}.map((e) => getComputedStyle(e).backgroundAttachment)")
    assert set(attached) == {"local, local, scroll, scroll"}


def test_pointing_at_a_segment_tells_its_frame_and_lights_it_up_elsewhere(browser, report, stall):
    browser.open(report, *WIDE)
    assert tip(browser) is None
    browser.hover(late(stall))
    said = tip(browser)
    assert said and said.split("\n")[:2] == [f"frame {stall.ack_frame}", "late ACK"]
    assert browser.js(f"document.querySelectorAll('.mark.lit[data-frame=\"{stall.ack_frame}\"]').length") == 1
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert tip(browser) is None


def test_a_mark_of_a_plot_tells_its_frame(browser, report, stall):
    browser.open(report, *WIDE)
    browser.hover(f"svg.chart .mark[data-frame='{stall.ack_frame}']")
    said = tip(browser)
    assert said and f"frame {stall.ack_frame}\nlate ACK" in said


def test_a_tip_lies_inside_the_window(browser, report):
    for size in (WIDE, PHONE):
        browser.open(report, *size)
        for selector in ("svg.ladder .seg .hit", "svg.chart .mark"):
            browser.hover(selector)
            box = browser.js(
                "(({left, top, right, bottom}) => [left, top, right, bottom])(tip.getBoundingClientRect())"
            )
            assert box[0] >= 0 and box[1] >= 0 and box[2] <= size[0] and box[3] <= size[1]


def test_the_keyboard_goes_from_segment_to_segment(browser, report, stall):
    browser.open(report, *WIDE)
    browser.press("Tab")
    first = tip(browser)
    assert first and first.startswith("frame ")
    browser.press("ArrowDown")
    browser.press("ArrowDown")
    said = tip(browser)
    assert said and said.startswith(f"frame {stall.ack_frame}\nlate ACK")
    browser.press("Home")
    assert tip(browser) == first
    browser.press("Escape")
    assert tip(browser) is None
    stops = "[...document.querySelectorAll('svg')].map((s) => s.querySelectorAll('[tabindex=\"0\"]').length)"
    assert set(browser.js(stops)) == {1}


def test_a_tap_works_like_pointing(browser, report, stall):
    browser.open(report, *PHONE)
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        browser.tap(late(stall))
        said = tip(browser)
    finally:
        browser.call("Emulation.setTouchEmulationEnabled", enabled=False)
    assert said and f"frame {stall.ack_frame}" in said


def test_it_prints_light_and_wide(browser, report):
    browser.open(report, *PHONE, dark=True)
    assert browser.pdf().startswith(b"%PDF")
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        browser.call("Emulation.setDeviceMetricsOverride", width=700, height=1000, deviceScaleFactor=1, mobile=False)
        assert browser.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        shown = browser.js("document.querySelector('svg').getBoundingClientRect().width")
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
    assert 600 < shown <= 700


@pytest.fixture(scope="module")
def evil(tmp_path_factory) -> dict[str, str]:
    """Pages of a hostile run, of captures with hostile content and names, and of what is no capture."""
    folder = tmp_path_factory.mktemp("evil")
    run = Path(shutil.copytree(STALLED, folder / hostile.name("run" + hostile.EVIL)))
    hostile.run_folder(run)
    paths = [run, *(folder / hostile.name(text) for text in hostile.MARKUP[:3])]
    for capture in paths[1:]:
        capture.write_bytes(hostile.capture())
    shown, unusable = [shown_at(path) for path in paths], [(text, text) for text in hostile.MARKUP]
    return {
        "report": report_page(shown, unusable),
        "comparison": comparison_page(compare([opened(path) for path in paths]), shown),
    }


@pytest.mark.parametrize("kind", ["report", "comparison"])
@pytest.mark.parametrize("policy", [True, False], ids=["as written", "without the page's policy"])
def test_nothing_that_came_from_captures_names_or_runs_acts(browser, evil, tmp_path, kind, policy):
    """No script, no dialog, no request, no element: by escaping alone, and the policy would stop the rest."""
    path, page = tmp_path / "evil.html", evil[kind]
    without = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert without != page
    path.write_text(page if policy else without)
    browser.open(path, *WIDE)
    browser.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for event in ("pointerenter", "mouseover", "click", "focus"):
        browser.js(f"document.querySelectorAll('main *').forEach((e) => e.dispatchEvent(new Event('{event}')))")
    assert browser.js("window.owned ?? null") is None
    assert browser.events("Page.javascriptDialogOpening", "Page.frameRequestedNavigation") == []
    assert browser.fetched() == [path.as_uri()]
    assert browser.complaints() == []
    link = "main a:not(nav > .contents > li > a[href^='#'])"  # but for those of the list at the top
    assert browser.js(f'document.querySelectorAll("script, img, iframe, object, {link}, base, form").length') == 1
    names = "[...document.querySelectorAll('*')].flatMap((e) => [...e.attributes].map((a) => a.name))"
    assert browser.js(f"{names}.filter((name) => name.startsWith('on') || name === 'autofocus')") == []
    assert "<script>window.owned=1</script>" in browser.js("document.body.textContent")
