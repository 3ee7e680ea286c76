"""A rule says the same of a list of rows and of an array of them; so do the proof and the causes of idle gaps."""

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nagle_lab.diagnosis import findings
from nagle_lab.diagnosis.observed import columns as column_tools
from nagle_lab.diagnosis.observed.candidates import Candidates
from nagle_lab.diagnosis.observed.columns import Columns, Numbers, add_all, is_array, median
from nagle_lab.diagnosis.observed.connection_columns import Involved
from nagle_lab.diagnosis.observed.observed import Setting
from nagle_lab.diagnosis.observed.programs import NotHeld, NoWait, Program, Reactions
from nagle_lab.diagnosis.proof.proof import prove
from nagle_lab.diagnosis.result import idle_gaps
from nagle_lab.diagnosis.result.spread import nearest_rank
from nagle_lab.tcp.connection import NEVER
from nagle_lab.tcp.durations import MOST, Durations
from nagle_lab.tcp.events import DELAYED, IDLE, MS, EndedBy
from nagle_lab.tcp.layout import LAYOUTS
from nagle_lab.tcp.plain import PlainEngine
from nagle_lab.tcp.tables import Table
from support.engines import followed, found_in
from support.stories import of_every_kind
from support.synthetic import merge, pcap_bytes

pytestmark = pytest.mark.long
NUMBERS = st.lists(st.integers(-(1 << 40), 1 << 40), max_size=50)
FEW = st.lists(st.integers(0, 5), max_size=50)


