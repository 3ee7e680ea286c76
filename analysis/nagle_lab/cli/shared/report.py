"""A judged run on stdout, and its exit code: what run, show and analyze have in common."""

import sys

from nagle_lab.cli.shared.exports import Exports
from nagle_lab.diagnosis.result.verdict import Verdict, exit_code
from nagle_lab.errors import Exit, tell
from nagle_lab.evidence.examples import Examples
from nagle_lab.experiments.opened import examples_of_run
from nagle_lab.reports.screens.run import show_run
from nagle_lab.reports.screens.terminal import console, shown_path
from nagle_lab.runs.run import Run


def report(run: Run, as_json: bool, exports: Exports, expected: Verdict | None = None) -> Exit:
    """Print a run, and on stderr how it differs from what is expected; add it to the files.

    The exit code follows ``expected``, otherwise the expectation of its variant.
    """
    code, contradictions = run.exit_code(), run.contradictions
    if expected is not None:
        code = exit_code(run.verdict, expected)
        contradictions = [f"expected {expected}, found {run.verdict}"] if code is Exit.CONTRADICTED else []
    packets = Examples()
    if exports.with_packets or not as_json:
        packets = examples_of_run(run, typical_only=exports.typical_only)
    exports.run(run, packets, code, contradictions)
    with exports.showing():
        if as_json:
            sys.stdout.write(run.to_json())
        else:
            show_run(run, packets.written or packets.typical, console(), contradictions)
    if code is not Exit.OK:
        why = "; ".join(contradictions) if run.verdict.is_conclusive else f"{run.verdict}: {run.reason}"
        tell(f"{why}; captures in {shown_path(run.folder)}")
    return code
