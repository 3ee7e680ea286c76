"""ci/nagle-regression.sh with a nagle-lab that ends as it is told: green, red, too noisy, unusable, and what is kept.

And the workflow around it: it calls that script, and every action in it is pinned by commit. The project's own CI is
.ci/run, and its workflow calls that; wheels are built by maintenance/wheels.sh, which the release's workflow calls.
"""

import os
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from support.repository import REPOSITORY

SCRIPT = REPOSITORY / "ci" / "nagle-regression.sh"
WORKFLOWS = REPOSITORY / ".github" / "workflows"
# Each run takes the next line of the file named after its variant: an exit code, and "result" where it prints one.
FAKE = """#!/usr/bin/env bash
set -eu
echo "$*" >>"$FAKE/calls"
case $1 in
  run)
    plan=$FAKE/$3; read -r code result <"$plan"; sed -i 1d "$plan"
    if [[ -n $result ]]; then
      folder=$5/run-$3-$RANDOM; mkdir -p "$folder"; touch "$folder/server.pcap"
      ln -sfn "${folder##*/}" "$5/latest-$2-$3"; echo '{}'
    fi
    exit "$code" ;;
  analyze) while [[ $# -gt 0 ]]; do case $1 in --junit | --markdown) echo "fake ${1#--}" >"$2" ;; esac; shift; done ;;
  compare) echo "fake comparison" >"${!#}" ;;
esac
"""
GREEN, RED, INVALID, INCONCLUSIVE, UNUSABLE = "0 result", "1 result", "2 result", "3 result", "2"


