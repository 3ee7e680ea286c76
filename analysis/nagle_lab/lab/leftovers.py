"""What killed runs left behind: containers, networks and partial folders whose lock nobody holds any more."""

import os
from pathlib import Path

from nagle_lab.lab.docker import labelled, remove_project
from nagle_lab.lab.folder import claimed, put_away_abandoned

LOCK_LABEL, HOST_LABEL = "nagle-lab.lock", "nagle-lab.host"


def labels(lock_path: Path) -> dict[str, str]:
    """Return the variables from which the Compose file makes the labels of a run's containers and networks."""
    return {"NAGLE_LAB_LOCK": str(lock_path), "NAGLE_LAB_HOST": os.uname().nodename}


def sweep(runs_dir: Path) -> None:
    """Remove what runs that are over have left, on this engine and in ``runs_dir``; live runs are not touched.

    Containers labelled by another host (an engine can be shared) or by hand (no lock) are left alone.
    """
    for found in labelled(LOCK_LABEL, HOST_LABEL):
        if found.lock and found.host == os.uname().nodename:
            with claimed(Path(found.lock)) as over:
                if over:
                    remove_project(found.project)
    put_away_abandoned(runs_dir)
