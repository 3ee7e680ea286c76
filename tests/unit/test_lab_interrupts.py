"""Ctrl-C and SIGTERM reach the lab only where it waits."""

import os
import signal
import time

import pytest

from nagle_lab.lab.containers.interrupts import deferred, pause
from nagle_lab.lab.containers.process import Child, run


@pytest.fixture(autouse=True)
def hang_up():
    """SIGHUP as it is without nohup; the tests as a whole keep what nohup has set."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_waits_for_the_next_pause(number: signal.Signals):
    done = []
    with pytest.raises(KeyboardInterrupt), deferred():
        os.kill(os.getpid(), number)
        done.append("went on")
        pause(60)
        done.append("not reached")
    assert done == ["went on"]


def test_without_a_pause_the_block_is_finished_first():
    done = []
    with pytest.raises(KeyboardInterrupt), deferred():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("finished")
    assert done == ["finished"]


def test_a_signal_during_a_wait_ends_it_at_once_and_the_child():
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        try:
            run(["sleep", "60"])
        finally:
            signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started < 10


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with deferred():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with deferred():
            os.kill(os.getpid(), signal.SIGHUP)
            pause(0)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_child_has_a_process_group_of_its_own_and_a_limit():
    group, session = run(["sh", "-c", "cut -d' ' -f5,6 /proc/$$/stat"]).stdout.split()
    assert (group != str(os.getpgrp()), session) == (True, str(os.getsid(0)))
    slow = Child(["sleep", "60"])
    finished = slow.wait(0.05)
    assert finished.exit_code == -signal.SIGKILL
    assert finished.last_line() == "no answer within 0.05 s"
