"""Series on workers: whoever reads them, and whoever dies meanwhile, the results are those of one reading."""

import os
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from nagle_lab.diagnosis.analysis import analyze
from nagle_lab.errors import NagleLabError
from nagle_lab.fleet.ask import Store
from nagle_lab.fleet.judge import JudgedSeries
from nagle_lab.fleet.results_folder import Folder, url_of
from nagle_lab.fleet.schedule import run
from nagle_lab.fleet.series import series_of
from nagle_lab.fleet.stretch import StretchDone, events_of
from nagle_lab.fleet.workers import Workers, workers_of
from support.s3 import s3  # noqa: F401 - a fixture
from support.stalls import stalled
from support.synthetic import SECOND, pcap_bytes
from support.waiting import within

pytestmark = pytest.mark.long
THREADS = "concurrent.futures:ThreadPoolExecutor"
TESTS = Path(__file__).parents[1]
PARTS = 4  # files of a series
SERIES = 3


class Seen:
    """What a run tells of its progress."""

    def __init__(self) -> None:
        self.begun = (0, 0)
        self.stretches: list[int] = []
        self.judged: list[str] = []

    def begin(self, series: int, size: int) -> None:
        self.begun = series, size

    def stretch(self, size: int, done: StretchDone) -> None:
        assert done.packets > 0
        self.stretches.append(size)

    def series(self, judged: JudgedSeries) -> None:
        self.judged.append(judged.series)


