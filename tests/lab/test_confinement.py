"""What a lab may do: unprivileged, bounded, no way out, and only the sidecars may capture.

Every lab of every scenario is started and looked at as the engine holds it; the nginx lab also in the middle of its
load, from inside.
"""

import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lab.recording import Recording, docker, engine_holds

from nagle_lab.lab.containers.compose import Compose, ComposeSearch
from nagle_lab.lab.containers.images import image_names, ready_images
from nagle_lab.lab.folder import RunFolder
from nagle_lab.lab.scenarios.scenario import Lab
from nagle_lab.lab.scenarios.scenario_file import scenarios

pytestmark = pytest.mark.builds
SERVICES = ["client", "client-capture", "server", "server-capture"]
LABS = {f"{scenario.name}/{name}": lab for scenario in scenarios().values() for name, lab in scenario.labs.items()}
# The only services that may change a route, each in a lab of its own for the variants that do.
ROUTES = {
    "nginx-static/quickack-route": "client-route",
    "nginx-static/link-quickack": "client-route",
    "message-queue/quickack-route": "server-route",
    "node-keepalive/quickack-route": "server-route",
    "redis-proxy/quickack-route": "server-route",
    "unbuffered-proxy/bridge-quickack": "app-route",
}
MOST_MEMORY, MOST_PROCESSES, MOST_TMPFS_MB = 256 << 20, 300, 64
SECRET = re.compile(r"passw|secret|token|credential|api.?key|private.?key|BEGIN [A-Z ]*PRIVATE", re.IGNORECASE)


class Created(NamedTuple):
    """The containers of a lab by service, its networks, and the names of its images."""

    containers: dict[str, dict[str, Any]]
    networks: list[dict[str, Any]]
    images: list[str]


@pytest.fixture(scope="module")
def compose() -> Compose:
    return ComposeSearch().result()


@pytest.fixture(scope="module")
def created(compose: Compose, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Created]]:
    """Every lab, by scenario/lab; labs of the same Compose files are started once, several at a time."""
    folder = RunFolder.create(tmp_path_factory.mktemp("runs"), "confinement")  # its lock says that we are alive
    marks = {"NAGLE_LAB_LOCK": str(folder.lock_path), "NAGLE_LAB_HOST": os.uname().nodename}
    tags = {lab.compose: ready_images(lab, compose, {}, print)[0] for lab in LABS.values()}
    different = {lab.compose: lab for lab in LABS.values()}
    try:
        with ThreadPoolExecutor(4) as pool:
            started = pool.map(lambda lab: _started(lab, compose, marks, tags[lab.compose]), different.values())
            found = dict(zip(different, started, strict=True))
        yield {name: found[lab.compose] for name, lab in LABS.items()}
    finally:
        folder.discard()


def _started(lab: Lab, compose: Compose, marks: dict[str, str], tag: str) -> Created:
    """Start a lab as a run does, and look; also where the machine lacks what the lab requires."""
    project = f"nagle-lab-{secrets.token_hex(4)}"
    files = [word for file in lab.compose for word in ("--file", str(file))]
    arguments = [*compose.command, "--project-name", project, *files, "up", "--detach", "--no-build"]
    mark = f"label=com.docker.compose.project={project}"
    try:
        environment = os.environ | marks | {"NAGLE_LAB_TAG": tag}
        up = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
        assert up.returncode == 0 or lab.requires, up.stderr
        details = json.loads(docker("container", "inspect", *_found("ps --all", mark)))
        networks = _found("network ls", mark)
        return Created(
            {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in details},
            json.loads(docker("network", "inspect", *networks)) if networks else [],
            image_names(lab, tag),
        )
    finally:
        for kind, remove in (("ps --all", "rm --force --volumes"), ("network ls", "network rm")):
            if left := _found(kind, mark):
                docker(*remove.split(), *left)


def _found(what: str, mark: str) -> list[str]:
    return docker(*what.split(), "--quiet", "--filter", mark).split()


