"""Where it runs and for whom: a path with odd letters, a checkout that may only be read, other users, two at once.

One clone serves all: made and set up as a user who is not root and has nothing but the group of Docker's socket.
"""

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lab.recording import assert_never_wrong, docker, undisturbed, well_recorded

from support.repository import REPOSITORY
from support.rights import AS_ROOT, mount_refused, sudo_refused

pytestmark = pytest.mark.long
SMALL = {"REQUESTS": "20", "CONCURRENCY": "5"}
ANOTHER = 12345  # needs no account
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1" && shift && exec "$@"'


class Checkout:
    """A clone of its own in a path with a space and letters beyond ASCII; its user is another, where we may be."""

    def __init__(self, root: Path) -> None:
        self.root, self.place = root, root / "prüf stand ☃"
        self.uid = os.getuid() if sudo_refused() else ANOTHER
        (root / "home").mkdir()
        subprocess.run(["git", "clone", "--quiet", REPOSITORY, self.place], check=True)
        if self.uid != os.getuid():
            subprocess.run([*AS_ROOT, "chown", "-R", f"{self.uid}:{self.uid}", root], check=True)

    def command(self, *words: str | Path, read_only: bool = False, **variables: str) -> list[str | Path]:
        """The words that run a command there as its user; ``read_only``: in a mount namespace that shows it so."""
        environment = os.environ | SMALL | {"HOME": str(self.root / "home")} | variables
        there = ["env", "-i", "-C", self.place, *(f"{k}={v}" for k, v in environment.items()), *words]
        if self.uid == os.getuid():
            assert not read_only
            return there
        socket = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
        user = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", f"--groups={Path(socket).stat().st_gid}"]
        mounted = ["unshare", "--mount", "sh", "-c", READ_ONLY, "-", self.place] if read_only else []
        return [*AS_ROOT, *mounted, *user, *there]

    def run(self, *words: str | Path, read_only: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
        command = self.command(*words, read_only=read_only, **variables)
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    def left_on_engine(self) -> list[str]:
        """Names of the containers and networks of its runs."""
        row = '{{.Label "nagle-lab.lock"}}\t{{.ID}}'
        rows = docker("ps", "--all", "--format", row) + docker("network", "ls", "--format", row)
        return [row for row in rows.splitlines() if row.startswith(f"{self.root}/")]


@pytest.fixture(scope="module")
def checkout() -> Iterator[Checkout]:
    # Not pytest's own folder: nobody else may enter that.
    root = Path(tempfile.mkdtemp(prefix="nagle-lab-", dir="/var/tmp"))
    root.chmod(0o755)
    try:
        made = Checkout(root)
        # What is imported is compiled then. The variable is the value of pip's option: 0 is what compiles nothing.
        set_up = made.run("setup/python.sh", PIP_NO_COMPILE="0")
        assert set_up.returncode == 0, set_up.stderr
        yield made
    finally:
        subprocess.run([*([] if sudo_refused() else AS_ROOT), "rm", "-rf", root], check=True)


@pytest.fixture
def another(checkout: Checkout) -> Checkout:
    """The checkout of another user."""
    if reason := sudo_refused():
        pytest.skip(f"to become another user, {reason}")
    return checkout


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What stands on stderr besides the progress."""
    return [line for line in done.stderr.splitlines() if not line.startswith(("… ", "setup: "))]


def test_a_user_who_is_not_root_but_may_use_docker(another: Checkout):
    done = undisturbed(lambda: another.run(".venv/bin/nagle-lab", "run", "nginx-static", "nodelay-off", "--json"))
    assert (done.returncode, said(done)) == (0, [])
    assert json.loads(done.stdout)["verdict"] == "STALL"
    runs = another.place / "captures" / "runs"
    assert {path.lstat().st_uid for path in [runs, *runs.rglob("*")]} == {ANOTHER}
    assert another.left_on_engine() == []


def test_a_checkout_that_may_only_be_read(another: Checkout):
    if reason := mount_refused():
        pytest.skip(f"to mount it so: {reason}")
    nagle_lab = ".venv/bin/nagle-lab"
    refused = another.run(nagle_lab, "run", "nginx-static", "nodelay-off", read_only=True)
    runs = another.place / "captures" / "runs"
    assert (refused.returncode, refused.stdout) == (2, "")
    assert said(refused) == [
        f"nagle-lab: cannot write run folders in {runs}: read-only file system: name another folder with --runs"
    ]
    elsewhere = another.root / "home" / "runs"
    run = (nagle_lab, "run", "nginx-static", "nodelay-off", "--json", "--runs", elsewhere)
    done = undisturbed(lambda: another.run(*run, read_only=True))
    assert (done.returncode, said(done)) == (0, [])
    assert json.loads(done.stdout)["verdict"] == "STALL"
    analyzed = another.run(
        nagle_lab, "analyze", "--json", elsewhere / "latest-nginx-static-nodelay-off", read_only=True
    )
    assert (analyzed.returncode, said(analyzed)) == (0, [])
    assert another.left_on_engine() == []


def test_two_users_at_once(checkout: Checkout, tmp_path: Path):
    """Each sweeps when it begins and when it ends, and neither touches what is the other's and alive.

    Where we cannot become another user, both are one user with two checkouts.
    """
    ours = [REPOSITORY / ".venv" / "bin" / "nagle-lab", "run", "nginx-static", "nodelay-on", "--json", "--runs"]
    theirs = checkout.command(".venv/bin/nagle-lab", "run", "nginx-static", "nodelay-off", "--json")

    def run(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
        environment = os.environ | SMALL
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    with ThreadPoolExecutor(4) as at_once:
        results = list(at_once.map(run, [theirs, [*ours, tmp_path / "a"], theirs, [*ours, tmp_path / "b"]]))
    for done, expected in zip(results, ["STALL", "CLEAN"] * 2, strict=True):
        assert_never_wrong(json.loads(done.stdout)["verdict"], done.returncode, expected, done.stdout[:2000])
        assert ["INCONCLUSIVE: " in line for line in said(done)] == [True] * (done.returncode != 0)
    assert {path.lstat().st_uid for path in tmp_path.rglob("*")} == {os.getuid()}
    assert {path.lstat().st_uid for path in (checkout.place / "captures" / "runs").rglob("*")} == {checkout.uid}
    assert checkout.left_on_engine() == []


@pytest.fixture
def host(checkout: Checkout) -> dict[str, str]:
    """Variables with which nagle-lab takes this for another host: what a run has left, others' runs leave alone."""
    folder = checkout.root / "host"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os\nsystem, _, *rest = os.uname()\n"
        f"os.uname = lambda: os.uname_result((system, {checkout.root.name!r}, *rest))\n"
    )
    return {"PYTHONPATH": str(folder)}


