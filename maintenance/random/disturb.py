"""Disturbances by capturing: each is a function of the frames and of a random generator."""

import random
from collections.abc import Callable
from dataclasses import replace

from frames import ETHERNET, SECOND, Frame, segment

US, MS = 1_000, 1_000_000
PORTS = (7000, 8000)  # of the servers
Frames = list[Frame]
Disturbance = Callable[[Frames, random.Random], Frames]


def cut(size: int) -> Disturbance:
    """A short snaplen."""
    return lambda frames, _: [replace(frame, data=frame.data[:size]) for frame in frames]


def late(frames: Frames, r: random.Random) -> Frames:
    """The capture begins in the middle of everything."""
    return frames[round(len(frames) * r.uniform(0.05, 0.5)) :]


def coarse(ns: int) -> Disturbance:
    """Time stamps of a coarse clock."""
    return lambda frames, _: [replace(frame, at=frame.at // ns * ns) for frame in frames]


def lossy(share: float) -> Disturbance:
    """The capture lost so many frames."""
    return lambda frames, r: [frame for frame in frames if r.random() >= share]


def twice(frames: Frames, r: random.Random) -> Frames:
    """Every frame twice, the second time a little later, as in a capture on all interfaces of a bridge."""
    copies = [replace(frame, at=frame.at + r.randint(1, 15) * US) for frame in frames]
    return sorted(frames + copies, key=lambda frame: frame.at)


def swapped(frames: Frames, r: random.Random) -> Frames:
    """1 % of the frames have changed places with the next; the stamps stay in order."""
    out = list(frames)
    for i in range(len(out) - 1):
        if r.random() < 0.01 and out[i + 1].at - out[i].at < SECOND:
            a, b = out[i], out[i + 1]
            out[i], out[i + 1] = replace(b, at=a.at), replace(a, at=b.at)
    return out


def sent_by(server: bool) -> Disturbance:
    """One direction only."""

    def change(frames: Frames, _: random.Random) -> Frames:
        known = [(frame, segment(ETHERNET, frame)) for frame in frames]
        return [frame for frame, found in known if found and (found.source in PORTS) == server]

    return change


DISTURBANCES: dict[str, Disturbance] = {
    "cut68": cut(68),
    "cut96": cut(96),
    "late": late,
    "1us": coarse(US),
    "1ms": coarse(MS),
    "10ms": coarse(10 * MS),
    "lossy0.1": lossy(0.001),
    "lossy2": lossy(0.02),
    "twice": twice,
    "swapped": swapped,
    "fromserver": sent_by(True),
    "fromclient": sent_by(False),
}
