"""The composite action .github/actions/guard: its script with a runner's environment, and how action.yml calls it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.guarded import server
from support.repository import REPOSITORY

ACTION = REPOSITORY / ".github" / "actions" / "guard"
# In place of set-up: the nagle-lab that is tested.
SET_UP = """#!/bin/sh
[ -z "$FAIL" ] || exit 2
mkdir -p "$NAGLE_LAB_VENV/bin"; cd "$NAGLE_LAB_VENV/bin"
printf '#!/bin/sh\\nexec "%s" -m nagle_lab "$@"\\n' {python} >nagle-lab
printf '#!/bin/sh\\nexec "%s" "$@"\\n' {python} >python
chmod +x nagle-lab python
"""


@dataclass(frozen=True)
class Step:
    """How the script ended."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str

    @property
    def folder(self) -> Path:
        return Path(self.outputs["folder"])


@pytest.fixture
def step(tmp_path):
    """Run the script in a checkout of its own, with these inputs."""
    action = tmp_path / "check out" / ".github" / "actions" / "guard"
    shutil.copytree(ACTION, action)
    set_up = tmp_path / "check out" / "setup" / "python.sh"
    set_up.parent.mkdir()
    set_up.write_text(SET_UP.format(python=shlex.quote(sys.executable)))
    set_up.chmod(0o755)
    (tmp_path / "runner temp").mkdir()
    work = tmp_path / "work"
    work.mkdir()

    def run(command: str, **inputs: str) -> Step:
        files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        fail = inputs.pop("FAIL", "")
        environment = {
            "PATH": os.environ["PATH"],
            "RUNNER_TEMP": str(tmp_path / "runner temp"),
            "FAIL": fail,
            "GUARD_PYTHON": sys.executable,
            "GUARD_COMMAND": command,
            **{name: str(file) for name, file in files.items()},
            **{f"GUARD_{name}": value for name, value in inputs.items()},
        }
        # As the runner starts it; action.yml names the same program.
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", shlex.quote(str(action / "run.sh"))],
            cwd=work, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        lines = files["GITHUB_OUTPUT"].read_text().splitlines()
        outputs = dict(line.split("=", 1) for line in lines)
        return Step(done.returncode, done.stdout + done.stderr, outputs, files["GITHUB_STEP_SUMMARY"].read_text())

    return run


def test_a_stall_fails_the_step(step):
    ended = step(shlex.join(server("two-writes")))
    assert ended.code == 1, ended.log
    assert (ended.outputs["verdict"], ended.outputs["upload"]) == ("STALL", "true")
    assert ended.summary.startswith("### 🔴 STALL") and "late ACK" in ended.summary
    assert "\n::error title=nagle-lab guard::STALL, exit code 1: see the log and the job summary\n" in ended.log
    assert {path.name for path in ended.folder.iterdir()} == {"junit.xml", "summary.md", "recording"}
    assert {path.name for path in (ended.folder / "recording").iterdir()} == {
        "capture.pcapng", "guard.json", "outcome.json",
    }  # fmt: skip
    assert 'failures="1"' in (ended.folder / "junit.xml").read_text()


def test_clean_passes_and_uploads_nothing(step):
    ended = step(shlex.join(server("nodelay")))
    assert (ended.code, ended.outputs["verdict"], ended.outputs["upload"]) == (0, "CLEAN", "false"), ended.log
    assert "CLEAN" in ended.summary
    assert "::error" not in ended.log
    assert 'failures="0"' in (ended.folder / "junit.xml").read_text()


def test_what_could_not_have_stalled_is_not_green(step):
    ended = step("true")
    assert (ended.code, ended.outputs["verdict"], ended.outputs["upload"]) == (3, "INCONCLUSIVE", "true"), ended.log


def test_a_command_that_fails_keeps_its_exit_code(step):
    """The first line that fails ends it, as in a step of the runner's own."""
    ended = step("echo one\nsh -c 'exit 5'\necho two")
    assert (ended.code, ended.outputs["upload"]) == (5, "true")
    assert "one\n" in ended.log and "two\n" not in ended.log


