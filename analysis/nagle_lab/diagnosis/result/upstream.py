"""Which stalled connections a slow server of the same capture may have waited for."""

from itertools import islice

from nagle_lab.diagnosis.result.busiest import LOOKED_AT
from nagle_lab.diagnosis.result.result import Result


def stalled_upstreams(result: Result) -> list[str]:
    """The servers ("address:port", sorted) of stalled connections that were opened by the host of another server.

    That is a proxy, or an application with a database, whose own clients' connections do not stall. On loopback all
    servers are on one host, so there it is only a possibility. The first 2,000 connections are looked at.
    """
    connections = list(islice(result.connections, LOOKED_AT))
    stalled = [connection for connection in connections if connection.stalls]
    ends = {(connection.server.ip, connection.server.port) for connection in stalled}
    hosts = {
        connection.server.ip
        for connection in connections
        if connection.exchanges and (connection.server.ip, connection.server.port) not in ends
    }
    return sorted({str(connection.server) for connection in stalled if connection.client.ip in hosts})
