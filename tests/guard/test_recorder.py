"""The ring that records, in a real network namespace."""

import time

import pytest

from nagle_lab.guard.recording.recorder import Ring
from nagle_lab.live.sockets.namespaces import inside
from support.living import stalling
from support.rights import AS_ROOT, mount_refused


def test_a_ring_that_was_ended_takes_no_more():
    """Where packets come faster than they are written, a recording would have no end."""
    if refused := mount_refused():
        pytest.skip(refused)
    if AS_ROOT:
        pytest.skip("looking into other namespaces takes root")
    with stalling("flood") as program:
        ring = inside(program.pid, lambda: Ring("lo"))
        time.sleep(0.2)
        assert ring.take()
        assert any(ring.take() or time.sleep(0.01) for _ in range(100)), "it floods no more"
        ring.end()
        assert any(not ring.take() for _ in range(1000))
        time.sleep(0.2)
        assert ring.take() == b""
        ring.close()
