"""What newcomers meet: hints, refused outputs, files that may not be read or written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from nagle_lab.cli.commands import cli
from nagle_lab.cli.shared.exports import require_writable
from nagle_lab.cli.shared.options import OutputFile
from nagle_lab.errors import Exit, NagleLabError, os_problem
from nagle_lab.lab import manifest
from nagle_lab.lab.containers.process import Finished
from support.repository import REFERENCE, REPOSITORY

STALLED = REFERENCE / "nginx-static-nodelay-off"
COMMANDS = cli.commands
OUTPUTS = [
    (name, option.opts[-1])
    for name, command in COMMANDS.items()
    for option in command.params
    if isinstance(option.type, OutputFile)
]
# Root may read and write everything: as root, nagle-lab runs without these rights.
AS_OTHERS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


def restricted(*arguments: object, cwd: Path | None = None) -> tuple[int, str]:
    """Run nagle-lab as somebody whom permissions bind; gives exit code and stderr."""
    command = [*AS_OTHERS, sys.executable, "-m", "nagle_lab", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=cwd)
    return done.returncode, done.stderr


@pytest.fixture
def closed(tmp_path: Path):
    """A folder with a capture and a run, all of it readable; what a test closes is opened again."""
    (tmp_path / "x.pcap").write_bytes((STALLED / "server.pcap").read_bytes())
    run = tmp_path / "run"
    run.mkdir()
    for file in STALLED.iterdir():
        (run / file.name).write_bytes(file.read_bytes())
    yield tmp_path
    for path in (run, *tmp_path.iterdir()):
        path.chmod(0o755)


def test_every_command_that_writes_files_is_seen_here():
    assert {name for name, _ in OUTPUTS} == {
        *("run", "matrix", "sweep", "analyze", "guard", "museum", "bisect", "show", "compare", "annotate"),
        *("demo", "fleet ask"),
    }
    assert len(OUTPUTS) > 20


@pytest.mark.parametrize(("name", "option"), OUTPUTS)
def test_the_page_of_commands_has_every_output_file(name, option):
    page = (REPOSITORY / "docs" / "commands.md").read_text()
    rows = re.findall(rf"^\| `nagle-lab {name}\b.*", page, re.M)
    named = "-o" if option == "--output" else option
    assert any(f"{named} " in row or f"{named}`" in row for row in rows)


@pytest.mark.parametrize(("name", "option"), OUTPUTS)
def test_no_output_file_is_named_dash(run, tmp_path, monkeypatch, name, option):
    monkeypatch.chdir(tmp_path)
    taken = {"run": ["a", "b"], "bisect": ["pypi:x", "1..2", "true"], "guard": ["true"], "demo": []}
    arguments = taken.get(name, ["x"])
    code, out, err = run(*name.split(), option, "-", *arguments)
    assert (code, out, err.count("\n")) == (Exit.UNUSABLE, "", 1)
    assert option in err and "name a file instead of -" in err and f"(try nagle-lab {name} --help)" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_of_every_output_file_that_dash_is_refused(name):
    command = COMMANDS[name]
    text = command.get_help(click.Context(command, info_name=name))
    assert ("- is refused" in " ".join(text.split())) == (name in {of for of, _ in OUTPUTS})


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["analyze"], "(try nagle-lab analyze --help)"),
        (["guard", "--port", "x"], "(try nagle-lab guard --help)"),
        (["show", "--stall", "one", "x"], "(try nagle-lab show --help)"),
        (["dance"], "(try nagle-lab --help)"),
    ],
)
def test_a_hint_names_the_help_of_the_command(run, arguments, hint):
    code, _, err = run(*arguments)
    assert code == Exit.UNUSABLE
    assert err.endswith(f"{hint}\n") and err.count("\n") == 1


@pytest.mark.parametrize(
    "command", [["analyze"], ["show"], ["compare", STALLED], ["verify"], ["annotate", "--filter"]]
)
def test_a_capture_that_may_not_be_read_is_one_line(closed, command):
    (closed / "x.pcap").chmod(0)
    code, err = restricted(*command, closed / "x.pcap")
    assert (code, err.count("\n")) == (Exit.UNUSABLE, 1), err
    assert str(closed / "x.pcap") in err and "permission denied: make it readable for your account" in err


@pytest.mark.parametrize("what", ["manifest.json", "server.pcap"])
def test_a_run_that_may_not_be_read_is_not_called_incomplete(closed, what):
    (closed / "run" / what).chmod(0)
    code, err = restricted("show", closed / "run")
    assert (code, err.count("\n")) == (Exit.UNUSABLE, 1), err
    assert f"{what}: permission denied: give your account access" in err and "incomplete" not in err


def test_one_capture_in_a_closed_folder_costs_only_itself(closed):
    (closed / "run").chmod(0)
    code, err = restricted("analyze", closed / "run" / "server.pcap", closed / "x.pcap")
    assert (code, err.count("\n")) == (Exit.UNUSABLE, 1), err
    assert "permission denied" in err


def test_an_output_is_refused_where_its_folder_may_not_be_written_though_the_file_may(closed):
    (closed / "run" / "out.json").touch()
    (closed / "run").chmod(0o500)
    code, err = restricted("guard", "--json", closed / "run" / "out.json", "--", "touch", closed / "ran")
    assert (code, err.count("\n")) == (Exit.UNUSABLE, 1), err
    assert "no permission to write in its folder" in err
    assert not (closed / "ran").exists()


@pytest.mark.parametrize(
    ("file", "says"), [("", "it is a folder"), ("no/x", "there is no folder"), ("x/y/z", "there is no folder")]
)
def test_why_a_file_cannot_be_written(tmp_path, file, says):
    with pytest.raises(NagleLabError, match=says):
        require_writable([tmp_path / file])


@pytest.mark.parametrize("command", [["run", "nginx-static", "nodelay-off"], ["matrix"], ["sweep", "nginx-static"]])
def test_run_folders_that_cannot_be_written_are_refused_once(closed, command):
    (closed / "run").chmod(0o500)
    code, err = restricted(*command, "--runs", closed / "run")
    last = err.splitlines()[-1]
    assert code == Exit.UNUSABLE and err.count("cannot write") == 1, err
    assert f"in {closed / 'run'}: permission denied: give your account write access" in last and "--runs" in last


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(13, "Permission denied", "a"), "a: permission denied: give your account access"),
        (OSError(28, "No space left on device", "a"), "a: disk full: make room"),
        (OSError(30, "Read-only file system", "a"), "a: read-only file system"),
        (OSError(5, "Input/output error"), "Input/output error: check"),
        (OSError(28, "No space left on device"), "what this command writes: disk full: make room"),
        (OSError(24, "Too many open files"), "too many open files: raise `ulimit -n`"),
        (FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"), "no folder for temporary files"),
    ],
)
def test_an_error_of_the_system_says_what_to_do(error, says):
    assert str(os_problem(error)).startswith(says)


def test_a_checkout_that_git_does_not_trust_is_said_once(monkeypatch, capsys):
    complaint = "fatal: detected dubious ownership in repository at '/x'\nTo add an exception:\n\n\tgit config …\n"
    monkeypatch.setattr(manifest, "run", lambda command: Finished(tuple(command), 128, "", complaint))
    monkeypatch.setattr(manifest.shutil, "which", lambda _: "/usr/bin/git")
    manifest._tell_not_trusted.cache_clear()
    assert [manifest.git_revision(), manifest.git_revision()] == [None, None]
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert re.search(r"belongs to another user.*git config --global --add safe\.directory ", err)
