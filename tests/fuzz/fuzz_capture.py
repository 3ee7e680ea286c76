"""Coverage-guided fuzzing of the whole way from a file's bytes to its result; `make fuzz SECONDS=600` runs it.

    python tests/fuzz/fuzz_capture.py [libFuzzer options] [corpus folder …]

What must hold for any bytes: a result, or NagleLabError on one line. A result is never CLEAN where part of the
capture is missing, and neither the window through which the file was read nor the engine shows in it. Anything else
ends the run, and libFuzzer leaves the input behind as `crash-…` (`timeout-…`, `oom-…`): make it a test in
tests/hostile/test_hostile.py.
"""

import gzip
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["nagle_lab"]):
    from nagle_lab.capture.capture import open_capture
    from nagle_lab.diagnosis.findings import find
    from nagle_lab.diagnosis.summary import summarize
    from nagle_lab.errors import NagleLabError

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.engines import ENGINES
from support.stories import client_held, server_held, talk
from support.synthetic import ETHERNET, NULL, SLL, SLL2, Interface, merge, pcap_bytes, pcapng_bytes
from support.tunnels import TUNNELS, tunnelled

NARROW = 300  # bytes of window: many turns of it, and growth, even for small inputs


def seeds() -> list[bytes]:
    """Small valid captures, one for each thing a reader has code for."""
    held = talk(server_held, 3).segments
    v6 = talk(client_held, 2, client=("fd00::1", 5), server=("fd00::2", 80)).segments
    tagged = talk(server_held, 2, vlan=(7, 8), timestamps=False).segments
    both = merge(held, v6)
    inside = [frame for wrap in TUNNELS.values() for frame in tunnelled(held[:4], wrap)]
    interfaces = [Interface(ETHERNET), Interface(SLL2, resolution=0x94, offset_s=3)]
    plain = [
        *(pcap_bytes(both, link_type) for link_type in (ETHERNET, NULL, SLL, SLL2)),
        pcap_bytes(tagged, byte_order=">", nanosecond=False),
        pcap_bytes(held, modified=True),
        pcap_bytes(inside, snaplen=200),
        pcap_bytes(held, snaplen=60),
        *(pcapng_bytes(both, byte_order=order, interfaces=interfaces) for order in "<>"),
        *(pcapng_bytes(held, block=block) for block in ("OPB", "SPB")),
    ]
    return [*plain, gzip.compress(plain[0])]


def outcome(path: str, engine: Callable[..., Any], window_bytes: int) -> str | None:
    """The result of a capture file as JSON; None where nothing of it is usable."""
    try:
        with open_capture(path, window_bytes=window_bytes) as capture, engine() as following:
            for _ in capture.read(following):
                following.drain()
            following.finish()
            totals = following.totals()
            return summarize(capture, totals, find(following.tables, totals), None).to_json()
    except NagleLabError as error:
        assert str(error).isprintable(), "an error is one printable line"
        return None


def test_one_input(data: bytes) -> None:
    """Called by the fuzzer for every input."""
    memory = os.memfd_create("capture")
    try:
        os.write(memory, data)
        path = f"/proc/self/fd/{memory}"
        results = [outcome(path, engine, window) for engine in ENGINES.values() for window in (1 << 20, NARROW)]
        assert len(set(results)) == 1, "the window, or which engine it is, shows in the result"
        if results[0]:
            result = json.loads(results[0])
            assert result["verdict"] != "CLEAN" or not result["quality"]["damage"], "called clean from a part"
    finally:
        os.close(memory)


def main() -> None:
    """Write the seeds into the first corpus folder, then fuzz."""
    folders = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    if folders:
        folders[0].mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds()):
            (folders[0] / f"seed-{number:02}").write_bytes(seed)
    warnings.simplefilter("error")  # on the command line, a warning would be a second line on stderr
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
