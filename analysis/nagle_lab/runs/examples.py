"""The packets that views show of a run: from its capture nearest the held end."""

from nagle_lab.evidence.examples import Examples, examples
from nagle_lab.runs.run import Run


def examples_of_run(run: Run, *, typical_only: bool = False) -> Examples:
    """Read that capture once more; of a run without a stall an exchange to the port under test."""
    port = run.manifest.expected.port
    return examples([run.capture(run.best)], run.results[run.best], port, typical_only=typical_only)
