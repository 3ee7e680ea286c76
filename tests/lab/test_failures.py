"""What can go wrong with a run: one line, the right exit code, and nothing recorded is lost."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.recording import Recording, copy_of_the_lab, engine_holds, remove_images
from msgspec.structs import replace

from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.lab import run_containers
from nagle_lab.lab.containers.compose import ComposeSearch
from nagle_lab.lab.containers.images import BASE, image_names, ready_images
from nagle_lab.lab.scenarios.scenario import (
    CapturePoint,
    ChoiceParameter,
    Listener,
    Prepare,
    Requirement,
    Scenario,
    ServerOption,
)
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.lab.session import record
from nagle_lab.runs.run import judge_run
from support.rights import AS_ROOT, mount_refused

pytestmark = pytest.mark.long
SMALL = {"REQUESTS": "20", "CONCURRENCY": "5"}


def failure(scenario: Scenario, runs_dir: Path, variant: str = "nodelay-off", **settings: str) -> str:
    """Record, which must fail with exit code 2 and one line; return the line."""
    with pytest.raises(NagleLabError) as failed:
        record(scenario, scenario.variant(variant), {**SMALL, **settings}, runs_dir, lambda _: None)
    assert failed.value.exit_code is Exit.UNUSABLE
    assert "\n" not in str(failed.value)
    return str(failed.value)


def kept(runs_dir: Path) -> tuple[Path, dict[str, object]]:
    """Return the one failed run folder and its manifest."""
    (folder,) = runs_dir.iterdir()
    assert folder.name.endswith(".failed")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["complete"] is False
    return folder, manifest


def test_a_server_that_refuses_its_configuration_is_quoted(nginx: Scenario, runs_dir: Path):
    maybe = ChoiceParameter("TCP_NODELAY", "x", "maybe", {"maybe": "maybe"})
    variant = replace(nginx.variant("nodelay-off"), fixed={})
    broken = replace(nginx, parameters={**nginx.parameters, "TCP_NODELAY": maybe}, variants={"nodelay-off": variant})
    told = failure(broken, runs_dir)
    assert told == (
        "the server ended with exit code 64: nagle-lab server: TCP_NODELAY is 'maybe': set it to on or off"
    )
    assert list(runs_dir.iterdir()) == []


def test_a_server_that_does_not_listen_is_waited_for_and_quoted(nginx: Scenario, runs_dir: Path, monkeypatch):
    monkeypatch.setattr(run_containers, "_LISTENING_S", 0.3)
    told = failure(replace(nginx, server=replace(nginx.server, port=81)), runs_dir)
    assert told == "the server does not listen on port 81 after 0.3 s: it logged nothing"
    assert list(runs_dir.iterdir()) == []


def test_a_load_that_fails_is_quoted_and_what_was_recorded_is_kept(nginx: Scenario, runs_dir: Path):
    told = failure(replace(nginx, load=replace(nginx.load, command="ab -n 1 -c 1 http://server:9/")), runs_dir)
    assert told.startswith("ab ended with exit code 111: ")
    assert "apr_socket_recv: Connection refused (111); what was recorded" in told
    folder, manifest = kept(runs_dir)
    assert told.endswith(f"is in {folder}")
    assert "Connection refused" in str(manifest["failure"])
    assert {"server.pcap", "client.pcap", "load.txt", "server.conf", "witnesses.json"} <= manifest["files"].keys()
    assert json.loads((folder / "witnesses.json").read_text())["load"]["exit_code"] == 111


def with_lab(scenario: Scenario, **changes: object) -> Scenario:
    """Return the scenario with its lab changed."""
    return replace(scenario, labs={"bridge": replace(scenario.labs["bridge"], **changes)})


def test_a_machine_that_lacks_what_a_lab_requires_is_told_so_and_nothing_is_started(nginx: Scenario, runs_dir: Path):
    has, has_not = Requirement("a shell", "test -e /bin/sh"), Requirement("net.ipv4.tcp_moon", "test -e /moon")
    said: list[str] = []
    with pytest.raises(NagleLabError) as refused:
        needy = with_lab(nginx, requires=(has, has_not))
        record(needy, needy.variant("nodelay-off"), SMALL, runs_dir, said.append)
    assert str(refused.value) == "this machine cannot run nginx-static nodelay-off: it has no net.ipv4.tcp_moon"
    assert refused.value.exit_code is Exit.INCONCLUSIVE
    assert not any(line.startswith("starting") for line in said)
    assert list(runs_dir.iterdir()) == []


def test_a_requirement_that_cannot_be_asked_is_no_answer(nginx: Scenario, runs_dir: Path):
    told = failure(with_lab(nginx, requires=(Requirement("a moon", "look-for-a-moon"),)), runs_dir)
    assert told.startswith("`look-for-a-moon` could not be run: ")


def test_the_preparation_runs_before_the_captures_with_the_parameters(nginx: Scenario, runs_dir: Path):
    prepared = with_lab(nginx, prepare=(Prepare("server", "sh -c 'echo {REQUESTS} >/tmp/prepared'"),))
    proof = ServerOption("server", "cat /tmp/prepared", "{REQUESTS}")
    prepared = with_lab(prepared, option=proof)
    folder = record(prepared, prepared.variant("nodelay-off"), SMALL, runs_dir, lambda _: None)
    assert json.loads((folder / "witnesses.json").read_text())["option"] == {
        "file": "server.conf",
        "demanded": "20",
        "in_effect": True,
    }


def test_a_preparation_that_fails_is_quoted(nginx: Scenario, runs_dir: Path):
    broken = with_lab(nginx, prepare=(Prepare("client", "sh -c 'echo no moon >&2; exit 1'"),))
    assert failure(broken, runs_dir) == "`sh -c 'echo no moon >&2; exit 1'` in client failed: no moon"


def test_a_service_that_no_compose_file_has_is_named(nginx: Scenario, runs_dir: Path):
    told = failure(with_lab(nginx, captures={"server": CapturePoint("moon-capture", "eth0")}), runs_dir)
    assert told.startswith("scenario.toml names service 'moon-capture', which the Compose files do not have")


def test_a_server_that_nothing_watches(nginx: Scenario, runs_dir: Path):
    told = failure(with_lab(nginx, captures={"client": CapturePoint("client-capture", "eth0")}), runs_dir)
    assert told.startswith("nothing is captured in the network namespace of server: ")


def test_another_listener_is_waited_for(nginx: Scenario, runs_dir: Path, monkeypatch):
    monkeypatch.setattr(run_containers, "_LISTENING_S", 2.0)  # the server, which is waited for first, does listen
    told = failure(with_lab(nginx, ready=(Listener("client-capture", 81),)), runs_dir)
    assert told == "the client does not listen on port 81 after 2 s: it logged nothing"


def test_one_capture_of_two_interfaces_and_no_option(nginx: Scenario, runs_dir: Path):
    """A capture of a quiet loopback holds no packet: the run says so, and its other capture is whole."""
    points = {"eth": CapturePoint("server-capture", "eth0"), "loop": CapturePoint("server-capture", "lo")}
    plain = with_lab(nginx, captures=points, option=None)
    run = judge_run(record(plain, plain.variant("nodelay-off"), SMALL, runs_dir, lambda _: None))
    assert run.witnesses.option is None
    assert list(run.witnesses.counters) == ["server"]
    assert run.verdict == "INVALID" and run.reason.startswith("loop.pcap: no TCP packet in it")
    total = run.captures["eth"].under_test
    assert (total.connections, total.exchanges, total.repeat_exchanges) == (5, 20, 15)
    # A client that asks 40 ms late, as on a busy machine, acknowledges that answer at once (tcp_event_data_sent).
    assert 0 < total.stalled_exchanges <= 15
    assert [c.name for c in run.checks if not c.ok] == []


def nginx_image(scenario: Scenario) -> str:
    """Return the name of the lab's own server image, which is there."""
    lab = scenario.labs["bridge"]
    tag, _ = ready_images(lab, ComposeSearch().result(), {}, print)
    return next(name for name in image_names(lab, tag) if name.startswith("nagle-lab/nginx:"))


