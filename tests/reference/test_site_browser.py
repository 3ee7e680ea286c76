"""The simulator's page in a real browser: quiet, self-contained, readable; every control does something."""

import json
import re
from itertools import pairwise

import pytest

from support.browser import Page

pytestmark = pytest.mark.long
WIDE, PHONE, PROJECTOR = (1280, 900), (390, 800), (1920, 1080)
STALLED = "preset=nginx-static/nodelay-off"


@pytest.fixture(scope="module")
def site(built_site):
    return built_site


@pytest.fixture
def open_at(browser, site):
    def opened(fragment: str = "", size=WIDE, dark=False, page="index.html"):
        browser.open(site / page, *size, dark=dark)
        return go(browser, fragment) if fragment else browser

    return opened


def go(page: Page, fragment: str) -> Page:
    """Follow a link to the page that is open."""
    page.js(
        f"""new Promise((done) => {{
        const before = location.href;
        location.hash = {json.dumps(fragment)};
        if (location.href === before) done();
        else addEventListener("hashchange", () => setTimeout(done), {{ once: true }}); }})"""
    )
    return page


def change(page, path: str, value) -> None:
    page.js(
        f"""(() => {{ const e = document.getElementById({json.dumps(path)});
        if (e.type === "checkbox") e.checked = {json.dumps(value)}; else e.value = {json.dumps(value)};
        e.dispatchEvent(new Event(e.type === "range" ? "input" : "change", {{ bubbles: true }})); }})()"""
    )


@pytest.mark.parametrize(("size", "dark"), [(WIDE, False), (PHONE, True), (PROJECTOR, False)])
@pytest.mark.parametrize(
    "name", ["index.html", "mysteries.html", "predictions.html", "docs/index.html", "docs/matrix.html"]
)
def test_a_page_opens_quietly_and_fits(open_at, site, size, dark, name):
    page = open_at("", size, dark, name)
    assert page.complaints() == []
    assert all(url.startswith(site.as_uri()) for url in page.fetched())
    assert page.js("document.documentElement.scrollWidth") <= size[0]
    background = page.js("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(15, 19, 23)" if dark else "rgb(255, 255, 255)")


def test_from_a_disk_the_page_for_captures_says_how_to_serve_it(open_at):
    page = open_at(page="drop.html")
    assert "python3 -m http.server" in page.text("#wrong") and page.js("document.getElementById('file').disabled")
    assert page.complaints() == []


def test_all_predictions_on_the_page_agree(open_at):
    page = open_at(page="predictions.html")
    done, of = re.match(r"(\d+) of (\d+) predictions agree", page.text("#sum")).groups()
    assert done == of == str(page.js("document.querySelectorAll('#tables tbody tr').length"))
    assert page.js("document.querySelectorAll('.differs').length") == 0
    assert page.js("document.querySelectorAll('#cannot dd').length") > 10


def test_it_begins_with_a_stall_and_shows_how_it_came(open_at):
    page = open_at()
    assert page.text(".outcome .verdict") == "STALL"
    parts = page.js("[...document.querySelectorAll('.seg')].map((e) => e.classList[1])")
    assert [part for part in parts if part in ("trigger", "late", "release")] == ["trigger", "late", "release"]
    assert "late ACK" in page.text("#ladder-0")


def test_the_scale_is_true(open_at):
    """Distances on the drawing are those of time, from the first segment to the release."""
    page = open_at(f"{STALLED}&scale=100000&t=90000")
    places = page.js("[...document.querySelectorAll('.seg .arrow')].map((e) => Number(e.getAttribute('y1')))")
    times = page.js("[...document.querySelectorAll('.label title')].map((e) => parseFloat(e.textContent))")
    assert len(places) == len(times) >= 10
    slope = (places[-1] - places[0]) / (times[-1] - times[0])
    assert slope > 0
    assert all(
        abs(place - places[0] - slope * (time - times[0])) < 0.5 for place, time in zip(places, times, strict=True)
    )


def test_stepping_scrubbing_and_playing_move_time(open_at):
    page = open_at(STALLED + "&t=0")
    clock = lambda: float(page.text("#clock").split()[0])  # noqa: E731
    assert clock() == 0
    page.js("document.getElementById('step').click()")
    first = clock()
    assert first > 0 and page.text("#event")
    page.js("document.getElementById('step').click(); document.getElementById('back').click()")
    assert clock() == first
    change(page, "time", 20000)
    assert clock() == 20 and "615 B for" in page.text(".state.server [data-key=held]")
    page.js("document.getElementById('end').click()")
    end = clock()
    assert end > 100
    page.js("document.getElementById('start').click(); document.getElementById('play').click()")
    page.js("new Promise((done) => setTimeout(done, 300))")
    page.js("document.getElementById('play').click()")
    assert 0 < clock() < end
    drawn = page.js("document.querySelectorAll('.seg').length")
    page.js("document.getElementById('end').click()")
    assert page.js("document.querySelectorAll('.seg').length") != drawn


