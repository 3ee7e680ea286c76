"""A judged run on stdout, and its exit code: what run, show and analyze have in common."""

import sys

from nagle_lab.diagnosis.verdict import Verdict
from nagle_lab.errors import Exit, tell
from nagle_lab.reports.run import show_run
from nagle_lab.reports.terminal import console, shown_path
from nagle_lab.runs.run import Run


def report(judged: Run, as_json: bool) -> Exit:
    """Print a run, and on stderr why it is not as expected if it is not."""
    if as_json:
        sys.stdout.write(judged.to_json())
    else:
        show_run(judged, console())
    code = judged.exit_code()
    if code is not Exit.OK:
        conclusive = judged.verdict in (Verdict.STALL, Verdict.CLEAN)
        why = "; ".join(judged.contradictions) if conclusive else f"{judged.verdict}: {judged.reason}"
        tell(f"{why}; captures in {shown_path(judged.folder)}")
    return code
