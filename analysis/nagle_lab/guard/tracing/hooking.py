"""What a command's environment gets so that interpreters, and native code, say where they write.

Nothing in the command is changed: each interpreter loads a file of ours by an environment variable.
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
_SPLIT_AT = re.compile(r"[\s:]")  # what LD_PRELOAD, RUBYOPT, PERL5OPT and PYTHONPATH cannot have in a path
_WITHOUT_ANY = ("/tmp", "/var/tmp")
_MADE: list[tuple[Path, int]] = []  # folders of copies, and the process that made each


def loadable() -> Path:
    """The folder of the hooks, with a path that each of these variables can have.

    Where that of this installation has a space in it, a copy that is removed when this process ends.
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
    """Remove what this process copied; to be called by one that ends without its exit handlers."""
    for folder, by in _MADE:
        if os.getpid() == by:  # and not a child that was forked
            shutil.rmtree(folder, ignore_errors=True)


def loading(environment: Mapping[str, str], *, stacks: bool) -> dict[str, str]:
    """What to add to the environment: the hooks of interpreters, or for ``stacks`` that of native code."""
    hooks = loadable()
    if not stacks:
        return hooked(environment, hooks, agent_in(hooks))
    hook = next(hooks.glob("_native.*"), None)  # it says who called what writes, if it was compiled
    return {"LD_PRELOAD": _joined(":", environment.get("LD_PRELOAD"), str(hook))} if hook else {}


def hooked(environment: Mapping[str, str], hooks: Path, agent: Path | None) -> dict[str, str]:
    """What the environment gets so that interpreters load the hooks in a folder that is ``loadable``.

    ``agent`` is Java's, None where it was not compiled.
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
    """Java's hook, which was compiled of java.c; None where there was no C compiler at set-up, or in the wheel."""
    return next(hooks.glob("_java.*"), None)


def _joined(by: str, *parts: str | None) -> str:
    return by.join(filter(None, parts))
