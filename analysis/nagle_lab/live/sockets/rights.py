"""What a user may not see of other users' processes, and the right that this takes. capabilities(7), ptrace(2)."""

import errno
import os
from collections.abc import Sequence

from nagle_lab.diagnosis.result.spread import plural
from nagle_lab.host.privileges import CAP_SYS_ADMIN, CAP_SYS_PTRACE, has_capability, ptrace_scope

NAMES = {CAP_SYS_PTRACE: "CAP_SYS_PTRACE", CAP_SYS_ADMIN: "CAP_SYS_ADMIN"}
REFUSED = (errno.EPERM, errno.EACCES)
_FEW = 2  # processes, which are named; of more only the number is
AS_ROOT = ": run this as root" if os.geteuid() else ""


def needs(capability: int, error: OSError | None = None) -> str:
    """The right that is missing, in a few words; or what else the error says."""
    if error and error.errno == errno.ENOSYS:
        return "needs Linux 5.6 or newer"
    if error and error.errno and error.errno not in REFUSED:
        return (error.strerror or str(error)).lower()
    if has_capability(capability):
        return f"refused in spite of {NAMES[capability]}: by seccomp or a security module, perhaps"
    why = ", for kernel.yama.ptrace_scope is set" if capability == CAP_SYS_PTRACE and ptrace_scope() else ""
    return f"needs {NAMES[capability]}{why}"


def missing(
    processes: Sequence[int], nameless: int, options: int, namespaces: int, error: OSError | None
) -> list[str]:  # fmt: skip
    """A line for each thing that is not shown: processes that may not be inspected, options, network namespaces.

    ``nameless`` sockets are listed without their process. Some processes are hidden even from root: they are
    mentioned only if a socket lacks its process.
    """
    things = []
    if processes and (nameless or not has_capability(CAP_SYS_PTRACE)):
        many = f"{len(processes):,} processes"
        which = f"process {' and '.join(map(str, processes))}" if len(processes) <= _FEW else many
        things.append(f"the sockets of {which} ({needs(CAP_SYS_PTRACE)})")
    if options:
        things.append(f"TCP_NODELAY of {options:,} {plural('socket', options)} ({needs(CAP_SYS_PTRACE, error)})")
    if namespaces:
        things.append(f"{namespaces:,} {plural('other network namespace', namespaces)} ({needs(CAP_SYS_ADMIN)})")
    return things
