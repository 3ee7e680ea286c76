"""nagle-lab verify: our packet table of a capture against tshark's."""

from pathlib import Path

from nagle_lab.errors import Exit
from nagle_lab.evidence import tshark as dissect
from nagle_lab.reports import terminal
from nagle_lab.reports.dissection import show_comparison


def verify(path: Path) -> Exit:
    """Compare frame by frame, and print where they differ."""
    screen = terminal.console(stderr=True)
    with screen.status("comparing with tshark"):
        found = dissect.verify(path)
    show_comparison(path, found, terminal.console())
    return Exit.OK if found.equal else Exit.CONTRADICTED