def test_a_path_with_a_space_and_odd_letters(checkout: Checkout, host: dict[str, str]):
    """A run that is killed, and one that sweeps up after it."""
    assert checkout.run("make", "clean-runs").returncode == 0
    words = [".venv/bin/nagle-lab", "run", "nginx-static", "nodelay-off", "--set", "REQUESTS=5000"]
    killed = subprocess.Popen(
        checkout.command("sh", "-c", f"echo $$; exec {shlex.join(words)}", **host),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    assert killed.stdout is not None and killed.stderr is not None
    process = killed.stdout.readline().strip()
    assert any(line.startswith("… ab ") for line in killed.stderr)
    (partial,) = (checkout.place / "captures" / "runs").glob(".*.partial")
    well_recorded(partial.parent)
    assert checkout.run("kill", "-KILL", process).returncode == 0
    killed.communicate(timeout=30)
    assert len(checkout.left_on_engine()) == 5

    done = checkout.run("make", "repro-nodelay-off", **host)
    assert (done.returncode, said(done)) == (0, [])
    assert " STALL " in done.stdout and " trigger\n" in done.stdout
    names = sorted(path.name.partition("Z-")[2] or path.name for path in partial.parent.iterdir())
    assert names == ["latest-nginx-static-nodelay-off", "nginx-static-nodelay-off", "nginx-static-nodelay-off.failed"]
    assert checkout.left_on_engine() == []
