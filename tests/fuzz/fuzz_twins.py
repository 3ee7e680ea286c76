"""Both engines on damaged captures: the same rows, the same counts, and no byte read or written beyond a buffer; and
each of them saved and restored between two files: as if it had not been.

    tests/fuzz/fuzz_twins.py --seconds 600

compiles the C twin with AddressSanitizer and UndefinedBehaviorSanitizer into a temporary folder, starts itself again
with that, and damages the committed captures at random until the time is over. A difference is written to a file,
whose name it prints; the sanitizers end the program with a report of their own.
"""

import argparse
import gzip
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from nagle_lab.capture.capture import Capture
from nagle_lab.errors import NagleLabError
from nagle_lab.tcp import compiled, snapshot
from nagle_lab.tcp.engine import Engine
from nagle_lab.tcp.plain import PlainEngine

REPOSITORY = Path(__file__).parents[2]
LARGEST = 30_000  # bytes of a seed; the plain engine is the slower one
FLAGS = ("-std=c99", "-O1", "-g", "-fwrapv", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
         "-fno-sanitize-recover=all", "-shared", "-fPIC")  # fmt: skip


def compile_sanitized(folder: Path) -> Path:
    """The library with sanitizers in it, in that folder."""
    library = folder / "_engine.so"
    sources = [str(source) for source in compiled.SOURCES if source.suffix == ".c"]
    subprocess.run(["cc", *FLAGS, f"-DSOURCE={compiled.checksum()}", "-o", str(library), *sources], check=True)
    return library


def seeds() -> list[bytes]:
    """The beginnings of committed captures."""
    files = sorted((REPOSITORY / "captures").rglob("*.pcap*"))
    contents = (gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes() for f in files)
    return [content[:LARGEST] for content in contents]


def as_pcapng(capture: bytes, rng: random.Random) -> bytes:
    """The records of a little-endian pcap in blocks, of one or two interfaces of random units."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        size = (len(body) + 12).to_bytes(4, "little")
        return kind.to_bytes(4, "little") + size + body + size

    out = block(0x0A0D0D0A, bytes.fromhex("4d3c2b1a01000000") + b"\xff" * 8)
    for _ in range(2):
        unit = bytes.fromhex("09000100") + bytes([rng.choice((0, 3, 6, 9, 12, 0x80, 0x94, 0xBF)), 0, 0, 0])
        out += block(1, capture[20:22] + bytes(2) + capture[16:20] + (unit if rng.random() < 0.7 else b""))
    at = 24
    while at + 16 <= len(capture):
        seconds, fraction, size, original = (
            int.from_bytes(capture[at + i : at + i + 4], "little") for i in (0, 4, 8, 12)
        )
        ticks = seconds * 1_000_000 + fraction % 1_000_000
        head = [rng.randrange(2), ticks >> 32, ticks & 0xFFFFFFFF, min(size, 1 << 16), original]
        out += block(6, b"".join(n.to_bytes(4, "little") for n in head) + capture[at + 16 : at + 16 + size])
        at += 16 + size
    return out


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The same with some bytes changed, dropped, repeated, or all of them."""
    data = bytearray(content)
    for _ in range(rng.choice((0, 1, 2, 5, 20, 100))):
        at = rng.randrange(len(data))
        match rng.randrange(6):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice((0, 1, 4, 6, 0x45, 0x7F, 0x80, 0xFF))
            case 2:
                size = rng.choice((1, 2, 4))
                data[at : at + size] = rng.randbytes(size)
            case 3:
                del data[at : at + rng.choice((1, 4, 16, 60))]
            case 4:
                data[at:at] = data[at : at + rng.choice((4, 16, 82, 200))]
            case 5:
                other = rng.randrange(len(data))
                data[at : at + 24] = data[other : other + 24]
    return bytes(data[: rng.choice((len(data), rng.randrange(len(data) + 1)))])


def taken(make: Callable[..., Engine], path: Path, *, twice: bool = False, saved: bool = False) -> object:
    """All an engine finds in a capture, ``twice`` in a row; the second time by another one that goes on from it."""
    engine, known, rows = make(in_place=False), None, dict[str, bytes]()
    for turn in range(1 + twice):
        if turn and saved:
            state = snapshot.save(engine)
            keep(engine, rows)
            engine.__exit__(None, None, None)
            engine = make(in_place=False)
            snapshot.restore(engine, state, "snapshot")
        try:
            with Capture([str(path)], window_bytes=4096, sha256=False, after=known) as known:
                for _ in known.read_files(engine):
                    engine.drain()
        except NagleLabError as error:
            engine.__exit__(None, None, None)
            return str(error)
    assert known is not None
    with engine:
        engine.finish()
        known.end(engine.clock)
        keep(engine, rows)
        totals = engine.totals()
        durations = [(sorted(d.counts.items()), d.total) for d in totals.durations.values()]
        counts = (engine.frames, *totals[:6])
        clock = (engine.clock.epoch, engine.clock.set_back)
        return list(known.trouble), rows, durations, counts, clock, sorted(totals.not_decoded.items())


def keep(engine: Engine, rows: dict[str, bytes]) -> None:
    """Add its rows to those of each table."""
    for name, table in engine.tables.by_name():
        rows[name] = rows.get(name, b"") + bytes(table.read(0, len(table)))


def fuzz(library: Path, seconds: float, seed: int, found: Path) -> int:
    """Damage and compare until the time is over; returns how many inputs that were."""
    rng, end, count = random.Random(seed), time.monotonic() + seconds, 0
    loaded, corpus = compiled.load(library.parent), seeds()
    assert loaded is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged"
        while time.monotonic() < end:
            content = rng.choice(corpus)
            content = damaged(as_pcapng(content, rng) if rng.random() < 0.4 else content, rng)
            path.write_bytes(content)
            of_library = partial(compiled.CompiledEngine, loaded)
            wrong = "the twins differ" if taken(PlainEngine, path) != taken(of_library, path) else ""
            for make in (PlainEngine, of_library):
                if taken(make, path, twice=True, saved=True) != taken(make, path, twice=True):
                    wrong = "an engine that was saved and one that was not differ"
            if wrong:
                found.mkdir(exist_ok=True)
                (found / f"twins-{seed}-{count}").write_bytes(content)
                sys.exit(f"{wrong} on {found / f'twins-{seed}-{count}'}")
            count += 1
    return count


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--library", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        count = fuzz(options.library, options.seconds, options.seed, Path(__file__).parent / ".found")
        print(f"{count:,} damaged captures, seed {options.seed}: the twins agree, the sanitizers found nothing")
        return
    with tempfile.TemporaryDirectory() as folder:
        library = compile_sanitized(Path(folder))
        runtime = subprocess.check_output(["cc", "-print-file-name=libasan.so"], text=True).strip()
        environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"}
        again = [
            sys.executable,
            __file__,
            f"--library={library}",
            f"--seconds={options.seconds}",
            f"--seed={options.seed}",
        ]
        sys.exit(subprocess.run(again, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
