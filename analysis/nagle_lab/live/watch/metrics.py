"""The counts of a live view for Prometheus: stalls, time lost, exchanges, by process, port and role."""

from collections import Counter
from collections.abc import Mapping

from nagle_lab.diagnosis.result.result import Connection, Role
from nagle_lab.errors import NagleLabError
from nagle_lab.live.watch.live_findings import StallSum
from nagle_lab.live.watch.program_names import ProgramNames
from nagle_lab.live.watch.view import View
from nagle_lab.packet.segment import split_end

MOST_LABELS = 200  # sets of labels; later ones are counted together
OTHER = ("other", "0", "")
Labels = tuple[str, str, str]
_LABELS = ("process", "port", "role")


class Metrics:
    """Serves the metrics at an address, ``HOST:PORT``, until it is closed; stalls and exchanges count once.

    ``process`` begins with the container's name, and is empty if the end is not on this host; ``role`` is that of the
    process. A stall counts at the end that held, an exchange at both ends. Raises NagleLabError if the client library
    is missing, or the address cannot be used.
    """

    def __init__(self, address: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - an extra
            from prometheus_client import Counter as Metric  # noqa: PLC0415
        except ImportError:
            raise NagleLabError("--prometheus needs prometheus-client: pip install prometheus-client") from None
        host, port = _address(address)
        registry = CollectorRegistry()

        def counter(name: str, help_text: str, labels: tuple[str, ...] = _LABELS) -> Metric:
            return Metric(f"nagle_lab_{name}", help_text, labels, registry=registry)

        self._stalls = counter("stalls", "Data that Nagle's algorithm held until a delayed ACK, at the end that held")
        self._lost = counter("lost_seconds", "How long that data waited for the ACK")
        self._exchanges = counter("exchanges", "Answered exchanges, at both ends")
        self._packets = counter("packets", "TCP packets recorded", ())
        self._dropped = counter("dropped_packets", "Packets that were lost while recording", ())
        self._known: set[Labels] = set()
        self._counted_to = 0.0  # request time of the latest exchange counted, in seconds since 1970
        try:
            self._server, self._thread = start_http_server(port, host, registry=registry)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise NagleLabError(f"--prometheus {address}: {why}: name another address or port") from None

    def close(self) -> None:
        """Stop serving metrics."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(
        self, view: View, new: Mapping[tuple[int, Role], StallSum], names: ProgramNames, settled_s: float
    ) -> None:
        """Count what is new in a view; of the exchanges only those whose request is old enough at its end.

        Nothing in a view that is INVALID.
        """
        if view.is_invalid:
            return
        for (number, role), one in new.items():
            connection = view.result.connections[number]
            process, client = (end.name for end in names.ends_of(connection))
            labels = self._bounded(process if role == "server" else client, connection, role)
            self._stalls.labels(*labels).inc(one.stalls)
            self._lost.labels(*labels).inc(one.lost_ms / 1e3)
        for number, count in self._new_exchanges(view, settled_s).items():
            connection = view.result.connections[number]
            process, client = (end.name for end in names.ends_of(connection))
            self._exchanges.labels(*self._bounded(process, connection, "server")).inc(count)
            self._exchanges.labels(*self._bounded(client, connection, "client")).inc(count)

    def count(self, packets: int, dropped: int) -> None:
        """Count packets, and those that the kernel dropped."""
        self._packets.inc(packets)
        self._dropped.inc(dropped)

    def _bounded(self, process: str, connection: Connection, role: Role) -> Labels:
        labels = (process, str(connection.server.port), role)
        if labels not in self._known:
            if len(self._known) == MOST_LABELS:
                return OTHER
            self._known.add(labels)
        return labels

    def _new_exchanges(self, view: View, settled_s: float) -> Counter[int]:
        """By connection, exchanges not counted yet that have had enough time for their answer."""
        found: Counter[int] = Counter()
        source, exchanges = view.result.source, view.result.exchanges
        if source.first_ns is None or exchanges is None:
            return found
        began = source.first_ns / 1e9
        if began + source.duration_s < self._counted_to:  # the clock was set back
            self._counted_to = 0.0
        up_to = began + source.duration_s - settled_s
        for exchange in exchanges:
            if self._counted_to < began + exchange.asked_s <= up_to:
                found[exchange.connection] += 1
        self._counted_to = max(self._counted_to, up_to)
        return found


def _address(text: str) -> tuple[str, int]:
    if (end := split_end(text)) is None:
        raise NagleLabError(f"--prometheus {text}: write an address and a port: 127.0.0.1:9809, [::1]:9809 or :9809")
    host, port = end
    return host.strip("[]") or "0.0.0.0", port
