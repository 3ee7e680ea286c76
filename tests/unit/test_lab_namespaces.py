"""Which containers share a network namespace, and which captures are taken in it."""

import msgspec
import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.docker import Container
from nagle_lab.lab.manifest import capture_record, namespace_record
from nagle_lab.lab.namespaces import Namespace, captured_namespace, captured_namespaces
from nagle_lab.lab.scenarios.scenario import CapturePoint
from nagle_lab.runs.manifest import CaptureRecord


def container(id_: str, mode: str) -> Container:
    """What the engine says of a container; ``mode`` is its NetworkMode."""
    state = {"Status": "running", "ExitCode": 0, "FinishedAt": ""}
    config = {"Image": "x", "Labels": {}}
    said = {"Id": id_, "Image": "y", "Config": config, "HostConfig": {"NetworkMode": mode}, "State": state}
    return msgspec.convert(said, Container)


BRIDGE = {
    "server": container("1", "p_lab"),
    "server-capture": container("2", "container:1"),
    "proxy": container("3", "p_lab"),
    "proxy-capture": container("4", "container:3"),
    "client": container("5", "p_lab"),
}


def test_each_container_on_a_bridge_has_its_own():
    points = {"client": CapturePoint("proxy-capture", "eth0"), "server": CapturePoint("server-capture", "eth0")}
    assert captured_namespaces(BRIDGE, points) == {
        "proxy": Namespace("proxy", ("proxy", "proxy-capture"), ("client",)),
        "server": Namespace("server", ("server", "server-capture"), ("server",)),
    }


def test_two_interfaces_of_one_namespace_are_one_namespace():
    points = {"wire": CapturePoint("proxy-capture", "eth0"), "loop": CapturePoint("proxy-capture", "lo")}
    assert captured_namespaces(BRIDGE, points) == {
        "proxy": Namespace("proxy", ("proxy", "proxy-capture"), ("wire", "loop"))
    }


@pytest.mark.parametrize(("capture", "name"), [("loopback", "loopback"), ("client", "server")])
def test_a_shared_loopback_is_named_after_its_capture_unless_a_service_has_that_name(capture: str, name: str):
    shared = {
        "server": container("1", "none"),
        "client": container("2", "container:1"),
        "capture": container("3", "container:2"),  # by way of another
    }
    found = captured_namespaces(shared, {capture: CapturePoint("capture", "lo")})
    assert found == {name: Namespace(name, ("capture", "client", "server"), (capture,))}


def test_the_namespace_of_a_service_is_one_that_is_captured():
    found = captured_namespaces(BRIDGE, {"server": CapturePoint("server-capture", "eth0")})
    captured = found.values()
    assert (
        captured_namespace("server", captured).name == captured_namespace("server-capture", captured).name == "server"
    )
    with pytest.raises(NagleLabError, match="nothing is captured in the network namespace of client: "):
        captured_namespace("client", found.values())


DESCRIBED = [
    "kernel 6.18.44",
    "address 10.0.0.3",
    "address fd00::3",
    "mtu 65536",
    "sysctl net.ipv4.tcp_congestion_control bbr",
    "sysctl net.ipv4.tcp_rmem 4096\t131072\t6291456",
    "offload tcp-segmentation-offload on",
]


def test_what_a_sidecar_describes_is_said_of_the_capture_or_of_its_namespace():
    assert capture_record(CapturePoint("x-capture", "lo"), "x", DESCRIBED) == CaptureRecord(
        service="x-capture",
        interface="lo",
        namespace="x",
        mtu=65536,
        offloads={"tcp-segmentation-offload": "on"},
    )
    about = namespace_record(["x", "x-capture"], DESCRIBED)
    assert about.services == ["x", "x-capture"]
    assert about.addresses == ["10.0.0.3", "fd00::3"]
    assert about.congestion_control == "bbr"
    assert about.sysctls["net.ipv4.tcp_rmem"] == "4096 131072 6291456"
