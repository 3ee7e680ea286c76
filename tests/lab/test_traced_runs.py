"""Runs of the lab under strace: the calls that wrote, the trace in the run folder, and a sidecar with one right."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from lab.recording import NAGLE_LAB, REPOSITORY, docker, left_on_engine, traced

from nagle_lab.guard.tracing import strace_command
from nagle_lab.host.privileges import CAP_SYS_PTRACE
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.lab.tracer import traced_service
from nagle_lab.runs.manifest import THREADS, TRACE

pytestmark = [pytest.mark.quiet, pytest.mark.long]


def test_the_calls_of_nginx(tmp_path):
    code, err, run, result = traced(tmp_path, "nginx-static", "nodelay-off", REQUESTS="300", CONCURRENCY="10")
    assert code == 0, err
    writes = result["writes"]
    assert writes["stalls"] >= 200 and writes["named"] >= 0.95 * writes["stalls"], writes["problem"]
    group, *others = writes["groups"]  # a busy machine may make another pair wait once
    assert group["stalls"] >= 0.9 * writes["named"], others
    assert (group["trigger"]["call"], group["held"]["call"]) == ("writev", "sendfile")
    assert group["held"]["bytes"] == 615 and group["held"]["command"] == "nginx"
    assert group["trigger"]["program"]["function"].startswith("ngx_"), "the symbols that nginx exports"
    assert writes["nodelay"] == "never set on the socket that held"
    assert all(0 < pair["true_hold_ms"] <= 300 for pair in writes["pairs"])
    page = (tmp_path / "page.html").read_text()
    assert "The two writes" in page and group["held"]["program"]["function"] in page
    manifest = run.manifest
    assert manifest.traced == "server" and manifest.versions.strace
    assert manifest.files[TRACE].bytes > 10_000 and THREADS in manifest.files
    assert all("tracer" not in namespace.services for namespace in manifest.namespaces.values())
    shown = subprocess.run([NAGLE_LAB, "show", run.folder], capture_output=True, text=True, check=True).stdout
    assert f"{group['stalls']} stalls: {group['trigger']['program']['function']}  writev" in shown
    counts = f"{writes['untraced_stalled_exchanges']} of {writes['untraced_exchanges']} without tracing ("
    assert counts in " ".join(shown.split())
    assert left_on_engine(tmp_path) == []


def test_what_does_not_stall_without_strace_is_not_run_under_it(tmp_path):
    """CLEAN is what the run without strace is."""
    code, err, run, result = traced(tmp_path, "nginx-static", "nodelay-on", REQUESTS="200", CONCURRENCY="10")
    assert (code, run.verdict, run.manifest.traced) == (0, "CLEAN", None), err
    assert "writes" not in result and "because without strace the run is CLEAN" in err
    assert len([folder for folder in tmp_path.iterdir() if folder.is_dir() and not folder.is_symlink()]) == 1


def test_the_proxy_that_holds(tmp_path):
    code, err, run, result = traced(tmp_path, "redis-proxy", "nginx-nagle", REQUESTS="100")
    assert code == 0 and run.manifest.traced == "proxy", err
    assert result["writes"]["named"] >= 0.9 * result["writes"]["stalls"] > 0, result["writes"]["problem"]


def test_the_proxy_whose_receiver_grows_its_window_slowly_under_strace(tmp_path):
    code, err, run, result = traced(tmp_path, "unbuffered-proxy", "unbuffered-nagle", REQUESTS="60")
    assert code == 0 and run.manifest.traced == "proxy", err
    writes = result["writes"]
    assert writes["named"] >= 0.9 * writes["stalls"] >= 30, err
    assert {(group["trigger"]["bytes"], group["held"]["bytes"]) for group in writes["groups"]} >= {(9222, 8192)}
    # Of the others the first second, which is traced with stacks, was over: on a slow machine perhaps of most.
    # Which function it is depends on how the body comes in: nginx writes while it reads that, or from its event loop.
    found = {group["held"]["program"]["function"] for group in writes["groups"] if group["held"]["program"]}
    assert found and all(name.startswith("ngx_") for name in found), found


@pytest.mark.parametrize(
    ("scenario", "variant", "service"),
    [("nginx-static", "nodelay-off", "server"), ("nginx-static", "nodelay-on", "server"),
     ("redis-proxy", "nginx-nagle", "proxy"), ("message-queue", "two-writes", "client")],
)  # fmt: skip
def test_which_service_is_traced(scenario, variant, service):
    found = find_scenario(scenario)
    chosen = found.variants.get(variant) or found.variants[found.stalled]
    assert traced_service(found, chosen) == service


def tracer_of(runs: Path) -> str:
    """The container that traces a run which records into ``runs``; other runs may be traced at the same time."""
    row, service = '{{.Label "nagle-lab.lock"}}\t{{.ID}}', "label=com.docker.compose.service=tracer"
    rows = docker("ps", "--filter", service, "--format", row).splitlines()
    return next((row.split("\t")[1] for row in rows if row.startswith(f"{runs}/")), "")


def test_the_running_sidecar_has_one_right_and_its_trace_a_checksum(tmp_path):
    """In the middle of a run: nothing but SYS_PTRACE can be had in it, by its file alone, and nothing of the host.

    After the run, a trace that was changed is refused.
    """
    command = [NAGLE_LAB, "run", "nginx-static", "nodelay-off", "--trace", "--json", "--runs", tmp_path]
    environment = os.environ | {"REQUESTS": "400", "CONCURRENCY": "2"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        sidecar = ""
        while run.poll() is None and not (sidecar := tracer_of(tmp_path)):
            time.sleep(0.2)
        container = json.loads(docker("container", "inspect", sidecar))[0]
        status = docker("exec", sidecar, "cat", "/proc/self/status")
        run.communicate(timeout=300)
    assert run.returncode == 0
    host, config = container["HostConfig"], container["Config"]
    assert (host["CapDrop"], [name.removeprefix("CAP_") for name in host["CapAdd"]]) == (["ALL"], ["SYS_PTRACE"])
    assert (config["User"], host["Privileged"], host["ReadonlyRootfs"]) == ("10001:10001", False, True)
    assert not host["SecurityOpt"]  # seccomp and AppArmor are the engine's defaults
    assert host["PidMode"].startswith("container:") and host["NetworkMode"].startswith("container:")
    assert not container["Mounts"] and not host["Binds"] and not host["Devices"] and not host["PortBindings"]
    assert 0 < host["Memory"] == host["MemorySwap"] and 0 < host["PidsLimit"] <= 64
    sets = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Cap"))
    assert int(sets["CapBnd"], 16) == 1 << CAP_SYS_PTRACE  # what a setuid program could get, too
    assert int(sets["CapEff"], 16) == int(sets["CapPrm"], 16) == int(sets["CapAmb"], 16) == 0
    folder = (tmp_path / "latest-nginx-static-nodelay-off").resolve()
    with (folder / TRACE).open("a") as file:
        file.write("\n")
    done = subprocess.run([NAGLE_LAB, "show", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and f"{TRACE}: changed since it was recorded (checksum differs)" in done.stderr


def test_the_sidecar_traces_the_calls_that_the_guard_traces():
    script = (REPOSITORY / "scenarios/shared/tracer/trace").read_text()
    asked = {word.strip("?,'\"") for line in script.splitlines() if line.startswith("calls=")
             for word in line.partition("=")[2].replace("$calls", "").split(",")}  # fmt: skip
    (option,) = [word for word in strace_command.attaching([1], Path("x"), stacks=False) if word.startswith("trace=")]
    assert asked - {""} == {name.strip("?") for name in option.removeprefix("trace=").split(",")}
