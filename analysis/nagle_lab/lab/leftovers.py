"""Removing what killed runs left behind: containers, networks and partial folders whose lock nobody holds any
more.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from nagle_lab.lab.containers.docker import labelled, remove_project
from nagle_lab.lab.folder import claimed, clean_up_abandoned

LOCK_LABEL, HOST_LABEL = "nagle-lab.lock", "nagle-lab.host"


def labels(lock_path: Path) -> dict[str, str]:
    """The labels of a run's containers and networks."""
    return {LOCK_LABEL: str(lock_path), HOST_LABEL: os.uname().nodename}


def label_variables(labels: Mapping[str, str]) -> dict[str, str]:
    """The variables from which the Compose files make ``labels``: ``NAGLE_LAB_LOCK``, ``NAGLE_LAB_HOST``."""
    return {name.upper().replace("-", "_").replace(".", "_"): value for name, value in labels.items()}


def sweep(runs_dir: Path) -> None:
    """Remove what ended runs have left on this engine and in ``runs_dir``; live runs are not touched.

    Containers labelled by another host (an engine can be shared) or by hand (no lock) are left alone.
    """
    for project, lock, host in labelled(LOCK_LABEL, HOST_LABEL):
        if lock and host == os.uname().nodename:
            with claimed(Path(lock)) as over:
                if over:
                    remove_project(project)
    clean_up_abandoned(runs_dir)
