"""Tests of the guard are skipped where a machine cannot run them: whether it can is asked here in another way."""

import os
import shutil
import subprocess

import pytest

from nagle_lab.guard.tracing import strace_command
from support.rights import mount_refused


def works(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def test_strace_is_there():
    """Set-up installs it, or README asks for it: its absence is a failure, not a reason to trace nothing."""
    assert shutil.which("strace"), "strace is not installed, and the tests of --trace need it: apt-get install strace"


def test_where_strace_works_nothing_is_said_against_it():
    assert bool(strace_command.why_no_command()) is not works("strace", "-f", "-o", "/dev/null", "true")


def test_where_strace_prints_stacks_it_is_known_to():
    if not works("strace", "-f", "-o", "/dev/null", "true"):
        pytest.skip("strace may not trace here")
    assert strace_command.has_stacks() is works("strace", "-k", "-o", "/dev/null", "true")


def test_where_root_may_mount_it_is_known_to():
    if os.geteuid() == 0 and works("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"):
        assert mount_refused() is None
