"""Write a software bill of materials for each image of the lab, and one for the analyzer, into a folder.

    python -m supply_chain.sbom [FOLDER]

CycloneDX 1.5 in JSON, which trivy, grype and osv-scanner read. The same images give the same bytes: the file contains
no time, and the serial number is derived from the content. docs/supply-chain.md says how to use it.
"""

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nagle_lab import __version__
from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.compose import ComposeSearch
from nagle_lab.lab.containers.docker import image_details
from nagle_lab.lab.containers.images import BASE, image_names, ready_images
from nagle_lab.lab.scenarios.scenario import REPOSITORY
from supply_chain.packages import Content, Package, content_of, labs, python_packages

SCHEMA = "http://cyclonedx.org/schema/bom-1.5.schema.json"
Component = dict[str, Any]


def bill(subject: Component, components: Iterable[Component]) -> dict[str, Any]:
    """Return the bill of materials of ``subject``, components in the order of their references."""
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "nagle-lab", "version": __version__}]},
            "component": subject,
        },
        "components": sorted(components, key=lambda component: component["bom-ref"]),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "$schema": SCHEMA,
        "serialNumber": f"urn:uuid:{serial}",
        **content,
    }


def image_bill(details: dict[str, Any], name: str, folder: Path | None, content: Content) -> dict[str, Any]:
    """Return the bill of the image ``name``: ``details`` are the engine's, ``folder`` is the folder it was built
    from.
    """
    system = {
        "type": "operating-system",
        "bom-ref": f"os:{content.distribution}",
        "name": content.distribution,
        "version": content.release,
    }
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()] if folder else []
    subject = {"type": "container", "bom-ref": name, "name": name, "properties": _origin(details)}
    packages = [_debian(package, content) for package in content.packages]
    return bill(subject, [system, *packages, *map(_file, files)])


def python_bill(packages: Iterable[Package], needed: set[str]) -> dict[str, Any]:
    """Return the bill of the analyzer; ``packages`` that are not ``needed`` to run it are marked as excluded."""
    subject = {"type": "application", "bom-ref": "nagle-lab", "name": "nagle-lab", "version": __version__}
    return bill(subject, [_python(package, needed) for package in packages if package.name != "nagle-lab"])


def _debian(package: Package, content: Content) -> Component:
    qualifiers = {"arch": package.architecture, "distro": f"{content.distribution}-{content.release}"}
    if (package.source, package.source_version) != (package.name, package.version):
        other = "" if package.source_version == package.version else f"@{package.source_version}"
        qualifiers["upstream"] = package.source + other
    purl = f"pkg:deb/{content.distribution}/{_quoted(package.name)}@{_quoted(package.version)}?" + "&".join(
        f"{key}={_quoted(value)}" for key, value in sorted(qualifiers.items())
    )
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "properties": _trivy_source(package),
    }


def _trivy_source(package: Package) -> list[dict[str, str]]:
    """Return the source package, which Debian's advisories name, in trivy's own properties, because it does not read
    ``upstream``.
    """
    epoch, _, rest = package.source_version.rpartition(":")
    version, _, release = rest.rpartition("-") if "-" in rest else (rest, "", "")
    parts = {"SrcName": package.source, "SrcEpoch": epoch, "SrcVersion": version, "SrcRelease": release}
    return [{"name": f"aquasecurity:trivy:{key}", "value": value} for key, value in parts.items() if value]


def _python(package: Package, needed: set[str]) -> Component:
    name = _normal(package.name)
    purl = f"pkg:pypi/{name}@{_quoted(package.version)}"
    scope = "required" if name in needed else "excluded"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": package.version,
        "scope": scope,
        "purl": purl,
    }


def _file(file: Path) -> Component:
    name = str(file.relative_to(REPOSITORY))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }


def _origin(details: dict[str, Any]) -> list[dict[str, str]]:
    """Return the image's id and what is known about its base."""
    labels = details["Config"].get("Labels") or {}
    base = labels.get("nagle-lab.base", details["RepoTags"][0])
    known = [("image-id", details["Id"]), ("base", base)]
    known += [("base-id", each["Id"]) for each in image_details([base])]
    known += [("base-digest", digest) for each in image_details([base]) for digest in each.get("RepoDigests") or ()]
    if "nagle-lab.origin" in labels:
        known.append(("base-origin", labels["nagle-lab.origin"]))
    return [{"name": f"nagle-lab:{key}", "value": value} for key, value in known]


def _quoted(text: str) -> str:
    return quote(text, safe=".-_~:")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_to_run() -> set[str]:
    """Return the names of the locked packages that running nagle-lab needs."""
    locked = (REPOSITORY / "analysis" / "requirements.txt").read_text()
    return {_normal(name) for name in re.findall(r"^([\w.-]+)==", locked, re.MULTILINE)}


def images() -> dict[tuple[str, str], Path | None]:
    """Return (name without a tag, image id) → the folder it was built from; builds missing images."""
    compose = ComposeSearch().result()
    found: dict[tuple[str, str], Path | None] = {(BASE, image_details([BASE])[0]["Id"]): None}
    for lab in labs():
        tag, _ = ready_images(lab, compose, {}, lambda stage: print(f"setup: {stage}", file=sys.stderr))
        for name, folder in zip(image_names(lab, tag), lab.images, strict=True):
            found[name.partition(":")[0], image_details([name])[0]["Id"]] = folder
    return found


def main(folder: Path) -> None:
    """Write one file for each image, and one for the analyzer, into ``folder``; say where."""
    bills = {}
    for (name, image), source in images().items():
        part = name.removeprefix("nagle-lab/")
        # One image under many tags is one file; if a name has several images, each is identified by its id.
        file = part if part not in bills else f"{part}-{image.removeprefix('sha256:')[:12]}"
        bills[file] = image_bill(image_details([image])[0], name, source, content_of(image))
    bills["analyzer"] = python_bill(python_packages(REPOSITORY / ".venv"), needed_to_run())
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in sorted(bills.items()):
        path = folder / f"{name}.cdx.json"
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"{path}: {len(content['components'])} components")


if __name__ == "__main__":
    try:
        main(Path(*sys.argv[1:2] or ["sbom"]))
    except NagleLabError as error:
        print(f"setup: {error}", file=sys.stderr)
        sys.exit(2)