@pytest.mark.parametrize("name", LABS)
def test_no_container_of_any_lab_has_more_than_it_needs(created, name: str):
    for service, container in created[name].containers.items():
        host, config = container["HostConfig"], container["Config"]
        added = sorted(capability.removeprefix("CAP_") for capability in host["CapAdd"] or [])
        assert config["Labels"].keys() >= {"nagle-lab.lock", "nagle-lab.host"}, service
        assert (host["CapDrop"], host["Privileged"]) == (["ALL"], False), service
        assert host["SecurityOpt"] == ["no-new-privileges:true"], service  # nothing is unconfined
        assert host["ReadonlyRootfs"] is True and host["Init"] is True, service
        assert (config["User"] == "10001:10001") is not bool(added), (
            service
        )  # Docker gives what is added to root only
        assert not container["Mounts"] and not host["Binds"] and not host["VolumesFrom"], service
        assert not host["Devices"] and not host["DeviceRequests"] and not host["GroupAdd"], service
        assert not host["PortBindings"] and not host["PublishAllPorts"], service
        assert host["IpcMode"] in ("private", "shareable") and not host["PidMode"] and not host["UTSMode"], service
        assert not host["UsernsMode"] and host["NetworkMode"] != "host", service
        assert (host.get("Sysctls") or {}).keys() <= {"net.ipv4.tcp_pingpong_thresh"}, service
        assert host["RestartPolicy"]["Name"] in ("", "no") and not config.get("Healthcheck"), service


@pytest.fixture(scope="module")
def counts_swap() -> bool:
    """Whether the engine can limit it."""
    answer = json.loads(docker("info", "--format", "{{json .SwapLimit}}"))
    assert isinstance(answer, bool)
    return answer


@pytest.mark.parametrize("name", LABS)
def test_a_run_of_any_lab_cannot_take_the_host_down(created, counts_swap: bool, name: str):
    """Memory without swap, processes, what is written to tmpfs and to logs, core files. No limit on the CPU:
    see docs/privileges.md."""
    for service, container in created[name].containers.items():
        host = container["HostConfig"]
        assert 0 < host["Memory"] <= MOST_MEMORY, service
        assert host["MemorySwap"] == host["Memory"] or not counts_swap, service
        assert 0 < host["PidsLimit"] <= MOST_PROCESSES, service
        assert 0 < host["ShmSize"] <= MOST_TMPFS_MB << 20, service
        sizes = [re.search(r"\bsize=(\d+)m\b", options) for options in (host.get("Tmpfs") or {}).values()]
        assert all(size and int(size[1]) <= MOST_TMPFS_MB for size in sizes), service
        assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "2"}}, service
        assert {"Name": "core", "Hard": 0, "Soft": 0} in host["Ulimits"], service
        assert (host["NanoCpus"], host["CpuQuota"]) == (0, 0), service


@pytest.mark.parametrize("name", LABS)
def test_no_lab_has_a_way_out(created, name: str):
    containers, networks, _ = created[name]
    for network in networks:
        assert network["Internal"] is True and network["Driver"] == "bridge" and network["Labels"]["nagle-lab.lock"]
    for service, container in containers.items():
        mode = container["HostConfig"]["NetworkMode"]
        assert mode == "none" or mode.startswith("container:") or mode in {n["Name"] for n in networks}, service


def test_who_may_change_a_route_or_see_packets_is_named_here(created):
    """NET_ADMIN: one container of each lab in ROUTES. NET_RAW: the capture sidecars, and the relay of a long link."""
    admins, raw = {}, set()
    for name, lab in created.items():
        for service, container in lab.containers.items():
            added = {each.removeprefix("CAP_") for each in container["HostConfig"]["CapAdd"] or []}
            if "NET_ADMIN" in added:
                admins[name] = service
            if "NET_RAW" in added:
                raw.add(service)
            assert len(added) <= 1 and added <= {"NET_ADMIN", "NET_RAW"}, (name, service)
    assert admins == ROUTES
    assert {service for service in raw if not service.endswith("-capture")} == {"link"}


