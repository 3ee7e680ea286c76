"""The site, built as `make site` does, and its model in a browser."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from support.browser import Page
from support.repository import REPOSITORY

SITE = REPOSITORY / "site"
FOLDERS = [SITE, REPOSITORY / "maintenance" / "recorder", REPOSITORY / "maintenance" / "stacks"]


def module(name: str) -> ModuleType:
    """One of the site's Python modules, which are not a package."""
    before = sys.path[:]
    sys.path[:0] = map(str, FOLDERS)
    try:
        return __import__(name)
    finally:
        sys.path[:] = before


def built(into: Path) -> Path:
    """The site, written into ``into``."""
    path = os.pathsep.join([*map(str, FOLDERS[1:]), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(
        [sys.executable, SITE / "build.py", into], check=True, env={**os.environ, "PYTHONPATH": path}, cwd=REPOSITORY
    )
    return into


def sources() -> dict[str, str]:
    """The modules of the model, in the order of their imports, and the data that the pages have."""
    build = module("build")
    names = build.MODULES[: build.MODULES.index("predictions") + 1]
    return {**{name: (SITE / f"{name}.js").read_text() for name in names}, "data": build.data_module()}


PROBE = """import { DATA } from "./data.js";
import { predictSize, predictions } from "./predictions.js";
import { setupOfVariant } from "./scenarios.js";
import { simulate, verdictOf } from "./world.js";
Object.assign(globalThis, { DATA, predictions, predictSize, setupOfVariant, simulate, verdictOf });
"""


def load_model(page: Page, modules: dict[str, str], folder: Path) -> None:
    """Open an empty page with the model's functions, assembled like the site's own script."""
    (folder / "model.js").write_text(module("build").script({**modules, "probe": PROBE}))
    (folder / "model.html").write_text('<!doctype html><meta charset="utf-8"><script src="model.js"></script>')
    page.open(folder / "model.html")
    assert page.complaints() == []


def predicted(page: Page) -> list[dict[str, Any]]:
    """Every prediction of the model in ``page``, with the recording."""
    rows: list[dict[str, Any]] = json.loads(page.js("JSON.stringify(predictions(DATA))"))
    return rows
