"""An engine that was saved between two files, and one that goes on from there: as if there had been but one."""

import pickle
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nagle_lab.capture.capture import Capture, open_capture
from nagle_lab.errors import NagleLabError
from nagle_lab.tcp import machine, snapshot
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.plain import PlainEngine
from support.engines import ENGINES, needs_compiled
from support.files import rewrite
from support.synthetic import MS, SECOND, Conversation, merge, pcap_bytes, redirected


def crowd(number: int, exchanges: int = 6) -> Conversation:
    """A connection whose server's second write is held, one of several at once; every third stays open."""
    c = Conversation(
        client=(f"10.0.0.{number % 7 + 1}", 40_000 + number), t0_ns=1_700_000_000 * SECOND + number * 7 * MS
    )
    c.handshake()
    for turn in range(exchanges):
        c.client_sends(50 + turn)
        c.server_sends(238)
        c.client_acks(after_ns=(40 + (number + turn) % 5) * MS)
        c.server_sends(615, after_ns=20_000)
        c.client_acks()
    if number % 3:
        c.close()
    return c


PACKETS = merge(*(redirected(c.segments) if n % 4 == 1 else c.segments for n, c in enumerate(map(crowd, range(12)))))


def said(make, files: list[bytes], folder: Path, saved_after: frozenset[int] = frozenset()) -> dict[str, object]:
    """All an engine finds in these files as one capture; after some of them another one goes on from a snapshot."""
    paths = [folder / f"{number}.pcap" for number in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        rewrite(path, content)
    engine, rows, known = make(in_place=False), {}, None
    for number, path in enumerate(paths):
        with Capture([str(path)], sha256=False, after=known) as known:
            for _ in known.read_files(engine):
                engine.drain()
        if number in saved_after:
            saved = snapshot.save(engine)
            keep(engine, rows)
            engine.__exit__()
            engine = make(in_place=False)
            snapshot.restore(engine, saved, "a snapshot")
    engine.finish()
    keep(engine, rows)
    totals = engine.totals()
    durations = {name: (dict(of.counts), of.total) for name, of in totals.durations.items()}
    counted = (engine.frames, *totals[:6], durations, dict(totals.not_decoded))
    clock = (engine.clock.epoch, engine.clock.set_back)
    engine.__exit__()
    return {"rows": rows, "counted": counted, "clock": clock, "trouble": [*known.trouble], "names": known.names}


def keep(engine, rows: dict[str, list]) -> None:
    for name, table in engine.tables.by_name():
        rows.setdefault(name, []).extend(table.rows())


@pytest.fixture(params=ENGINES)
def make(request):
    return ENGINES[request.param]


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(1, len(PACKETS) - 1), max_size=6), st.frozensets(st.integers(0, 6)), st.data())
def test_wherever_an_engine_is_saved_it_goes_on_as_if_it_had_not_been(cuts, saved_after, data):
    ends = [0, *sorted(cuts), len(PACKETS)]
    parts = [PACKETS[begin:end] for begin, end in pairwise(ends)]
    if data.draw(st.booleans()):  # out of order, as files of several capturing threads are
        parts[-1] = [replace(s, ts_ns=s.ts_ns - 30 * MS) for s in parts[-1]]
    files = [pcap_bytes(part) for part in parts]
    for make in ENGINES.values():
        with tempfile.TemporaryDirectory() as folder:
            whole = said(make, files, Path(folder))
            assert said(make, files, Path(folder), saved_after) == whole
            assert len(whole["rows"]["candidate"]) > 50


def test_sweeps_and_reused_ports_fall_where_they_would(make, tmp_path, monkeypatch):
    later = [replace(s, ts_ns=s.ts_ns + 120 * SECOND, seq=(s.seq + 7_000_000) & 0xFFFFFFFF) for s in PACKETS]
    if make is PlainEngine:
        monkeypatch.setattr(machine, "SWEEP", 100)
    files = [pcap_bytes(PACKETS), pcap_bytes(later)]
    assert said(make, files, tmp_path, frozenset({0})) == said(make, files, tmp_path)


