"""The packets behind a finding, written to a file: those of its connections, as they are in the ring."""

from collections.abc import Sequence
from pathlib import Path

from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.take import records
from nagle_lab.capture.writer import Pcapng
from nagle_lab.diagnosis.result.result import Connection
from nagle_lab.evidence.excerpt import packed_endpoint
from nagle_lab.evidence.segments import EndPair, segments


def write_packets(capture: Path, connections: Sequence[Connection], out: Path) -> int:
    """Write the packets of some connections of a capture to ``out``, a new file; returns how many.

    What the kernel said of their data goes with them.

    Raises OSError; FileExistsError where ``out`` is there.
    """
    ends: set[EndPair] = {(*packed_endpoint(one.client), *packed_endpoint(one.server)) for one in connections}
    frames = {segment.frame for segment in segments(capture, ends=ends)}
    with out.open("xb") as file:
        writer, numbers = Pcapng(file), dict[tuple[int, int], int]()
        with open_capture(capture, sha256=False) as opened:
            for record in records(opened):
                if record.frame not in frames:
                    continue
                key = (record.interface, record.link_type)
                if key not in numbers:
                    numbers[key] = len(numbers)
                    writer.add_interface(f"interface {record.interface}", link_type=record.link_type)
                writer.add(record.ts, numbers[key], record.original, record.data)
            wanted = {frozenset(one.ends) for one in connections}
            for answer in opened.facts.kernel_answers if numbers else ():
                if frozenset((answer.sender, answer.receiver)) in wanted:
                    writer.add_answer(answer)
    return len(frames)
