"""Runs of the lab under strace: the calls that wrote, the trace in the run folder, and a sidecar with one right."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab.recording import NAGLE_LAB, docker, left_on_engine, traced

from nagle_lab.host.privileges import CAP_SYS_PTRACE
from nagle_lab.runs.manifest import THREADS, TRACE
from support.waiting import within

pytestmark = [pytest.mark.quiet, pytest.mark.long]


def tracer_of(runs: Path) -> str:
    """The container that traces a run which records into ``runs``; other runs may be traced at the same time."""
    row, service = '{{.Label "nagle-lab.lock"}}\t{{.ID}}', "label=com.docker.compose.service=tracer"
    rows = docker("ps", "--filter", service, "--format", row).splitlines()
    return next((row.split("\t")[1] for row in rows if row.startswith(f"{runs}/")), "")


def test_the_calls_of_nginx_and_the_one_right_of_the_sidecar_that_traces_it(tmp_path):
    """A trace that is changed afterwards is refused."""
    seen: list[dict[str, Any]] = []

    def look() -> None:
        assert within(120, lambda: tracer_of(tmp_path))
        sidecar = tracer_of(tmp_path)
        seen.append(json.loads(docker("container", "inspect", sidecar))[0])
        status = docker("exec", sidecar, "cat", "/proc/self/status")
        seen.append(dict(line.split(":\t") for line in status.splitlines() if line.startswith("Cap")))

    code, err, run, result = traced(
        tmp_path, "nginx-static", "nodelay-off", "--html", tmp_path / "page.html", meanwhile=look,
        REQUESTS="300", CONCURRENCY="10",
    )  # fmt: skip
    assert code == 0, err
    has_one_right(*seen)
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
    with (run.folder / TRACE).open("a") as file:
        file.write("\n")
    done = subprocess.run([NAGLE_LAB, "show", run.folder], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and f"{TRACE}: changed since it was recorded (checksum differs)" in done.stderr


def has_one_right(container: dict[str, Any], capabilities: dict[str, str]) -> None:
    """In the middle of a run: nothing but SYS_PTRACE can be had in it, by its file alone, and nothing of the host."""
    host, config = container["HostConfig"], container["Config"]
    assert (host["CapDrop"], [name.removeprefix("CAP_") for name in host["CapAdd"]]) == (["ALL"], ["SYS_PTRACE"])
    assert (config["User"], host["Privileged"], host["ReadonlyRootfs"]) == ("10001:10001", False, True)
    assert not host["SecurityOpt"]  # seccomp and AppArmor are the engine's defaults
    assert host["PidMode"].startswith("container:") and host["NetworkMode"].startswith("container:")
    assert not container["Mounts"] and not host["Binds"] and not host["Devices"] and not host["PortBindings"]
    assert 0 < host["Memory"] == host["MemorySwap"] and 0 < host["PidsLimit"] <= 64
    sets = {name: int(value, 16) for name, value in capabilities.items()}
    assert sets["CapBnd"] == 1 << CAP_SYS_PTRACE  # what a setuid program could get, too
    assert sets["CapEff"] == sets["CapPrm"] == sets["CapAmb"] == 0


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
    # Of the others the first second, which is traced with stacks, was over: on a slow machine of all.
    # Which function it is depends on how the body comes in: nginx writes while it reads that, or from its event loop.
    found = {group["held"]["program"]["function"] for group in writes["groups"] if group["held"]["program"]}
    assert all(name.startswith("ngx_") for name in found), found
