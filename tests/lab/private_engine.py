"""A Docker engine of a test's own, to be stopped, killed and started again; nobody else's is touched.

It lives in mount, network and process namespaces of its own: whatever a test leaves of it ends with them.
"""

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nagle_lab.lab.containers.images import BASE, image_names, image_tag
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from support.rights import AS_ROOT, mount_refused
from support.waiting import within

ADMINISTRATORS = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"  # a user's PATH often lacks theirs


class PrivateEngine:
    """A dockerd with its own containerd, data and networks; ``host`` is its DOCKER_HOST."""

    def __init__(self, place: Path) -> None:
        self.host = f"unix://{place}/docker.sock"
        (place / "daemon.json").write_text("{}")  # not that of the machine's engine
        self._log = place / "log"
        options = [
            f"--config-file={place}/daemon.json", f"--host={self.host}", f"--group={os.getgid()}",
            f"--data-root={place}/data", f"--exec-root={place}/exec", f"--pidfile={place}/docker.pid",
            "--bridge=none", "--iptables=false", "--ip6tables=false",
            "--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{place.name}",
        ]  # fmt: skip
        self._command = " ".join(options)
        unshare = [
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
        ]
        self._shell = subprocess.Popen(
            [*AS_ROOT, *unshare],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        # Without a socket of the machine's containerd in sight, dockerd starts its own.
        self._do("mkdir -p /run/containerd && mount -t tmpfs none /run/containerd && ip link set lo up")

    def _do(self, command: str) -> None:
        """Run a command in the namespaces and wait for its end."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._shell.stdin.write(f"{command}\necho done\n")
        self._shell.stdin.flush()
        assert self._shell.stdout.readline() == "done\n", f"{command}: no shell to run it"

    def docker(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run a docker command against this engine."""
        command = ["docker", "--host", self.host, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)

    def answers(self) -> bool:
        return self.docker("version").returncode == 0

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._do(f"PATH={shlex.quote(ADMINISTRATORS)} dockerd {self._command} >>{self._log} 2>&1 & engine=$!")
        assert within(60, self.answers), self._log.read_text()[-2000:]

    def end(self, signal: str) -> None:
        """Send it SIGTERM or SIGKILL, and wait until it has ended."""
        self._do(f"kill -{signal} $engine; wait $engine 2>/dev/null; true")

    def load_the_labs_images(self) -> None:
        """Give it the images of the nginx lab, under the names they have there."""
        lab = find_scenario("nginx-static").labs["bridge"]
        here = json.loads(
            subprocess.run(["docker", "image", "inspect", BASE], capture_output=True, check=True).stdout
        )
        ours = image_names(lab, image_tag(lab, {BASE: here[0]["Id"]}))
        with subprocess.Popen(["docker", "save", BASE, *ours], stdout=subprocess.PIPE) as save:
            loaded = self.docker("load", stdin=save.stdout)
        assert loaded.returncode == 0 and save.returncode == 0, loaded.stderr
        base = json.loads(self.docker("image", "inspect", BASE).stdout)[0]["Id"]  # another kind of store: another id
        for old, new in zip(ours, image_names(lab, image_tag(lab, {BASE: base})), strict=True):
            assert self.docker("tag", old, new).returncode == 0

    def close(self) -> None:
        """End its namespaces, and with them everything that ran there."""
        self._shell.communicate(timeout=30)


def why_not() -> str | None:
    """Why a Docker engine cannot be started here; None where it can."""
    there = shutil.which("dockerd", path=ADMINISTRATORS)
    return mount_refused() or (None if there else "there is no dockerd: the engine is elsewhere")


@contextmanager
def private_engine() -> Iterator[PrivateEngine]:
    """A running engine with the nginx lab's images, in a folder short enough for the names of sockets."""
    place = Path(tempfile.mkdtemp(prefix="nagle-lab-", dir="/var/tmp"))
    engine = PrivateEngine(place)
    try:
        engine.start()
        engine.load_the_labs_images()
        yield engine
        engine.end("TERM")
    finally:
        engine.close()
        subprocess.run([*AS_ROOT, "rm", "-rf", "--one-file-system", place], check=True)
        groups = [str(found) for found in Path("/sys/fs/cgroup").glob(f"**/{place.name}")]
        nested = [str(found) for group in groups for found in Path(group).rglob("*") if found.is_dir()]
        subprocess.run(
            [*AS_ROOT, "rmdir", *sorted(nested, reverse=True), *groups],
            check=False,
            capture_output=True,
        )
