"""What the pages say to type for a pod, held against kubectl's options and Kubernetes' own schema of a container."""

import argparse
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

REPOSITORY = Path(__file__).parents[2]
WATCH = REPOSITORY / "docs" / "watch"
PAGES = [REPOSITORY / "docs" / name for name in ("capturing.md", "watch.md")]
SCHEMA = json.loads(Path(__file__).with_name("kubernetes-container.schema.json").read_text())
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
    for name in ("--image", "--custom"):
        options.add_argument(name)
    options.add_argument("--profile", choices=PROFILES, required=True)  # kubectl's own default is to go away
    options.add_argument("-c", "--container", required=True)
    at = words.index("--")
    said = options.parse_args(words[:at])
    custom = yaml.safe_load((WATCH / said.custom).read_text()) if said.custom else {}
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


def test_the_page_of_watch_asks_for_one_capability():
    (container,) = [debugged(words) for words in commands(REPOSITORY / "docs" / "watch.md", "debug")]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_RAW"]}
