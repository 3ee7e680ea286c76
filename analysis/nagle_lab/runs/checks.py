"""The witnesses of a run compared with its captures: the load tool, tcpdump's counts, the kernel's counters."""

import ipaddress
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from nagle_lab.diagnosis.result.result import Connection
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.runs.witnesses import CaptureNumbers, Counters, Load, OptionRecord

# Delayed ACKs in a capture and in the kernel's counter agree when they differ by no more than this count or share:
# a timer may fire while the counters are read, or together with data (equal within 1 in almost every run). The kernel
# also counts those ACKs of bare FINs (SentTotals.fin_acks) that a timer of zero sends (tcp_send_delayed_ack): with
# the next jiffy, which may be at once. It does not count ACKs that a program's late reading sent: some come too
# soon for a timer (SentTotals.acks_before_timer); on a machine that was late itself, others are as late as a timer's.
DELAYED_ACKS_APART = 2
DELAYED_ACKS_SHARE = 0.02


@dataclass(frozen=True)
class Check:
    """One witness compared with the captures; ``verdict`` is that of the run if they disagree."""

    name: str
    ok: bool
    detail: str
    verdict: Verdict


@dataclass(frozen=True)
class Traffic:
    """What captures show of one network namespace: packets from its own addresses, and to them.

    On loopback a packet is both: the kernel counts it once as sent and once as received.
    """

    segments_sent: int
    packets_received: int
    delayed_acks: int
    fin_acks: int
    acks_before_timer: int


def is_own(ip: str, addresses: Collection[str], *, inside: bool = True) -> bool:
    """Whether ``ip``, in a capture taken ``inside`` a network namespace, is that namespace's own.

    ``addresses`` are the namespace's; every namespace has the addresses of loopback to itself.
    """
    return ip in addresses or (inside and ipaddress.ip_address(ip).is_loopback)


def traffic(connections: Iterable[Connection], addresses: Collection[str], *, inside: bool = True) -> Traffic:
    """Add up what a namespace sent and received; see :func:`is_own`."""
    sent = received = delayed = fins = early = 0
    for c in connections:
        for end, other in ((c.client, c.server), (c.server, c.client)):
            if is_own(end.ip, addresses, inside=inside):
                mine = c.sent[end.role]
                sent += mine.segments
                delayed += mine.delayed_acks
                fins += mine.fin_acks
                early += mine.acks_before_timer
                received += c.sent[other.role].packets
    return Traffic(sent, received, delayed, fins, early)


def load_check(load: Load) -> Check:
    """Whether every request of the load was served."""
    served = load.complete == load.requests and not load.failed and not load.non_2xx
    detail = f"{load.complete} of {load.requests} requests complete, {load.failed} failed"
    return Check("load", load.exit_code == 0 and served, detail, Verdict.INVALID)


def option_check(option: OptionRecord) -> Check:
    """Whether the setting that the variant is about took effect."""
    where = "in effect" if option.in_effect else "not found"
    return Check("option", option.in_effect, f"'{option.demanded}' {where} in {option.file}", Verdict.INVALID)


def lossless_check(capture: str, c: CaptureNumbers) -> Check:
    """Whether tcpdump wrote every packet it received, and dropped none."""
    dropped = c.dropped + c.dropped_by_interface
    detail = f"{c.captured} packets captured, {c.received} received, {dropped} dropped"
    if c.early:
        detail += f"; {c.early} before the filter stood"
    return Check(f"lossless at the {capture}", c.captured == c.received and not dropped, detail, Verdict.INVALID)


def kernel_checks(namespace: str, counters: Counters, captured: Traffic, *, busy: bool) -> Iterator[Check]:
    """A namespace's kernel counters compared with what its captures show for its own addresses.

    ``busy`` is whether the machine was so late that programs may have sent late ACKs (Noise.delays_programs).
    """
    sent, received = captured.segments_sent, captured.packets_received
    out, into = counters.segments_sent, counters.grown("Tcp.InSegs")
    detail = f"{sent} sent and {received} received in the capture, {out} and {into} in the kernel"
    yield Check(f"segments at the {namespace}", (sent, received) == (out, into), detail, Verdict.INVALID)
    yield delayed_acks_check(namespace, counters, captured, busy=busy)


def delayed_acks_check(namespace: str, counters: Counters, captured: Traffic, *, busy: bool = False) -> Check:
    """Delayed ACKs that the captures in a namespace show, compared with its kernel's counter.

    On a ``busy`` machine the captures may show any number more.
    """
    kernel = counters.delayed_acks
    apart = max(DELAYED_ACKS_APART, DELAYED_ACKS_SHARE * kernel)
    of_fins, too_soon = captured.fin_acks, captured.acks_before_timer
    is_explained = busy or captured.delayed_acks - too_soon - apart <= kernel
    ok = is_explained and kernel <= captured.delayed_acks + of_fins + apart
    fins = f" and {of_fins} of bare FINs, any of which it may count" if kernel > captured.delayed_acks else ""
    early = f", {too_soon} of them too soon for a timer" if too_soon else ""
    detail = f"{captured.delayed_acks} in the capture{early}{fins}, {kernel} in the kernel"
    return Check(f"delayed ACKs of the {namespace}", ok, detail, Verdict.INCONCLUSIVE)
