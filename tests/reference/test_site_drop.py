"""The page for one's own capture: the command line's JSON, errors and report, in a browser that asks nobody else."""

import gzip
import json
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import zstandard

from support.repository import REFERENCE, REPOSITORY, STALLED
from support.stories import client_held, talk
from support.synthetic import pcapng_bytes

CLEAN = REFERENCE / "nginx-static-nodelay-on" / "server.pcap"
FOREVER = 60  # seconds: Python takes 5 to start on a machine that has nothing else to do
PARTS = ("worker.js", "pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "nagle_lab.zip")
PAGE = ("drop.html", "site.css", "site.js", "icon.svg")


class Server(ThreadingHTTPServer):
    """A static host that remembers what it was asked for."""

    def __init__(self, folder: Path) -> None:
        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, form, *values):
                pass

            def do_GET(self):
                self.server.asked.append(self.path)
                super().do_GET()

        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture(scope="module")
def site(built_site, tmp_path_factory):
    """Served under a path, as a static host may."""
    above = tmp_path_factory.mktemp("host")
    if not shutil.which("npm"):
        pytest.skip("npm is not on this machine: the site is built without the page")
    page = shutil.copytree(built_site, above / "some" / "path") / "drop.html"
    assert page.exists(), "what site/build.py says is above"
    return above


@pytest.fixture(scope="module")
def server(site):
    with Server(site) as server:
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def page(server, browser):
    browser.attach()
    browser.open(f"{server.url}/some/path/drop.html", 390, 800, dark=True)
    assert browser.complaints() == []
    assert {*server.asked} <= {f"/some/path/{name}" for name in PAGE}
    assert browser.js("document.documentElement.scrollWidth") <= 390
    return browser


def wait(page, until: str) -> None:
    end = time.monotonic() + FOREVER
    while not page.js(until):
        assert time.monotonic() < end, [page.text("#status"), page.text("#wrong"), page.complaints()]
        time.sleep(0.05)


def diagnosed(page, file: Path, give: str = "choose") -> str:
    """Give the page a file; the JSON it shows."""
    page.js("document.getElementById('found').hidden = true")
    getattr(page, give)("#file" if give == "choose" else "#zone", file)
    wait(page, "!document.getElementById('found').hidden")
    return page.text("#json pre")


def refused(page, file: Path) -> str:
    """Give the page a file that it cannot use; what it says."""
    page.choose("#file", file)
    wait(page, "!document.getElementById('wrong').hidden && document.getElementById('working').hidden")
    assert page.js("document.getElementById('found').hidden")
    return page.text("#wrong")


def command_line(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nagle_lab", "analyze", "--json", file.name]
    return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """Captures of every form, good and bad."""
    folder, stalled = tmp_path_factory.mktemp("captures"), STALLED.read_bytes()
    contents = {
        "gzip": ("stalled.pcap.gz", gzip.compress(stalled)),
        "zstd": ("stalled.pcap.zst", zstandard.compress(stalled)),
        "cut zstd": ("cut.pcap.zst", zstandard.compress(stalled)[:-2000]),
        "pcapng": ("client.pcapng", pcapng_bytes(talk(client_held).segments)),
        "cut": ("cut.pcap", stalled[:-7]),
        "not a capture": ("notes <b>.txt", b"Dear diary, today it was slow again."),
        "empty": ("empty.pcap", b""),
        "only a header": ("header.pcap", stalled[:24]),
        "no header": ("no-header.pcap.gz", gzip.compress(stalled[:20])),
        "too large": ("large.pcap", stalled + stalled[24:] * 40),
    }
    for name, content in contents.values():
        (folder / name).write_bytes(content)
    with (folder / "large.pcap").open("r+b") as large:
        large.truncate(1 << 30)
    return {"stalled": STALLED, "clean": CLEAN} | {what: folder / name for what, (name, _) in contents.items()}


def test_it_can_be_stopped_and_takes_one_at_a_time(page, files):
    page.choose("#file", files["stalled"])
    assert not page.js("document.getElementById('working').hidden")
    page.js("document.getElementById('stop').click()")
    assert page.js("document.getElementById('working').hidden") and page.js("document.activeElement.id") == "file"
    page.drop("#zone", files["stalled"], files["clean"])
    wait(page, "!document.getElementById('wrong').hidden")
    assert "One capture at a time" in page.text("#wrong")


@pytest.mark.parametrize("what", ["stalled", "clean", "gzip", "zstd", "pcapng", "cut", "only a header"])
def test_the_json_is_that_of_the_command_line(page, files, what):
    shown = diagnosed(page, files[what], "drop" if what == "clean" else "choose")
    expected = command_line(files[what])
    assert json.loads(shown) == json.loads(expected.stdout), expected.stderr
    assert shown == expected.stdout
    assert page.text("#verdict") == f"{json.loads(shown)['verdict']} {files[what].name}"
    assert page.js("document.activeElement.id") == "verdict"


@pytest.mark.parametrize("what", ["not a capture", "empty", "no header", "cut zstd"])
def test_what_is_no_capture_is_said_as_the_command_line_says_it(page, files, what):
    expected = command_line(files[what])
    assert expected.returncode == 2
    assert refused(page, files[what]) + "\n" == expected.stderr


def test_a_large_capture_is_refused_at_once(page, files):
    said = refused(page, files["too large"])
    assert "packets by its size, and a page takes 300,000: use the command line, nagle-lab analyze large.pcap" in said


def test_the_report_is_in_place_and_works(page, files):
    diagnosed(page, files["stalled"])
    wait(page, "document.getElementById('report').srcdoc.includes('has no plots')")
    with page.inside("iframe"):
        wait(page, "document.readyState === 'complete'")
        assert page.text("h1").endswith("server.pcap") and page.js("self.origin") == "null"
        assert page.js("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 23)"
        page.js("document.querySelector('.seg').dispatchEvent(new Event('pointerenter'))")
        assert not page.js("document.getElementById('tip').hidden")
    for kind in ("html", "json"):
        assert page.js(f"document.getElementById('save-{kind}').download") == f"server.{kind}"
    assert page.js("document.documentElement.scrollWidth") <= 390


def test_nobody_else_can_be_asked_and_nobody_was(page, server):
    with Server(REPOSITORY / "site") as other, page.inside("worker"):
        answer = f"fetch('{other.url}/icon.svg', {{ mode: 'no-cors' }}).then(() => 'sent', () => 'refused')"
        assert page.js(answer) == "refused"
        other.shutdown()
    assert other.asked == []
    assert {*server.asked} == {f"/some/path/{name}" for name in PAGE} | {f"/some/path/analyzer/{p}" for p in PARTS}
    complaints = [of.get("entry", of) for of in page.complaints()]
    assert [of["text"] for of in complaints if other.url not in of.get("text", "")] == []
    assert len(complaints) > 0  # the policy's, about the request above
