"""Other work for the machine while labs run on it: stress-ng in a container of its own, on all of the host."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nagle_lab.lab.containers.compose import ComposeSearch
from nagle_lab.lab.containers.images import ready_images
from nagle_lab.lab.run_containers import LiveLab
from nagle_lab.lab.scenarios.scenario import Lab

# The work of stress-ng: a worker for every CPU; nine tenths of the free memory, written over and over; files
# written, read and removed on the disk of Docker's volumes.
PRESSURE = {
    "cpu": "--cpu 0",
    "memory": "--vm 2 --vm-bytes 90%",
    "disk": "--hdd 2 --hdd-bytes 512m",
}
_FOLDER = Path(__file__).with_name("stress")
LAB = Lab("stress", (_FOLDER / "compose.yaml",), (_FOLDER,), {}, (), (), (), None)


@contextmanager
def pressure(kind: str, lock: Path, progress: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Keep the machine busy within the block with ``kind``, a key of :data:`PRESSURE`.

    Yields a function that raises NagleLabError if the work has ended. ``lock`` is a file that the caller keeps locked
    (flock) meanwhile, so that the next run of a lab can sweep what a killed caller leaves. Raises NagleLabError if it
    cannot be started.
    """
    compose = ComposeSearch().result()
    tag, _ = ready_images(LAB, compose, {}, progress)
    variables = {"NAGLE_LAB_TAG": tag, "NAGLE_LAB_STRESS": PRESSURE[kind]}
    stress = LiveLab(LAB, "stress", compose, lock.absolute(), variables)
    try:
        stress.start()
        yield stress.require_services
    finally:
        stress.remove()
