"""The way through: capture → packets → connections → exchanges and stalls → verdict → result."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nagle_lab import silences
from nagle_lab import stalls as proof
from nagle_lab.capture import open_capture
from nagle_lab.connections import LEAST_MSS, Connections
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
        self._nagle_off = Counts()

    def follow(self, packets: Packets) -> None:
        """Take the packets of the next window."""
        if not len(packets):
            return
        self.tcp_packets += len(packets)
        self.first_ts = int(packets.ts[0]) if self.first_ts is None else self.first_ts
        self.last_ts = int(packets.ts[-1])
        rows = self.connections.follow(packets)
        self._exchanges.follow(rows, self.connections)
        size = rows.spread(self.connections.segment_size(rows.conn[rows.starts]))
        self._triples.append(proof.find(rows, size))
        self._late.append(proof.late_acks(rows))
        self._late_fin.append(proof.late_fin_acks(rows))
        self._silences.append(silences.find(rows, size))
        surely = rows.spread(self.connections.segment_size(rows.conn[rows.starts], LEAST_MSS))
        off = proof.small_behind_small(rows, surely)
        self._nagle_off.add(rows, off, 1)

    def findings(self) -> Findings:
        """What the whole capture shows; call once, at the end."""
        count = self.connections.count
        # Each list of parts is let go before the next is joined: they grow with the file, all else does not.
        triples = proof.Triples.join(self._triples)
        self._triples.clear()
        late, late_fin = proof.LateAcks.join(self._late), proof.LateAcks.join(self._late_fin)
        self._late.clear()
        silent = silences.Silences.join(self._silences)
        self._silences.clear()
        return Findings(
            connections=self.connections,
            exchanges=self._exchanges.exchanges(),
            proof=proof.prove(triples, self._nagle_off.of(count), self.connections),
            late_acks=late,
            late_fin_acks=late_fin,
            silences=silent,
            tcp_packets=self.tcp_packets,
            first_ts=self.first_ts,
            last_ts=self.last_ts,
        )


class Counts:
    """A number per half-connection; costs what a window holds, however many connections came before."""

    def __init__(self) -> None:
        self._counts = np.zeros(128, np.int32)

    def add(self, rows: Timeline, at: Ints, weights: Ints | int) -> None:
        """Add a weight for each row of ``at`` to the count of its half-connection."""
        half = 2 * rows.conn[at] + rows.side[at]
        need = int(half.max(initial=0)) + 1
        if need > len(self._counts):
            spare = np.zeros(need + need // 4 - len(self._counts), np.int32)
            self._counts = np.concatenate([self._counts, spare])
        np.add.at(self._counts, half, np.int32(weights))

    def of(self, connections: int) -> NDArray[np.int64]:
        """The counts, shape (connections, 2)."""
        counts = np.zeros(2 * connections, np.int64)
        known = self._counts[: 2 * connections]
        counts[: len(known)] = known
        return counts.reshape(-1, 2)
