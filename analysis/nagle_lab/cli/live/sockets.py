"""nagle-lab sockets: every TCP socket of this host."""

import os
import sys

from nagle_lab.cli.shared.options import require_only_one
from nagle_lab.errors import Exit, tell
from nagle_lab.live.sockets.inventory import inventory
from nagle_lab.live.sockets.processes import of_container, with_children
from nagle_lab.live.sockets.rights import AS_ROOT
from nagle_lab.reports.screens.sockets import MOST, show_sockets, sockets_json
from nagle_lab.reports.screens.terminal import console


def command(pid: int | None, container: str | None, port: int | None, every: bool, as_json: bool) -> Exit:
    """Print the TCP sockets, and on stderr what this user may not see."""
    found = inventory(pids_of(pid, container), port)
    if as_json:
        sys.stdout.write(sockets_json(found))
    else:
        show_sockets(found, console(at_most=120), None if every else MOST, _as_root())
    if found.missing:
        tell(f"not shown: {'; '.join(found.missing)}{AS_ROOT}")
    return Exit.OK


def _as_root() -> str:
    """How to type a command that needs root: sudo has its own search path, and root may have no sudo."""
    is_root = os.geteuid() == 0 and "SUDO_USER" not in os.environ
    return "nagle-lab" if is_root else 'sudo "$(command -v nagle-lab)"'


def pids_of(pid: int | None, container: str | None) -> set[int] | None:
    """The processes that --pid or --container names; None without either. Raises NagleLabError."""
    require_only_one([option for option, value in (("--pid", pid), ("--container", container)) if value])
    if pid:
        return with_children(pid)
    return of_container(container) if container else None
