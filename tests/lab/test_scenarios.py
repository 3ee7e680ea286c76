"""Every scenario on Docker: the variants that tell its story give their verdicts, and nobody may more than needed."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from lab.recording import REPOSITORY, left_on_engine

from nagle_lab.lab import Lab, scenarios
from nagle_lab.lab.compose import ComposeSearch
from support.schemas import check

NAGLE_LAB = REPOSITORY / ".venv" / "bin" / "nagle-lab"
SCENARIOS = scenarios()
STORIES = [
    pytest.param(scenario.name, variant, id=f"{scenario.name}-{variant}")
    for scenario in SCENARIOS.values()
    for variant in (scenario.stalled, scenario.fixed)
]
LABS = [
    pytest.param(lab, id=f"{scenario.name}-{lab.name}")
    for scenario in SCENARIOS.values()
    for lab in scenario.labs.values()
]


@pytest.mark.parametrize(("scenario", "variant"), STORIES)
def test_a_story_is_told_as_expected(tmp_path: Path, scenario: str, variant: str):
    """Verdict, who held and who delayed, and the share on the judged connections; every witness agrees."""
    command = [NAGLE_LAB, "run", scenario, variant, "--json", "--runs", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    check("run", result)
    expected = SCENARIOS[scenario].variant(variant).expected
    assert (result["verdict"], result["contradictions"]) == (expected.verdict, [])
    assert [c["name"] for c in result["checks"] if not c["ok"]] == []
    judged = [capture["judged"] for capture in result["captures"].values() if capture["judged"]["connections"]]
    assert judged
    for share in judged:
        assert (share["held_by"], share["delayed_by"]) == (expected.held_by, expected.delayed_by)
        assert share["stalled_exchanges"] >= (expected.min_share_after_first or 0) * share["repeat_exchanges"]
        assert bool(share["stalls"]) is (expected.verdict == "STALL")
    assert all(not capture["elsewhere"]["stalls"] for capture in result["captures"].values())
    assert left_on_engine(tmp_path) == []


@pytest.mark.parametrize("lab", LABS)
def test_every_service_of_a_lab_is_confined(lab: Lab):
    """As Compose merges the files: labels, no capability but the two a purpose needs, no way in or out."""
    files = [word for file in lab.compose for word in ("--file", str(file))]
    command = [*ComposeSearch().result().command, *files, "config"]
    merged = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    services, networks = _blocks(merged, "services"), _blocks(merged, "networks")
    assert {point.service for point in lab.captures.values()} <= services.keys()
    for name, text in services.items():
        assert "nagle-lab.lock:" in text and "nagle-lab.host:" in text, name
        assert re.search(r"cap_drop:\n\s*- ALL\n", text), name
        assert "read_only: true" in text and "no-new-privileges:true" in text, name
        assert "pids_limit:" in text and "mem_limit:" in text, name
        assert not re.search(r"^\s*(ports|container_name|volumes|privileged|ipv4_address):", text, re.MULTILINE), name
        added = re.search(r"cap_add:\n((?:\s*- \w+\n)*)", text)
        assert set(re.findall(r"\w+", added[1] if added else "")) <= {"NET_RAW", "NET_ADMIN"}, name
    for name, text in networks.items():
        assert "internal: true" in text and "nagle-lab.lock:" in text, name


def _blocks(text: str, section: str) -> dict[str, str]:
    """The entries of one section of a Compose file as `config` prints it, each by its name."""
    found = re.search(rf"^{section}:\n((?:[ ].*\n)*)", text, re.MULTILINE)
    parts = re.split(r"^  ([\w-]+):\n", found[1] if found else "", flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))
