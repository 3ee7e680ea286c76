"""The figures of a run that a scenario's claims may name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """A figure in words, and its unit."""

    words: str
    unit: str


# nagle_lab.runs.figures computes each; the names are those of its fields. Counted on the connections under test.
MEASURES = {
    "stalled_share": Measure("stalled exchanges, of those after a connection's first", ""),  # 0 to 1
    "wait_p50_ms": Measure("median wait for the late ACK", "ms"),
    "wait_p99_ms": Measure("99th percentile of the wait for the late ACK", "ms"),
    "requests_per_s": Measure("requests per second", "per s"),  # as the load tool saw it, as are the next three
    "mean_ms": Measure("mean time of a request", "ms"),
    "p50_ms": Measure("median time of a request", "ms"),
    "p99_ms": Measure("99th percentile of the time of a request", "ms"),
    "packets_per_request": Measure("packets per request", ""),
    "wire_bytes_per_payload_byte": Measure("bytes on the wire per byte of payload", ""),
    "delayed_acks": Measure("delayed ACKs in the capture", ""),
    "kernel_delayed_acks": Measure("delayed ACKs in the kernels' counters", ""),  # of the namespaces at both ends
}
