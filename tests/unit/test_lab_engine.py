"""Docker and Compose as the lab uses them, against stand-ins that note how they are called."""

import json
from pathlib import Path

import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.compose import Compose, ComposeSearch, error_line
from nagle_lab.lab.containers.docker import SERVICE_LABEL, engine_version, image_details, remove_project
from nagle_lab.lab.containers.process import Finished
from nagle_lab.lab.run_containers import LiveLab
from nagle_lab.lab.scenarios.scenario_file import find_scenario

V1, V2 = Compose(("docker-compose",), "1.29.2"), Compose(("docker", "compose"), "2.26.1-4")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that puts a shell script in PATH, which holds nothing else but the shell's own tools."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    for tool in ("sh", "env", "cat"):
        (bin_dir / tool).symlink_to(f"/bin/{tool}" if tool != "env" else "/usr/bin/env")
    monkeypatch.setenv("PATH", str(bin_dir))

    def add(name: str, script: str) -> None:
        (bin_dir / name).write_text(f"#!/bin/sh\n{script}\n")
        (bin_dir / name).chmod(0o755)

    return add


def test_no_docker(programs):
    with pytest.raises(NagleLabError, match="Docker is not installed: run `make setup`"):
        engine_version()


def test_no_engine(programs):
    programs("docker", "echo 'Cannot connect to the Docker daemon at unix:///x. Is it running?' >&2; exit 1")
    with pytest.raises(NagleLabError) as refused:
        engine_version()
    assert "does not answer (Cannot connect to the Docker daemon at unix:///x. Is it running?)" in str(refused.value)
    assert str(refused.value).endswith("run `make setup`")


@pytest.mark.parametrize(
    ("docker", "docker_compose", "found"),
    [
        ("echo 2.26.1-4", "echo 1.29.2", V2),
        ("echo v2.26.1-4", None, V2),
        ("echo 'unknown command: compose' >&2; exit 1", "echo 1.29.2", V1),
        (None, "echo 2.26.1", Compose(("docker-compose",), "2.26.1")),  # v2 under the old name
    ],
)
def test_compose_v2_is_preferred(programs, docker: str | None, docker_compose: str | None, found: Compose):
    for name, script in {"docker": docker, "docker-compose": docker_compose}.items():
        if script:
            programs(name, script)
    assert ComposeSearch().result() == found


@pytest.mark.parametrize("docker_compose", [None, "echo 1.28.6", "exit 1"], ids=["none", "too old", "broken"])
def test_no_compose_that_will_do(programs, docker_compose: str | None):
    programs("docker", "exit 1")
    if docker_compose:
        programs("docker-compose", docker_compose)
    with pytest.raises(NagleLabError, match=r"Docker Compose is missing .*1\.29 or newer\): run `make setup`"):
        ComposeSearch().result()


@pytest.mark.parametrize(
    "called",
    [
        (V1, "--project-name p --file /x/compose.yaml --file /x/more.yaml build --force-rm", "0"),
        (V2, "compose --project-name p --file /x/compose.yaml --file /x/more.yaml build", None),
    ],
    ids=["v1", "v2"],
)
def test_compose_is_told_everything_and_inherits_nothing_that_misleads(
    programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: tuple[Compose, str, str | None]
):
    compose, build, classic = called
    note = tmp_path / "note"
    programs(compose.command[0], f'echo "$@" >{note}; env >>{note}')
    monkeypatch.setenv("COMPOSE_FILE", "/elsewhere.yaml")
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", "other")
    compose.build([Path("/x/compose.yaml"), Path("/x/more.yaml")], "p", {"TCP_NODELAY": "off"})
    arguments, *variables = note.read_text().splitlines()
    environment = dict(line.split("=", 1) for line in variables if "=" in line)
    assert arguments == build
    assert environment["TCP_NODELAY"] == "off"
    assert "COMPOSE_FILE" not in environment and "COMPOSE_PROJECT_NAME" not in environment
    assert environment.get("COMPOSE_DOCKER_CLI_BUILD") == classic

    compose.up([Path("/x/compose.yaml")], "p", {})
    words = note.read_text().splitlines()[0].removeprefix("compose ")
    assert words == "--project-name p --file /x/compose.yaml up --detach --no-build"


