"""Run a command where user namespaces are forbidden, as Ubuntu's AppArmor does: unshare(CLONE_NEWUSER) is refused.

`python forbid.py COMMAND…`, as root: a seccomp filter without no_new_privs, so that sudo still works under it.
"""

import ctypes
import errno
import os
import platform
import sys
from struct import pack

CALLS = {"x86_64": (0xC000003E, 272), "aarch64": (0xC00000B7, 97)}  # AUDIT_ARCH_…, number of unshare
CLONE_NEWUSER = 0x10000000
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD, IF_EQUAL, IF_SET, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM


def forbid() -> None:
    architecture, number = CALLS[platform.machine()]
    program = [
        (LOAD, 0, 0, 4), (IF_EQUAL, 0, 5, architecture), (LOAD, 0, 0, 0), (IF_EQUAL, 0, 3, number),
        (LOAD, 0, 0, 16), (IF_SET, 0, 1, CLONE_NEWUSER), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW),
    ]  # fmt: skip
    code = ctypes.create_string_buffer(b"".join(pack("HBBI", *one) for one in program))
    argument = ctypes.create_string_buffer(pack("HP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_ulong(ctypes.addressof(argument))
    if libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), address, ctypes.c_ulong(0), ctypes.c_ulong(0)):
        sys.exit(os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    forbid()
    os.execvp(sys.argv[1], sys.argv[1:])
