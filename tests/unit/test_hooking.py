"""The folder of the hooks, where this installation's path has a space in it."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nagle_lab.guard.tracing import hooking


@pytest.fixture
def my_documents(tmp_path, monkeypatch) -> Path:
    """An installation's hooks in "My Documents"."""
    hooks = tmp_path / "My Documents" / "hooks"
    shutil.copytree(hooking.HOOKS, hooks)
    monkeypatch.setattr(hooking, "HOOKS", hooks)
    return hooks


def test_hooks_in_a_path_with_a_space_are_loaded_from_another(my_documents):
    folder = hooking.loadable()
    assert not set(str(folder)) & set(" :") and folder == hooking.loadable()
    assert {path.name for path in folder.iterdir()} >= {"python", "perl", "node.cjs", "ruby.rb"}
    assert folder.parent.stat().st_mode & 0o777 == 0o755, "the command may be another user's"
    for stacks in (False, True):
        for value in hooking.loading({}, stacks=stacks).values():
            assert str(folder) in value and "My Documents" not in value
    shutil.rmtree(folder.parent)


def test_a_path_without_one_is_taken_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(hooking, "HOOKS", tmp_path)
    assert hooking.loadable() == tmp_path


@pytest.mark.parametrize("ends", ["os.fork() or exit()", "hooking.remove_copies(); os._exit(0)"])
def test_the_copy_is_gone_when_the_program_has_ended(my_documents, ends):
    code = (
        "import os; from pathlib import Path; from nagle_lab.guard.tracing import hooking\n"
        f"hooking.HOOKS = Path({str(my_documents)!r}); print(hooking.loadable(), flush=True)\n{ends}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder = Path(done.stdout.splitlines()[0])
    assert folder.name == "hooks" and not folder.parent.exists()


def test_python_3_7_can_read_its_hook():
    """The hook is loaded by the program's Python; annotations that are evaluated may need a later one."""
    source = (hooking.HOOKS / "python" / "nagle_lab_marks.py").read_text()
    ast.parse(source, feature_version=(3, 7))
    assert "\nfrom __future__ import annotations\n" in source


@pytest.mark.parametrize(
    ("call", "passed"),
    [
        ('one.sendmsg(part for part in (b"he", b"llo"))', "5"),
        ('one.sendmsg([b"he", b"llo"])', "5"),
        ("os.sendfile(out_fd=one.fileno(), in_fd=file.fileno(), offset=0, count=4)", "4"),
        ("os.sendfile(one.fileno(), file.fileno(), 0, 4)", "4"),
    ],
)
def test_the_hook_of_python_changes_no_call(tmp_path, call, passed):
    (tmp_path / "file").write_bytes(b"1234")
    code = f"import os, socket; one, other = socket.socketpair(); file = open('file'); print({call})"
    environment = hooking.hooked({}, hooking.HOOKS, None)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == passed, done.stderr
