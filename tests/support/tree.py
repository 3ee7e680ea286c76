"""A copy of the repository, for tests that add to it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.repository import REPOSITORY

# Generated files, which are left out. __pycache__ is copied: Python checks by size and time of the source whether
# compiled code is current, and copying keeps both, so the copy need not be compiled again.
_MADE = shutil.ignore_patterns("*.egg-info", "build", "dist")


def _left_out(folder: str, names: list[str]) -> set[str]:
    """The generated files, none of which is committed."""
    return {*_MADE(folder, names), *({"runs"} if Path(folder).name == "captures" else ())}


def copied(to: Path) -> Path:
    """Copy the repository, without generated files."""
    to.mkdir(parents=True)
    for each in REPOSITORY.iterdir():
        if each.is_dir() and not each.name.startswith("."):
            shutil.copytree(each, to / each.name, ignore=_left_out, symlinks=True)
        elif each.is_file() and each.name != ".git":  # in a worktree .git is a file: it would name the original
            shutil.copy(each, to / each.name)
    return to


def run_in(tree: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a Python module (``nagle_lab``, ``pytest``) with its arguments, with the package of that copy."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "analysis")}
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
