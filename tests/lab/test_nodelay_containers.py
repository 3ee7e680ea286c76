"""The inventory, and TCP_NODELAY on the living: nginx in a container, under a load from another one."""

import json

import pytest

from support.command import in_process
from support.in_docker import nginx_that_stalls, read_in
from support.living import nagle_lab, switched
from support.namespaces import ESTABLISHED, sockets
from support.rights import AS_ROOT
from support.waiting import within

# Without a stall ab asks as fast as the machine allows, and on a busy one what waits for a processor looks held, too.
PACE = "limit_req_zone all zone=all:32k rate=2000r/s; limit_req zone=all burst=100;"
pytestmark = [pytest.mark.quiet, pytest.mark.long]


@pytest.fixture
def nginx(tmp_path):
    """The name of a container with nginx, tcp_nodelay off; ab keeps ten connections to it busy."""
    if AS_ROOT:
        pytest.skip("looking into containers takes root")
    name = f"nagle-lab-test-living-{tmp_path.name.replace('_', '-')}".lower()[:60]
    pace = tmp_path / "pace.conf"
    pace.write_text(PACE)
    with nginx_that_stalls(name, f"--volume={pace}:/etc/nginx/templates/pace.conf.template:ro") as load:
        load()
        assert within(60, lambda: sockets(read_in(name, "/proc/net/tcp"), 8080, ESTABLISHED) == 10)
        yield name


def test_a_running_nginx_is_listed_cured_and_stalls_again(nginx):
    code, out, err = nagle_lab("sockets", "--container", nginx, "--json")
    assert code == 0, err
    sockets = json.loads(out)["sockets"]
    assert {one["container"] for one in sockets} == {nginx}
    connections = [one for one in sockets if one["state"] == "ESTABLISHED"]
    assert len(connections) == 10
    assert {process["name"] for one in sockets for process in one["processes"]} == {"nginx"}
    assert not any(one["nodelay"] for one in sockets)

    code, out, err = switched("on", f"--container={nginx}", "--seconds=3")
    assert (code, "The stall is gone: " in out) == (0, True), out + err
    assert "TCP_NODELAY set: nginx " in err and f"in {nginx}: 0.0.0.0:8080 listens" in err

    code, out, err = switched("off", f"--container={nginx}", "--seconds=3")
    assert (code, "The stall is back: " in out) == (0, True), out + err
    code, out, err = nagle_lab("sockets", "--container", nginx, "--json")
    assert not any(one["nodelay"] for one in json.loads(out)["sockets"])


def test_containers_that_are_not_there():
    code, _, err = in_process("nodelay", "--container", "no-such-container", "on", "--yes")
    assert (code, "no container no-such-container with sockets is visible here" in err) == (2, True), err
