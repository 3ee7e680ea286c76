"""A program that takes the place of an interpreter that another program starts, and runs it in a namespace of its
own.

``main(base)`` runs its arguments, with a folder of its own in ``base`` for the recording; only they use standard
input and output.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from nagle_lab.errors import NagleLabError, tell
from nagle_lab.guard.recording.run_command import run

PREFIX = ".guard-"  # of the folders


def main(base: str) -> None:
    """Run the arguments, and end with their exit code."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    try:
        outcome = run(sys.argv[1:], folder, parts=True).outcome
        if outcome.status is None:
            raise NagleLabError(f"{sys.argv[1]} could not be run in a namespace: {outcome.problem}")
    except NagleLabError as error:
        tell(str(error))
        sys.exit(error.exit_code)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(outcome.status)