@pytest.mark.parametrize("at", range(2, 23))
def test_a_snapshot_knows_what_servers_answer_as(make, tmp_path, at):
    """Also where another connection has these ends by then, and where the first one is over before that."""
    segments = redirected(crowd(1, 1).segments)
    syn, *later = (replace(s, dst="10.96.0.10", dport=80, seq=7) for s in segments if s.sport != 80)
    packets = [*segments, syn, *later, *segments[3:6], replace(segments[0], seq=9), *later, *segments[3:6]]
    files = [pcap_bytes(packets[:at]), pcap_bytes(packets[at:])]
    whole = said(make, files, tmp_path)
    assert said(make, files, tmp_path, frozenset({0})) == whole
    assert whole == said(PlainEngine, files, tmp_path)


def test_a_snapshot_holds_more_programs_than_a_table_s_first_room(make, tmp_path):
    many = merge(*(crowd(number, 1).segments for number in range(40)))
    moved = [replace(s, src=s.src.replace("10.0.0", f"10.{i % 200}.0"), dst=s.dst) for i, s in enumerate(many)]
    files = [pcap_bytes(many), pcap_bytes(moved), pcap_bytes(many)]
    assert said(make, files, tmp_path, frozenset({0, 1})) == said(make, files, tmp_path)


def test_a_snapshot_knows_which_ends_connections_have(make, tmp_path):
    """Of the end that a second connection has, too, after the snapshot, both learn that it is the server."""
    one, two = (
        Conversation(client=("10.0.0.1", 40_000 + n), server=("10.0.0.2", 50_051), t0_ns=(1000 + n) * SECOND)
        for n in (0, 1)
    )
    for c in (one, two):
        c.server_sends(100)
        c.client_sends(50)
    files = [pcap_bytes(c.segments) for c in (one, two)]
    resumed = said(make, files, tmp_path, frozenset({0}))
    assert resumed == said(make, files, tmp_path)
    place = LAYOUTS["connection"].columns["client"]
    assert [row[place] for row in resumed["rows"]["connection"]] == [1, 1]


def test_a_snapshot_of_another_build_is_refused_with_one_line(make):
    with make() as engine, make() as other:
        saved = snapshot.save(engine)
        elsewhere = saved.replace(engine.build.encode(), b"compiled 12345678 of/another day")
        with pytest.raises(NagleLabError, match=r"^x: .* 1, compiled 12345678.* this is .*same build") as said:
            snapshot.restore(other, elsewhere, "x")
        assert "\n" not in str(said.value)
        with pytest.raises(NagleLabError, match=r"^x: no snapshot; this is "):
            snapshot.restore(other, b"GIF89a", "x")


@needs_compiled
def test_the_two_engines_refuse_each_other_s():
    with ENGINES["plain"]() as plain, ENGINES["compiled"]() as fast:
        for one, other in ((plain, fast), (fast, plain)):
            with pytest.raises(NagleLabError, match="same build"):
                snapshot.restore(other, snapshot.save(one), "x")


@pytest.mark.parametrize("at", [0.3, 0.6, 0.9, 0.999])
def test_a_damaged_snapshot_is_refused(make, tmp_path, at):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap_bytes(PACKETS[:300]))
    with make() as engine, make() as other, make() as another, open_capture(path) as capture:
        for _ in capture.read(engine):
            engine.drain()
        saved = bytearray(snapshot.save(engine))
        head = saved.index(b"\n") + 1
        cut = head + round((len(saved) - head) * at)
        with pytest.raises(NagleLabError, match="damaged"):
            snapshot.restore(another, bytes(saved[:cut]), "x")
        saved[cut] ^= 0x55
        with pytest.raises(NagleLabError, match="damaged"):
            snapshot.restore(other, bytes(saved), "x")


@pytest.mark.parametrize(
    "saved", [b"", b"no pickle", pickle.dumps(3), pickle.dumps((1, 2, 3, 4)), pickle.dumps([])[:-1]]
)
def test_what_is_no_snapshot_of_plain_python_is_refused(saved):
    with pytest.raises(ValueError):
        PlainEngine().restore(saved)


@needs_compiled
def test_a_compiled_snapshot_that_ends_early_or_late_is_none():
    with ENGINES["compiled"]() as engine:
        state = engine.save()
    for wrong in (state[:-1], state + b"\0", b"", state[: len(state) // 2]):
        with ENGINES["compiled"]() as other, pytest.raises(ValueError, match="no snapshot"):
            other.restore(wrong)


def test_a_plain_snapshot_makes_nothing_but_what_it_is_of():
    evil = b"cos\nsystem\n(S'true'\ntR."
    with PlainEngine() as engine, pytest.raises(ValueError, match=r"asks for os\.system"):
        engine.restore(evil)
