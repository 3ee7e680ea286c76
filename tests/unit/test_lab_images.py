"""The tag of the lab's images changes with everything they are made of, and with nothing else."""

from pathlib import Path

import pytest

from nagle_lab.lab.containers import images
from nagle_lab.lab.containers.images import _locked, image_names, image_tag
from nagle_lab.lab.scenarios.scenario import Lab
from nagle_lab.lab.scenarios.scenario_file import load_scenario
from support.repository import REPOSITORY

SIDECAR = "scenarios/shared/sidecar"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    text = (REPOSITORY / "tests" / "support" / "scenario.toml").read_text()
    (tmp_path / "scenarios" / "x").mkdir(parents=True)
    (tmp_path / "scenarios" / "x" / "scenario.toml").write_text(text)
    (tmp_path / "compose.yaml").write_text("services: {}\n")
    for name in ("nginx", "client", SIDECAR):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "Dockerfile").write_text("ARG BASE\nFROM $BASE\n")
    return load_scenario(tmp_path / "scenarios" / "x" / "scenario.toml").labs["bridge"]


def test_the_same_inputs_give_the_same_names(lab: Lab):
    tag = image_tag(lab, {"base": "sha256:1"})
    assert image_tag(lab, {"base": "sha256:1"}) == tag
    assert image_names(lab, tag) == [f"nagle-lab/{name}:{tag}" for name in ("nginx", "client", "sidecar")]


@pytest.mark.parametrize("change", ["content", "new file", "mode", "renamed", "compose", "shared services", "base"])
def test_whatever_goes_into_an_image_changes_the_tag(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
):
    shared = tmp_path / "services.yaml"
    shared.write_text("services: {}\n")
    monkeypatch.setattr(images, "SHARED_SERVICES", shared)
    (tmp_path / SIDECAR / "record").write_text("#!/bin/sh\n")
    before = image_tag(lab, {"base": "sha256:1"})
    match change:
        case "content":
            (tmp_path / SIDECAR / "record").write_text("#!/bin/bash\n")
        case "new file":
            (tmp_path / "client" / "empty").touch()
        case "mode":
            (tmp_path / SIDECAR / "record").chmod(0o755)
        case "renamed":
            (tmp_path / SIDECAR / "record").rename(tmp_path / SIDECAR / "capture")
        case "compose":
            (tmp_path / "compose.yaml").write_text("services: {a: {}}\n")
        case "shared services":
            shared.write_text("services: {a: {}}\n")
    assert image_tag(lab, {"base": "sha256:2" if change == "base" else "sha256:1"}) != before


def test_a_build_needs_no_lock_where_the_checkout_may_only_be_read():
    lock = Path("/proc/version/.cache/images.lock")
    with _locked(lock):
        assert not lock.exists()
