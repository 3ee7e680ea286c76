"""The command line called in this process, for tests that need no separate process; and how it ended."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import NamedTuple
from unittest.mock import patch

import pytest

from nagle_lab.cli import main as cli


class Ended(NamedTuple):
    """How nagle-lab ended: its exit code, and what it wrote to standard output and standard error."""

    code: int
    out: str
    err: str


def in_process(*arguments: object) -> Ended:
    """Run nagle-lab with arguments, in this process."""
    command, out, err = ["nagle-lab", *map(str, arguments)], StringIO(), StringIO()
    with (
        patch.object(sys, "argv", command),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    assert isinstance(ended.value.code, int)
    return Ended(ended.value.code, out.getvalue(), err.getvalue())
