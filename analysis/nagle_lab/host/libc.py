"""The C library, for system calls that Python has no function for."""

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)


def last_error() -> OSError:
    """Why this thread's last call of LIBC failed."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
