"""The ring that records, in a real network namespace, and what its kernel counted."""

import time

import pytest

from nagle_lab.guard.command import namespace
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


def test_retransmissions_are_segments_that_the_kernel_sent(monkeypatch):
    """OutSegs leaves them out, and every one of them is recorded."""
    counters = "Ip: Forwarding\nIp: 1\nTcp: InSegs OutSegs RetransSegs\nTcp: 128 126 3\n"
    monkeypatch.setattr(namespace.Path, "read_text", lambda _: counters)
    assert namespace.segments_sent() == 129
