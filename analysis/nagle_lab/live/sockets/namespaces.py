"""Network namespaces of this host, and a look into each of them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from nagle_lab.host.namespace import join

T = TypeVar("T")


def namespace_of(pid: int | str) -> int | None:
    """The inode of a process's network namespace; None where it may not be known, or the process has ended."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None


def inside(pid: int, look: Callable[[], T]) -> T:
    """What ``look`` returns in the network namespace of a process. Raises OSError.

    A thread of its own goes there, if that is not this one: setns(2) moves one thread, and takes CAP_SYS_ADMIN.
    """
    if namespace_of(pid) == namespace_of("self"):
        return look()

    def there() -> T:
        join(pid)
        return look()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(there).result()
