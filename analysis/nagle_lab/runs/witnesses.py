"""witnesses.json: the load tool's report, tcpdump's counts, the kernel's counters, the settings."""

from typing import Annotated

from msgspec import Meta

from nagle_lab.diagnosis.result.result import LARGEST, Count
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.runs.record import PLAIN_NAME, SignedNumber, StrictRecord

WITNESSES = "witnesses.json"
_COUNTERS = ("Tcp.InSegs", "Tcp.OutSegs", "Tcp.RetransSegs", "TcpExt.DelayedACKs")  # those that checks use


class CaptureNumbers(StrictRecord):
    """tcpdump's counts, in packets; pcap_stats(3PCAP) says what each means."""

    captured: Count
    received: Count
    dropped: Count
    dropped_by_interface: Count
    early: Count = 0  # counted as received before the filter was set, and not in ``received``


class Counters(StrictRecord):
    """The TCP counters of a network namespace's kernel before and after the load, by name (``Tcp.InSegs``)."""

    before: dict[str, int]
    after: dict[str, int]

    def __post_init__(self) -> None:
        """Raise ValueError if a counter that a check uses is missing, or is impossibly large."""
        for counters in (self.before, self.after):
            for name in _COUNTERS:
                if abs(counters.get(name, LARGEST + 1)) > LARGEST:
                    raise ValueError(f"Counter `{name}` is missing or too large")

    def grown(self, name: str) -> int:
        """How much a counter grew over the load."""
        return self.after[name] - self.before[name]

    @property
    def segments_sent(self) -> int:
        """Segments the kernel sent; OutSegs leaves out retransmissions (RFC 4022)."""
        return self.grown("Tcp.OutSegs") + self.grown("Tcp.RetransSegs")

    @property
    def delayed_acks(self) -> int:
        """ACKs that the kernel counted as delayed."""
        return self.grown("TcpExt.DelayedACKs")


class LoadRun(StrictRecord):
    """How the load tool was started, and how it ended."""

    tool: str
    command: Annotated[str, Meta(pattern=r"\S")]
    exit_code: int


class Load(LoadRun):
    """A load tool's own figures, if it succeeded; times as the client saw them.

    ``duration_s`` is in seconds, ``mean_ms`` and ``percentiles_ms`` (percent → time within which that share of
    the requests was served) in milliseconds; ``keepalive`` counts requests on connections kept alive. None: not
    reported.
    """

    requests: Count
    complete: Count
    failed: Count
    requests_per_s: SignedNumber
    mean_ms: SignedNumber
    duration_s: SignedNumber
    percentiles_ms: dict[str, SignedNumber]
    non_2xx: Count | None = None
    keepalive: Count | None = None


class OptionRecord(StrictRecord):
    """Whether the line ``demanded`` stands in ``file``, the configuration that a program says is in effect."""

    file: str
    demanded: str
    in_effect: bool


class Lateness(StrictRecord):
    """How late the machine woke a process that slept ``interval_us`` at a time: ``count`` times, all in µs."""

    interval_us: Count
    count: Count
    p50_us: Count
    p99_us: Count
    max_us: Count


class Untraced(StrictRecord):
    """The run without strace right before the traced one, and its outcome."""

    run: Annotated[str, Meta(pattern=f"^{PLAIN_NAME}$")]  # its folder's name
    verdict: Verdict
    exchanges: Count  # these counts are of the capture that it shows
    stalled_exchanges: Count
    contradictions: list[str]  # how it differed from what its variant expects


class RecordedWitnesses(StrictRecord):
    """The witnesses as the lab writes them, even if the load tool failed."""

    captures: dict[str, CaptureNumbers]
    counters: dict[str, Counters]  # by network namespace
    load: LoadRun
    option: OptionRecord | None  # None: the lab has no setting to prove
    timers: Lateness | None  # None: recorded before the lab measured them; nothing in those files can replace it
    untraced: Untraced | None = None  # only of a traced run


class Witnesses(RecordedWitnesses):
    """The witnesses of a complete run."""

    load: Load
