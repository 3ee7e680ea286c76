"""What the page "Drop a capture" runs in the browser: ``nagle-lab analyze --json --html`` of one file."""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from nagle_lab.diagnosis.analysis import Analysis
from nagle_lab.errors import NagleLabError, os_problem, printable
from nagle_lab.evidence.examples import examples
from nagle_lab.evidence.process_comments import processes_of
from nagle_lab.reports.html.page import report_page
from nagle_lab.reports.html.shown import shown_capture
from nagle_lab.reports.words.reported import ReportedCapture
from nagle_lab.tcp import tables

MOST_PACKETS = 300_000  # a minute, on a slow machine
tables.IN_MEMORY = 1 << 30  # bytes: a browser's Python cannot map files, so that no table may go to one

Say = Callable[[str, float], None]  # what is done, and which part of the file has been read


def diagnose(file: str, size: int, say: Say) -> dict[str, str]:
    """Diagnose the capture ``file`` of ``size`` bytes.

    Returns ``verdict``, ``json`` and ``html``, the last two as the command line writes them; or ``error``,
    the line that it would print instead.
    """
    try:
        return _diagnosed(Path(file), size, say)
    except OSError as refused:
        return {"error": printable(f"nagle-lab: {os_problem(refused)}")}
    except NagleLabError as unusable:
        return {"error": printable(f"nagle-lab: {unusable}")}


def _diagnosed(file: Path, size: int, say: Say) -> dict[str, str]:
    analysis = Analysis(str(file), exchanges=False)
    for packets in analysis:
        part = analysis.bytes_read / size
        _refuse_many(file, packets, part)
        say(f"{packets:,} packets read, {part:.0%} of the file", part)
    say("judging", 1)
    result = analysis.result()
    if processes := processes_of([file], result):
        result = replace(result, processes=processes)
    say("drawing the report", 1)
    page = report_page([shown_capture(ReportedCapture(result, examples([file], result)))])
    return {"verdict": result.verdict, "json": "".join(result.json_parts()), "html": page}


def _refuse_many(file: Path, packets: int, part: float) -> None:
    """Raise NagleLabError if there are too many packets, or will be twice as many, by how many its beginning has."""
    by_its_size = packets / part
    if packets > MOST_PACKETS or by_its_size > 2 * MOST_PACKETS:
        many = f"{float(f'{by_its_size:.2g}'):,.0f} packets by its size, and a page takes {MOST_PACKETS:,}"
        raise NagleLabError(f"{file}: some {many}: use the command line, nagle-lab analyze {file}")
