"""The manifest of a run: what ran, where, with which versions, and the checksums of every other file and its own."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nagle_lab import __version__
from nagle_lab.lab.docker import SERVICE_LABEL
from nagle_lab.lab.images import Base
from nagle_lab.lab.process import run
from nagle_lab.lab.scenario import REPOSITORY, CapturePoint, Scenario, Variant
from nagle_lab.runs.checksum import SEAL, seal

NAME = "manifest.json"
SCHEMA = "nagle-lab-manifest/3"
_BASE_LABEL = "nagle-lab.base"


@dataclass
class Manifest:
    """manifest.json while it grows; ``failure`` stays what it is if the run is killed."""

    scenario: Scenario
    variant: Variant
    parameters: Mapping[str, str]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    complete: bool = False
    failure: str | None = "nagle-lab was killed"
    versions: dict[str, str | None] = field(default_factory=dict)
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    captures: dict[str, dict[str, Any]] = field(default_factory=dict)
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    timings_s: dict[str, float] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write manifest.json into ``folder``, whole or not at all."""
        content = {
            "schema": SCHEMA,
            "scenario": self.scenario.name,
            "variant": self.variant.name,
            "lab": self.variant.lab,
            "title": self.scenario.title,
            "question": self.scenario.question,
            "teaches": self.variant.teaches,
            "expected": asdict(self.variant.expected),
            "parameters": dict(self.parameters),
            "started": self.started.isoformat(timespec="milliseconds"),
            "complete": self.complete,
            "failure": self.failure,
            "versions": {"nagle_lab": __version__, **self.versions},
            "images": self.images,
            "server": {"service": self.scenario.server.service, "port": self.scenario.server.port},
            "captures": self.captures,
            "namespaces": self.namespaces,
            "timings_s": {stage: round(seconds, 3) for stage, seconds in self.timings_s.items()},
            "files": _files(folder),
        }
        write_json(folder / NAME, {**content, SEAL: seal(content)})


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` to ``file``, whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(file)


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    files = [file for file in sorted(folder.iterdir()) if file.name != NAME and not file.name.startswith(".")]
    return {file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)} for file in files}


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def git_revision() -> str | None:
    """Return the commit of this repository, with ``-dirty`` for local changes; None outside a clone."""
    if shutil.which("git") is None:
        return None
    described = run(["git", "-C", str(REPOSITORY), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"])
    return described.stdout.strip() or None


def images_of(containers: Iterable[Mapping[str, Any]], bases: Mapping[str, Base]) -> dict[str, dict[str, Any]]:
    """Return, by service, the image each container runs and the base it was built from."""
    images = {}
    for container in containers:
        labels = container["Config"]["Labels"]
        base = bases.get(labels.get(_BASE_LABEL, ""))
        images[labels[SERVICE_LABEL]] = {
            "name": container["Config"]["Image"],
            "id": container["Image"],
            "base": base and {"name": base.name, "id": base.id, "digests": list(base.digests)},
        }
    return dict(sorted(images.items()))


def capture_of(point: CapturePoint, namespace: str, described: Sequence[str]) -> dict[str, Any]:
    """Return what is known of one capture: where it was taken, and what its sidecar ``described`` there."""
    mtu = said(described, "mtu")
    return {
        "service": point.service,
        "interface": point.interface,
        "namespace": namespace,
        "mtu": int(mtu) if mtu else None,
        "offloads": _pairs(described, "offload"),
    }


def namespace_of(services: Sequence[str], described: Sequence[str]) -> dict[str, Any]:
    """Return what is known of one network namespace: its services, and what a sidecar in it ``described``.

    ``addresses`` are its own, without those of loopback.
    """
    sysctls = _pairs(described, "sysctl")
    return {
        "services": list(services),
        "addresses": [line.partition(" ")[2] for line in described if line.startswith("address ")],
        "congestion_control": sysctls.get("net.ipv4.tcp_congestion_control"),
        "sysctls": sysctls,
    }


def said(described: Sequence[str], what: str) -> str | None:
    """Return what follows the word ``what`` in the first line of ``described`` that begins with it."""
    return next((line.partition(" ")[2] for line in described if line.split(" ")[0] == what), None)


def _pairs(described: Sequence[str], kind: str) -> dict[str, str]:
    facts = [line.split(" ", 2) for line in described]
    return {fact[1]: " ".join(fact[2].split()) for fact in facts if len(fact) == 3 and fact[0] == kind}