@pytest.mark.parametrize(
    ("stderr", "told"),
    [
        (
            "ERROR: for a  Cannot start service a: no room\nEncountered errors while bringing up the project.",
            "ERROR: for a  Cannot start service a: no room",
        ),
        (
            "#8 0.543 E: Unable to locate package nginx\nfailed to solve: executor failed running: exit code: 100",
            "E: Unable to locate package nginx",
        ),
        ("pull access denied", "pull access denied"),
        ("", "exit code 1"),
    ],
)
def test_the_line_that_says_why_compose_failed(stderr: str, told: str):
    assert error_line(Finished(("docker-compose",), 1, "", stderr)) == told


def test_a_project_is_removed_until_nothing_of_it_is_left(programs, tmp_path: Path):
    """The first list fails (a Ctrl-C hit it), a container appears late, its network stays until it is gone."""
    for list_ in ("containers", "networks"):
        (tmp_path / list_).write_text("0")
    programs(
        "docker",
        f"""
        turn() {{ read -r n <{tmp_path}/$1; echo $((n + 1)) >{tmp_path}/$1; }}  # each list counts its own
        case "$*" in
            "ps --all"*) turn containers; case $n in 0) exit 130 ;; 1) echo c1 ;; 2) echo c2 ;; esac ;;
            "network ls"*) turn networks; [ "$n" -gt 3 ] || echo n1 ;;
            *) echo "$*" >>{tmp_path}/removed ;;
        esac""",
    )
    remove_project("p")
    removed = (tmp_path / "removed").read_text().splitlines()
    assert [line for line in removed if line.startswith("rm")] == [
        "rm --force --volumes c1",
        "rm --force --volumes c2",
    ]
    assert "network rm n1" in removed


def test_what_cannot_be_removed_is_told(programs):
    programs("docker", 'case "$*" in "rm "*) echo "permission denied" >&2; exit 1 ;; *) echo x ;; esac')
    with pytest.raises(NagleLabError, match=r"could not remove the containers of p .*: run `make clean`"):
        remove_project("p")


def test_details_of_the_images_that_exist(programs):
    programs("docker", f"echo '{json.dumps([{'Id': 'sha256:1'}])}'; exit 1")  # some exist, some do not
    assert image_details(["a", "b"]) == [{"Id": "sha256:1"}]


ENDED = [
    {
        "Id": service,
        "Image": "sha256:1",
        "Config": {"Image": "x", "Labels": {SERVICE_LABEL: service}},
        "HostConfig": {"NetworkMode": "none"},
        "State": {"Status": "exited", "ExitCode": 255, "FinishedAt": "2026-11-22T08:00:00Z"},
    }
    for service in ("server", "client")
]


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (ENDED, "all containers ended at once (was Docker restarted?): run it again"),
        ([], "the containers of this run are gone (was Docker restarted?): run it again"),
    ],
)
def test_an_engine_that_answers_again_is_asked_again(programs, tmp_path: Path, held: list[object], told: str):
    """Away when asked for the containers, back when asked for its version: nothing is known of the containers yet."""
    (tmp_path / "held").write_text(json.dumps(held))
    programs("docker-compose", "true")
    programs(
        "docker",
        f"""cd '{tmp_path}'
        case $1 in
          ps) echo 'server 1'; echo 'client 2' ;;
          version) echo 20 >back ;;
          container) if [ -e back ]; then cat held; else echo 'Cannot connect' >&2; exit 1; fi ;;
        esac""",
    )
    lab = LiveLab(find_scenario("nginx-static").labs["bridge"], "server", V1, Path("lock"), {})
    lab.start()
    with pytest.raises(NagleLabError) as ended:
        lab.require_services()
    assert str(ended.value) == told
