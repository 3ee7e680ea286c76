"""Takes the pictures of the pages anew: PYTHONPATH=tests .venv/bin/python docs/images/take.py."""

import tempfile
from pathlib import Path

from PIL import Image

from nagle_lab.reports.html import report_page, shown_at
from support.browser import chromium

HERE = Path(__file__).parent
RUN = HERE.parents[1] / "captures" / "reference" / "nginx-static-nodelay-off"
TOP = "document.querySelectorAll('h2')[%d].getBoundingClientRect().top + scrollY - 10"


def main() -> None:
    """Write the pictures beside this file."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        page = Path(folder) / "report.html"
        page.write_text(report_page([shown_at(RUN)]), encoding="utf-8")
        browser.open(page, 1100)
        browser.screenshot(HERE / "report-light.png", 0, browser.js(TOP % 1))
        ladder = browser.js("(() => { const r = document.querySelector('.ladder').getBoundingClientRect(); "
                            "return [r.top + scrollY - 10, r.height + 20]; })()")  # fmt: skip
        browser.screenshot(HERE / "ladder.png", *ladder)
        browser.open(page, 1100, dark=True)
        begin = browser.js(TOP % 1)
        browser.screenshot(HERE / "report-dark.png", begin, browser.js(TOP % 4) - begin)
        browser.open(page, 390)
        begin = browser.js(TOP % 0)
        browser.screenshot(HERE / "report-phone.png", begin, browser.js(TOP % 3) - begin)
    for picture in HERE.glob("*.png"):
        Image.open(picture).convert("RGB").quantize(224).save(picture, optimize=True)


if __name__ == "__main__":
    main()
