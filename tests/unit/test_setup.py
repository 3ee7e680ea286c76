"""The set-up scripts, on hosts made of fake commands: nothing real is installed, started or downloaded."""

import os
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path

import pytest

from nagle_lab.tcp import compiled
from support.repository import REPOSITORY
from support.waiting import within

PACKAGE = Path("analysis/nagle_lab")
COMPILED = PACKAGE / "tcp" / "_engine.fake.so"
REAL_TOOLS = """
    awk bash cat chmod cp cut date dirname env find head mkdir mktemp rm sed setsid sha256sum sleep sort stat tail tar
    timeout touch
"""
DOCKER = """
case "$1 $2" in
  "version "*) [[ -e $FAKE/engine-up ]] || { cat "$FAKE/engine-says" 2>/dev/null; exit 1; }; echo 20.10.24 ;;
  "compose version") [[ -e $FAKE/compose-v2 ]] ;;
  "image inspect") [[ -e $FAKE/images/${5//\\//_} ]] && cat "$FAKE/images/${5//\\//_}" ;;
  "tag "*) mkdir -p "$FAKE/images"; cp "$FAKE/images/${2//\\//_}" "$FAKE/images/${3//\\//_}" ;;
  "pull "*) if [[ -e $FAKE/registry/$2 ]]; then
      echo "library: Pulling from somewhere"; mkdir -p "$FAKE/images"; echo "id of $2" >"$FAKE/images/${2//\\//_}"
      pinned=${2%:*@*}@${2##*@}; echo "id of $2" >"$FAKE/images/${pinned//\\//_}"
    else cat "$FAKE/registry-says"; exit 1; fi ;;
  "import "*) cp "${@:(-2):1}" "$FAKE/imported.tar"; mkdir -p "$FAKE/images"; echo imported >"$FAKE/images/${!##*/}"
    echo imported >"$FAKE/images/nagle-lab_base:trixie" ;;
  *) echo "fake docker: unexpected: $*" >&2; exit 99 ;;
esac
"""


