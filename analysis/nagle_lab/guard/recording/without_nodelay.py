"""Take TCP_NODELAY away from a program and the programs it starts: setsockopt(2) succeeds and does nothing.

A seccomp filter (seccomp(2)) does that for every program, even one that is linked statically or calls the kernel
directly, as Go's do: it answers the call with errno 0, and nothing is set.
"""

import ctypes
import platform
from struct import pack

from nagle_lab.host import bpf
from nagle_lab.host.libc import LIBC, last_error

# Machine: AUDIT_ARCH_… and the number of setsockopt.
_CALLS = {"x86_64": (0xC000003E, 54), "aarch64": (0xC00000B7, 208)}
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38
_ALLOW, _SUCCEED = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with errno 0
_IPPROTO_TCP, _TCP_NODELAY = 6, 1
_NUMBER, _ARCHITECTURE, _LEVEL, _OPTION = 0, 4, 24, 32  # offsets in struct seccomp_data; of the low half of arguments


def is_possible() -> bool:
    """Whether the filter is known for this kind of processor."""
    return platform.machine() in _CALLS


def take_away() -> None:
    """Take it from this process, and from everything that it executes and starts. Raises OSError."""
    architecture, number = _CALLS[platform.machine()]
    program = bpf.assembled(
        bpf.load_word(_ARCHITECTURE), bpf.unless_equal(architecture, "allow"),
        bpf.load_word(_NUMBER), bpf.unless_equal(number, "allow"),
        bpf.load_word(_LEVEL), bpf.unless_equal(_IPPROTO_TCP, "allow"),
        bpf.load_word(_OPTION), bpf.unless_equal(_TCP_NODELAY, "allow"),
        bpf.result(_SUCCEED),
        "allow", bpf.result(_ALLOW),
    )  # fmt: skip
    instructions = ctypes.create_string_buffer(program)
    argument = ctypes.create_string_buffer(pack("HP", len(program) // 8, ctypes.addressof(instructions)))
    nothing = ctypes.c_ulong(0)
    # Without CAP_SYS_ADMIN a filter takes no_new_privs: setuid programs then gain no rights.
    LIBC.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), nothing, nothing, nothing)
    address = ctypes.c_ulong(ctypes.addressof(argument))
    if LIBC.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), address, nothing, nothing):
        raise last_error()