def test_the_keyboard_does_the_same(open_at):
    page = open_at(STALLED + "&t=0")
    page.js("document.activeElement.blur()")
    page.press("ArrowRight")
    first = page.text("#clock")
    assert first != "0.000 ms"
    page.press("End")
    assert page.text("#clock") != first
    page.press("Home")
    assert page.text("#clock") == "0.000 ms"
    stops = page.js(
        "[...document.querySelectorAll('button, select, input, a, summary')].filter((e) => e.tabIndex < 0).length"
    )
    assert stops == 0
    names = page.js(
        "[...document.querySelectorAll('button, select, input')]"
        ".filter((e) => !(e.textContent || e.ariaLabel || e.labels?.length)).map((e) => e.id)"
    )
    assert names == []


CONTROLS = {
    "client.program": "write 50, write 53, read 853", "server.program": "read 103, write 853", "exchanges": "2",
    "keepalive": False, "client.delack": "200", "client.quick": "0", "client.pingpong": "20", "client.quickack": True,
    "client.quicksocket": True, "server.nagle": "off", "server.delack": "0", "server.quick": "0",
    "server.pingpong": "0", "server.quickack": True, "server.quicksocket": True, "mss": "600",
    "rtt": "20", "hz": "1000",
}  # fmt: skip


def test_every_control_changes_what_happens_and_its_link_brings_that_back(open_at):
    page = open_at()
    page.js("document.getElementById('listed').open = true; new Promise((done) => setTimeout(done, 60))")
    events = "document.querySelector('#listed table').textContent"
    for path, value in CONTROLS.items():
        before = go(page, STALLED).js(events)
        change(page, path, value)
        after, fragment = page.js(events), page.js("location.hash.slice(1)")
        assert after != before, path
        assert path in fragment and page.js("document.getElementById('wrong').hidden"), path
        assert go(page, "preset=redis-proxy/direct").js(events) not in (before, after)
        assert go(page, fragment).js(events) == after, path


def test_every_control_is_tested_or_has_no_effect_here(open_at):
    """The client of this case writes once: whether it follows Nagle's algorithm cannot show."""
    page = open_at(STALLED)
    ids = page.js("[...document.querySelectorAll('#options input, #options select')].map((e) => e.id)")
    assert set(ids) == set(CONTROLS) | {"client.nagle"}
    change(page, "client.program", "write 50, write 53, read 853")
    change(page, "client.nagle", "off")
    assert "client.nagle=off" in page.js("location.hash")


def test_a_wrong_program_is_said_and_changes_nothing(open_at):
    page = open_at(STALLED)
    drawn = page.js("document.getElementById('ladder-0').outerHTML")
    for wrong in ("write 0", "hello", "write 5, read 99999999", "", "read 5", "read 103, write 852"):
        change(page, "server.program", wrong)
        assert not page.js("document.getElementById('wrong').hidden") and page.text("#wrong"), wrong
        assert page.js("document.getElementById('ladder-0').outerHTML") == drawn, wrong
        change(page, "server.program", "read 103, write 238, write 615")
        assert page.js("document.getElementById('wrong').hidden"), wrong
    assert page.complaints() == []


def test_a_link_from_elsewhere_cannot_break_the_page(open_at):
    page = open_at("preset=<b>&mss=1e9&exchanges=x&server.nagle=__proto__&compare=constructor&scale=toString&t=NaN")
    assert "preset=<b>: there is none of that name" in page.text("#wrong")
    assert page.js("document.querySelectorAll('#wrong *').length") == 0
    assert page.text(".outcome .verdict") in ("STALL", "CLEAN")
    assert page.complaints() == []


def test_a_link_is_followed_although_the_address_is_written_meanwhile(open_at):
    """The address is written some time after time has moved: it may be just as a link is followed."""
    page = open_at(STALLED)
    page.js(
        """new Promise((done) => {
        addEventListener("hashchange", () => setTimeout(done), { once: true });
        location.hash = "preset=redis-proxy/direct";
        history.replaceState(null, "", "#preset=nginx-static/nodelay-off"); })"""
    )
    assert page.js("document.getElementById('preset').value") == "redis-proxy/direct"
    assert page.js("location.hash").startswith("#preset=redis-proxy")


def test_side_by_side_with_one_option_changed(open_at):
    page = open_at(f"{STALLED}&compare=server-nodelay")
    assert page.js("[...document.querySelectorAll('.verdict')].map((e) => e.textContent)") == ["STALL", "CLEAN"]
    tops = page.js("[...document.querySelectorAll('svg.ladder')].map((e) => e.getBoundingClientRect().top)")
    assert tops[0] == tops[1]
    changes = page.js("[...document.getElementById('compare').options].map((e) => e.value).filter(Boolean)")
    assert len(changes) >= 10
    for name in changes:
        change(page, "compare", name)
        assert page.js("document.querySelectorAll('svg.ladder').length") == 2, name
        assert page.js("document.getElementById('wrong').hidden"), name
    change(page, "compare", "")
    assert page.js("document.querySelectorAll('svg.ladder').length") == 1
    assert page.complaints() == []


