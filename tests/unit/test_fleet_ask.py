"""Questions to a store: what they answer is what was put into it."""

import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from unittest.mock import Mock

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import NagleLabError
from nagle_lab.fleet.ask import Store, questions, sql_of
from nagle_lab.fleet.judge import JudgedSeries
from nagle_lab.fleet.overview import overview
from nagle_lab.fleet.results_folder import Folder
from nagle_lab.fleet.schedule import run
from nagle_lab.fleet.schema import TABLES, columns_of
from nagle_lab.fleet.series import series_of
from nagle_lab.fleet.workers import workers_of
from nagle_lab.reports.html.fleet import fleet_page
from support.repository import CAPTURES, REPOSITORY
from support.stalls import stalled
from support.synthetic import SECOND, Conversation, pcap_bytes

DAY = 86_400 * SECOND
T0 = 1_700_000_000 * SECOND  # 2023-11-14 22:13:20


def results_of(folder: Path) -> tuple[Folder, list[JudgedSeries]]:
    """Where a run puts what it finds of the series in a folder, and what it says of each; nobody is told of it."""
    out = Folder(str(folder / "out"))
    workers = workers_of("concurrent.futures:ThreadPoolExecutor", 1)
    return out, run(series_of([str(folder)]), out, workers, Mock(), size=1)


def clean(t0: int, server=("10.0.1.1", 80)) -> Conversation:
    c = Conversation(("10.0.0.5", 50_000), server, t0_ns=t0)
    c.handshake()
    for _ in range(15):
        c.client_sends(100)
        c.server_sends(800)
        c.client_acks()
    c.close()
    return c


def write(folder, name, *conversations):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    segments = sorted((s for c in conversations for s in c.segments), key=lambda s: s.ts_ns)
    (folder / name).write_bytes(pcap_bytes(segments))


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    """Two days: one service stalls on the first and is clean on the second, another one stalls on the second."""
    folder = tmp_path_factory.mktemp("fleet")
    old, new = ("10.0.1.1", 80), ("10.0.1.2", 81)
    write(folder, "web-1/eth0-20231114.pcap", stalled(20, server=old, t0_ns=T0))
    write(folder, "web-1/eth0-20231115.pcap", clean(T0 + DAY, old))
    write(folder, "web-2/eth0-20231115.pcap", stalled(30, ("10.0.0.2", 41_000), new, t0_ns=T0 + DAY))
    (folder / "web-2" / "eth0-20231116.pcap").write_bytes(b"nothing")
    write(folder, "web-3/eth0.pcap", clean(T0))
    out, _ = results_of(folder)
    return Store(out)


def answers(store: Store, name: str) -> list[dict]:
    return store.ask(sql_of(name)).named()


def test_every_ready_question_has_a_title_and_an_answer(store):
    assert len(questions()) >= 12
    for question in questions():
        assert question.title.endswith((".", "?")), question.name
        assert answers(store, question.name), question.name


def test_values_are_not_read_as_sql(store):
    found = store.ask("SELECT count(*) FROM stalls WHERE series = ?", ["x' OR 'a' = 'a"]).rows
    assert found == [(0,)]
    assert store.ask("SELECT count(*) FROM stalls WHERE series = ?", ["web-1/eth0"]).rows[0][0] > 0


def test_what_the_questions_say(store):
    worst, other = answers(store, "worst-services")
    assert (worst["server_ip"], worst["server_port"], worst["stalls"]) == ("10.0.1.2", 81, 30)
    assert (other["server_ip"], other["stalls"], str(other["first_seen"])[:16]) == (
        "10.0.1.1",
        20,
        "2023-11-14 22:13",
    )
    assert [row["host"] for row in answers(store, "worst-hosts")] == ["web-2", "web-1"]
    assert [(row["server_port"], row["stalls"]) for row in answers(store, "new-today")] == [(81, 30)]
    assert [row["server_port"] for row in answers(store, "gone")] == [80]
    days = answers(store, "cost-per-day")
    assert [(row["day"], row["exchanges"], row["stalls"]) for row in days] == [
        (date(2023, 11, 14), 35, 20), (date(2023, 11, 15), 45, 30)]  # fmt: skip
    assert 70 < days[1]["of_all_time_percent"] <= 100
    assert {row["verdict"]: row["series"] for row in answers(store, "verdicts")} == {"STALL": 2, "CLEAN": 1}
    (unusable,) = answers(store, "unusable")
    assert unusable["series"] == "web-2/eth0" and "not a capture" in unusable["problem"]
    (clean_one,) = answers(store, "clean")
    assert (clean_one["series"], clean_one["exchanges"]) == ("web-3/eth0", 15)
    assert answers(store, "pairs")[0]["delayed_ip"] == "10.0.0.2"
    assert answers(store, "longest")[0]["file"].endswith("pcap")
    slow = answers(store, "slow-services")
    assert [row["server_port"] for row in slow] == [81, 80] and slow[0]["p50_ms_at_most"] > 40 > slow[0][
        "mean_ms"
    ] / 2


def test_the_overview_counts_the_hosts_that_stalled(store):
    totals = overview(store).totals
    assert (totals["stalled_hosts"], totals["hosts"]) == (2, 3)


