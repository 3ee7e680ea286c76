"""Which connections to name: the busiest one, and stalled ones that a slow server may have waited for."""

from collections.abc import Iterable
from itertools import islice

from nagle_lab.diagnosis.result.result import Connection, Result
from nagle_lab.diagnosis.result.verdict import ENOUGH_EXCHANGES

LOOKED_AT = 2_000  # connections: a screen must not wait for hundreds of thousands of rows


def busiest(result: Result, among: Iterable[Connection] | None = None) -> Connection | None:
    """The connection with the most exchanges, of the first 2,000 that were judged, or of those in ``among``; None if
    there are none.
    """
    judged = (connection for connection in result.connections if connection.judged)
    first = islice(judged if among is None else among, LOOKED_AT)
    most = max(first, key=lambda connection: connection.exchanges, default=None)
    return most if most and most.exchanges else None


def is_one_way(result: Result) -> bool:
    """Whether there are connections, but only one end's packets of each (of the first 2,000)."""
    is_enough = result.source.tcp_packets >= ENOUGH_EXCHANGES  # fewer show no direction to be missing
    first = islice(result.connections, LOOKED_AT)
    return is_enough and not result.summary.exchanges and all(one.is_one_way for one in first)


def stalled_upstreams(result: Result) -> list[str]:
    """The servers ("address:port", sorted) of stalled connections that another server may have opened.

    That is a proxy, or an application with a database, whose own clients' connections do not stall. It may have
    opened a connection from its own address; or from another one, of loopback for example, that asks none of the
    other servers anything. On loopback all servers are on one host, so there it is only a possibility. The first
    2,000 connections are looked at.
    """
    connections = [connection for connection in islice(result.connections, LOOKED_AT) if connection.judged]
    stalled = [connection for connection in connections if connection.stalls]
    servers = {connection.server for connection in stalled}
    others = [one for one in connections if one.exchanges and one.server not in servers]
    hosts, clients = {one.server.ip for one in others}, {one.client.ip for one in others}
    opened = (one for one in stalled if others and (one.client.ip in hosts or one.client.ip not in clients))
    return sorted({str(one.server) for one in opened})
