"""Captures as guard's recorder writes them, with the kernel's answers about sockets."""

from collections.abc import Callable, Iterable
from pathlib import Path

from nagle_lab.capture.kernel_answers import KernelAnswer
from nagle_lab.capture.writer import Pcapng
from support.stories import BODY, HEADER, LATE, two_part_reply
from support.synthetic import MS, US, Conversation, Segment, packet_bytes


def slow_release(c: Conversation, number: int) -> None:
    """A release by the kernel of a busy machine, or by a program that waits for the ACK: the packets are the same."""
    two_part_reply(c, ack=LATE + number % 5 * MS, body=(130 + number % 7 * 10) * US)


def prompt_release(c: Conversation, number: int) -> None:
    """A release by a program that polls for the ACK without sleeping, or by a kernel."""
    two_part_reply(c, ack=LATE + number % 5 * MS, body=12 * US)


def recorded(path: Path, segments: Iterable[Segment], told: Iterable[KernelAnswer]) -> Path:
    """A capture as the recorder writes it."""
    with path.open("wb") as file:
        writer = Pcapng(file)
        writer.add_interface("lo")
        for one in segments:
            packet = packet_bytes(one)
            writer.add(one.ts_ns, 0, len(packet), packet)
        for waiting in told:
            writer.add_answer(waiting)
        writer.add_dropped(0, 0)
    return path


def headers(segments: Iterable[Segment]) -> list[Segment]:
    """The headers that trigger a wait."""
    return [one for one in segments if one.length == HEADER][1:]  # the first is acknowledged at once


def told(
    segments: list[Segment], after: Callable[[int], int], unsent: int = BODY, every: int = 1
) -> list[KernelAnswer]:
    """The kernel's answers ``after`` each header, ns."""
    ends = [((one.src, one.sport), (one.dst, one.dport)) for one in headers(segments)]
    return [
        KernelAnswer(one.ts_ns + after(number), *ends[number], unsent)
        for number, one in enumerate(headers(segments))
        if number % every == 0
    ]