FIND_SECRETS = r"""
find / -xdev \( -name .git -o -name .netrc -o -name .npmrc -o -name .env -o -name .docker -o -name .aws \
  -o -name .ssh -o -name 'id_rsa*' -o -name 'id_ed25519*' \) -print || exit
grep -rlI -e 'BEGIN [A-Z ]*PRIVATE KEY' /etc /root /home /srv /opt /usr/local /tmp /var || [ $? = 1 ]
"""
# Nobody may read these two but who has the capability that the search has.
PLANT_A_SECRET = "umask 777; echo 'BEGIN RSA PRIVATE KEY' >/root/.ssh/id_rsa; chmod 0 /root/.ssh"


def found_in(image: str, first: str = "true", *options: str) -> list[str]:
    """The files that look like secrets, read by root whatever their modes; a file that cannot be read is an error."""
    confined = ("--network=none", "--read-only", "--user=0", "--cap-drop=ALL", "--cap-add=DAC_READ_SEARCH")
    docker_run = ["docker", "run", "--rm", *confined, *options, "--entrypoint=sh"]
    script = f"{first}\n{FIND_SECRETS}"
    done = subprocess.run([*docker_run, image, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), image
    return done.stdout.splitlines()


def test_images_hold_no_secret(created):
    """Neither in their environment and history, nor as a file: no key, no token, no repository."""
    images = sorted({image for lab in created.values() for image in lab.images}, key=lambda name: name.split(":")[0])
    details = json.loads(docker("image", "inspect", *images))
    different = {one["Id"]: (image, one["Config"]["Env"] or []) for image, one in zip(images, details, strict=True)}
    assert len(different) >= 8
    planted = found_in(images[0], PLANT_A_SECRET, "--tmpfs=/root/.ssh")
    assert planted == ["/root/.ssh", "/root/.ssh/id_rsa"]  # by its name, by what is in it
    for image, environment in different.values():
        history = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image)
        assert not [line for line in [*environment, *history.splitlines()] if SECRET.search(line)], image
        assert found_in(image) == [], image


# ------------------------------------------------------------------------------------ in the middle of a run


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], dict[str, dict[str, str]]]]:
    """The containers of a run in the middle of its load, by service, and what /proc says of the first process."""
    runs_dir: Path = tmp_path_factory.mktemp("runs")
    recording = Recording(runs_dir, CONCURRENCY="1", REQUESTS="1000")
    recording.wait_for("ab ")
    try:
        containers, _ = engine_holds(runs_dir)
        details = json.loads(docker("container", "inspect", *containers))
        by_service = {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in details}
        status = {
            service: docker("exec", each["Id"], "cat", "/proc/1/status") for service, each in by_service.items()
        }
        yield by_service, {at: dict(re.findall(r"(\w+):\s+(.*)", text)) for at, text in status.items()}
    finally:
        assert recording.interrupt()[0] == 130


@pytest.mark.parametrize("service", SERVICES)
def test_what_runs_has_no_more_than_was_asked_for(live, created, service: str):
    containers, status = live
    assert sorted(containers) == SERVICES
    running, before = (
        containers[service]["HostConfig"],
        created["nginx-static/bridge"].containers[service]["HostConfig"],
    )
    varying = {"NetworkMode", "ContainerIDFile"}
    assert {k: v for k, v in running.items() if k not in varying} == {
        k: v for k, v in before.items() if k not in varying
    }
    sidecar = service.endswith("-capture")
    for which in ("CapEff", "CapPrm", "CapBnd"):
        assert int(status[service][which], 16) & ~(1 << 13 if sidecar else 0) == 0  # 13: CAP_NET_RAW
    assert status[service]["NoNewPrivs"] == "1"
    assert set(status[service]["Uid"].split()) == {"0" if sidecar else "10001"}


def test_each_sidecar_shares_the_network_of_its_end(live):
    containers = live[0]
    for end in ("server", "client"):
        assert containers[f"{end}-capture"]["HostConfig"]["NetworkMode"] == f"container:{containers[end]['Id']}"


def test_the_files_belong_to_the_calling_user(runs_dir: Path):
    code, folder, errors = Recording(runs_dir, CONCURRENCY="5", REQUESTS="20").end()
    assert code == 0, errors
    assert {file.stat().st_uid for file in Path(folder).iterdir()} == {os.getuid()}