def test_a_stall_that_several_hosts_recorded_is_counted_once(tmp_path):
    """Both ends of a connection, one of which saw less; and, hours later, another one of the same ends elsewhere."""
    once, hours = stalled(20, t0_ns=T0), 3 * 3600 * SECOND
    write(tmp_path, "client/eth0.pcap", once)
    (tmp_path / "server").mkdir()
    late = [replace(segment, ts_ns=segment.ts_ns + SECOND // 5) for segment in once.segments]
    (tmp_path / "server/eth0.pcap").write_bytes(pcap_bytes(late[:60]))
    write(tmp_path, "third/eth0.pcap", stalled(30, t0_ns=T0 + hours))
    for host in "ab":
        write(tmp_path, f"{host}/lo.pcap", stalled(5, ("127.0.0.1", 40_000), ("127.0.0.1", 80), T0))
    store = Store(results_of(tmp_path)[0])
    held = store.ask("SELECT series, count(*) FROM stalls GROUP BY ALL ORDER BY series").rows
    assert dict(held) == {"a/lo": 5, "b/lo": 5, "client/eth0": 20, "server/eth0": 11, "third/eth0": 30}
    found = answers(store, "worst-services")
    assert {row["server_ip"]: (row["stalls"], row["hosts"]) for row in found} == {
        "10.0.0.2": (50, 3), "127.0.0.1": (10, 2)}  # fmt: skip
    (lost,) = store.ask("SELECT sum(wait_ms) / 1000 FROM stalls WHERE series NOT LIKE 'server/%'").rows[0]
    totals = overview(store).totals
    assert (totals["stalls"], totals["lost_s"]) == (60, pytest.approx(lost))
    page = fleet_page(overview(store), "out")
    assert f" {totals['stalled']} stalled; those that several hosts recorded count for each host." in page
    days = answers(store, "cost-per-day")
    assert sum(row["stalls"] for row in days) == 60 == sum(row["stalls"] for row in answers(store, "by-hour"))
    assert sum(row["lost_s"] for row in days) == pytest.approx(lost, abs=0.2)


def test_kernels_are_told_by_their_syns(tmp_path):
    for name, capture in (("nginx", "reference/nginx-static-nodelay-off/server.pcap"),
                          ("lwip", "stacks/lwip-two-writes/capture.pcap.gz")):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / Path(capture).name).write_bytes((CAPTURES / capture).read_bytes())
    out, _ = results_of(tmp_path)
    both, one = sorted(answers(Store(out), "by-kernel"), key=lambda row: row["server"])
    expected = analyze(CAPTURES / "reference/nginx-static-nodelay-off/server.pcap").summary
    assert (both["client"], both["server"], both["connections"], both["exchanges"], both["stalls"]) == (
        "Linux", "Linux", expected.connections, expected.exchanges, expected.stalls)  # fmt: skip
    assert (one["client"], one["server"], one["connections"]) == ("Linux", "unknown", 3)


def test_the_columns_are_those_that_are_documented(store):
    for name in TABLES:
        assert store.ask(f"SELECT * FROM {name} LIMIT 0").columns == [column.name for column in columns_of(name)]


def test_any_other_question_is_sql_and_what_is_neither_is_told(store):
    assert store.ask(sql_of("SELECT count(*) FROM stalls")).rows == [(50,)]
    with pytest.raises(NagleLabError, match=r"no such question: one of ack-timers, .*or SQL in quotes"):
        sql_of("worst")
    with pytest.raises(NagleLabError, match=r"nowhere.*see nagle-lab fleet ask schema"):
        store.ask("SELECT 1 FROM nowhere")


def test_the_question_of_two_weeks_on_the_page_has_an_answer(tmp_path, monkeypatch):
    """Of last week there is one host, clean; it stalls this week, as another does that was not there."""

    def stall(t0: int) -> Conversation:
        return stalled(20, t0_ns=t0)

    monkeypatch.chdir(tmp_path)
    for week, hosts in ("last-week", {"web-1": clean}), ("this-week", dict.fromkeys(("web-1", "web-2"), stall)):
        for host, talk in hosts.items():
            write(tmp_path / "in" / week, f"{host}/eth0.pcap", talk(T0))
        out, _ = results_of(tmp_path / "in" / week)
        Path(out.path).rename(week)
    page = (REPOSITORY / "docs" / "fleet.md").read_text()
    (question,) = re.findall(r'fleet ask "([^"]*last-week[^"]*)" --out this-week', page)
    rows = Store(Folder("this-week")).ask(question).rows
    assert rows == [("web-1", "eth0", "CLEAN", "STALL", 20), ("web-2", "eth0", None, "STALL", None)]


def test_without_a_store_there_is_nothing_to_ask(tmp_path):
    with pytest.raises(NagleLabError, match="no results of nagle-lab fleet there"):
        Store(Folder(str(tmp_path)))
    (tmp_path / "series" / "series=web").mkdir(parents=True)  # as a full disk leaves it
    with pytest.raises(NagleLabError, match="no results of nagle-lab fleet there"):
        Store(Folder(str(tmp_path)))


def test_the_name_of_the_results_may_look_like_a_pattern(tmp_path):
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "e.pcap").write_bytes(b"nothing")
    out, _ = results_of(tmp_path)
    named = tmp_path / "results [1] of ?*"
    Path(out.path).rename(named)
    (named / "stalls" / "series=gone").mkdir(parents=True)
    store = Store(Folder(str(named)))
    assert store.ask("SELECT (SELECT count(*) FROM series), (SELECT count(*) FROM stalls)").rows == [(1, 0)]


def test_tables_without_rows_can_be_asked_too(tmp_path):
    (tmp_path / "h").mkdir()
    (tmp_path / "h" / "e.pcap").write_bytes(b"nothing")
    out, (judged,) = results_of(tmp_path)
    assert (judged.verdict, judged.reason) == (
        "INVALID",
        "e.pcap: not a capture, but text: record one with tcpdump -w",
    )
    for question in questions():
        Store(out).ask(question.sql)
