"""Environment variables that make interpreters, and native code, say where they write.

The command is not changed: an environment variable makes each interpreter load a file of ours.
"""

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

HOOKS = Path(__file__).parent / "hooks"
_SPLIT_AT = re.compile(r"[\s:]")  # not allowed in a path by LD_PRELOAD, RUBYOPT, PERL5OPT, PYTHONPATH
_WITHOUT_ANY = ("/tmp", "/var/tmp")
_MADE: list[tuple[Path, int]] = []  # folders of copies, and the process that made each


def loadable() -> Path:
    """The folder of the hooks, with a path that each of these variables allows.

    If the path of this installation does not suit, a copy, which is removed when this process ends.
    """
    return _copied(HOOKS) if _SPLIT_AT.search(str(HOOKS)) else HOOKS


@cache
def _copied(hooks: Path) -> Path:
    parents = (folder for folder in (tempfile.gettempdir(), *_WITHOUT_ANY) if not _SPLIT_AT.search(folder))
    made = Path(tempfile.mkdtemp(prefix="nagle-lab-hooks-", dir=next(parents)))
    _MADE.append((made, os.getpid()))
    atexit.register(remove_copies)
    made.chmod(0o755)  # the command may be another user's
    return shutil.copytree(hooks, made / "hooks", ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.h"))


def remove_copies() -> None:
    """Remove this process's copies; call it in a process that ends without its exit handlers."""
    for folder, by in _MADE:
        if os.getpid() == by:  # and not a child that was forked
            shutil.rmtree(folder, ignore_errors=True)


def loading(environment: Mapping[str, str], *, stacks: bool) -> dict[str, str]:
    """What to add to the environment: the hooks of interpreters, or for ``stacks`` that of native code."""
    hooks = loadable()
    if not stacks:
        return hooked(environment, hooks, agent_in(hooks))
    hook = next(hooks.glob("_native.*"), None)  # it names the callers of writing functions, if it was compiled
    return {"LD_PRELOAD": _joined(":", environment.get("LD_PRELOAD"), str(hook))} if hook else {}


def hooked(environment: Mapping[str, str], hooks: Path, agent: Path | None) -> dict[str, str]:
    """The environment variables with which interpreters load the hooks in a ``loadable`` folder.

    ``agent`` is Java's hook, None if it was not compiled.
    """
    added = {
        "PYTHONPATH": _joined(":", str(hooks / "python"), environment.get("PYTHONPATH")),
        "NODE_OPTIONS": _joined(" ", environment.get("NODE_OPTIONS"), f"--require={hooks}/node.cjs"),
        "RUBYOPT": _joined(" ", environment.get("RUBYOPT"), f"-r{hooks}/ruby.rb"),
        "PERL5OPT": _joined(" ", environment.get("PERL5OPT"), f"-I{hooks}/perl -MNagleLabMarks"),
    }
    if agent:
        added["JAVA_TOOL_OPTIONS"] = _joined(" ", environment.get("JAVA_TOOL_OPTIONS"), f"-agentpath:{agent}")
    return added


def agent_in(hooks: Path) -> Path | None:
    """Java's hook, compiled from java.c; None if there was no C compiler at set-up, or when the wheel was built."""
    return next(hooks.glob("_java.*"), None)


def _joined(by: str, *parts: str | None) -> str:
    return by.join(filter(None, parts))
