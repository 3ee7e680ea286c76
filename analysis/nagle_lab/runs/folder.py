"""A run folder, which may come from anybody: read, checked for its form and checksums, or refused with the reason.

Judging and reporting rely on the form, so a folder that the lab did not write is refused in one line. Checksums
reveal a folder that was damaged, is incomplete, or was edited by hand. They cannot reveal one that somebody rewrote
with new checksums: that would take a signature.
"""

import re
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from nagle_lab.errors import NagleLabError, os_problem
from nagle_lab.runs.manifest import MANIFEST, THREADS, TRACE, FileRecord, Manifest, checksum
from nagle_lab.runs.record import PLAIN_NAME, StrictRecord
from nagle_lab.runs.witnesses import WITNESSES, Witnesses

R = TypeVar("R", bound=StrictRecord)

_NAME = re.compile(PLAIN_NAME)
_MOST_BYTES = 16 << 20  # of JSON; a run has 20 kB


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a complete run, checked against its own checksum.

    Raises NagleLabError if there is none, the run did not complete, or the manifest was changed or is not of the form
    that the lab writes.
    """
    file = folder / MANIFEST
    manifest, content = _read(file, Manifest)
    if not manifest.complete:
        why = manifest.failure or "it was cut off"
        raise NagleLabError(
            f"{folder.name}: this run did not complete ({why}); analyse its .pcap files one by one, or run it again"
        )
    named: dict[str, Collection[str]] = {
        "files": manifest.files,
        "captures": manifest.captures,
        "namespaces": manifest.namespaces,
    }
    for field, names in named.items():
        for name in names:
            if not _NAME.fullmatch(name):
                raise _malformed(file, f"{field} has {name!r}, which is not a plain name")
        if not names:
            raise _malformed(file, f"{field} is empty")
    _require(file, "namespaces", {of.namespace for of in manifest.captures.values()}, manifest.namespaces)
    _require(file, "files", [WITNESSES, *(f"{capture}.pcap" for capture in manifest.captures)], manifest.files)
    if manifest.traced:
        _require(file, "files", (TRACE, THREADS), manifest.files)
    if manifest.checksum != checksum(content):
        raise NagleLabError(f"{file}: changed since it was written (checksum differs); run it again")
    return manifest


def read_witnesses(folder: Path, manifest: Manifest) -> Witnesses:
    """The witnesses of a manifest's captures and namespaces. NagleLabError: none, or not as the lab writes them."""
    file = folder / WITNESSES
    witnesses, _ = _read(file, Witnesses)
    _require(file, "captures", manifest.captures, witnesses.captures)
    _require(file, "counters", manifest.namespaces, witnesses.counters)
    _require(folder / MANIFEST, "namespaces", witnesses.counters, manifest.namespaces)
    if manifest.traced and not witnesses.untraced:
        raise _malformed(file, "untraced is missing, and the run was traced")
    if witnesses.option:
        _require(folder / MANIFEST, "files", [witnesses.option.file], manifest.files)
    return witnesses


def require_untouched(folder: Path, manifest: Manifest) -> None:
    """Raise NagleLabError unless each file is as the manifest says, and it names every capture that is there.

    Files of other kinds may lie beside them: results, and reports that a person put there.
    """
    for name, about in manifest.files.items():
        with _own_file(path := folder / name):
            same = FileRecord.of(path).sha256 == about.sha256
        if not same:
            raise NagleLabError(f"{path}: changed since it was recorded (checksum differs); run it again")
    for path in sorted(folder.glob("*.pcap")):
        if path.name not in manifest.files:
            raise NagleLabError(f"{path}: not part of this run (not in its manifest); move it elsewhere")


def _read(path: Path, form: type[R]) -> tuple[R, dict[str, Any]]:
    """A JSON file, both as a record of its type and as plain objects."""
    try:
        with _own_file(path):
            if path.stat().st_size > _MOST_BYTES:
                raise NagleLabError(f"{path}: too large to have been written by nagle-lab; run it again")
            content = msgspec.json.decode(path.read_bytes())
        return msgspec.convert(content, form), content
    except msgspec.ValidationError as e:
        raise _malformed(path, str(e)) from e
    except (ValueError, RecursionError) as e:
        raise NagleLabError(f"{path}: cannot be read ({e}); this run folder is incomplete, run it again") from e


@contextmanager
def _own_file(path: Path) -> Iterator[None]:
    """Refuse anything but a regular file for the block: links may lead out of the folder, pipes may never end."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise NagleLabError(f"{path}: not a regular file; run it again")
        yield
    except FileNotFoundError as e:
        raise NagleLabError(f"{path}: no such file; this run folder is incomplete, run it again") from e
    except OSError as e:
        raise os_problem(e) from e


def _malformed(path: Path, fault: str) -> NagleLabError:
    return NagleLabError(f"{path}: {fault}: this nagle-lab cannot read it; run it again")


def _require(path: Path, field: str, needed: Iterable[str], there: Iterable[str]) -> None:
    """Raise NagleLabError for the first of the ``needed`` names that is not ``there``."""
    for name in sorted(set(needed) - set(there)):
        raise _malformed(path, f"{field}: {name} is missing")
