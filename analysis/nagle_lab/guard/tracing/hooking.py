"""Hooks, by which interpreters and native code say where they write, and the source files that Java's names.

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
# Up from a folder of classes, then down to the sources: the layouts of javac -d, Maven and Gradle.
_UP = 4
_DOWN = ("", "src", "src/main/java", "src/test/java", "src/main/kotlin", "src/test/kotlin", "src/main/scala")


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


@cache
def source_of(file: str) -> str:
    """The source of a class as the hook names it: "/app/target/classes//org/example/Server.java" is the folder or jar
    that the class was loaded from, its package, and its source's name.

    If there is no such file near that folder or below the working directory, the result is that path with one slash.
    A text that names no class stays as it is.
    """
    loaded_from, is_class, source = file.partition("//")
    if not is_class:
        return file
    folders = [Path(loaded_from), *Path(loaded_from).parents][: _UP + 1]
    for folder in [*folders, Path.cwd()]:
        for down in _DOWN:
            if (found := folder / down / source).is_file():
                return str(found)
    return f"{loaded_from}/{source}"
