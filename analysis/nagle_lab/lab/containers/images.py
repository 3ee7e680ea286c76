"""The lab's images, built again when their sources have changed."""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.containers.compose import Compose, error_line
from nagle_lab.lab.containers.docker import image_details
from nagle_lab.lab.containers.interrupts import interruptible
from nagle_lab.lab.containers.process import run
from nagle_lab.lab.scenarios.scenario import REPOSITORY, SHARED_SERVICES, SIDECAR, Lab
from nagle_lab.runs.manifest import BaseImage

BASE = "nagle-lab/base"
_BUILD_LOCK = REPOSITORY / ".cache" / "images.lock"


def ready_images(
    lab: Lab, compose: Compose, variables: dict[str, str], progress: Callable[[str], None]
) -> tuple[str, dict[str, BaseImage]]:
    """The tag of the images of ``lab``, which exist now, and the bases they were built from, by name.

    The tag is a digest of everything that goes into the images: another checkout, base or SERVER_IMAGE on the same
    host gives other tags, and one question to the engine finds unchanged images.
    """
    bases = {name: _base(name, progress) for name in filter(None, (BASE, os.environ.get("SERVER_IMAGE")))}
    tag = image_tag(lab, {base.name: base.id for base in bases.values()})
    names = image_names(lab, tag)
    if len(image_details(names)) == len(names):
        return tag, bases
    with _locked(_BUILD_LOCK):
        if len(image_details(names)) != len(names):  # otherwise another run has just built them
            progress("building images")
            built = compose.build(lab.compose, "nagle-lab-images", variables | {"NAGLE_LAB_TAG": tag})
            if built.exit_code != 0:
                raise NagleLabError(f"building the images failed: {error_line(built)}")
    return tag, bases


def _base(name: str, progress: Callable[[str], None]) -> BaseImage:
    details = image_details([name])
    if not details and name != BASE:
        progress(f"pulling {name}")
        pulled = run(["docker", "pull", "--quiet", name])
        if pulled.exit_code != 0:
            raise NagleLabError(
                f"SERVER_IMAGE={name} is not on this machine and cannot be pulled: {pulled.last_line()}"
            )
        details = image_details([name])
    if not details:
        raise NagleLabError(f"the base image {name} does not exist: run `make setup`")
    return BaseImage(name, details[0]["Id"], tuple(details[0].get("RepoDigests") or ()))


def image_names(lab: Lab, tag: str) -> list[str]:
    """The names of the images of ``lab``."""
    return [f"nagle-lab/{folder.name}:{tag}" for folder in lab.images]


def sidecar_image(tag: str) -> str:
    """The name of the image with which every lab captures."""
    return f"nagle-lab/{SIDECAR}:{tag}"


def image_tag(lab: Lab, bases: Mapping[str, str]) -> str:
    """A digest of what goes into the images.

    That is: ``bases`` (name → id), the Compose files, and every file in the folders of the images.
    """
    digest = hashlib.sha256("\n".join(f"{name} {id_}" for name, id_ in sorted(bases.items())).encode())
    files = [file for folder in lab.images for file in sorted(folder.rglob("*")) if file.is_file()]
    for file in [SHARED_SERVICES, *lab.compose, *files]:
        name, content = os.path.relpath(file, lab.compose[0].parent), file.read_bytes()
        digest.update(f"\n{name} {os.access(file, os.X_OK)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError:  # a read-only checkout: two builds of the same images at once are slow, but correct
        yield
        return
    with file:
        with interruptible():
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
