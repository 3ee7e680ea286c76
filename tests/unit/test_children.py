"""Child processes of ours, where there can be none, and one that does not end."""

import errno
import os
import signal
import threading
from pathlib import Path

import pytest

from nagle_lab.host import children
from nagle_lab.host.children import Child

OPEN = Path("/proc/self/fd")


def test_where_there_can_be_no_further_process_signals_stay_as_they_were(monkeypatch):
    """As below a limit of processes (ulimit -u): bisect and the museum go on, and Ctrl-C must still end them."""

    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refused)
    before, files = signal.pthread_sigmask(signal.SIG_BLOCK, ()), len(list(OPEN.iterdir()))
    with pytest.raises(BlockingIOError):
        Child(["true"], {}, "/", lambda: None)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert len(list(OPEN.iterdir())) == files


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_strace_that_no_signal_ends_is_killed(monkeypatch, number):
    """Ctrl-C would be lost: it waits for a process that waits for its child, which strace has stopped."""
    monkeypatch.setattr(children, "GRACE_S", 0.2)
    child = Child(["sh", "-c", "trap '' INT TERM; sleep 60"], os.environ, "/", lambda: None)
    try:
        child.start()
        threading.Timer(0.2, os.kill, (os.getpid(), number)).start()
        ended = child.wait(50, under_strace=True)
    finally:
        child.unblock()
    assert ended == children.Ended(128 + signal.SIGKILL, timed_out=False, interrupted=True)
