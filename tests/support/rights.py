"""What this user may do here: what some tests can only do as root is skipped, with the reason, where nobody may."""

import os
import shutil
import subprocess

AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
CAP_SYS_ADMIN = 1 << 21  # what mount(2) and unshare(2) ask for; root in an ordinary container has not got it


def sudo_refused() -> str | None:
    """Why nothing can be done as root here; None for root, and for who may use sudo without a password."""
    if not AS_ROOT:
        return None
    may = (
        shutil.which("sudo") and subprocess.run([*AS_ROOT, "true"], check=False, capture_output=True).returncode == 0
    )
    return None if may else "it takes root, or sudo without a password"


def mount_refused() -> str | None:
    """Why nothing can be mounted here; None where root may, here or by sudo."""
    if refused := sudo_refused():
        return refused
    status = subprocess.run([*AS_ROOT, "cat", "/proc/self/status"], check=True, capture_output=True, text=True).stdout
    (effective,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return None if int(effective, 16) & CAP_SYS_ADMIN else "root here may not mount: it has no CAP_SYS_ADMIN"
