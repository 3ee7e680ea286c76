"""A large capture from a recorded one: the same connections repeated, each time later and with new numbers.

    .venv/bin/python bench/enlarge.py captures/runs/latest-nginx-static-nodelay-off/server.pcap large.pcap 2000000

The recorded file must be a pcap of Ethernet and IPv4, as the lab writes. Every round adds a constant to all sequence
and acknowledgement numbers, so the repeated connections are new ones on reused ports, not retransmissions.
"""

import argparse
from pathlib import Path

import numpy as np

from nagle_lab.capture.capture import open_capture
from nagle_lab.capture.take import records

ETHERNET, TCP_SEQ, TCP_ACK, TCP_FLAGS = 14, 4, 8, 13
STEP = 10_000_019  # added to the numbers of each round; more than a round carries on one connection
ACK = 0x10


def enlarge(small: Path, large: Path, packets: int, before: int = 0) -> int:
    """Write rounds of ``small`` until there are at least ``packets``; returns how many packets were written.

    They follow ``before`` packets of an earlier file, so that both files together are one rotated capture.
    """
    content = np.frombuffer(small.read_bytes(), np.uint8).copy()
    order = {b"\x4d\x3c": "<", b"\xd4\xc3": "<", b"\xa1\xb2": ">"}[content[:2].tobytes()]
    with open_capture(small, window_bytes=2 * len(content), sha256=False) as capture:
        link, ts = np.array([(record.at, record.ts) for record in records(capture)], np.int64).T
    seconds = ts // 1_000_000_000
    tcp = link + ETHERNET + (content[link + ETHERNET] & 15).astype(np.int64) * 4
    acks = tcp[(content[tcp + TCP_FLAGS] & ACK) != 0]
    span = int(seconds[-1] - seconds[0]) + 1
    first, rounds = before // len(link), -(-packets // len(link))
    with large.open("wb") as out:
        out.write(content[:24].tobytes())
        for number in range(first, first + rounds):
            _put(content, link - 16, (seconds + number * span).astype(order + "u4"))
            if number:
                step = STEP * (number if number == first else 1) % (1 << 32)
                _put(content, tcp + TCP_SEQ, _add(content, tcp + TCP_SEQ, step))
                _put(content, acks + TCP_ACK, _add(content, acks + TCP_ACK, step))
            out.write(content[24:].tobytes())
    return rounds * len(link)


def _add(content: np.ndarray, at: np.ndarray, step: int) -> np.ndarray:
    numbers = content[at[:, None] + np.arange(4)].copy().view(">u4")[:, 0]
    return (numbers + np.uint32(step)).astype(">u4")


def _put(content: np.ndarray, at: np.ndarray, numbers: np.ndarray) -> None:
    content[at[:, None] + np.arange(4)] = numbers.view(np.uint8).reshape(-1, 4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("small", type=Path)
    parser.add_argument("large", type=Path)
    parser.add_argument("packets", type=int)
    parser.add_argument("before", type=int, nargs="?", default=0, help="packets of the rotated files before it")
    arguments = parser.parse_args()
    print(enlarge(arguments.small, arguments.large, arguments.packets, arguments.before))