def test_what_is_compared_can_be_kept(open_at):
    page = open_at("preset=node-keepalive/agent-nagle&compare=server-answers")
    assert page.js("[...document.querySelectorAll('.verdict')].map((e) => e.textContent)") == ["STALL", "CLEAN"]
    page.js("document.getElementById('keep').click()")
    assert page.js("document.getElementById('client.program').value") == "write 98, write 13, read 129"
    assert page.js("document.getElementById('server.program').value") == "read 98, write 1, read 13, write 128"
    assert page.js("[...document.querySelectorAll('.verdict')].map((e) => e.textContent)") == ["CLEAN"]
    assert page.js("document.getElementById('keep').hidden") and page.complaints() == []


def test_every_preset_opens_and_says_what_was_recorded(open_at):
    """Shown with few exchanges, it still has the recorded verdict, but where a stall is rare."""
    page = open_at()
    names = lambda of: page.js(f"[...document.getElementById('{of}').options].map((e) => e.value)")  # noqa: E731
    groups, differ, opened = names("group"), [], 0
    assert groups.pop() == "Your own"
    for group in groups:
        change(page, "group", group)
        for name in names("preset"):
            change(page, "preset", name)
            opened += 1
            recorded = page.text("#title .note b").split(",")[0]
            if page.text(".outcome .verdict") != recorded:
                differ.append(name)
    assert len(groups) > 12 and opened > 250
    change(page, "group", "Your own")
    assert page.text("#title") == "" and page.text(".outcome .verdict") == "STALL"
    go(page, "preset=museum/npm/ssh2/good")
    chosen = page.js("[...document.querySelectorAll('#group, #preset')].map((e) => e.selectedOptions[0].label)")
    assert chosen == ["Museum: released software, npm", "ssh2 1.17.0, setNoDelay(true)"]
    assert differ == []
    assert page.complaints() == []


def test_without_motion_it_goes_in_steps(open_at, browser):
    page = open_at(STALLED + "&t=0")
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    page.js("document.getElementById('play').click()")
    moment = page.text("#clock")
    page.js("new Promise((done) => setTimeout(done, 200))")
    assert page.text("#clock") == moment != "0.000 ms"


@pytest.mark.parametrize("size", [WIDE, PHONE, PROJECTOR])
def test_letters_are_large_enough_and_nothing_is_cut_off(open_at, size):
    page = open_at(f"{STALLED}&t=90000", size)
    texts = "[...document.querySelectorAll('svg text')].filter((t) => t.textContent && !t.closest('clipPath'))"
    assert page.js(f"Math.min(...{texts}.map((t) => parseFloat(getComputedStyle(t).fontSize)))") >= 12
    beyond = page.js(
        f"{texts}.filter((t) => {{ const b = t.getBoundingClientRect();"
        "const s = t.ownerSVGElement.getBoundingClientRect();"
        "return b.left < s.left - 1 || b.right > s.right + 1; }).map((t) => t.textContent)"
    )
    assert beyond == []


@pytest.mark.parametrize("size", [WIDE, PHONE, PROJECTOR])
def test_no_arrow_of_a_mystery_lies_on_another(open_at, size):
    page = open_at(page="mysteries.html", size=size)
    drawn = page.js(
        """[...document.querySelectorAll('.mystery svg')].map((svg) => [svg.getAttribute('height'),
          ...[...svg.querySelectorAll('.arrow')].map((line) => line.getAttribute('y1'))].map(Number))"""
    )
    for height, *arrows in drawn:
        assert all(below - above > 12 for above, below in pairwise(arrows)) and arrows[-1] < height - 4


def test_mysteries_are_asked_answered_and_counted(open_at):
    page = open_at(page="mysteries.html")
    page.js("document.getElementById('forget').click()")
    sections = page.js("document.querySelectorAll('.mystery').length")
    assert sections >= 6
    assert page.js(
        "[...document.querySelectorAll('.mystery svg')].every((e) => e.querySelectorAll('.seg').length > 3)"
    )
    said = page.js(
        """[...document.querySelectorAll('.mystery form')].map((form) =>
          [...form.querySelectorAll('input')].map((input) => {
            input.checked = true; form.requestSubmit(); return form.querySelector('.reply').textContent; }))"""
    )
    for replies in said:
        assert sum(reply.startswith("Right. ") for reply in replies) == 1
        assert sum(reply.startswith("Not this. Then ") for reply in replies) == len(replies) - 1
    right_first = sum(replies[0].startswith("Right. ") for replies in said)
    score = f"Score: {right_first} of {sections} answered, first answers count."
    assert page.text("#score") == score
    assert open_at(page="mysteries.html").text("#score") == score
    page.js("document.getElementById('forget').click()")
    assert page.text("#score") == ""
    assert page.complaints() == []
