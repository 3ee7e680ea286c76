"""Is set-up reproducible? Make its results twice, from nothing, and compare what is installed.

    python -m supply_chain.twice

The base image and the images built on it get names of their own and are removed again; so are the two Python
environments. 0: the same packages both times, 1: a package differs, 2: something could not be made.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.compose import error_line
from nagle_lab.lab.containers.interrupts import deferred, interruptible
from nagle_lab.lab.containers.process import Child, Finished
from nagle_lab.lab.scenarios.scenario import REPOSITORY
from supply_chain.packages import Package, content_of, labs, python_packages

Lists = dict[str, tuple[Package, ...]]
ENVIRONMENT = ".venv"


def differences(first: Iterable[Package], second: Iterable[Package]) -> list[str]:
    """Return what differs between two lists of packages, a line each: by name and architecture, then version."""
    one, other = _versions(first), _versions(second)
    return [
        f"{':'.join(filter(None, key))} {one.get(key, '(missing)')} → {other.get(key, '(missing)')}"
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key)
    ]


def _versions(packages: Iterable[Package]) -> dict[tuple[str, str], str]:
    return {(package.name, package.architecture): package.version for package in packages}


def table(first: Lists, second: Lists) -> Iterator[str]:
    """Yield the lines that compare two makings, by image: the number of packages, and each difference."""
    width = max(map(len, first))
    for name in first:
        found = differences(first[name], second[name])
        yield f"{name:{width}}  {len(first[name]):4} packages  {'different' if found else 'same'}"
        yield from (f"{'':{width}}    {line}" for line in found)


def make(names: str, tag: int) -> Lists:
    """Make everything once, as images ``names``/…:``tag``, which are removed afterwards; return its packages by
    name.
    """
    base = f"{names}/base:{tag}"
    with removed_afterwards(names, base):
        say(f"making the base image ({tag} of 2)")
        finish([str(REPOSITORY / "setup" / "base-image.sh"), base], "the base image")
        lists = {"base": content_of(base).packages}
        for folder in sorted({folder for lab in labs() for folder in lab.images}, key=lambda each: each.name):
            image = f"{names}/{folder.name}:{tag}"
            say(f"building {folder.name} ({tag} of 2)")
            options = ["--no-cache", "--force-rm", "--build-arg", f"BASE={base}", "--tag", image]
            finish(["docker", "build", *options, str(folder)], folder.name)
            lists[folder.name] = content_of(image).packages
    return lists | {ENVIRONMENT: make_environment(tag)}


def make_environment(tag: int) -> tuple[Package, ...]:
    """Make the Python environment in a folder of its own, without pip's cache; return its packages."""
    say(f"making {ENVIRONMENT} ({tag} of 2)")
    with tempfile.TemporaryDirectory(prefix="nagle-lab-") as folder:
        environment = os.environ | {"NAGLE_LAB_VENV": f"{folder}/venv", "PIP_NO_CACHE_DIR": "1"}
        finish([str(REPOSITORY / "setup" / "python.sh"), "dev"], ENVIRONMENT, environment)
        return python_packages(Path(folder, "venv"))


@contextmanager
def removed_afterwards(names: str, base: str) -> Iterator[None]:
    """Remove the images ``names``/… at the end, and the first stages built on ``base``, which have no name."""
    try:
        yield
    finally:
        list_ours = ["docker", "image", "ls", "--filter", f"reference={names}/*", "--format={{.Repository}}:{{.Tag}}"]
        if ours := Child(list_ours).wait().stdout.split():
            Child(["docker", "image", "rm", *ours]).wait()
        Child(["docker", "image", "prune", "--force", "--filter", f"label=nagle-lab.base={base}"]).wait()


def finish(command: list[str], what: str, environment: Mapping[str, str] | None = None) -> None:
    """Run ``command``; NagleLabError with its error_line if it fails. After an interrupt it may still clean up."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, process_group=0) as child:
        try:
            with interruptible():
                said = child.communicate()
        except KeyboardInterrupt:
            os.killpg(child.pid, signal.SIGTERM)
            child.communicate()
            raise
    done = Finished(tuple(command), child.returncode, *said)
    if done.exit_code != 0:
        raise NagleLabError(f"cannot make {what}: {error_line(done).removeprefix('setup: ')}")


def say(text: str) -> None:
    """Announce a step, as the other set-up scripts do."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Make everything twice, print the comparison; return the exit code."""
    names = f"nagle-lab-again-{os.getpid()}"
    first, second = make(names, 1), make(names, 2)
    print("\n".join(table(first, second)))
    return int(any(differences(*pair) for pair in zip(first.values(), second.values(), strict=True)))


if __name__ == "__main__":
    try:
        with deferred():
            sys.exit(main())
    except NagleLabError as error:
        say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