def contents(host: int) -> dict[str, bytes]:
    """The files of a host by name: one connection, through all of them."""
    packets = stalled(10 + host, ("10.0.0.9", 40_000 + host), t0_ns=(1_700_000_000 + host) * SECOND).segments
    each = -(-len(packets) // PARTS)
    return {
        f"web-{host}/eth0_{n:05}_2023111422{n:04}.pcap": pcap_bytes(packets[(n - 1) * each : n * each])
        for n in range(1, PARTS + 1)
    }


@pytest.fixture(scope="module")
def captures(tmp_path_factory) -> Path:
    """A folder for each host, which no test writes to."""
    folder = tmp_path_factory.mktemp("fleet") / "in"
    for host in range(SERIES):
        for name, content in contents(host).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    return folder


def rows(out: Folder) -> list[tuple]:
    """All that a store holds."""
    store = Store(out)
    return [
        row
        for name, order in (("stalls", "series, release_frame"), ("connections", "series, connection"),
                            ("exchanges", "series, hour, from_ms"), ("series", "series"), ("files", "series, file"))
        for row in store.ask(f"SELECT * FROM {name} ORDER BY {order}").rows
    ]  # fmt: skip


@pytest.fixture(scope="module")
def expected(captures) -> list[tuple]:
    """What a run without accidents stores, in one stretch for each series."""
    out = Folder(str(captures.parent / "expected"))
    judged = run(series_of([str(captures)]), out, workers_of(THREADS, 1), Seen(), size=1 << 30)
    for each in judged:
        files = sorted(map(str, (captures / each.series.partition("/")[0]).iterdir()))
        assert each.stalls == analyze(files).summary.stalls > 5
    return rows(out)


def test_processes_here_give_what_one_thread_gives(captures, tmp_path, expected):
    seen, out = Seen(), Folder(str(tmp_path / "out"))
    judged = run(series_of([str(captures)]), out, workers_of(None, 2), seen, size=1)
    assert rows(out) == expected
    assert [each.series for each in judged] == sorted(seen.judged) == [f"web-{n}/eth0" for n in range(SERIES)]
    assert (seen.begun[0], len(seen.stretches)) == (SERIES, SERIES * PARTS)
    assert sum(seen.stretches) == seen.begun[1] == sum(path.stat().st_size for path in captures.rglob("*.pcap"))


def test_what_is_done_is_not_done_again(captures, tmp_path, expected):
    out = Folder(str(tmp_path / "out"))
    run(series_of([str(captures)]), out, workers_of(THREADS, 2), Seen(), size=1)
    seen = Seen()
    judged = run(series_of([str(captures)]), out, workers_of(THREADS, 2), seen, size=1)
    assert (seen.begun, seen.stretches, len(judged)) == ((0, 0), [], SERIES)
    assert rows(out) == expected
    checkpoints = sorted((tmp_path / "out" / "work").glob("*.checkpoint"), key=lambda path: path.stat().st_mtime)
    checkpoints[-1].unlink()
    run(series_of([str(captures)]), out, workers_of(THREADS, 2), seen, size=1)
    assert rows(out) == expected


def test_a_store_shows_what_was_named_last_by_the_names_of_then(captures, tmp_path, expected):
    out = Folder(str(tmp_path / "out"))
    run(series_of([str(captures / "web-1")]), out, workers_of(THREADS, 1), Seen(), size=1)
    assert Store(out).ask("SELECT DISTINCT series FROM stalls").rows == [("eth0",)]
    seen = Seen()
    run(series_of([str(captures)]), out, workers_of(THREADS, 2), seen, size=1)
    assert rows(out) == expected


def fragile(monkeypatch, tmp_path, marked: str, times: int) -> None:
    (tmp_path / "counter").write_text(str(times))
    for name, value in (("FRAGILE", marked), ("FRAGILE_COUNTER", str(tmp_path / "counter"))):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


def test_a_worker_that_is_killed_costs_only_what_it_was_doing(captures, tmp_path, expected, monkeypatch):
    fragile(monkeypatch, tmp_path, "web-1/eth0_00003_20231114220003.pcap", 2)
    seen, out = Seen(), Folder(str(tmp_path / "out"))
    run(series_of([str(captures)]), out, workers_of("support.fragile:processes", 2), seen, size=1)
    assert (tmp_path / "counter").read_text() == "-1"
    assert rows(out) == expected
    assert len(seen.stretches) == SERIES * PARTS


def test_what_kills_every_worker_is_given_up_and_the_rest_goes_on(captures, tmp_path, expected, monkeypatch):
    fragile(monkeypatch, tmp_path, "web-1/eth0_00002_20231114220002.pcap", 99)
    out = Folder(str(tmp_path / "out"))
    judged = run(series_of([str(captures)]), out, workers_of("support.fragile:processes", 2), Seen(), size=1)
    assert [each.verdict for each in judged] == ["STALL", None, "STALL"]
    assert "eth0_00002_20231114220002.pcap: given up after 3 tries: " in judged[1].reason
    store = Store(out)
    assert store.ask("SELECT series, verdict FROM series ORDER BY 1").rows == [
        ("web-0/eth0", "STALL"), ("web-1/eth0", "FAILED"), ("web-2/eth0", "STALL")]  # fmt: skip
    assert store.ask("SELECT DISTINCT series FROM stalls ORDER BY 1").rows == [("web-0/eth0",), ("web-2/eth0",)]


@pytest.mark.parametrize("error", [BrokenExecutor("all have gone"), OSError("the cluster\nhas gone")])
def test_an_executor_that_takes_nothing_any_more_ends_the_run_with_every_series_failed(captures, tmp_path, error):
    class Refusing(ThreadPoolExecutor):
        left = 4

        def submit(self, *arguments, **named):
            Refusing.left -= 1
            if Refusing.left < 0:
                raise error
            return super().submit(*arguments, **named)

    out = Folder(str(tmp_path / "out"))
    judged = run(series_of([str(captures)]), out, Workers(Refusing, 1), Seen(), size=1)
    assert {each.verdict for each in judged} == {None}
    assert all(str(error).partition("\n")[0] in each.reason for each in judged)
    assert len(out.names("work")) == 8  # of the four stretches, to go on from


def test_an_executor_need_not_know_how_to_cancel(captures, tmp_path, expected):
    class Plain(ThreadPoolExecutor):  # as loky's
        def shutdown(self, wait=True):
            super().shutdown(wait)

    out = Folder(str(tmp_path / "out"))
    run(series_of([str(captures)]), out, Workers(Plain, 1), Seen(), size=1)
    assert rows(out) == expected


def dask(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=os.environ)


def test_a_dask_cluster_gives_the_same_though_a_worker_of_it_is_killed(captures, tmp_path, expected, monkeypatch):
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "5s")
    scheduler = dask("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    started = [scheduler]
    try:
        address = next(line.split()[-1] for line in scheduler.stderr if "Scheduler at" in line)
        for _ in range(2):
            worker = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
            started.append(dask(*worker))
        for one in started[1:]:
            assert any("Registered to" in line for line in one.stderr)

        class Killing(Seen):
            def stretch(self, size, done):
                super().stretch(size, done)
                if len(self.stretches) == 3:
                    started[2].kill()

        out = Folder(str(tmp_path / "out"))
        workers = workers_of(f"dask://{address.removeprefix('tcp://')}", None)
        assert workers.count == 2
        run(series_of([str(captures)]), out, workers, Killing(), size=1)
        assert rows(out) == expected
        assert started[2].wait(10) == -9
    finally:
        for one in reversed(started):
            one.terminate()
            one.communicate(timeout=30)


def test_captures_and_results_may_be_in_s3(s3, tmp_path, captures, expected):  # noqa: F811
    for host in range(SERIES):
        for name, content in contents(host).items():
            s3.pipe_file(f"captures/{name}", content)
    out = Folder("s3://captures/results")
    judged = run(series_of(["s3://captures/web-*"]), out, workers_of(THREADS, 2), Seen(), size=1)
    assert [each.verdict for each in judged] == ["STALL"] * SERIES

    def nameless(rows: list[tuple]) -> list[tuple]:
        return [tuple(str(v).rpartition("/")[2] for v in row) for row in rows]

    assert nameless(rows(out)) == nameless(expected)


@pytest.mark.parametrize("size", [4, 12 << 20], ids=["small", "in parts"])
def test_what_is_half_written_to_s3_does_not_appear(s3, size):  # noqa: F811
    """Nor is an upload in parts left open, which would cost money."""
    out = Folder("s3://captures/results")
    out.write("work/whole", b"whole")
    with pytest.raises(RuntimeError), out.writing("work/half") as file:
        file.write(bytes(size))
        raise RuntimeError
    del file
    assert out.names("work") == {"whole"}
    assert not s3.list_multipart_uploads("captures")


def test_what_a_store_refuses_is_one_line(monkeypatch):
    """Its libraries raise what they like."""
    out = Folder("memory://results")

    def refused(*_: object, **__: object) -> None:
        raise ValueError("403: Forbidden\nfor url")

    monkeypatch.setattr(type(out.fs), "rm", refused)
    monkeypatch.setattr(type(out.fs), "open", refused)
    for ask in (lambda: out.remove("work"), lambda: list(events_of("key", out, [0]))):
        with pytest.raises(
            NagleLabError, match=r"^memory://results: 403: Forbidden: check the address and your cred"
        ):
            ask()


def test_a_file_system_with_folders_may_be_named_by_a_url(tmp_path, captures, expected):
    """As of ssh:// and hdfs://: folders are made, and what is written appears whole; workers need the whole URL."""
    out = Folder(f"file://{tmp_path}/out")
    run(series_of([f"file://{captures}/web-*"]), out, workers_of(None, 2), Seen(), size=1)
    with pytest.raises(RuntimeError), out.writing("work/half") as file:
        file.write(b"half")
        raise RuntimeError
    assert not [name for name in out.names("work") if "half" in name]
    found = Store(out).ask("SELECT file FROM files ORDER BY file").rows
    assert [name for (name,) in found] == sorted(f"file://{path}" for path in captures.rglob("*.pcap"))
    assert [[v for v in row if "file://" not in str(v)] for row in rows(out)] == [
        [v for v in row if str(captures) not in str(v)] for row in expected
    ]


def test_a_url_keeps_user_host_and_port():
    for source, path, url in (
        ("ssh://me@host:2222/captures/*", "/captures/a.pcap", "ssh://me@host:2222/captures/a.pcap"),
        ("hdfs://name:8020/captures", "/captures/a.pcap", "hdfs://name:8020/captures/a.pcap"),
        ("/captures", "/captures/a.pcap", "/captures/a.pcap"),
    ):
        assert url_of(path, source, None) == url


@pytest.mark.parametrize(("url", "package"), [("gs://b/x", "gcsfs"), ("ssh://h/x", "sshfs"), ("abfs://c/x", "adlfs")])
def test_a_protocol_whose_package_is_missing_is_told_which(url, package, monkeypatch):
    for module in ("gcsfs", "sshfs", "paramiko", "adlfs"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NagleLabError, match=rf"^{url}: \w+:// needs another package: .* -m pip install {package}$"):
        series_of([url])


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("nowhere", "--on takes"),
        ("no.such.module:x", "No module named 'no': --on takes"),
        ("os:getcwd", "it gave str, not a concurrent.futures.Executor"),
        ("unittest.mock:seal", "missing 1 required positional argument"),
        ("asyncio:get_running_loop", "no running event loop"),
        ("dask://127.0.0.1:1", "no scheduler answers there"),
    ],
)
def test_an_engine_that_is_none_is_told_of(on, says, monkeypatch):
    import distributed  # noqa: PLC0415

    real = distributed.Client
    monkeypatch.setattr(distributed, "Client", lambda address, **options: real(address, **options | {"timeout": 0.5}))
    with pytest.raises(NagleLabError, match=says):
        workers_of(on, None)


def test_an_executor_of_one_s_own_says_how_many_workers_it_has():
    workers = workers_of(THREADS, None)
    executor = workers.make()
    assert isinstance(executor, ThreadPoolExecutor) and workers.count == executor._max_workers
    executor.shutdown()


def test_no_worker_is_left_when_the_run_is_killed():
    """A worker would wait for work for ever."""
    program = (
        "import time; from nagle_lab.fleet.workers import workers_of\n"
        "executor = workers_of(None, 2).make()\n"
        "done = [executor.submit(time.sleep, 0.5) for _ in range(2)]\n"
        "[one.result() for one in done]\n"
        "print(*executor._processes, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        workers = [Path("/proc", number) for number in process.stdout.readline().split()]
        assert len(workers) == 2 and all(worker.exists() for worker in workers)
        process.kill()
    is_over = within(5, lambda: not any(map(lives, workers)))
    for worker in filter(lives, workers):
        os.kill(int(worker.name), signal.SIGKILL)
    assert is_over


def lives(process: Path) -> bool:
    """A test of the guard may have made us the parent of orphans: what has ended stays a zombie then."""
    try:
        return "\nState:\tZ" not in (process / "status").read_text()
    except OSError:
        return False
