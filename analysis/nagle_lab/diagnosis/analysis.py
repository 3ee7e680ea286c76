"""The way through: capture → packets → connections → exchanges and stalls → verdict → result."""

import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nagle_lab.capture import Capture, open_capture
from nagle_lab.diagnosis import silences
from nagle_lab.diagnosis import stalls as proof
from nagle_lab.diagnosis.findings import Findings, PutAside
from nagle_lab.diagnosis.result import Result
from nagle_lab.diagnosis.summary import Seen, summarize
from nagle_lab.packet import Packets, Tally, decode
from nagle_lab.tcp.columns import Ints
from nagle_lab.tcp.connections import Connections
from nagle_lab.tcp.exchanges import ExchangeLog
from nagle_lab.tcp.ledger import entries
from nagle_lab.tcp.loops import hash_pairs
from nagle_lab.tcp.timeline import Timeline

Hashes = tuple[NDArray[np.uint64], NDArray[np.uint64]]


def analyze(path: str | Path | Sequence[str | Path], *, exchanges: bool = True, sha256: bool = True) -> Result:
    """Diagnose one capture file, several rotated ones as one, or standard input ("-").

    Without ``exchanges`` the result does not list each of them; without ``sha256`` its source has none.

    Raises
    ------
    NagleLabError
        The input is missing, empty or not a capture.
    """
    with open_capture(path, sha256=sha256) as capture:
        analysis = Analysis(exchanges)
        tally = Tally()
        for packets, hashes in _ahead(capture, tally):
            analysis.follow(packets, hashes)
        return summarize(capture, tally, analysis.seen(), analysis.findings())


def _ahead(capture: Capture, tally: Tally) -> Iterator[tuple[Packets, Hashes]]:
    """The packets of a capture, window by window; the next one is read and decoded while one is analysed."""
    coming: queue.SimpleQueue[tuple[Packets, Hashes] | BaseException | None] = queue.SimpleQueue()
    taken = threading.Semaphore(0)  # only then is the next one read: memory holds two, not three
    over = threading.Event()

    def read() -> None:
        try:
            for records in capture:
                packets = decode(records, tally)
                coming.put((packets, hash_pairs(packets)))
                taken.acquire()
                if over.is_set():
                    return
            coming.put(None)
        except BaseException as error:  # raised where the packets are asked for
            coming.put(error)

    # A daemon: whoever interrupts the analysis does not wait for a pipe that brings nothing.
    threading.Thread(target=read, name="decode", daemon=True).start()
    try:
        while (window := coming.get()) is not None:
            if isinstance(window, BaseException):
                raise window
            taken.release()
            yield window
    finally:
        over.set()
        taken.release()


class Analysis:
    """Everything found so far in a capture that arrives window by window."""

    def __init__(self, list_exchanges: bool = True) -> None:
        self.connections = Connections()
        self.tcp_packets = 0
        self.first_ts: int | None = None
        self.last_ts = 0
        self._aside = PutAside(exchanges=ExchangeLog(list_exchanges))

    def follow(self, packets: Packets, hashes: Hashes) -> None:
        """Take the packets of the next window, and their :func:`hash_pairs`."""
        if not len(packets):
            return
        self.tcp_packets += len(packets)
        self.first_ts = int(packets.ts[0]) if self.first_ts is None else self.first_ts
        self.last_ts = int(packets.ts[-1])
        known = self.connections
        rows = known.follow(packets, hashes)
        self._aside.exchanges.follow(rows, known)
        self._look(rows)
        self._put_away(known.finish(rows))

    def _look(self, rows: Timeline) -> None:
        """What one window shows."""
        known, aside = self.connections, self._aside
        aside.triples.append(proof.find(rows, known))
        aside.add_late_acks(proof.late_acks(rows, known))
        aside.add_silences(silences.find(rows, known))
        for events, at in (
            (aside.nagle_off, proof.small_behind_small(rows, known)),
            (aside.fin_acks, proof.fin_acks_by_timer(rows)),
        ):
            events.add(known.facts.id[rows.conn[at]], rows.side[at])

    def seen(self) -> Seen:
        """How much of TCP there was."""
        known = self.connections
        return Seen(self.tcp_packets, known.count, known.copies, self.first_ts, self.last_ts)

    def findings(self) -> Findings:
        """What the whole capture shows; call once, at the end."""
        self._put_away(self.connections.live())
        return Findings(self._aside)

    def _put_away(self, places: Ints) -> None:
        """Enter the connections there in the ledger, and forget them."""
        if not len(places):
            return
        entry = entries(self.connections, places)
        closed = self._aside.exchanges.close(places, self.connections)
        entry["answered"], entry["repeat"], entry["greeted"], entry["open"] = closed
        self._aside.ledger.put(self.connections.facts.id[places], entry)
        self.connections.free(places)
