"""The command line, called in this process: for tests to which the process it would have does not matter."""

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from subprocess import CompletedProcess
from unittest.mock import patch

import pytest

from nagle_lab.cli import main as cli


def in_process(*arguments: object) -> CompletedProcess[str]:
    """Run nagle-lab with arguments; gives what a process of its own would have ended with and printed."""
    command, out, err = ["nagle-lab", *map(str, arguments)], StringIO(), StringIO()
    with (
        patch.object(sys, "argv", command),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    assert isinstance(ended.value.code, int)
    return CompletedProcess(command, ended.value.code, out.getvalue(), err.getvalue())
