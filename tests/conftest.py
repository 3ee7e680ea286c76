"""Shared by all tests. pytest puts this folder on the import path, which is how tests reach `support`."""

import fcntl
import gc
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling

from nagle_lab.cli import main as cli
from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.diagnosis.left_out import Wanted
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.lab.scenarios.scenario import Scenario
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from support.browser import chromium
from support.command import Ended
from support.engines import ENGINES
from support.rights import mount_refused
from support.site import built
from support.synthetic import Segment, pcap_bytes
from support.turns import unit_of

pytest.register_assert_rewrite("lab.recording")  # its assertions say what they compared, as those of tests do

# What is imported is compiled once, whatever the environment says: not in every worker and every program they start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples every time, and no deadline: a busy machine must not fail a test.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# A background job (`nohup make test &`) starts with these signals ignored, and so does all that it starts. nagle-lab
# leaves it so, as any program should; the tests send them, and expect what a job in the foreground does.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup


# Thousands of tests are collected, and all of them stay: nothing of them is worth looking for what can be freed.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


class Units(LoadFileScheduling):
    """Hands the units of `support.turns` to the workers, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Units | None:
    return Units(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def tshark() -> str:
    """The reference dissector; its absence is a failure, not a reason to compare nothing."""
    path = shutil.which("tshark")
    if path is None:
        pytest.fail("tshark is not installed, and this test compares with it: apt-get install tshark")
    return path


@pytest.fixture(scope="module")
def browser():
    """A :class:`support.browser.Page`."""
    with chromium() as page:
        yield page


@pytest.fixture
def may_record(tmp_path, monkeypatch):
    """Nothing without the right to record what runs; what is kept of it goes where the test's files are."""
    if refused := mount_refused():
        pytest.skip(refused)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture(scope="session")
def built_site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, which no test writes to: built by the worker that asks first, for all of them."""
    shared = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):  # a worker's folder is in that of all
        shared = shared.parent
    with (shared / "site.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "site").exists():
            built(tmp_path_factory.mktemp("built") / "public").rename(shared / "site")
    return shared / "site"


@pytest.fixture(scope="session", params=ENGINES.values(), ids=ENGINES)
def engine(request):
    """The class of each engine there is."""
    return request.param


@pytest.fixture
def diagnose(tmp_path):
    """Analyze segments (:class:`support.synthetic.Segment`), written to a file as :func:`pcap_bytes` does.

    Of the connections that are wanted (``only``), as :func:`analyze` has it.
    """

    def of(segments: list[Segment], only: Wanted | None = None, **format_) -> Result:
        path = tmp_path / "some.pcap"
        path.write_bytes(pcap_bytes(segments, **format_))
        return analyze(path, only=only)

    return of


@pytest.fixture
def nginx() -> Scenario:
    """The scenario of nginx, which has most of what a scenario may have."""
    return find_scenario("nginx-static")


@pytest.fixture
def run(monkeypatch, capsys):
    """Run nagle-lab with arguments, in this process, as pytest captures it."""

    def main(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["nagle-lab", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        out, err = capsys.readouterr()
        return Ended(ended.value.code, out, err)

    return main
