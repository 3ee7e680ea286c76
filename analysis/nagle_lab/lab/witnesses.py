"""Reading the witnesses of a run: tcpdump's own counts, the kernel's counters, the server's configuration."""

import re
from collections.abc import Sequence

from nagle_lab.errors import NagleLabError
from nagle_lab.runs.witnesses import CaptureNumbers, Lateness

_COUNT = re.compile(r"(\d+) packets? (captured|received by filter|dropped by kernel|dropped by interface)")


def parse_capture_numbers(text: str) -> CaptureNumbers | None:
    """The counts in tcpdump's message ``text``, or None if it is another message."""
    counts = {what: int(number) for number, what in _COUNT.findall(text)}
    if not {"captured", "received by filter", "dropped by kernel"} <= counts.keys():
        return None
    return CaptureNumbers(
        captured=counts["captured"],
        received=counts["received by filter"],
        dropped=counts["dropped by kernel"],
        dropped_by_interface=counts.get("dropped by interface", 0),  # printed only when it is not 0
    )


def parse_lateness(lines: Sequence[str]) -> Lateness:
    """What ``scenarios/shared/sidecar/lateness`` measured; NagleLabError if ``lines`` contain no measurement."""
    words = next((line.split()[1:] for line in lines if line.startswith("late ")), [])
    if len(words) != len(Lateness.__struct_fields__):
        answer = " / ".join(lines) or "no answer"
        raise NagleLabError(f"the machine's timers could not be measured: {answer}; run it again")
    return Lateness(*map(int, words))


def parse_counters(lines: Sequence[str]) -> dict[str, int]:
    """The kernel's TCP counters by name (``Tcp.InSegs``, ``TcpExt.DelayedACKs``, …).

    ``lines`` are /proc/net/snmp and /proc/net/netstat: for each protocol a line of names, then one of values.
    """
    counters: dict[str, int] = {}
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        protocol = names.split(":")[0]
        if protocol in ("Tcp", "TcpExt"):
            pairs = zip(names.split()[1:], values.split()[1:], strict=True)
            counters |= {f"{protocol}.{name}": int(value) for name, value in pairs}
    return counters


def option_in_effect(configuration: str, demanded: str) -> bool:
    """Whether the configuration has the line ``demanded``, and no other value of the same directive."""
    directive = demanded.split(maxsplit=1)[0]
    lines = [" ".join(line.split()) for line in configuration.splitlines()]
    return {line for line in lines if line.split(" ", 1)[0] == directive} == {demanded}
