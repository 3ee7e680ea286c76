"""The content of a store's overview: how much was lost where and when, and the worst services, each with a stall."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from nagle_lab.diagnosis.result.result import Connection, Endpoint, Stall
from nagle_lab.errors import NagleLabError
from nagle_lab.evidence.excerpt import excerpts
from nagle_lab.evidence.ladder import Ladder, stall_ladder, stall_window
from nagle_lab.fleet.ask import Store, sql_of

MOST_HOSTS, MOST_COLUMNS, WORST = 40, 48, 10
_STEPS = (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720, 1440, 8760)  # hours in a column


@dataclass(frozen=True)
class Heat:
    """Hosts, those that lost most first, by columns of time."""

    hosts: Sequence[str]
    begins: Sequence[datetime]
    hours: int  # in a column
    cells: Sequence[Sequence[tuple[float, int, int] | None]]  # seconds lost, stalls, exchanges; None: no traffic
    more: int  # hosts that are left out


@dataclass(frozen=True)
class WorstService:
    """A service that lost much, and a typical stall of it: what it is (a row of ``stalls``), and its packets."""

    service: dict[str, Any]
    stall: dict[str, Any]
    ladder: Ladder | None
    problem: str = ""  # why there is no stall to show


@dataclass(frozen=True)
class Overview:
    """A store at a glance."""

    verdicts: Sequence[dict[str, Any]]
    totals: dict[str, Any]
    days: Sequence[dict[str, Any]]
    heat: Heat | None
    worst: Sequence[WorstService]
    unusable: Sequence[dict[str, Any]]
    failed: Sequence[dict[str, Any]]


def overview(store: Store) -> Overview:
    """Ask for everything to show, and read the packets of the worst services' stalls."""
    totals = """SELECT count(*) AS series, count(DISTINCT host) AS hosts,
        count(DISTINCT host) FILTER (WHERE stalls > 0) AS stalled_hosts,
        coalesce(sum(packets), 0)::BIGINT AS packets,
        coalesce(sum(exchanges), 0)::BIGINT AS exchanges,
        coalesce(sum(stalled_exchanges), 0)::BIGINT AS stalled,
        (SELECT count(*) FROM stalls_once) AS stalls,
        (SELECT coalesce(sum(wait_ms), 0) / 1000 FROM stalls_once) AS lost_s,
        min(first_at) AS first_at, max(last_at) AS last_at FROM series"""
    services = store.ask(sql_of("worst-services")).named()[:WORST]
    return Overview(
        verdicts=store.ask(sql_of("verdicts")).named(),
        totals=store.ask(totals).named()[0],
        days=store.ask(sql_of("cost-per-day")).named(),
        heat=_heat(store),
        worst=[_worst(store, service) for service in services],
        unusable=store.ask(sql_of("unusable")).named(),
        failed=store.ask("SELECT series, reason FROM series WHERE verdict = 'FAILED' ORDER BY series").named(),
    )


def _heat(store: Store) -> Heat | None:
    by_hour = """SELECT host, hour, sum(lost) AS lost_s, sum(stalls)::BIGINT AS stalls,
               sum(exchanges)::BIGINT AS exchanges FROM (
            SELECT host, date_trunc('hour', released_at)::TIMESTAMP AS hour, sum(wait_ms) / 1000 AS lost,
                   count(*) AS stalls, 0 AS exchanges
            FROM stalls GROUP BY 1, 2
            UNION ALL SELECT host, hour::TIMESTAMP, 0, 0, sum(exchanges) FROM exchanges GROUP BY 1, 2)
        GROUP BY host, hour"""
    rows = store.ask(by_hour).rows
    if not rows:
        return None
    first, last = min(row[1] for row in rows), max(row[1] for row in rows)
    span = round((last - first) / timedelta(hours=1)) + 1
    hours = next(step for step in _STEPS if span <= step * MOST_COLUMNS or step == _STEPS[-1])
    first -= timedelta(hours=first.hour % hours if hours <= 24 else first.hour)
    columns = min(round((last - first) / timedelta(hours=1)) // hours + 1, MOST_COLUMNS + 1)
    cells: dict[str, list[tuple[float, int, int] | None]] = {}
    for host, hour, *values in rows:
        line = cells.setdefault(host, [None] * columns)
        at = min(round((hour - first) / timedelta(hours=1)) // hours, columns - 1)
        before = line[at] or (0.0, 0, 0)
        line[at] = (before[0] + values[0], before[1] + values[1], before[2] + values[2])
    hosts = sorted(cells, key=lambda host: (-sum(cell[0] for cell in cells[host] if cell), host))
    begins = [first + n * timedelta(hours=hours) for n in range(columns)]
    shown = hosts[:MOST_HOSTS]
    return Heat(shown, begins, hours, [cells[host] for host in shown], len(hosts) - len(shown))


def _worst(store: Store, service: dict[str, Any]) -> WorstService:
    """The service with the stall whose wait is nearest to the median."""
    (stall,) = store.ask(
        "SELECT * FROM stalls WHERE server_ip = ? AND server_port = ? "
        "ORDER BY abs(wait_ms - ?), ack_frame IS NULL, released_at, series, release_frame LIMIT 1",
        [service["server_ip"], service["server_port"], service["wait_p50_ms"]],
    ).named()
    try:
        return WorstService(service, stall, ladder_of_stall(store, stall))
    except NagleLabError as error:
        return WorstService(service, stall, None, str(error))


def ladder_of_stall(store: Store, stall: dict[str, Any]) -> Ladder:
    """The packets of a row of ``stalls``; frames count from the beginning of the file that the trigger is in.

    Raises NagleLabError if the capture can no longer be read.
    """
    files = store.ask(
        "SELECT file, first_frame FROM files WHERE series = ? AND packets > 0 "
        "AND first_frame + packets > ? AND first_frame <= ? ORDER BY first_frame",
        [stall["series"], stall["trigger_frame"], stall["release_frame"]],
    ).rows
    shift = files[0][1] - 1
    ends = {
        stall[f"{end}_role"]: Endpoint(stall[f"{end}_ip"], stall[f"{end}_port"], stall[f"{end}_role"])
        for end in ("held", "delayed")
    }
    (began,) = store.ask(
        "SELECT first_frame FROM connections WHERE series = ? AND connection = ?",
        [stall["series"], stall["connection"]],
    ).rows[0]
    known = {"id": stall["connection"], **ends, "first_frame": max(began - shift, 1)}
    connection = Connection(**dict.fromkeys(Connection.__struct_fields__, 0) | known)  # a ladder needs nothing else
    trigger, release = stall["trigger_frame"] - shift, stall["release_frame"] - shift
    ack = None if stall["ack_frame"] is None else stall["ack_frame"] - shift
    shown = Stall(
        stall["connection"], stall["exchange"], ends[stall["held_role"]], ends[stall["delayed_role"]], trigger, ack,
        release, stall["wait_ms"], stall["release_us"], stall["trigger_bytes"], stall["released_bytes"],
    )  # fmt: skip
    (excerpt,) = excerpts([file for file, _ in files], [stall_window(connection, shown)])
    found = {step.frame for step in excerpt.steps}
    if not {trigger, ack or trigger, release} <= found:
        raise NagleLabError(f"{files[0][0]}: its packets are not those that were read: run nagle-lab fleet again")
    return stall_ladder(excerpt, shown)