@pytest.fixture
def ci(tmp_path):
    """Run the script in a checkout that has only it, with fakes of what it calls; gives exit code and stderr."""
    checkout, fake = tmp_path / "check out", tmp_path / "fake"
    for folder in ("ci", "setup", ".venv/bin"):
        (checkout / folder).mkdir(parents=True)
    fake.mkdir()
    shutil.copy(SCRIPT, checkout / "ci")
    for step in ("engine", "base-image", "python"):
        (checkout / "setup" / f"{step}.sh").write_text("#!/bin/sh\n")
    (checkout / ".venv/bin/nagle-lab").write_text(FAKE)
    for script in (*checkout.glob("setup/*"), checkout / ".venv/bin/nagle-lab"):
        script.chmod(0o755)

    def main(off: list[str], on: list[str], *arguments: str, **settings: str) -> tuple[int, str]:
        (fake / "nodelay-off").write_text("".join(f"{line}\n" for line in off))
        (fake / "nodelay-on").write_text("".join(f"{line}\n" for line in on))
        environment = {"PATH": os.environ["PATH"], "FAKE": str(fake), **settings}
        command = [str(checkout / "ci" / SCRIPT.name), *(arguments or ("out",))]
        done = subprocess.run(
            command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.stdout == ""
        return done.returncode, done.stderr

    return main


@pytest.mark.parametrize(
    ("runs", "code", "told"),
    [
        (([GREEN], [GREEN]), 0, "green"),
        (([GREEN], [RED, RED]), 1, "red, red"),
        (([RED, RED], [GREEN]), 1, "red, red"),
        (([GREEN], [RED, GREEN]), 3, "red, green"),
        (([GREEN], [INVALID, GREEN]), 0, "noisy, green"),
        (([GREEN], [INVALID, INCONCLUSIVE, INVALID]), 3, "noisy, noisy, noisy"),
        (([GREEN], [INVALID, RED, RED]), 1, "noisy, red, red"),
        (([GREEN], [RED, INVALID, INVALID]), 3, "red, noisy, noisy"),
        (([INCONCLUSIVE] * 3, [RED, RED]), 1, "red, red"),
        (([RED, RED], [INCONCLUSIVE] * 3), 1, "red, red"),
    ],
)
def test_red_is_confirmed_and_noise_is_neither_red_nor_green(ci, tmp_path, runs, code, told):
    got, err = ci(*runs)
    assert got == code
    assert f": {told}\n" in err
    out = tmp_path / "out"
    assert (out / "runs").exists() is (code != 0)
    assert (out / "junit.xml").read_text() == "fake junit\n"
    summary = (out / "summary.md").read_text()
    head = {0: "🟢 as expected", 1: "🔴 the behaviour changed", 3: "🟡 too noisy to say"}[code]
    assert summary.startswith(f"## nginx-static: {head}\n")
    assert "fake markdown" in summary and "fake comparison" in summary and told in summary
    assert {path.name for path in out.iterdir()} <= {"junit.xml", "summary.md", "runs"}


def test_what_cannot_be_run_is_2_and_says_which(ci):
    code, err = ci([GREEN], [UNUSABLE])
    assert code == 2 and "nodelay-on could not be run" in err


def test_captures_of_a_green_run_can_be_kept(ci, tmp_path):
    assert ci([GREEN], [GREEN], KEEP="1")[0] == 0
    assert len(list((tmp_path / "out" / "runs").glob("run-*/server.pcap"))) == 2


def test_it_is_as_many_attempts_as_asked_for(ci, tmp_path):
    assert ci([INVALID] * 9, [GREEN], ATTEMPTS="5")[0] == 3
    assert (tmp_path / "fake" / "nodelay-off").read_text().count("\n") == 4


def test_other_scenarios_and_variants(ci, tmp_path):
    (tmp_path / "fake" / "only").write_text(f"{GREEN}\n")
    code, _ = ci([], [], SCENARIO="redis-proxy", VARIANTS="only")
    assert code == 0
    calls = (tmp_path / "fake" / "calls").read_text()
    assert calls.startswith("run redis-proxy only --runs ") and "compare" not in calls


def test_the_summary_is_added_to_the_job_s(ci, tmp_path):
    summary = tmp_path / "job.md"
    summary.write_text("before\n")
    ci([GREEN], [GREEN], GITHUB_STEP_SUMMARY=str(summary))
    assert summary.read_text() == "before\n" + (tmp_path / "out" / "summary.md").read_text()


def test_what_is_in_the_folder_is_never_removed(ci, tmp_path):
    (tmp_path / "mine" / "runs").mkdir(parents=True)
    code, err = ci([GREEN], [GREEN], "mine")
    assert code == 2 and "is not empty" in err and err.count("\n") == 1
    assert (tmp_path / "mine" / "runs").is_dir()


@pytest.mark.parametrize("settings", [{"ATTEMPTS": "1"}, {"ATTEMPTS": "many"}, {"VARIANTS": " "}])
def test_wrong_settings_are_one_line(ci, settings):
    code, err = ci([GREEN], [GREEN], **settings)
    assert code == 2 and err.count("\n") == 1


def test_without_a_folder_nothing_is_run():
    """Otherwise one appears in the checkout, which git shows, and `make clean` leaves."""
    done = subprocess.run([SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "usage: ci/nagle-regression.sh OUT" in done.stderr


def test_a_set_up_that_fails_is_2(ci, tmp_path):
    (tmp_path / "check out" / "setup" / "engine.sh").write_text("#!/bin/sh\nexit 1\n")
    code, err = ci([GREEN], [GREEN])
    assert code == 2 and "setup/engine.sh" in err


def test_the_workflow_can_be_called_and_only_its_script_decides():
    text = (WORKFLOWS / "nagle-regression.yml").read_text()
    assert "workflow_call:" in text
    assert [kind for step in steps_of(text) for kind in step if kind in ("uses", "run")] == ["uses", "run", "uses"]


def steps_of(text: str) -> list[dict[str, Any]]:
    (job,) = yaml.safe_load(text)["jobs"].values()
    return job["steps"]


@pytest.mark.parametrize(
    ("code", "noisy_is_red", "ends", "said"),
    [
        (0, False, 0, "outcome=green\n"),
        (1, False, 1, "outcome=red\n"),
        (3, False, 0, "outcome=noisy\n"),
        (3, True, 1, "outcome=noisy\n"),
        (2, False, 2, ""),
    ],
)
def test_the_workflow_ends_as_the_script_says(tmp_path, code, noisy_is_red, ends, said):
    script, output = tmp_path / "nagle-lab" / "ci" / SCRIPT.name, tmp_path / "output"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\nexit {code}\n")
    script.chmod(0o755)
    output.touch()
    _, step, _ = steps_of((WORKFLOWS / "nagle-regression.yml").read_text())
    settings = {"SERVER_IMAGE": "", "NOISY_IS_RED": str(noisy_is_red).lower(), "GITHUB_OUTPUT": str(output)}
    environment = {"PATH": os.environ["PATH"], **settings}
    done = subprocess.run(["bash", "-ec", step["run"]], check=False, cwd=tmp_path, env=environment, timeout=60)
    assert (done.returncode, output.read_text()) == (ends, said)


def test_the_project_s_own_ci_is_one_script():
    script = REPOSITORY / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert re.findall(r"^make .*", script.read_text(), re.MULTILINE) == ["make lint", "make test"]
    runs = re.findall(r"run: (.*)", (WORKFLOWS / "ci.yml").read_text())
    assert [run for run in runs if "apt-get" not in run] == [".ci/run"]


def test_wheels_are_built_and_tried_by_one_script_and_nothing_is_published():
    assert os.access(REPOSITORY / "maintenance" / "wheels.sh", os.X_OK)
    text = (WORKFLOWS / "release.yml").read_text()
    assert re.findall(r"run: (.*)", text) == ["maintenance/wheels.sh dist"]
    runners = re.findall(r"name: (\S+), runner: (\S+) ", text)
    assert [name for name, _ in runners] == ["linux-x86_64", "linux-aarch64", "macos-x86_64", "macos-arm64"]
    assert re.findall(r"^permissions:\n((?:  .*\n)+)", text, re.MULTILINE) == ["  contents: read\n"]
    assert "secrets." not in text and text.count("permissions:") == 1
    actions = {"actions/checkout", "actions/setup-python", "actions/upload-artifact"}
    assert set(re.findall(r"uses: ([^@]+)@", text)) == actions


@pytest.mark.parametrize("workflow", sorted(path.name for path in WORKFLOWS.glob("*.yml")))
def test_every_action_is_pinned_by_commit(workflow):
    uses = re.findall(r"uses: (.*)", (WORKFLOWS / workflow).read_text())
    assert uses
    assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v[\d.]+", use) for use in uses)


@pytest.mark.parametrize("workflow", sorted(path.name for path in WORKFLOWS.glob("*.yml")))
def test_no_input_is_pasted_into_a_shell(workflow):
    """What a caller or a pull request says reaches scripts through the environment only."""
    text = (WORKFLOWS / workflow).read_text()
    scripts = re.findall(r"run: \|\n((?: {10,}.*\n)+)|run: (.*)\n", text)
    assert scripts
    assert not any("${{" in script for pair in scripts for script in pair)