class Host:
    """A machine that has only the commands it was given, and a copy of the checkout in a path with a space."""

    def __init__(self, root: Path) -> None:
        self.checkout = root / "check out"
        self.fake = root / "fake"
        self.bin = root / "bin"
        for directory in (self.fake, self.bin):
            directory.mkdir(parents=True)
        shutil.copytree(REPOSITORY / "setup", self.checkout / "setup")
        for name in (
            "pyproject.toml",
            "requirements.txt",
            "requirements-dev.txt",
            *(source.relative_to(REPOSITORY / "analysis") for source in compiled.SOURCES),
            *(f"nagle_lab/guard/tracing/hooks/{name}" for name in ("java.c", "java.h", "native.c")),
        ):
            (self.checkout / "analysis" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / "analysis" / name, self.checkout / "analysis" / name)
        for name in REAL_TOOLS.split():
            real = shutil.which(name)
            assert real is not None, f"this machine has no {name}"
            (self.bin / name).symlink_to(real)
        self.before: list[str] = []  # what starts the scripts
        self.runs_as(uid=1000)
        self.is_debian()
        # Asked for a lock, it has it; asked to run a command under one, it does.
        self.command(
            "flock", 'while [[ $1 == --* ]]; do shift; done; shift; [[ $# == 0 || $1 =~ ^[0-9]+$ ]] || exec "$@"'
        )

    def command(self, name: str, script: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)  # it may be a link to the machine's own, which must not be written to
        path.write_text(f'#!{shutil.which("bash")}\necho "{name} $*" >>"$FAKE/calls"\n{script}\n')
        path.chmod(0o755)

    def runs_as(self, uid: int) -> None:
        self.command("id", f"if [[ $1 == -un ]]; then echo someone; else echo {uid}; fi")

    def is_debian(self, yes: bool = True) -> None:
        answer = f"[[ ${{@:(-1)}} != /etc/os-release ]] || exit {int(not yes)}\n"
        self.command("grep", f'{answer}exec {shutil.which("grep")} "$@"')

    def state(self, name: str, content: str = "") -> None:
        path = self.fake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def calls(self, command: str) -> list[str]:
        lines = (self.fake / "calls").read_text().splitlines() if (self.fake / "calls").exists() else []
        return [line.removeprefix(f"{command} ") for line in lines if line.startswith(f"{command} ")]

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        scratch = self.fake / "scratch"
        scratch.mkdir(exist_ok=True)
        # The daemon of the machine that runs the tests must not show through.
        run = str(self.fake / "run")
        env = {
            "PATH": str(self.bin),
            "FAKE": str(self.fake),
            "TMPDIR": str(scratch),
            "NAGLE_LAB_RUN": run,
            **environment,
        }
        done = subprocess.run(
            [*self.before, self.bin / "bash", self.checkout / "setup" / script, *arguments],
            env=env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert done.stdout == "", "standard output is for results"
        assert not list(scratch.iterdir()), "something was left behind"
        return done

    def refusal(self, script: str, *arguments: str, **environment: str) -> str:
        """Run a script that must refuse; return its last line, without the prefix."""
        done = self.run(script, *arguments, **environment)
        assert done.returncode == 2, done.stderr
        last = done.stderr.splitlines()[-1]
        assert last.startswith("setup: ")
        return last.removeprefix("setup: ")

    def succeeds(self, script: str, *arguments: str, **environment: str) -> list[str]:
        """Run a script that must succeed; return what it announced."""
        done = self.run(script, *arguments, **environment)
        assert done.returncode == 0, done.stderr
        return [line.removeprefix("setup: ") for line in done.stderr.splitlines()]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def engine(host: Host) -> Host:
    """A host whose Docker engine answers."""
    host.command("docker", DOCKER)
    host.state("engine-up")
    host.state("compose-v2")
    return host


# The engine


def test_engine_in_place_is_used_without_a_word(engine: Host) -> None:
    assert engine.succeeds("engine.sh") == []
    assert engine.calls("apt-get") == []


def test_no_docker_and_not_root(host: Host) -> None:
    command = f"sudo {str(host.checkout).replace(' ', chr(92) + ' ')}/setup/engine.sh"
    assert host.refusal("engine.sh") == f"Docker is not installed, and only root can install it. Run: {command}"


def test_a_client_alone_is_not_an_engine(host: Host) -> None:
    host.command("docker", DOCKER)
    assert host.refusal("engine.sh").startswith("Docker is not installed")


def test_no_right_to_the_socket(host: Host) -> None:
    host.command("docker", DOCKER)
    host.command("dockerd", "exit 99")
    host.state("engine-says", "permission denied while trying to connect to the Docker daemon socket\n")
    to_do = "Run: sudo usermod -aG docker someone   (then log in again)"
    assert host.refusal("engine.sh") == f"your account has no access to Docker's socket. {to_do}"


def test_daemon_not_running_and_not_root(host: Host) -> None:
    host.command("docker", DOCKER)
    host.command("dockerd", "exit 99")
    assert host.refusal("engine.sh").startswith("the Docker daemon is not running. Run: sudo ")
    assert host.calls("dockerd") == []


def test_remote_engine_is_not_replaced_by_a_local_one(host: Host) -> None:
    host.runs_as(uid=0)
    host.command("docker", DOCKER)
    expected = "no Docker engine answers at DOCKER_HOST=tcp://far:1. Start it, or unset DOCKER_HOST."
    assert host.refusal("engine.sh", DOCKER_HOST="tcp://far:1") == expected


def test_installing_is_forbidden(host: Host) -> None:
    host.runs_as(uid=0)
    host.command("apt-get", "exit 99")
    expected = "Docker is not installed and NAGLE_LAB_NO_INSTALL=1 forbids installing it."
    assert host.refusal("engine.sh", NAGLE_LAB_NO_INSTALL="1") == f"{expected} Unset it, or install Docker yourself."
    assert host.calls("apt-get") == []


def test_other_distributions_are_left_to_their_owner(host: Host) -> None:
    host.runs_as(uid=0)
    host.is_debian(False)
    host.command("apt-get", "exit 99")
    assert host.refusal("engine.sh").startswith("Docker is not installed. Install Docker Engine and Compose")
    assert host.calls("apt-get") == []


@pytest.mark.parametrize(
    ("known", "compose"),
    [("docker-compose", "docker-compose"), ("docker-compose docker-compose-v2", "docker-compose-v2")],
)
def test_root_on_debian_gets_engine_and_compose(host: Host, known: str, compose: str) -> None:
    host.runs_as(uid=0)
    host.command("docker", DOCKER)
    host.command("apt-cache", f'[[ " {known} " == *" $2 "* ]] && echo "  Candidate: 1" || echo "  Candidate: (none)"')
    host.command("apt-get", 'case "$*" in *" install "*) touch "$FAKE/engine-up" "$FAKE/compose-v2" ;; esac')
    announced = host.succeeds("engine.sh")
    assert len(announced) == 1
    assert announced[0].startswith("installing docker.io ")
    update, install = host.calls("apt-get")
    assert update.endswith(" update")
    assert install.split()[-1] == compose
    assert "docker.io" in install.split()


def test_apt_that_fails(host: Host) -> None:
    host.runs_as(uid=0)
    host.command("apt-cache", "echo '  Candidate: 1'")
    host.command("apt-get", 'echo "E: Unable to locate package docker.io"; echo; exit 100')
    refusal = host.refusal("engine.sh")
    assert refusal.startswith("apt-get cannot install docker.io ")
    assert "E: Unable to locate package docker.io" in refusal


def test_daemon_that_dies_at_start(host: Host) -> None:
    host.runs_as(uid=0)
    host.command("docker", DOCKER)
    host.command("dockerd", 'echo starting; echo "failed to start daemon: no room for iptables"; echo; exit 1')
    log = host.fake / "dockerd.log"
    assert host.refusal("engine.sh", NAGLE_LAB_DOCKERD_LOG=str(log)) == (
        f"the Docker daemon ended at once (log: {log}): failed to start daemon: no room for iptables"
    )


def test_daemon_is_started_and_survives_the_script(host: Host) -> None:
    host.runs_as(uid=0)
    host.command("docker", DOCKER)
    host.command("dockerd", 'echo "$BASHPID" >"$FAKE/pid"; touch "$FAKE/engine-up"; exec sleep 60')
    host.state("compose-v2")
    log = host.fake / "dockerd.log"
    announced = host.succeeds("engine.sh", NAGLE_LAB_DOCKERD_LOG=str(log), NAGLE_LAB_NO_INSTALL="1")
    pid = int((host.fake / "pid").read_text())
    comm = Path(f"/proc/{pid}/comm")
    assert within(10, lambda: comm.read_text() == "sleep\n")  # the engine is up a moment before the shell has gone
    try:
        assert announced == [f"starting the Docker daemon (its log: {log})"]
        assert os.getsid(pid) == pid, "it has no session of its own: closing the terminal would end it"
        held = {path.resolve() for path in Path(f"/proc/{pid}/fd").iterdir()}
        assert held == {Path("/dev/null"), log}
        assert Path(f"/proc/{pid}/cwd").resolve() == Path("/")
        status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        ordinary = (1 << 31) - 1  # signals 1 to 31
        assert int(status["SigIgn"], 16) & ordinary == 0, "containers would inherit the ignored signals"
    finally:
        os.kill(pid, 9)


def test_a_killed_daemon_s_number_that_another_process_has_now_is_no_obstacle(host: Host) -> None:
    host.runs_as(uid=0)
    host.command("docker", DOCKER)
    for name in ("docker.pid", "docker/containerd/containerd.pid"):
        host.state(f"run/{name}", str(os.getpid()))
    host.command("dockerd", 'touch "$FAKE/engine-up"; ! [[ -e $FAKE/run/docker.pid ]] || exit 1; exec sleep 3')
    host.state("compose-v2")
    log = host.fake / "dockerd.log"
    assert host.succeeds("engine.sh", NAGLE_LAB_DOCKERD_LOG=str(log), NAGLE_LAB_NO_INSTALL="1") == [
        f"starting the Docker daemon (its log: {log})"
    ]
    assert not list((host.fake / "run").rglob("*.pid"))


@pytest.mark.parametrize(("version", "accepted"), [("1.25.0", False), ("1.29.2", True), ("2.26.1", True)])
def test_old_compose(engine: Host, version: str, accepted: bool) -> None:
    (engine.fake / "compose-v2").unlink()
    engine.command("docker-compose", f"echo {version}")
    engine.command("dpkg-query", "exit 1")
    if accepted:
        assert engine.succeeds("engine.sh") == []
    else:
        expected = "Docker Compose is missing (v2, or 1.29 at least). Run: sudo "
        assert engine.refusal("engine.sh").startswith(expected)


# The base image

PINNED = "debian:trixie-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f"
NO_NETWORK = "Error response from daemon: dial tcp: no such host\n"


def test_base_image_in_place(engine: Host) -> None:
    engine.state("images/nagle-lab_base", "id\n")
    engine.state("images/nagle-lab_base:trixie", "id\n")
    assert engine.succeeds("base-image.sh") == []
    assert all(call.startswith("image inspect ") for call in engine.calls("docker"))


def test_base_image_is_pulled_by_digest(engine: Host) -> None:
    engine.state(f"registry/{PINNED}")
    assert engine.succeeds("base-image.sh") == ["pulling debian:trixie-slim (about 30 MB)"]
    assert (engine.fake / "images/nagle-lab_base").read_text() == f"id of {PINNED}\n"


def test_digest_dropped_by_the_registry(engine: Host) -> None:
    engine.state("registry/debian:trixie-slim")
    engine.state("registry-says", f"Error response from daemon: manifest for {PINNED} not found: manifest unknown\n")
    assert engine.succeeds("base-image.sh")[1:] == [
        "the registry no longer has the pinned digest of debian:trixie-slim; pulling the tag instead"
    ]
    assert (engine.fake / "images/nagle-lab_base").read_text() == "id of debian:trixie-slim\n"


def test_no_registry_and_not_root(engine: Host) -> None:
    engine.state("registry-says", NO_NETWORK)
    refusal = engine.refusal("base-image.sh")
    assert refusal.startswith(
        "the base image cannot be pulled (dial tcp: no such host) and bootstrapping it needs root. Set BASE_IMAGE "
    )
    assert "sudo " in refusal


def test_a_pull_that_takes_too_long(engine: Host) -> None:
    engine.command("timeout", 'echo "library: Pulling from somewhere"; echo "a1b2c3: Downloading 3 MB"; exit 124')
    refusal = engine.refusal("base-image.sh", BASE_IMAGE="mine:2")
    assert refusal.endswith("cannot be pulled: took longer than 900 s. Name another, or unset it.")


def test_no_registry_and_installing_forbidden(engine: Host) -> None:
    engine.runs_as(uid=0)
    engine.state("registry-says", NO_NETWORK)
    refusal = engine.refusal("base-image.sh", NAGLE_LAB_NO_INSTALL="1")
    assert "NAGLE_LAB_NO_INSTALL=1 forbids installing mmdebstrap. Set BASE_IMAGE" in refusal


def test_bootstrap(engine: Host) -> None:
    engine.runs_as(uid=0)
    engine.state("registry-says", NO_NETWORK)
    engine.command("mmdebstrap", 'tar --create --file "${@:(-1)}" --files-from /dev/null')
    announced = engine.succeeds("base-image.sh")
    assert announced[1].startswith("cannot pull it (no such host): bootstrapping Debian trixie")
    assert (engine.fake / "images/nagle-lab_base").read_text() == "imported\n"
    (imported,) = [call for call in engine.calls("docker") if call.startswith("import ")]
    assert 'LABEL nagle-lab.origin="bootstrapped from Debian trixie packages by mmdebstrap on ' in imported
    with tarfile.open(engine.fake / "imported.tar") as tar:
        policy = tar.getmember("./usr/sbin/policy-rc.d")
        assert (policy.mode, policy.uid) == (0o755, 0)


def test_bootstrap_that_fails(engine: Host) -> None:
    engine.runs_as(uid=0)
    engine.state("registry-says", NO_NETWORK)
    engine.command("mmdebstrap", 'touch "${@:(-1)}"; echo "E: apt-get update failed"; echo "I: later"; exit 25')
    expected = "cannot bootstrap Debian trixie: E: apt-get update failed Set BASE_IMAGE"
    assert engine.refusal("base-image.sh").startswith(expected)
    assert not (engine.fake / "images").exists()


def test_base_image_made_anew_under_another_name(engine: Host) -> None:
    engine.state("images/nagle-lab_base", "old\n")
    engine.state("images/nagle-lab_base:trixie", "old\n")
    engine.state(f"registry/{PINNED}")
    engine.succeeds("base-image.sh", "again-base:1", BASE_IMAGE="mine:1")
    assert (engine.fake / "images/again-base:1").read_text() == f"id of {PINNED}\n"
    engine.runs_as(uid=0)
    (engine.fake / f"registry/{PINNED}").unlink()
    for pulled in (engine.fake / "images").glob("debian*"):
        pulled.unlink()
    engine.state("registry-says", NO_NETWORK)
    engine.command("mmdebstrap", 'tar --create --file "${@:(-1)}" --files-from /dev/null')
    engine.succeeds("base-image.sh", "again-base:2")
    (imported,) = [call for call in engine.calls("docker") if call.startswith("import ")]
    assert imported.endswith(" again-base:2")
    assert (engine.fake / "images/nagle-lab_base").read_text() == "old\n"


def test_base_image_given(engine: Host) -> None:
    engine.state("images/nagle-lab_base", "old\n")
    engine.state("images/nagle-lab_base:trixie", "old\n")
    engine.state("images/mine:1", "mine\n")
    assert engine.succeeds("base-image.sh", BASE_IMAGE="mine:1") == []
    assert (engine.fake / "images/nagle-lab_base").read_text() == "mine\n"
    assert engine.succeeds("base-image.sh") == []
    assert (engine.fake / "images/nagle-lab_base").read_text() == "old\n", "unset, it is our own again"


def test_base_image_given_but_nowhere(engine: Host) -> None:
    engine.state("registry-says", NO_NETWORK)
    assert engine.refusal("base-image.sh", BASE_IMAGE="mine:2") == (
        "BASE_IMAGE=mine:2 is not on this machine and cannot be pulled: dial tcp: no such host. "
        "Name another, or unset it."
    )


# Python

PYTHON = """
case "$1" in
  -V) echo "Python 3.12.9" ;;
  -c) case "$2" in *ensurepip*) [[ ! -e $FAKE/no-ensurepip ]] ;; *-venv*) echo python3.12-venv ;; esac ;;
  -m) mkdir -p "$3/bin"; cp "$FAKE/venv-python" "$3/bin/python"; chmod +x "$3/bin/python" ;;
esac
"""
VENV_PYTHON = f"""#!{shutil.which("bash")}
case "$1 $2" in
  -ISc*) echo "python 3.12.9 in $3" ;;
  *EXT_SUFFIX*) echo .fake.so ;;
  *zlib*) cat >"$FAKE/sources"; echo 123 ;;
  "-m pip")
    echo "pip ${{*:3}}" >>"$FAKE/calls"
    [[ "$*" != *--editable* || -e $FAKE/no-compiler ]] || touch "${{@:(-1)}}/nagle_lab/tcp/_engine.fake.so"
    ;;
esac
[[ ! -e $FAKE/no-index || $1 == -ISc ]] || {{ echo "ERROR: No matching distribution found for numpy"; exit 1; }}
"""


@pytest.fixture
def pythonic(host: Host) -> Host:
    """A host with Python 3.12 beside a python3 that is too old."""
    host.command("python3", "[[ $1 != -V ]] || echo Python 3.9.2; [[ $1 == -V ]]")
    host.command("python3.12", PYTHON)
    host.command("cc", "exit 0")
    host.state("venv-python", VENV_PYTHON)
    return host


def test_python_out_of_range(host: Host) -> None:
    host.command("python3", "[[ $1 != -V ]] || echo Python 3.9.2; [[ $1 == -V ]]")
    assert host.refusal("python.sh") == (
        "Python 3.11, 3.12 or 3.13 is needed; python3 here is Python 3.9.2."
        " Install one of them so that it runs as python3.13, python3.12 or python3.11."
    )


def test_no_python(host: Host) -> None:
    assert "python3 here is missing." in host.refusal("python.sh")


def test_environment_is_made_once(pythonic: Host) -> None:
    announced = pythonic.succeeds("python.sh")
    assert announced[0] == "making .venv with Python 3.12.9"
    first, second = pythonic.calls("pip")
    assert "--require-hashes" in first
    assert first.endswith("requirements.txt")
    assert "--no-deps --no-build-isolation --editable" in second
    assert pythonic.succeeds("python.sh") == []
    assert len(pythonic.calls("pip")) == 2


def test_set_up_compiles_in_the_checksum_that_the_engine_is_known_by(pythonic: Host) -> None:
    """Of the same sources in the same order: ENGINE of python.sh and SOURCES of compiled.py are two lists of them."""
    pythonic.succeeds("python.sh")
    assert zlib.crc32((pythonic.fake / "sources").read_bytes()) == compiled.checksum()


def test_without_a_compiler_it_says_what_that_costs(pythonic: Host) -> None:
    pythonic.succeeds("python.sh")
    assert (pythonic.checkout / COMPILED).exists()
    with (pythonic.checkout / PACKAGE / "tcp" / "machine.c").open("a") as file:
        file.write("/* changed */\n")
    pythonic.state("no-compiler")
    assert pythonic.succeeds("python.sh")[-1].startswith("cc could not compile the engine (")
    assert not (pythonic.checkout / COMPILED).exists(), "of the older source"
    assert pythonic.succeeds("python.sh") == []


def test_root_on_debian_gets_a_compiler(pythonic: Host) -> None:
    (pythonic.bin / "cc").unlink()
    pythonic.runs_as(uid=0)
    pythonic.command("apt-get", "")
    assert "installing gcc libc6-dev with apt-get (may take a minute)" in pythonic.succeeds("python.sh")
    assert any("install" in call and "gcc" in call for call in pythonic.calls("apt-get"))


def test_a_compiler_that_cannot_be_installed_stops_nothing(pythonic: Host) -> None:
    (pythonic.bin / "cc").unlink()
    pythonic.runs_as(uid=0)
    pythonic.command("apt-get", "exit 1")
    pythonic.state("no-compiler")
    assert pythonic.succeeds("python.sh")[-1].startswith("no C compiler found: ")


def test_environment_in_a_folder_of_its_own(pythonic: Host) -> None:
    mine = pythonic.fake / "mine"
    pythonic.succeeds("python.sh", NAGLE_LAB_VENV=str(mine))
    assert (mine / "bin" / "python").exists() and not (pythonic.checkout / ".venv").exists()
    (pythonic.fake / "letters").mkdir()
    refusal = pythonic.refusal("python.sh", NAGLE_LAB_VENV=f"{pythonic.fake}/letters")
    assert refusal.endswith("/letters exists and is not a Python environment. Name another folder.")
    assert (pythonic.fake / "letters").is_dir()


def test_development_set_contains_the_run_set(pythonic: Host) -> None:
    pythonic.succeeds("python.sh")
    assert len(pythonic.succeeds("python.sh", "dev")) == 1, "added to, not made anew"
    assert pythonic.calls("pip")[2].endswith("requirements-dev.txt")
    assert pythonic.succeeds("python.sh", "run") == []
    assert pythonic.succeeds("python.sh", "dev") == []


@pytest.mark.parametrize(
    "name",
    [
        "requirements.txt",
        "pyproject.toml",
        "nagle_lab/tcp/engine.h",
        "nagle_lab/packet/segment.c",
        "nagle_lab/guard/tracing/hooks/java.c",
    ],
)
def test_changed_pins_are_installed(pythonic: Host, name: str) -> None:
    pythonic.succeeds("python.sh")
    with (pythonic.checkout / "analysis" / name).open("a") as file:
        file.write("# changed\n")
    assert len(pythonic.succeeds("python.sh")) == 1
    assert len(pythonic.calls("pip")) == 4


def test_half_made_environment_is_made_anew(pythonic: Host) -> None:
    pythonic.state("no-index")
    assert pythonic.refusal("python.sh") == (
        "pip cannot install what nagle-lab needs: ERROR: No matching distribution found for numpy"
        " Check that a package index can be reached."
    )
    (pythonic.fake / "no-index").unlink()
    left_over = pythonic.checkout / ".venv" / "left-over"
    left_over.touch()
    assert pythonic.succeeds("python.sh")[0] == "making .venv with Python 3.12.9"
    assert not left_over.exists()


def test_interrupted_addition_is_not_trusted(pythonic: Host) -> None:
    pythonic.succeeds("python.sh")
    pythonic.state("no-index")
    pythonic.refusal("python.sh", "dev")
    (pythonic.fake / "no-index").unlink()
    assert pythonic.succeeds("python.sh")[0] == "making .venv with Python 3.12.9"


def test_moved_checkout(pythonic: Host) -> None:
    pythonic.succeeds("python.sh")
    pythonic.checkout = pythonic.checkout.rename(pythonic.checkout.with_name("moved"))
    assert pythonic.succeeds("python.sh")[0] == "making .venv with Python 3.12.9"


def test_python_without_ensurepip(pythonic: Host) -> None:
    pythonic.state("no-ensurepip")
    expected = "this Python cannot make virtual environments. Run: sudo apt-get install -y python3.12-venv"
    assert pythonic.refusal("python.sh") == expected
    pythonic.runs_as(uid=0)
    assert pythonic.refusal("python.sh", NAGLE_LAB_NO_INSTALL="1") == expected
    pythonic.command("apt-get", 'case "$*" in *" install "*) rm "$FAKE/no-ensurepip" ;; esac')
    assert pythonic.succeeds("python.sh")[0] == "installing python3.12-venv with apt-get (may take a minute)"


# Root may write everything: as root, set-up runs without that right.
SETPRIV = [str(shutil.which("setpriv")), "--bounding-set=-dac_override,-dac_read_search"]
AS_OTHERS = SETPRIV if os.geteuid() == 0 else []


@pytest.mark.parametrize(
    ("script", "closed"), [("python.sh", ".venv"), ("clean.sh", ".venv"), ("clean.sh runs", "captures/runs")]
)
def test_what_belongs_to_somebody_else_is_one_line(host: Host, script: str, closed: str) -> None:
    folder = host.checkout / closed
    (folder / "bin").mkdir(parents=True)
    folder.chmod(0o500)
    name, *arguments = script.split()
    host.before = AS_OTHERS
    try:
        done = host.run(name, *arguments)
    finally:
        folder.chmod(0o700)
    (said,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert said.startswith(f"setup: cannot write {folder if name == 'python.sh' else closed}, which belongs to ")
    assert "Run: sudo chown -R someone " in said
    assert (folder / "bin").is_dir()


def test_recorded_runs_are_removed_and_nothing_else(host: Host) -> None:
    (host.checkout / "captures" / "runs" / "one").mkdir(parents=True)
    (host.checkout / "captures" / "reference").mkdir()
    assert host.succeeds("clean.sh", "runs") == []
    assert [path.name for path in (host.checkout / "captures").iterdir()] == ["reference"]


@pytest.mark.parametrize("made_here", [True, False])
def test_a_site_is_removed_if_it_was_built_here(host: Host, made_here: bool) -> None:
    folder = host.checkout / "public"
    folder.mkdir()
    (folder / (".nagle-lab-site" if made_here else "mine.html")).touch()
    host.succeeds("clean.sh")
    assert folder.exists() != made_here


def test_what_python_compiled_is_removed_wherever_it_is(host: Host) -> None:
    compiled = [host.checkout / name / "__pycache__" for name in ("analysis/nagle_lab/tcp", "site", "docs", ".git")]
    for folder in compiled:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "module.pyc").touch()
    assert host.succeeds("clean.sh") == []
    assert [folder.parent.name for folder in compiled if folder.exists()] == [".git"]
    assert (host.checkout / PACKAGE / "tcp" / "machine.c").exists()


def test_unknown_set_of_packages(host: Host) -> None:
    assert host.refusal("python.sh", "everything") == "unknown set of packages: everything. Use run or dev."


# What the tests need, and what all share


def test_tools(host: Host) -> None:
    by_hand = "sudo apt-get install -y tshark strace chromium"
    expected = f"the tests need tshark, strace and chromium, which only root can install. Run: {by_hand}"
    assert host.refusal("tools.sh") == expected
    host.runs_as(uid=0)
    assert host.refusal("tools.sh", NAGLE_LAB_NO_INSTALL="1").endswith(f"or run: {by_hand}")
    host.command("tshark", "exit 99")
    refusal = host.refusal("tools.sh", NAGLE_LAB_NO_INSTALL="1")
    assert refusal.startswith("the tests need strace and chromium and NAGLE_LAB_NO_INSTALL=1 forbids")
    host.command("strace", "exit 99")
    assert host.refusal("tools.sh", NAGLE_LAB_NO_INSTALL="1").endswith("or run: sudo apt-get install -y chromium")
    host.command("apt-get", "")
    host.command("apt-cache", "echo 'Candidate: (none)'")
    assert "Chromium, which this system's apt does not have" in host.refusal("tools.sh")
    host.command("apt-cache", "echo '  Candidate: 156.0'")
    assert host.succeeds("tools.sh") == ["installing chromium with apt-get (may take a minute)"]
    assert host.calls("apt-get")[-1].endswith("install -y --no-install-recommends chromium")
    host.command("google-chrome", "exit 99")
    assert host.succeeds("tools.sh") == []


def test_promtool_is_taken_out_of_its_package_and_nothing_is_installed(host: Host) -> None:
    for name in ("tshark", "strace", "chromium"):
        host.command(name, "exit 99")
    host.command("apt-cache", "echo '  Candidate: 2.42'")
    host.command("apt-get", "exit 1")
    assert host.succeeds("tools.sh") == [], "there is no .venv to put it into"
    into = host.checkout / ".venv" / "bin" / "promtool"
    into.parent.mkdir(parents=True)
    fetches = "fetching promtool from the package prometheus"
    assert host.succeeds("tools.sh") == [fetches, "cannot fetch promtool: the test of the alert rules is skipped"]
    host.command("apt-get", '[[ "$*" == "-qq download prometheus" ]] && touch prometheus_2.42_amd64.deb')
    host.command("dpkg-deb", "mkdir -p usr/bin && touch usr/bin/promtool && chmod +x usr/bin/promtool")
    (host.bin / "mv").symlink_to(str(shutil.which("mv")))
    assert host.succeeds("tools.sh") == [fetches]
    assert into.exists()
    assert host.succeeds("tools.sh") == []
    assert not any("install" in call for call in host.calls("apt-get"))


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("ID=debian\n", True),
        ('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n', True),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', True),
        ('ID=fedora\nHOME_URL="https://debian.example"\n', False),
    ],
)
def test_distributions(tmp_path: Path, release: str, expected: bool) -> None:
    (tmp_path / "os-release").write_text(release)
    script = f'. "{REPOSITORY}/setup/lib.sh"; is_debian "{tmp_path}/os-release"'
    assert (subprocess.run(["bash", "-c", script], check=False).returncode == 0) == expected


def test_set_ups_wait_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    library = f'. "{REPOSITORY}/setup/lib.sh"; one_at_a_time lock'
    hold = f"{library}; touch held; until [[ -e go ]]; do sleep 0.05; done; touch released"
    with subprocess.Popen(["bash", "-c", hold], cwd=tmp_path):
        assert within(30, (tmp_path / "held").exists)
        waiter = ["bash", "-c", f"{library}; [[ -e released ]]"]
        with subprocess.Popen(waiter, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as second:
            assert second.stderr
            said = second.stderr.readline()
            (tmp_path / "go").touch()
            rest = second.stderr.read()
    assert second.returncode == 0, "it did not wait"
    assert (said, rest) == ("setup: waiting for another set-up to finish\n", "")


def test_make_alone_lists_what_there_is() -> None:
    listed = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for target in ("repro-nodelay-off", "repro-nodelay-on", "repro", "list", "test", "test-unit", "lint", "clean"):
        assert f"\n  make {target} " in listed
