"""Takes the pictures of the pages anew: PYTHONPATH=tests .venv/bin/python docs/images/take.py [screens|site].

With ``screens`` only those of the terminal: the output of commands in a terminal of 100 columns, with its colours;
with ``site`` only that of the simulator.
"""

import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from nagle_lab.reports.html.page import report_page
from support.browser import Page, chromium
from support.run_folders import shown_at
from support.site import built

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
RUN = REPOSITORY / "captures" / "reference" / "nginx-static-nodelay-off"
TOP = "document.querySelectorAll('h2')[%d].getBoundingClientRect().top + scrollY - 10"
NAGLE_LAB = Path(sys.executable).with_name("nagle-lab")
SCREENS: dict[str, tuple[int, Sequence[str]]] = {
    "analyze-stall": (100, ["analyze", str(RUN / "server.pcap")]),
    "analyze-clean": (100, ["analyze", str(REPOSITORY / "captures" / "lookalikes" / "think-40" / "server.pcap.gz")]),
    "guard-stall": (100, ["guard", "--", "python3", "test_server.py"]),
    "guard-trace": (100, ["guard", "--trace", "--", "python3", "test_server.py"]),
    "workshop": (80, ["demo", "--without-lab", "--scenario", "redis-proxy", "--answers", "good"]),
}
"""Picture → columns, and the arguments of nagle-lab."""
SIMULATED = "preset=nginx-static/nodelay-off&compare=server-nodelay"
LAST_PAGE = "redis-proxy, the fix"  # of the workshop: before and after, side by side
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
THEME = TerminalTheme(
    (27, 30, 38), (222, 226, 234),
    [(27, 30, 38), (224, 108, 117), (126, 196, 133), (229, 192, 123), (97, 160, 239), (198, 120, 221), (86, 182, 194),
     (222, 226, 234)],
)  # fmt: skip


def main() -> None:
    """Write the pictures beside this file."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        only = sys.argv[1:]
        if only != ["site"]:
            take_screens(Path(folder), browser)
        if only != ["screens"]:
            take_site(Path(folder), browser)
        if not only:
            take_report(Path(folder), browser)
    some = {"screens": list(SCREENS), "site": ["simulator"]}
    for name in some[only[0]] if only else [path.stem for path in HERE.glob("*.png")]:
        picture = HERE / f"{name}.png"
        Image.open(picture).convert("RGB").quantize(224).save(picture, optimize=True)


def take_screens(folder: Path, browser: Page) -> None:
    """What commands print, as a terminal shows it; the program under guard is that of docs/guard.md."""
    blocks = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / "docs" / "guard.md").read_text(), re.M | re.S)
    for name, text in zip(("server.py", "test_server.py"), blocks, strict=False):
        (folder / name).write_text(text)
    for name, (columns, arguments) in SCREENS.items():
        shown = in_terminal([str(NAGLE_LAB), *arguments], columns, folder)
        if name == "workshop":
            shown = last_page(shown)
        if arguments[0] == "guard":
            shown = "\n".join(line for line in shown.splitlines() if "the capture is" not in line)  # it is gone
        page = folder / f"{name}.html"
        page.write_text(html(shown, columns), encoding="utf-8")
        browser.open(page, columns * 8 + 60)
        browser.screenshot(HERE / f"{name}.png", 0, browser.js("document.querySelector('pre').offsetHeight + 24"))


def in_terminal(command: Sequence[str], columns: int, folder: Path) -> str:
    """What a command writes to a terminal that wide, escape sequences included."""
    ours, theirs = pty.openpty()
    environment = os.environ | {
        "COLUMNS": str(columns),
        "LINES": "60",
        "TERM": "xterm-256color",
        "TMPDIR": str(folder),
    }
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as running:
        os.close(theirs)
        read = bytearray()
        try:
            while chunk := os.read(ours, 1 << 16):
                read += chunk
        except OSError:  # the terminal's other end is closed
            pass
        running.wait()
    os.close(ours)
    return read.decode().replace("\r\n", "\n")


def last_page(shown: str) -> str:
    """From the last rule with that title to the one after it."""
    lines = shown.splitlines()
    begin = max(i for i, line in enumerate(lines) if LAST_PAGE in line and "─" in line)
    end = next(i for i in range(begin + 1, len(lines)) if "─ the end ─" in ESCAPES.sub("", lines[i]))
    return "\n".join(lines[begin:end])


def html(shown: str, columns: int) -> str:
    """A page that looks as the terminal did."""
    recorded = Console(record=True, width=columns, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    recorded.print(Text.from_ansi(shown.strip("\n")), soft_wrap=True)
    form = (
        "<!doctype html><meta charset='utf-8'><style>body{{margin:12px;background:{background};color:{foreground}}}"
        "pre{{margin:0;font:13px/15px 'DejaVu Sans Mono',monospace}}{stylesheet}</style><pre>{code}</pre>"
    )
    return recorded.export_html(theme=THEME, code_format=form, inline_styles=True)


def take_site(folder: Path, browser: Page) -> None:
    """The simulator: the first incident, and beside it the same with TCP_NODELAY, as the stall ends."""
    page = built(folder / "site") / "index.html"
    browser.open(page, 1200, 800)
    browser.js(f"location.hash = '{SIMULATED}'; new Promise((done) => setTimeout(done, 100))")
    end = browser.js("document.querySelector('#ladder-0').getBoundingClientRect().bottom + scrollY + 10")
    browser.screenshot(HERE / "simulator.png", 0, end)


def take_report(folder: Path, browser: Page) -> None:
    """The HTML report, and a ladder of it."""
    page = folder / "report.html"
    page.write_text(report_page([shown_at(RUN)]), encoding="utf-8")
    browser.open(page, 1100)
    browser.screenshot(HERE / "report-light.png", 0, browser.js(TOP % 1))
    browser.open(page, 860)  # its caption stands below it
    ladder = browser.js("(() => { const r = document.querySelector('.ladder').getBoundingClientRect(); "
                        "return [r.top + scrollY - 10, r.height + 20]; })()")  # fmt: skip
    browser.screenshot(HERE / "ladder.png", *ladder)
    browser.open(page, 1100, dark=True)
    begin = browser.js(TOP % 1)
    browser.screenshot(HERE / "report-dark.png", begin, browser.js(TOP % 4) - begin)
    browser.open(page, 390)
    begin = browser.js(TOP % 0)
    browser.screenshot(HERE / "report-phone.png", begin, browser.js(TOP % 3) - begin)


if __name__ == "__main__":
    main()
