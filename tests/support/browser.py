"""A headless Chromium, spoken to over its debugging pipe (Chrome DevTools Protocol): no driver, no port."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ANSWERS_WITHIN_S = 120  # on the busiest machine; without a limit a lost answer would stop the whole suite
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str:
    """The browser; if it is missing, the test fails instead of being skipped."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.fail("Chromium is not installed, and this test opens reports in it: apt-get install chromium")
    return path


class Page:
    """One tab."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._id, self._buffer, self._session = to, back, 0, b"", None
        self.said: list[dict[str, Any]] = []  # events
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        self._id += 1
        message = {"id": self._id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._id:
            self.said.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._back], [], [], ANSWERS_WITHIN_S)
            assert ready, f"Chromium says nothing for {ANSWERS_WITHIN_S} s"
            part = os.read(self._back, 1 << 20)
            assert part, "Chromium ended"
            self._buffer += part
        whole, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(whole)
        return answer

    def open(self, page: Path | str, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.said.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.said):
            self.said.append(self._next())

    def text(self, selector: str) -> str:
        """The text of the first element that a CSS selector finds."""
        return str(self.js(f"document.querySelector({json.dumps(selector)}).textContent"))

    def js(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def attach(self) -> None:
        """Attach to workers and isolated frames of pages opened from now on."""
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)

    @contextmanager
    def inside(self, kind: str) -> Iterator[None]:
        """Talk to the newest "worker" or "iframe", once there is one; its complaints are collected, too."""
        while not (sessions := self._sessions(kind)):
            self.said.append(self._next())
        own, self._session = self._session, sessions[-1]
        try:
            self.call("Runtime.enable")
            self.call("Log.enable")
            yield
        finally:
            self._session = own

    def _sessions(self, kind: str) -> list[str]:
        attached = [event["params"] for event in self.said if event.get("method") == "Target.attachedToTarget"]
        return [of["sessionId"] for of in attached if of["targetInfo"]["type"] == kind]

    def events(self, *methods: str) -> list[dict[str, Any]]:
        self.js("new Promise((done) => setTimeout(done, 50))")
        return [event["params"] for event in self.said if event.get("method") in methods]

    def complaints(self) -> list[Any]:
        """Console messages, log entries (policy violations among them) and exceptions since the page was opened."""
        return self.events("Runtime.consoleAPICalled", "Log.entryAdded", "Runtime.exceptionThrown")

    def fetched(self) -> list[str]:
        """Requests to the network or the disk since the page was opened."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def centre(self, selector: str) -> tuple[float, float]:
        """Scroll an element into view; returns where its middle is then."""
        x, y = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        return x, y

    def hover(self, selector: str) -> None:
        x, y = self.centre(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def tap(self, selector: str) -> None:
        x, y = self.centre(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def press(self, key: str) -> None:
        code = {"Tab": 9, "ArrowRight": 39, "ArrowDown": 40, "End": 35, "Home": 36, "Escape": 27}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def choose(self, selector: str, *files: Path) -> None:
        """Choose files with an input."""
        found = self.call("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")["result"]
        self.call("DOM.setFileInputFiles", files=[str(file) for file in files], objectId=found["objectId"])

    def drop(self, selector: str, *files: Path) -> None:
        """Drag files over an element, and drop them."""
        x, y = self.centre(selector)
        data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def screenshot(self, file: Path, top: float = 0, height: float | None = None) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"] - top, "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(
            self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)["data"]
        )


@contextmanager
def chromium() -> Iterator[Page]:
    """A browser with one tab; it ends with the block."""
    reading, to = os.pipe()
    back, writing = os.pipe()
    # Root, and many containers, lack what its sandbox needs; only the tests' own pages are opened.
    flags = "--headless --remote-debugging-pipe --no-sandbox --no-first-run --disable-gpu --disable-dev-shm-usage"
    flags += " --disable-ipc-flooding-protection"  # a test changes a page's address more often than people do
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = f'exec "$0" {flags} "$1" 3<&{reading} 4>&{writing}'  # the protocol's descriptors
        process = subprocess.Popen(
            ["bash", "-c", command, find(), f"--user-data-dir={profile}"],
            pass_fds=(reading, writing),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reading)
        os.close(writing)
        try:
            yield Page(to, back)
        finally:
            process.terminate()
            process.wait(30)
            os.close(to)
            os.close(back)
