"""What a live lab may do: unprivileged, no way out, and only the sidecars may capture."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from lab.recording import Recording, docker, engine_holds


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The containers, by service, and the network of a run in the middle of its load, as the engine sees them."""
    runs_dir: Path = tmp_path_factory.mktemp("runs")
    recording = Recording(runs_dir, CONCURRENCY="1", REQUESTS="1000")
    recording.wait_for("ab ")
    try:
        containers, networks = engine_holds(runs_dir)
        details = json.loads(docker("container", "inspect", *containers))
        by_service = {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in details}
        return by_service, json.loads(docker("network", "inspect", *networks))[0]
    finally:
        assert recording.interrupt()[0] == 130


def test_four_containers_and_one_network_without_a_way_out(live):
    containers, network = live
    assert sorted(containers) == ["client", "client-capture", "server", "server-capture"]
    assert network["Internal"] is True
    assert all(not each["HostConfig"]["PortBindings"] for each in containers.values())


@pytest.mark.parametrize("service", ["client", "client-capture", "server", "server-capture"])
def test_no_container_has_more_than_it_needs(live, service: str):
    container = live[0][service]
    host = container["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    sidecar = service.endswith("-capture")
    assert [capability.removeprefix("CAP_") for capability in host["CapAdd"] or []] == (
        ["NET_RAW"] if sidecar else []
    )
    assert (container["Config"]["User"] == "10001:10001") is not sidecar
    assert host["Privileged"] is False and host["ReadonlyRootfs"] is True and host["Init"] is True
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert host["PidsLimit"] == 64 and host["Memory"] == 256 << 20
    assert container["Mounts"] == [] and not host["Binds"]
    assert host["RestartPolicy"]["Name"] in ("", "no")
    assert not container["Config"].get("Healthcheck")


def test_each_sidecar_shares_the_network_of_its_end(live):
    containers = live[0]
    for end in ("server", "client"):
        assert containers[f"{end}-capture"]["HostConfig"]["NetworkMode"] == f"container:{containers[end]['Id']}"


def test_the_files_belong_to_the_calling_user(runs_dir: Path):
    code, folder, errors = Recording(runs_dir, CONCURRENCY="5", REQUESTS="20").end()
    assert code == 0, errors
    assert {file.stat().st_uid for file in Path(folder).iterdir()} == {os.getuid()}
