"""What the pages say to type for a pod, held against kubectl's options and Kubernetes' own schema of a container."""

import argparse
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from nagle_lab.live.watch.pods import _TCPDUMP, RIGHTS
from support.api_server import api_server
from support.repository import REPOSITORY
from support.stories import server_held, talk
from support.synthetic import pcap_bytes

WATCH = REPOSITORY / "docs" / "watch"
PAGES = [REPOSITORY / "docs" / name for name in ("capturing.md", "watch.md")]
SCHEMA = json.loads((REPOSITORY / "tests" / "support" / "kubernetes-container.schema.json").read_text())
PROFILES = {  # kubectl 1.32: what a profile gives an ephemeral container to begin with
    "netadmin": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}},
    "general": {"capabilities": {"add": ["SYS_PTRACE"]}},
}


def commands(page: Path, verb: str) -> list[list[str]]:
    """Every `kubectl VERB …` in a block of a page, up to a pipe."""
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S))
    lines = re.findall(rf"^kubectl {verb} (.*)$", blocks, re.M)
    return [shlex.split(line.split(" | ")[0]) for line in lines]


def debugged(words: list[str]) -> dict[str, Any]:
    """The ephemeral container that `kubectl debug` asks for."""
    options = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    options.add_argument("pod")
    for name in ("--image", "--custom", "-n"):
        options.add_argument(name)
    options.add_argument("--profile", choices=PROFILES, required=True)  # kubectl's own default is to go away
    options.add_argument("-c", "--container", required=True)
    at = words.index("--")
    said = options.parse_args(words[:at])
    custom = yaml.safe_load((REPOSITORY / said.custom).read_text()) if said.custom else {}
    security = {**PROFILES[said.profile], **custom.pop("securityContext", {})}  # its lists take the profile's place
    return {
        "name": said.container, "image": said.image, "command": words[at + 1 :], "securityContext": security, **custom
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_container_of_a_page_is_one_that_kubernetes_takes(page):
    Draft202012Validator.check_schema(SCHEMA)
    found = [debugged(words) for words in commands(page, "debug")]
    assert found
    for container in found:
        faults = [
            f"{fault.json_path}: {fault.message}" for fault in Draft202012Validator(SCHEMA).iter_errors(container)
        ]
        assert faults == []
        assert "NET_RAW" in container["securityContext"]["capabilities"]["add"], "tcpdump needs it"
        entered = [words for words in commands(page, "exec") if "-c" in words]
        assert entered and all(words[words.index("-c") + 1] == container["name"] for words in entered)
        assert not any({"-t", "-it", "--tty"} & set(words[: words.index("--")]) for words in entered), "bytes"


@pytest.mark.parametrize(
    "wrong",
    [
        {"securityContext": {"capabilities": {"ad": ["NET_RAW"]}}},
        {"securityContext": {"runAsUser": "root"}},
        {"ports": "8080"},
        {"comand": ["sleep"]},
    ],
)
def test_the_schema_finds_what_kubernetes_would_refuse(wrong):
    assert list(Draft202012Validator(SCHEMA).iter_errors({"name": "capture", "image": "i", **wrong}))


KUBECTL = """#!/bin/bash
printf '%s\\n' "$*" >>"$FAKE/calls"
case " $* " in
  *" debug "*)
    cp "$(sed 's/.*--custom=\\([^ ]*\\).*/\\1/' <<<"$*")" "$FAKE/custom.json"
    [[ ! -e $FAKE/refuses ]] || { echo 'Error from server (NotFound): pods "web" not found' >&2; exit 1; } ;;
  *" -- true "*) [[ -e $FAKE/runs ]] || { touch "$FAKE/runs"; echo 'container not found' >&2; exit 1; } ;;
  *) cat "$FAKE/packets.pcap" ;;
esac
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Path:
    """A stand-in for kubectl: its folder holds what it was asked, and the packets of the pod."""
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    (tmp_path / "packets.pcap").write_bytes(pcap_bytes(talk(server_held).segments))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(tmp_path))
    return tmp_path


def test_a_pod_is_watched_through_what_the_page_says_to_type(cluster, run):
    """With the options of the page, the rights of its file, and a container that starts after a moment."""
    code, out, err = run("watch", "--pod", "shop/web", "--image", "has/tcpdump", "--port", "80", "--json")
    report = json.loads(out.splitlines()[-1])
    assert (code, report["verdict"], report["stalls"]) == (0, "STALL", 19)
    assert "asking for an ephemeral container in pod shop/web: once it is there" in err
    debug, *probes, record = [shlex.split(line) for line in (cluster / "calls").read_text().splitlines()]
    assert debug[:3] == ["--namespace", "shop", "debug"] and len(probes) == 2
    assert json.loads((cluster / "custom.json").read_text()) == yaml.safe_load(
        (WATCH / "kubernetes-debug.yaml").read_text()
    )
    name = debug[debug.index("-c") + 1]
    (page,) = commands(REPOSITORY / "docs" / "watch.md", "debug")
    assert page[:2] == ["-n", "NAMESPACE"]  # --namespace, before the verb
    typed = [word.replace("POD", "web").replace("IMAGE", "has/tcpdump") for word in page[2 : page.index("--")]]
    typed[typed.index("capture")] = name
    assert [word for word in debug[3 : debug.index("--")] if "--custom" not in word] == [
        word for word in typed if "--custom" not in word
    ]
    (page,) = commands(REPOSITORY / "docs" / "watch.md", "exec")
    assert record[3:] == ["web", "-c", name, *page[5:], "port", "80"]


def test_a_pod_that_cannot_be_watched_is_one_line(cluster, run, monkeypatch):
    (cluster / "refuses").touch()
    code, out, err = run("watch", "--pod", "web", "--image", "x")
    assert (code, out) == (2, "") and err.splitlines()[-1].endswith(
        'pod web: kubectl debug refused: Error from server (NotFound): pods "web" not found'
    )
    assert run("watch", "--pod", "web")[2].endswith(
        "--pod and --image go together: which pod, and an image that has tcpdump in it\n"
    )
    assert "--pid and --pod exclude each other" in run("watch", "--pod", "web", "--image", "x", "--pid", "1")[2]
    monkeypatch.setenv("PATH", "/nonexistent")
    code, _, err = run("watch", "--pod", "web", "--image", "x")
    assert (code, "--pod needs it, with access to the cluster" in err) == (2, True)


def test_the_page_of_watch_asks_for_one_capability():
    (container,) = [debugged(words) for words in commands(REPOSITORY / "docs" / "watch.md", "debug")]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_RAW"]}


def test_kubectl_itself_asks_for_what_a_pod_takes(tmp_path, run, monkeypatch):
    """The requests of the real kubectl, to a stand-in of the API server; what tcpdump prints comes back whole."""
    if not shutil.which("kubectl"):
        pytest.skip("kubectl is not installed")
    with api_server(pcap_bytes(talk(server_held).segments), tmp_path) as (server, config):
        monkeypatch.setenv("KUBECONFIG", str(config))
        monkeypatch.setenv("KUBECTL_DEBUG_CUSTOM_PROFILE", "true")
        code, out, err = run("watch", "--pod", "shop/web-0", "--image", "has/tcpdump", "--port", "80", "--json")
    assert code == 0, err
    report = json.loads(out.splitlines()[-1])
    assert (report["verdict"], report["stalls"]) == ("STALL", 19)
    (container,) = server.added
    assert list(Draft202012Validator(SCHEMA).iter_errors(container)) == []
    assert container["securityContext"] == RIGHTS["securityContext"] and container["command"][0] == "sleep"
    (_, probe), (there, record) = server.executed
    assert probe == ["true"] and there == container["name"]
    assert record == [*_TCPDUMP, "tcp port 80"]
