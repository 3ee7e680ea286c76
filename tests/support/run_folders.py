"""Run folders: what a report shows of one, and folders edited with all checksums corrected."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nagle_lab.experiments.opened import opened
from nagle_lab.reports.html.shown import Shown, shown_of
from nagle_lab.runs.manifest import checksum
from support.files import rewrite


def change(run: Path, name: str, edit: Callable[[Any], object]) -> None:
    """Edit one JSON file of the run, and correct the manifest's checksums of it and of itself."""
    content = json.loads((run / name).read_text())
    edit(content)
    write(run, name, content)


def write(run: Path, name: str, content: Any) -> None:
    """Write one JSON file of the run; the manifest's checksums follow."""
    if name == "manifest.json" and isinstance(content, dict) and "checksum" in content:
        content["checksum"] = checksum(content)
    rewrite(run / name, json.dumps(content).encode())
    if name != "manifest.json":
        reseal(run, name)


def reseal(run: Path, name: str) -> None:
    """Update that file's entry in the manifest."""
    content = (run / name).read_bytes()
    about = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    change(run, "manifest.json", lambda m: m["files"].update({name: about}))


def shown_at(path: Path) -> Shown:
    """What a report shows of the run folder or capture file at ``path``."""
    return shown_of(opened(path), path)
