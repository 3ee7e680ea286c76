"""What captures are called where several are shown: file names, with as many folders as tell them apart."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nagle_lab.capture.stored import STDIN


def distinct_names(paths: Sequence[Path]) -> dict[Path, str]:
    """The shortest end of each path that no other of them has; the whole of one that is given twice."""
    names = {path: "standard input" for path in paths if str(path) == STDIN}
    parts = {path: path.absolute().parts for path in paths if path not in names}
    length = 1
    while parts:
        ends = {path: str(Path(*own[-length:])) for path, own in parts.items()}
        often = Counter(ends.values())
        told_apart = {path: end for path, end in ends.items() if often[end] == 1 or length >= len(parts[path])}
        names |= told_apart
        parts = {path: own for path, own in parts.items() if path not in told_apart}
        length += 1
    return names


def shortened(name: str, width: int) -> str:
    """A name in ``width`` columns; of a longer one both ends stay, as containers of a project differ in the last."""
    if len(name) <= width:
        return name
    last = width // 2
    return f"{name[: width - 1 - last]}…{name[-last:]}"
