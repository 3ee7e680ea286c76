"""A quick part of the museum, for real: installed from the registries, and guarded. `make museum` runs all of it."""

import shutil

import pytest

from nagle_lab.errors import Exit
from nagle_lab.experiments.software.museum import exhibits, run_exhibit

pytestmark = pytest.mark.long
QUICK = {"pypi/hypercorn": "pip", "pypi/thrift": "pip", "npm/undici": "npm", "debian/python-http-server": "python3"}


@pytest.mark.parametrize("name", QUICK)
def test_an_exhibit_stalls_and_its_good_half_does_not(name, tmp_path, monkeypatch):
    if not shutil.which(QUICK[name]):
        pytest.skip(f"{QUICK[name]} is not on this machine")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (exhibit,) = exhibits([name])
    assert exhibit.quick
    shown = run_exhibit(exhibit, tmp_path / "cache")
    assert shown.code is Exit.OK, shown.problem
    assert (shown.bad.result.verdict, shown.good.result.verdict) == ("STALL", "CLEAN")
    assert shown.bad.result.summary.held_by == exhibit.held_by
