"""The connection that a capture without a stall is about: the one with the most exchanges."""

from collections.abc import Iterable
from itertools import islice

from nagle_lab.diagnosis.result.result import Connection, Result

LOOKED_AT = 2_000  # connections: a screen must not wait for hundreds of thousands of rows


def busiest(result: Result, among: Iterable[Connection] | None = None) -> Connection | None:
    """Of the first 2,000 connections, or those in ``among``, the one with the most exchanges; None without any."""
    first = islice(result.connections if among is None else among, LOOKED_AT)
    most = max(first, key=lambda connection: connection.exchanges, default=None)
    return most if most and most.exchanges else None
