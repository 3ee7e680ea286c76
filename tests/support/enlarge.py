"""A large capture from a small one: the same packets again and again, later each time.

python -m support.enlarge small.pcap large.pcap 2200000
"""

import sys
from pathlib import Path

import numpy as np

from nagle_lab.capture import open_capture
from nagle_lab.capture.pcap import FILE_HEADER, MAGICS


def enlarge(small: Path, large: Path, packets: int) -> None:
    """Write at least `packets` packets: `small`, a pcap file, repeated; each round begins a second after the last."""
    content = np.frombuffer(small.read_bytes(), np.uint8).copy()
    order, _ = MAGICS[content[:4].tobytes()]
    with open_capture(small, window_bytes=len(content)) as capture:
        (records,) = capture
        headers = records.offset - 16  # their first four bytes are the seconds
        seconds = records.ts // 1_000_000_000
    span = int(seconds.max() - seconds.min()) + 1
    with large.open("wb") as out:
        out.write(content[:FILE_HEADER].tobytes())
        for number in range(-(-packets // len(headers))):
            shifted = (seconds + number * span).astype(order + "u4").view(np.uint8).reshape(-1, 4)
            content[headers[:, None] + np.arange(4)] = shifted
            out.write(content[FILE_HEADER:].tobytes())


if __name__ == "__main__":
    enlarge(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