def plain(value: Any) -> Any:
    """Whatever holds numbers, without NumPy."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | range):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return value


def array(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.int64)


def both(function, *columns: Any) -> Any:
    """What a function says of lists; and it must say the same of arrays."""
    of_lists = plain(function(*(Numbers(c) if isinstance(c, list) else c for c in columns)))
    assert plain(function(*(array(c) if isinstance(c, list) else c for c in columns))) == of_lists
    return of_lists


# ------------------------------------------------------------------------------- one function at a time


@given(NUMBERS)
def test_functions_of_one_column(numbers):
    positive = both(lambda c: column_tools.rows_where(c > 0), numbers)
    assert positive == [row for row, n in enumerate(numbers) if n > 0]
    assert both(lambda c: column_tools.pick(c, column_tools.rows_where(c > 0)), numbers) == [
        n for n in numbers if n > 0
    ]
    assert both(column_tools.total, numbers) == sum(numbers)
    assert both(lambda c: column_tools.total(c > 0), numbers) == len(positive)
    assert both(column_tools.distinct, numbers) == sorted(set(numbers))
    if numbers:
        assert both(column_tools.lowest, numbers) == min(numbers)
        assert both(column_tools.highest, numbers) == max(numbers)
    assert both(lambda c: column_tools.in_order([c, c]), numbers) == sorted(numbers * 2)


COMPARED = ("lt", "le", "eq", "ne", "ge", "gt")
CALCULATED = ("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor")


@pytest.mark.parametrize("name", [*COMPARED, *CALCULATED])
@given(one=st.lists(st.integers(1, 1 << 20), max_size=50), data=st.data())
def test_operators(name, one, data):
    """Of two columns, and of a column and one number, on either side."""
    of = getattr(operator, name)
    other = [data.draw(st.integers(1, 1 << 20)) for _ in one]
    assert both(of, one, other) == [of(a, b) for a, b in zip(one, other, strict=True)]
    assert both(lambda column: of(column, 7), one) == [of(a, 7) for a in one]
    assert both(lambda column: of(7, column), one) == [of(7, a) for a in one]


def test_a_column_is_neither_true_nor_false():
    """Else ``if column == other`` would be true whatever is in them."""
    for columns in ((Numbers([1]), Numbers([2])), (array([1, 1]), array([2, 2]))):
        with pytest.raises(ValueError, match="ambiguous"):
            bool(columns[0] == columns[1])
    with pytest.raises(ValueError, match="where there are 1"):
        Numbers([1]) + Numbers([1, 2])


@given(NUMBERS, NUMBERS)
def test_functions_of_two_numbers(one, other):
    pairs = list(zip(one, other, strict=False))
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    assert both(column_tools.maximum, one, other) == [max(pair) for pair in pairs]
    assert both(lambda a: column_tools.maximum(a, 7), one) == [max(a, 7) for a in one]
    chosen = both(lambda a, b: column_tools.select(a > b, a, b * 2), one, other)
    assert chosen == [a if a > b else b * 2 for a, b in pairs]
    assert both(lambda a: column_tools.select(a > 0, a, -1), one) == [a if a > 0 else -1 for a in one]
    assert both(column_tools.among, one, other) == [n in other for n in one]


@given(NUMBERS.filter(len), st.sampled_from([0, 25, 50, 75, 99, 100]))
def test_percentiles(numbers, percent):
    found = both(lambda c: column_tools.percentile(c, percent), numbers)
    assert found == pytest.approx(float(np.percentile(numbers, percent)), rel=1e-9, abs=1e-3)


@given(FEW)
def test_groups(keys):
    groups = both(lambda c: [plain(rows) for rows in column_tools.groups(c)], keys) if not keys else None
    of_lists = {keys[rows[0]]: plain(rows) for rows in column_tools.groups(keys)}
    of_arrays = {keys[rows[0]]: plain(rows) for rows in column_tools.groups(array(keys))} if keys else {}
    assert of_lists == of_arrays == {key: [row for row, k in enumerate(keys) if k == key] for key in set(keys)}
    assert groups in (None, [])


@given(FEW.filter(len))
def test_ranks_and_counts(numbers):
    assert both(lambda c: column_tools.ranks(c, column_tools.distinct(c)), numbers) == [
        sorted(set(numbers)).index(number) for number in numbers
    ]
    assert both(lambda c: column_tools.counts(c, 8), numbers) == [numbers.count(number) for number in range(8)]


@given(FEW, st.data())
def test_tallies(one, data):
    other = [data.draw(st.integers(0, 3)) for _ in one]
    weights = [data.draw(st.integers(0, 1 << 62)) for _ in one]
    rows = list(zip(one, other, strict=True))
    sums = {row: sum(w for r, w in zip(rows, weights, strict=True) if r == row) for row in rows}
    said = both(lambda one, other, weights: column_tools.tally([one, other], weights), one, other, weights)
    assert said == {row: [rows.count(row), sums[row]] for row in rows}


@given(FEW, st.data())
def test_sums(keys, data):
    weights = [data.draw(st.integers(0, 1 << 50)) for _ in keys]
    below = max(keys, default=0) + 2
    said = both(column_tools.sums, keys, weights, below)
    assert said == [sum(w for k, w in zip(keys, weights, strict=True) if k == key) for key in range(below)]


@given(FEW, st.data())
def test_the_least_of_each(keys, data):
    values = [data.draw(st.integers(-1, 1 << 40)) for _ in keys]
    below = max(keys, default=0) + 2
    said = both(column_tools.least, keys, values, below)
    assert said == [
        min((v for k, v in zip(keys, values, strict=True) if k == key), default=MOST) for key in range(below)
    ]


@given(NUMBERS, st.data())
def test_replacing(numbers, data):
    rows = data.draw(st.lists(st.integers(0, max(0, len(numbers) - 1)), unique=True)) if numbers else []
    values = [data.draw(st.integers(0, 99)) for _ in rows]
    before = list(numbers)
    said = both(column_tools.replaced, numbers, rows, values)
    assert numbers == before
    assert said == [values[rows.index(row)] if row in rows else n for row, n in enumerate(numbers)]


@given(st.lists(st.integers(0, 1 << 40), max_size=50), st.sampled_from([1, 100, 1_000]))
@example([500, 1_500, 2_500, 3_500], 1_000)  # ties, to even
def test_counting_durations(numbers, step):
    def counted(column) -> tuple:
        durations = Durations(step)
        add_all(durations, column)
        return dict(durations.counts), durations.total, durations.percentiles([1, 50, 99, 100])

    of_lists = counted(numbers)
    assert counted(array(numbers)) == of_lists
    assert of_lists[1] == sum(numbers)


@pytest.fixture(params=[1, 1 << 40], ids=["arrays", "lists"])
def size(request, monkeypatch):
    """Whatever the number of rows, arrays or lists."""
    monkeypatch.setattr(column_tools, "LARGE", request.param)


def test_from_so_many_rows_on_columns_are_arrays(monkeypatch):
    layout = LAYOUTS["delayed_ack"]
    for rows in (0, 1, column_tools.LARGE - 1, column_tools.LARGE):
        packed = b"".join(layout.struct.pack(number, -1, number % 2) for number in range(rows))
        columns = Columns(layout, packed)
        assert len(columns) == rows
        assert is_array(columns["connection"]) == (rows == column_tools.LARGE)
        assert plain(columns["connection"]) == list(range(rows))
        assert plain(columns["wait"]) == [-1] * rows
    monkeypatch.setattr(column_tools, "has_numpy", lambda: False)
    assert not is_array(Columns(layout, packed)["connection"])


# ------------------------------------------------------------------------------------ whole diagnoses


def in_both(function) -> Any:
    """What a function without arguments says when all columns are lists; the same when they are arrays."""
    said = []
    for large in (1 << 40, 1):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(column_tools, "LARGE", large)
            said.append(plain(function()))
    assert said[0] == said[1]
    return said[0]


SHORT = st.sampled_from(
    [0, 1, 10_000, 40_000, 250_000, 300_000, 300_001, 400_000, MS, 5 * MS, 15 * MS, 39 * MS, 41 * MS]
)
LONG = st.sampled_from(
    [DELAYED, DELAYED + 1, 25 * MS, 40 * MS, 41 * MS, 45 * MS, 60 * MS, 499 * MS, 500 * MS, 521 * MS]
)
CANDIDATE = st.tuples(
    st.one_of(LONG, SHORT), st.one_of(SHORT, st.integers(0, 200_000)), st.integers(0, 3), st.booleans(),
    st.integers(-1, 1), st.sampled_from([-1, -1, 7]), st.sampled_from([10, 238, 248, 1448]), st.integers(-1, 5),
)  # fmt: skip
SAMPLES = st.lists(st.one_of(SHORT, LONG), max_size=8)
REACTIONS = st.builds(Reactions, SAMPLES, SAMPLES, SAMPLES, st.lists(SHORT, max_size=4), SAMPLES, SAMPLES)
NO_WAITS = st.lists(st.tuples(st.integers(-1, 1), LONG), max_size=8)


@given(
    rows=st.lists(CANDIDATE, min_size=1, max_size=60), own=REACTIONS, peers=REACTIONS, no_waits=NO_WAITS,
    step=st.sampled_from([1, 1_000, 50_000, 10 * MS]), disorder=st.sampled_from([0.0, 0.02, 0.3]),
)  # fmt: skip
def test_what_is_proved_of_random_candidates(rows, own, peers, no_waits, step, disorder):
    """Of a program that reacts fast and slowly, with a handshake and without, at any place and with any clock."""
    program = Program(own, peers, not_held={1: NotHeld(len(no_waits))})
    for echo, since in no_waits:
        program.no_waits[NoWait(1, since % 4, echo, since // MS)] += 1
    wait, release, connection, pure, echo, arrival, size, tsval_delay = map(list, zip(*rows, strict=True))
    numbers = list(range(len(rows)))
    ack = [number % 5 + (number % 7 > 0) for number in numbers]
    columns = {
        "connection": connection,
        "peer_program": [number % 2 for number in connection],
        "trigger_to_ack": wait,
        "ack_to_release": release,
        "pure": pure,
        "echo": echo,
        "kept_by": [2 * (number % 7 == 3) - (number % 14 == 3) for number in numbers],
        "trigger_not_held": [number % 5 == 2 for number in numbers],
        "trigger_frame": [2 * number for number in numbers],
        "release_frame": [2 * number + 2 for number in numbers],
        "arrival": arrival,
        "trigger_bytes": size,
        "released_bytes": size[::-1],
        "ack_frame": ack,
        "peer_fastest_ack": [number % 3 * MS for number in numbers],
        "beyond_full": [number % 9 // 8 * 100 for number in numbers],
        "under_way": [number % 5 // 4 * ns for number, ns in zip(numbers, wait, strict=True)],
        "since_full": [ns // 2 if number % 4 == 1 else -1 for number, ns in zip(numbers, wait, strict=True)],
        "full": [1448] * len(rows),
        "full_waits": [number % 3 for number in numbers],
        "tsval_delay": tsval_delay,
        "ack_delayed": [ns * MS if number % 4 else -1 for number, ns in zip(numbers, tsval_delay, strict=True)],
        "ack_sent_after": [ns // 2 if number % 3 else -1 for number, ns in zip(numbers, wait, strict=True)],
        "ahead": [number % 4 - 2 for number in numbers],
        "peer_unasked": [number % 6 for number in connection],
        "not_held": [number % 4 // 3 for number in connection],
        "first_not_held": [number % 4 // 3 * 8 for number in connection],
        "beside_unacked": [number % 4 // 3 * 5 for number in connection],
        "since_data": [ns // 3 if number % 3 else -1 for number, ns in zip(numbers, wait, strict=True)],
        "since_host_busy": [ns % 100_000 if number % 3 else -1 for number, ns in zip(numbers, release, strict=True)],
        "arrives_every": [NEVER if number % 2 else 10 * MS for number in numbers],
        "is_path_known": [number % 3 // 2 for number in connection],
        "began": [number * 1_000 * MS for number in connection],
        "exchange": numbers,
        "at": [number * 100 * MS + ns for number, ns in zip(numbers, release, strict=True)],
    }

    names = list(columns)
    names_of_what_is_decided = ("stalls", "round_trips", "rejected", "grounds", "unresolved", "holds", "relays")

    def proved(row, *columns) -> dict[str, Any]:
        judged = prove(Candidates(dict(zip(names, columns, strict=True)), row), program, Setting(step, disorder))
        return {name: getattr(judged, name) for name in names_of_what_is_decided}

    said = both(proved, numbers, *([int(value) for value in column] for column in columns.values()))
    stalls = [row for part in said["stalls"] for row in part]
    assert len(stalls) == len(set(stalls))
    assert not set(stalls) & {row for part in said["round_trips"] for row in part}
    assert sum(said["grounds"].values()) == len(stalls) == sum(hold.stalls for hold in said["holds"])
    decided = [*stalls, *(row for name in ("rejected", "unresolved") for _, part in said[name] for row in part)]
    assert len(decided) == len(set(decided))
    assert all(len(part) for _, part in said["unresolved"])


GAP = st.tuples(
    st.sampled_from([IDLE, 25 * MS, 40 * MS, 196 * MS, 200 * MS, 260 * MS, 261 * MS, 600 * MS, 3_000 * MS]),
    st.integers(0, 1), st.sampled_from(list(EndedBy)), st.integers(0, 1), st.integers(0, 1), SHORT | st.just(39 * MS),
    st.integers(0, 1), st.integers(0, 1),
)  # fmt: skip


@given(st.lists(GAP, min_size=1, max_size=60))
def test_the_causes_of_random_gaps(rows):
    """Each gap has one; both together are told by how often and how long."""
    layout = LAYOUTS["idle_gap"]
    packed = b"".join(
        layout.struct.pack(gap, 0, side, ended_by, small, reply) for gap, side, ended_by, small, reply, *_ in rows
    )

    def caused() -> idle_gaps.CauseTotals:
        table = Columns(layout, packed)
        gaps = {name: table[name] for name in ("connection", *idle_gaps.COLUMNS)}
        for at, name in enumerate(("fastest_ack", "syns", "client"), 5):
            gaps[name] = column_tools.as_column([row[at] for row in rows])
        return idle_gaps.totals_by_cause(gaps)

    said = in_both(caused)
    assert sum(count for count, _ in said.values()) == len(rows)
    assert sum(ns for _, ns in said.values()) == sum(row[0] for row in rows)


@given(st.lists(GAP.filter(lambda row: row[0] != 200 * MS or row[2] != EndedBy.ANSWER), min_size=1, max_size=30))
def test_what_a_cause_explains_is_taken_from_another(rows):
    """All of it: nothing is left, and nothing becomes less than nothing."""
    cause = idle_gaps.Cause.NAGLE_DELAYED_ACK
    names = ("gap", "side", "ended_by", "small", "reply", "fastest_ack", "syns", "client", "connection")
    columns = [*(Numbers(row[at] for row in rows) for at in range(8)), Numbers([0] * len(rows))]
    totals = idle_gaps.totals_by_cause(dict(zip(names, columns, strict=True)))
    more = both(lambda *given: idle_gaps.recategorized(dict(zip(names, given, strict=True)), cause), *columns)
    idle_gaps.add_totals(totals, {name: tuple(change) for name, change in more.items()})
    assert totals.pop(cause) == (len(rows), sum(row[0] for row in rows))
    assert set(totals.values()) <= {(0, 0)}


@given(
    changes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), min_size=1, max_size=40),
    first=st.integers(0, 5),
)
def test_what_is_filled_into_connections(changes, first):
    """Counts, lowest and highest numbers of connections that repeat; of others nothing changes."""
    changes = sorted(changes)  # as exchanges come
    numbers, values = [first + number for number, _ in changes], [value for _, value in changes]
    layout = LAYOUTS["connection"]
    nothing = layout.row(first_stalled=-1, last_stalled=-1, address=bytes(32), answers_as=bytes(16))

    def filled(numbers, values) -> list[tuple]:
        table = Table(layout)
        for _ in range(16):
            table.add(*nothing)
        if len(numbers):
            involved = Involved(table, numbers)
            findings._count_stalled_exchanges(involved, involved.of, values)
            assert plain(involved.numbers) == sorted(set(plain(numbers)))
            assert plain(involved.rows("stalls")) == [plain(numbers).count(number) for number in plain(numbers)]
        columns = ["stalls", "stalled_exchanges", "first_stalled", "last_stalled"]
        return [tuple(row[layout.columns[name]] for name in columns) for row in table.rows()]

    filled_in = both(filled, numbers, values)
    for number, row in enumerate(filled_in):
        mine = [value for at, value in zip(numbers, values, strict=True) if at == number]
        assert list(row) == [len(mine), len(set(mine)), min(mine, default=-1), max(mine, default=-1)]


@pytest.fixture(scope="module")
def everything() -> dict[str, Any]:
    """What is found out about conversations of every kind, at once."""
    talks = of_every_kind(15, times=2)
    return followed(PlainEngine, pcap_bytes(merge(*(t.seen_at("middle") for t in talks))))


@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_what_a_whole_capture_shows(everything, chunk, monkeypatch):
    """A row at a time and all at once: lists and arrays give the same findings."""
    monkeypatch.setattr("nagle_lab.tcp.tables.CHUNK", chunk)
    said = in_both(lambda: found_in(everything))
    if chunk == 1 << 16:
        assert len(said["stalls"]) > 100


def test_a_median_is_a_value_that_was_observed():
    for count in range(1, 12):
        values = [value * value % 37 for value in range(count)]
        for column in (Numbers(values), np.asarray(values)):
            assert median(column) == nearest_rank(sorted(values), 50)
