"""Names of captures: the file's name, with as many folders as needed to distinguish several."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nagle_lab.capture.stored import STDIN, STDIN_NAME


def file_names(files: Sequence[Path | str]) -> str:
    """The name of a capture's file; of rotated ones the first and the last."""
    return " … ".join(dict.fromkeys(Path(file).name for file in (files[0], files[-1])))


def distinct_names(paths: Sequence[Path]) -> dict[Path, str]:
    """For each path its shortest ending that no other path has; the whole path if it is given twice, or is one of a
    shell's <(COMMAND).
    """
    names = {path: STDIN_NAME for path in paths if str(path) == STDIN}
    names |= {path: str(path) for path in paths if path.parent == Path("/dev/fd")}
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
