"""Child processes of ours, where there can be none."""

import errno
import os
import signal
from pathlib import Path

import pytest

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
