"""How long it takes to conclude from a large capture, by the processor, beside what else is done with it."""

import gzip
import importlib.util
import time

import pytest

from nagle_lab.diagnosis.analysis import Analysis
from support.engines import ENGINES
from support.repository import CAPTURES, REPOSITORY

STALLED = "reference/nginx-static-nodelay-off/server.pcap"
CURED = "reference/nginx-static-nodelay-on/server.pcap"
SET_LATE = "families/nodelay-set-late-rtt-10/server.pcap.gz"

pytestmark = pytest.mark.skipif(
    "compiled" not in ENGINES, reason="plain Python reads so slowly that no proof takes as long"
)


@pytest.fixture
def enlarged(tmp_path):
    """Makes a capture of so many packets of a recorded one: its connections again and again."""
    spec = importlib.util.spec_from_file_location("enlarge", REPOSITORY / "bench" / "enlarge.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def enlarge(name, packets):
        content = (CAPTURES / name).read_bytes()
        small, large = tmp_path / "small.pcap", tmp_path / f"{packets}.pcap"
        small.write_bytes(gzip.decompress(content) if name.endswith(".gz") else content)
        module.enlarge(small, large, packets)
        return large

    return enlarge


def _seconds(path, verdict):
    """The processor's time for reading a capture, and for the proof; the least of three, for others disturb."""
    read, proof = [], []
    for _ in range(3):
        start = time.process_time()
        analysis = Analysis(path, sha256=False)
        for _ in analysis:
            pass
        between = time.process_time()
        assert analysis.result().verdict == verdict
        read.append(between - start)
        proof.append(time.process_time() - between)
    return min(read), min(proof)


@pytest.mark.parametrize(("name", "verdict"), [(STALLED, "STALL"), (CURED, "CLEAN")])
def test_the_proof_takes_not_much_longer_than_reading(enlarged, name, verdict):
    """About as long, with a stall in every sixth packet; a number looked for again for each ACK made it 12 times."""
    read, proof = _seconds(enlarged(name, 400_000), verdict)
    assert proof < 5 * read


@pytest.mark.parametrize(("name", "verdict"), [(STALLED, "STALL"), (SET_LATE, "STALL")])
def test_four_times_as_many_connections_take_four_times_as_long(enlarged, name, verdict):
    """Nothing is gone through for each of them: that took 26 times as long."""
    _, of_some = _seconds(enlarged(name, 60_000), verdict)
    _, of_many = _seconds(enlarged(name, 240_000), verdict)
    assert of_many < 9 * of_some + 0.05
