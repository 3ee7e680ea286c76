"""The C library, for system calls that Python has no function for."""

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)


def last_error() -> OSError:
    """Why the call of LIBC that this thread made last has failed."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
