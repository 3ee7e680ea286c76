"""manifest.json: what ran, where, with which versions, and the checksums of every other file and its own.

The lab writes it, from the start of a run to its end, and whoever judges the run reads it.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from msgspec import Meta
from msgspec.structs import asdict

from nagle_lab.diagnosis.result.result import Count, Role
from nagle_lab.runs.record import Port, SignedNumber, StrictRecord

MANIFEST = "manifest.json"
# Of a traced run: calls, with and without stacks, in one file; the threads that existed, and their processes. Files
# of these names in guard's folders are made by its own tracers (guard/tracing/).
TRACE, THREADS = "strace.txt", "strace-threads.txt"
SCHEMA: Literal["nagle-lab-manifest/1"] = "nagle-lab-manifest/1"

Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Expected(StrictRecord):
    """The outcome that a variant must have on the connections under test, those to TCP port ``port``.

    ``min_share_after_first`` is the least share, 0 to 1, of stalled exchanges among those that follow another
    exchange on their connection. It and the roles are None where the verdict is CLEAN.
    """

    verdict: Literal["STALL", "CLEAN"]
    port: Port
    held_by: Role | None = None
    delayed_by: Role | None = None
    min_share_after_first: SignedNumber | None = None


class Versions(StrictRecord):
    """Versions of the software that took part, as it names itself; None until it was asked."""

    nagle_lab: str | None = None
    docker: str | None = None
    git_revision: str | None = None  # None outside a clone
    compose: str | None = None
    kernel: str | None = None
    tcpdump: str | None = None
    server: str | None = None
    load: str | None = None
    strace: str | None = None  # None where nothing was traced

    def stated(self) -> dict[str, str]:
        """The versions that are not None, by name."""
        return {name: version for name, version in asdict(self).items() if version}


class BaseImage(StrictRecord):
    """An image that others are built from; ``digests`` are the registry's, if it came from one."""

    name: str
    id: str
    digests: tuple[str, ...]


class Image(StrictRecord):
    """The image of one container."""

    name: str
    id: str
    base: BaseImage | None


class ServerRecord(StrictRecord):
    """The listening end of the connections under test."""

    service: str
    port: Port


class CaptureRecord(StrictRecord):
    """Where one capture was taken: by the sidecar ``service``, in that network namespace."""

    service: str
    interface: str
    namespace: str
    mtu: Count | None  # None for an interface that has none, such as "any"
    offloads: dict[str, str]


class NamespaceRecord(StrictRecord):
    """A network namespace: the services in it, and its own addresses, without those of loopback."""

    services: list[str]
    addresses: list[str]
    sysctls: dict[str, str]

    @property
    def congestion_control(self) -> str:
        """The congestion control of its new connections."""
        return self.sysctls.get("net.ipv4.tcp_congestion_control", "not known")


class FileRecord(StrictRecord):
    """A file of the run folder as it was written."""

    bytes: Count
    sha256: Sha256

    @classmethod
    def of(cls, file: Path) -> Self:
        """A file as it is now; OSError where it cannot be read."""
        with file.open("rb") as stream:
            return cls(file.stat().st_size, hashlib.file_digest(stream, "sha256").hexdigest())


class Manifest(StrictRecord):
    """manifest.json; ``failure`` says what happened to a run that is not ``complete``."""

    schema: Literal["nagle-lab-manifest/1"]
    scenario: str
    variant: str
    lab: str
    title: str
    question: str
    teaches: str
    expected: Expected
    parameters: dict[str, str]
    started: str  # UTC, ISO 8601
    complete: bool
    failure: str | None
    versions: Versions
    images: dict[str, Image]  # by service
    server: ServerRecord
    captures: dict[str, CaptureRecord]
    namespaces: dict[str, NamespaceRecord]
    timings_s: dict[str, SignedNumber]  # by stage
    files: dict[str, FileRecord]
    checksum: Sha256  # of everything else in the manifest
    traced: str | None = None  # the service whose calls were recorded; None: no service


def checksum(manifest: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of a manifest without its checksum, whatever the file's indentation and order."""
    content = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
