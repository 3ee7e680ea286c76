"""The README's commands, which record into the checkout's own folder of runs."""

import subprocess

import pytest
from lab.recording import assert_recorded_as_published, left_on_engine, newest, undisturbed

from support.repository import CAPTURES, REPOSITORY

pytestmark = [pytest.mark.quiet, pytest.mark.long]


@pytest.mark.parametrize(("variant", "verdict"), [("nodelay-off", "STALL"), ("nodelay-on", "CLEAN")])
def test_the_readme_commands(variant, verdict):
    """`make repro-…`, as published: its screen, and what it has recorded."""
    options = {"cwd": REPOSITORY, "capture_output": True, "text": True, "timeout": 300}
    done = undisturbed(lambda: subprocess.run(["make", f"repro-{variant}"], check=False, **options))
    assert done.returncode == 0, done.stderr
    assert f" {verdict} " in done.stdout
    assert f"as expected   {verdict}" in done.stdout
    assert (" trigger\n" in done.stdout) is (verdict == "STALL")
    runs = CAPTURES / "runs"
    assert_recorded_as_published(newest(runs, variant), variant, verdict)
    assert left_on_engine(runs) == []
