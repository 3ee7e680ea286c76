"""Writing the manifest of a run during the run."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec

from nagle_lab import __version__
from nagle_lab.capture.stored import write_whole
from nagle_lab.errors import tell
from nagle_lab.lab.containers.docker import SERVICE_LABEL, Container
from nagle_lab.lab.containers.process import run
from nagle_lab.lab.scenarios.scenario import REPOSITORY, CapturePoint, Scenario, Variant
from nagle_lab.runs.manifest import (
    MANIFEST,
    SCHEMA,
    BaseImage,
    CaptureRecord,
    FileRecord,
    Image,
    Manifest,
    NamespaceRecord,
    ServerRecord,
    Versions,
    checksum,
)
from nagle_lab.runs.record import StrictRecord

_BASE_LABEL = "nagle-lab.base"


def new_manifest(scenario: Scenario, variant: Variant, parameters: Mapping[str, str]) -> Manifest:
    """The manifest of a run that begins now; if the run is killed, its ``failure`` stays as it is here."""
    return Manifest(
        schema=SCHEMA,
        scenario=scenario.name,
        variant=variant.name,
        lab=variant.lab,
        title=scenario.title,
        question=scenario.question,
        teaches=variant.teaches,
        expected=variant.expected,
        parameters=dict(parameters),
        started=datetime.now(UTC).isoformat(timespec="milliseconds"),
        complete=False,
        failure="nagle-lab was killed",
        versions=Versions(nagle_lab=__version__),
        images={},
        server=ServerRecord(scenario.server.service, scenario.server.port),
        captures={},
        namespaces={},
        timings_s={},
        files={},
        checksum="",
    )


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write manifest.json into ``folder``, whole or not at all, with the checksums of the files there now."""
    files = [file for file in sorted(folder.iterdir()) if file.name != MANIFEST and not file.name.startswith(".")]
    manifest.files = {file.name: FileRecord.of(file) for file in files}
    manifest.checksum = checksum(msgspec.json.decode(msgspec.json.encode(manifest)))
    write_json(folder / MANIFEST, manifest)


def write_json(file: Path, content: StrictRecord) -> None:
    """Write ``content`` to ``file``, whole or not at all."""
    write_whole(file, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def git_revision() -> str | None:
    """The commit of this repository, with ``-dirty`` for local changes; None outside a clone."""
    if shutil.which("git") is None:
        return None
    described = run(["git", "-C", str(REPOSITORY), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"])
    if "dubious ownership" in described.stderr:
        _tell_not_trusted(REPOSITORY)
    return described.stdout.strip() or None


@cache
def _tell_not_trusted(repository: Path) -> None:
    """Say once why runs have no git revision."""
    tell(
        f"{repository} belongs to another user, so git does not read it and runs record no git revision: "
        f"git config --global --add safe.directory {repository}"
    )


def image_records(containers: Iterable[Container], bases: Mapping[str, BaseImage]) -> dict[str, Image]:
    """Return, by service, the image each container runs and the base it was built from."""
    images = {}
    for container in containers:
        labels = container.config.labels
        base = bases.get(labels.get(_BASE_LABEL, ""))
        images[labels[SERVICE_LABEL]] = Image(container.config.image, container.image, base)
    return dict(sorted(images.items()))


def capture_record(point: CapturePoint, namespace: str, described: Sequence[str]) -> CaptureRecord:
    """Where one capture was taken, and its interface, from the lines in which its sidecar ``described`` it."""
    mtu = first_value(described, "mtu")
    return CaptureRecord(
        service=point.service,
        interface=point.interface,
        namespace=namespace,
        mtu=int(mtu) if mtu else None,
        offloads=_pairs(described, "offload"),
    )


def namespace_record(services: Sequence[str], described: Sequence[str]) -> NamespaceRecord:
    """One network namespace: its services, and its settings, from the lines in which a sidecar ``described`` them."""
    addresses = [line.partition(" ")[2] for line in described if line.startswith("address ")]
    return NamespaceRecord(list(services), addresses, _pairs(described, "sysctl"))


def first_value(described: Sequence[str], what: str) -> str | None:
    """The rest of the first line of ``described`` that begins with the word ``what``."""
    return next((line.partition(" ")[2] for line in described if line.split(" ")[0] == what), None)


def _pairs(described: Sequence[str], kind: str) -> dict[str, str]:
    facts = [line.split(" ", 2) for line in described]
    return {fact[1]: " ".join(fact[2].split()) for fact in facts if len(fact) == 3 and fact[0] == kind}
