"""The way through: capture → packets → connections → exchanges and stalls → verdict → result."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nagle_lab import silences
from nagle_lab import stalls as proof
from nagle_lab.capture import open_capture
from nagle_lab.connections import Connections
from nagle_lab.exchanges import ExchangeLog
from nagle_lab.findings import Findings
from nagle_lab.packets import Packets, Tally, decode
from nagle_lab.result import Result
from nagle_lab.summary import summarize
from nagle_lab.timeline import Ints, Timeline


def analyze(path: str | Path | Sequence[str | Path]) -> Result:
    """Diagnose one capture file, several rotated ones as one, or standard input ("-").

    Raises
    ------
    NagleLabError
        The input is missing, empty or not a capture.
    """
    with open_capture(path) as capture:
        analysis = Analysis()
        tally = Tally()
        for records in capture:
            analysis.follow(decode(records, tally))
        return summarize(capture, tally, analysis.findings())


class Analysis:
    """Everything found so far in a capture that arrives window by window."""

    def __init__(self) -> None:
        self.connections = Connections()
        self.tcp_packets = 0
        self.first_ts: int | None = None
        self.last_ts = 0
        self._exchanges = ExchangeLog()
        self._triples: list[proof.Triples] = []
        self._late: list[proof.LateAcks] = []
        self._late_fin: list[proof.LateAcks] = []
        self._silences: list[silences.Silences] = []
        self._nagle_off = np.zeros((0, 2), np.int64)
        self._packets = np.zeros((0, 2), np.int64)
        self._segments = np.zeros((0, 2), np.int64)

    def follow(self, packets: Packets) -> None:
        """Take the packets of the next window."""
        if not len(packets):
            return
        self.tcp_packets += len(packets)
        self.first_ts = int(packets.ts[0]) if self.first_ts is None else self.first_ts
        self.last_ts = int(packets.ts[-1])
        rows = self.connections.follow(packets)
        self._exchanges.follow(rows, self.connections)
        size = self.connections.segment_size()
        self._triples.append(proof.find(rows, size))
        self._late.append(proof.late_acks(rows))
        self._late_fin.append(proof.late_fin_acks(rows))
        self._silences.append(silences.find(rows, size))
        self._nagle_off = _add(self._nagle_off, rows, proof.small_behind_small(rows, size), self.connections.count)
        new = np.flatnonzero(~rows.carried)
        self._packets = _add(self._packets, rows, new, self.connections.count)
        parts = np.maximum(1, -(-rows.length[new] // size[rows.conn[new]]))
        self._segments = _add(self._segments, rows, new, self.connections.count, parts)

    def findings(self) -> Findings:
        """What the whole capture shows; call once, at the end."""
        return Findings(
            connections=self.connections,
            exchanges=self._exchanges.exchanges(),
            proof=proof.prove(proof.Triples.join(self._triples), self._nagle_off, self.connections),
            late_acks=proof.LateAcks.join(self._late),
            late_fin_acks=proof.LateAcks.join(self._late_fin),
            silences=silences.Silences.join(self._silences),
            packets=self._packets,
            segments=self._segments,
            tcp_packets=self.tcp_packets,
            first_ts=self.first_ts,
            last_ts=self.last_ts,
        )


def _add(
    counts: NDArray[np.int64], rows: Timeline, at: Ints, connections: int, weights: Ints | None = None
) -> NDArray[np.int64]:
    """``counts`` (connections, 2) grown, with rows ``at`` counted by connection and side."""
    seen = np.bincount(2 * rows.conn[at] + rows.side[at], weights=weights, minlength=2 * connections)
    grown = seen.astype(np.int64).reshape(-1, 2)
    grown[: len(counts)] += counts
    return grown