@pytest.mark.parametrize(
    ("inputs", "options", "upload"),
    [
        ({}, "--expect clean", "false"),
        (
            {"EXPECT": "stall", "KEEP": "true", "PORTS": "80\n443", "ALLOW": "127.0.0.1:1 :2", "TIME_LIMIT": "1s",
             "TRACE": "true", "BOTH_SIDES": "true"},
            "--expect stall --both-sides --trace --time-limit 1s --port 80 --port 443 --allow 127.0.0.1:1 --allow :2",
            "true",
        ),
    ],
)  # fmt: skip
def test_every_input_is_an_option_of_the_guard(step, tmp_path, inputs, options, upload):
    """With a nagle-lab that only notes what it is asked for."""
    noted, noting = tmp_path / "noted", tmp_path / "nagle-lab"
    noting.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{shlex.quote(str(noted))}\n')
    noting.chmod(0o755)
    set_up = tmp_path / "check out" / "setup" / "python.sh"
    set_up.write_text(
        f'#!/bin/sh\nmkdir -p "$NAGLE_LAB_VENV/bin"; cp {shlex.quote(str(noting))} "$NAGLE_LAB_VENV/bin"\n'
    )
    ended = step("make test", **inputs)
    assert (ended.code, ended.outputs["upload"]) == (0, upload), ended.log
    views = {"keep": "recording", "junit": "junit.xml", "markdown": "summary.md"}
    written = [word for option, name in views.items() for word in (f"--{option}", str(ended.folder / name))]
    asked = ["guard", *options.split(), *written, "--", *["bash", "-euo", "pipefail", "-c"], "make test"]
    assert noted.read_text().splitlines() == asked


def test_inputs_are_text_and_not_code(step, tmp_path):
    """Nothing of an input but the command is run, split or expanded as a pattern."""
    ended = step("true", PORTS='$(touch "$RUNNER_TEMP/ran")', ALLOW="*")
    assert ended.code == 2
    assert not (tmp_path / "runner temp" / "ran").exists()


def test_the_command_does_not_see_the_inputs(step):
    assert "GUARD_" not in step("env", PORTS="80").log


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"command": " \n"}, "::error title=nagle-lab guard::input command is empty"),
        (
            {"command": "true", "BOTH_SIDES": "yes"},
            "guard::input both-sides: say true or false",
        ),
        ({"command": "true", "FAIL": "1"}, "::error title=nagle-lab guard::nagle-lab could not be installed"),
        ({"command": "true", "EXPECT": "green"}, "::error title=nagle-lab guard::nothing was judged, exit code 2"),
    ],
)
def test_wrong_inputs_are_2_and_say_which(step, inputs, says):
    ended = step(**inputs)
    assert ended.code == 2
    assert says in ended.log
    assert ended.summary == ""


def test_action_yml_hands_over_every_input_through_the_environment():
    text = (ACTION / "action.yml").read_text()
    script = (ACTION / "run.sh").read_text()
    inputs = re.findall(r"^  ([\w-]+):$", text[text.index("inputs:") : text.index("outputs:")], re.MULTILINE)
    handed = re.findall(r"^        (GUARD_\w+): \$\{\{ inputs\.([\w-]+) \}\}$", text, re.MULTILINE)
    assert {each for _, each in handed} == {*inputs} - {"working-directory", "name"}
    for variable, each in handed:
        assert variable == "GUARD_" + each.upper().replace("-", "_")
        assert variable in script
    assert re.findall(r"^ *run: (.*)", text, re.MULTILINE) == ["'\"$GITHUB_ACTION_PATH/run.sh\"'"]
    assert "shell: bash" in text and "using: composite" in text
    outputs = set(re.findall(r"steps\.guard\.outputs\.(\w+)", text))
    assert outputs == set(re.findall(r'"(\w+)=\$', script))


def test_action_yml_pins_what_it_uses_as_the_workflows_do():
    pattern = r"uses: (\S+@[0-9a-f]{40} # v[\d.]+)$"
    text = (ACTION / "action.yml").read_text()
    uses = re.findall(pattern, text, re.MULTILINE)
    workflows = "".join(path.read_text() for path in (REPOSITORY / ".github" / "workflows").glob("*.yml"))
    assert len(uses) == text.count("uses:") == 2
    assert set(uses) <= set(re.findall(pattern, workflows, re.MULTILINE))


def test_the_script_may_be_run():
    assert os.access(ACTION / "run.sh", os.X_OK)