def test_a_reader_of_the_progress_who_goes_away_does_not_stop_the_run(nginx: Scenario, runs_dir: Path):
    def gone(_: str) -> None:
        raise BrokenPipeError

    assert record(nginx, nginx.variant("nodelay-off"), SMALL, runs_dir, gone).is_dir()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 KiB; a run of 1000 requests records four times as much."""
    if reason := mount_refused():
        pytest.skip(f"to mount the small disk that this test fills: {reason}")
    disk = tmp_path / "disk"
    disk.mkdir()
    options = f"size=300k,uid={os.getuid()}"
    subprocess.run([*AS_ROOT, "mount", "-t", "tmpfs", "-o", options, "none", disk], check=True)
    yield disk
    subprocess.run([*AS_ROOT, "umount", disk], check=True)


def test_a_disk_that_fills_up_while_capturing(nginx: Scenario, small_disk: Path):
    told = failure(nginx, small_disk, REQUESTS="1000", CONCURRENCY="100")
    assert told.startswith("disk full while writing ")
    assert f".pcap: make room in {small_disk}; what was recorded is in {small_disk}/" in told
    folder, manifest = kept(small_disk)
    assert str(manifest["failure"]).startswith("disk full")
    assert (folder / "server.pcap").stat().st_size > 4096
    assert engine_holds(small_disk) == ([], [])


def test_a_disk_that_is_full_from_the_start(nginx: Scenario, small_disk: Path):
    (small_disk / "rest").write_bytes(bytes(280 << 10))
    assert failure(nginx, small_disk) == f"disk full while writing the run folder: make room in {small_disk}"
    assert [path.name for path in small_disk.iterdir()] == ["rest"]


def test_another_server_image_is_used_as_it_is(nginx: Scenario, runs_dir: Path, monkeypatch):
    """SERVER_IMAGE brings nginx and envsubst: nothing is installed into it."""
    with_nginx = nginx_image(nginx)
    monkeypatch.setenv("SERVER_IMAGE", with_nginx)
    folder = record(nginx, nginx.variant("nodelay-off"), SMALL, runs_dir, lambda _: None)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["images"]["server"]["base"]["name"] == with_nginx
    assert manifest["images"]["client"]["base"]["name"] == BASE
    assert json.loads((folder / "witnesses.json").read_text())["option"]["in_effect"] is True
    remove_images(nginx.labs["bridge"], BASE, with_nginx)


def test_an_image_that_cannot_be_had(nginx: Scenario, runs_dir: Path, monkeypatch):
    monkeypatch.setenv("SERVER_IMAGE", "localhost:1/no/such:image")
    told = failure(nginx, runs_dir)
    assert told.startswith("SERVER_IMAGE=localhost:1/no/such:image is not on this machine and cannot be pulled: ")
    assert not runs_dir.exists()


def test_an_image_that_cannot_be_built_is_told_in_the_builders_words(runs_dir: Path, tmp_path: Path):
    folder = copy_of_the_lab(tmp_path, "USER root", "RUN apt-get install --yes there-is-no-such-package")
    code, _, errors = Recording(runs_dir, scenarios=folder).end()
    assert code == 2
    assert errors == "nagle-lab: building the images failed: E: Unable to locate package there-is-no-such-package\n"
    remove_images(find_scenario("nginx-static", folder).labs["bridge"], BASE)


def test_the_images_own_check_of_its_settings(nginx: Scenario):
    """Compose by hand, without nagle-lab's checks: the server says in one line what is wrong, and ends."""
    image = nginx_image(nginx)
    for setting, told in {
        "TCP_NODELAY=maybe": "TCP_NODELAY is 'maybe': set it to on or off",
        "TCP_NOPUSH=maybe": "TCP_NOPUSH is 'maybe': set it to on or off",
        "PAGE_BYTES=big": "PAGE_BYTES is 'big': set it to a number of bytes",
    }.items():
        command = ["docker", "run", "--rm", "--network", "none", "--env", "TCP_NODELAY=on", "--env", setting, image]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (64, f"nagle-lab server: {told}\n")
