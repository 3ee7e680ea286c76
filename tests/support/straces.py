"""What strace would have written of a conversation: each end's calls a moment before its segments."""

from collections.abc import Callable, Iterable
from pathlib import Path

from support.stories import BODY
from support.synthetic import MS, US, Segment

BEFORE = 50 * US  # a call is so long before its segment, if that is not held


def strace_text(
    segments: Iterable[Segment],
    *,
    server: tuple[str, int],
    place: Callable[[int], str] = lambda _: "",
    held_after: int = 300 * US,
    begun: bool = True,
    stack: Callable[[int], list[str]] = lambda _: [],
) -> str:
    """The server's calls: an accept4, and a sendto for each of its segments with data.

    ``place`` gives, for so many bytes, the line in a hook's mark: "/srv/server.py;16;reply"; empty: no mark.
    ``held_after``: for data that follows a wait of 20 ms, how long after the server's previous data the call is.
    ``begun``: whether the accept4 is in it.
    """
    lines, last = [], 0
    for one in sorted(segments, key=lambda one: one.ts_ns):
        from_server = (one.src, one.sport) == server
        socket = f"5<TCP:[{server[0]}:{server[1]}->{one.dst}:{one.dport}]>"
        if begun and "S" in one.flags and from_server:
            peer = f"<TCP:[{server[0]}:{server[1]}->{one.dst}:{one.dport}]>"
            lines.append(_line(one.ts_ns + US, f"accept4(3<TCP:[{server[0]}:{server[1]}]>, NULL, NULL, 0) = 5{peer}"))
        if not from_server or not one.length:
            continue
        at = last + held_after if last and one.ts_ns - last > 20 * MS and one.length == BODY else one.ts_ns - BEFORE
        if said := place(one.length):
            lines.append(_line(at - 10 * US, f'rmdir("/proc/nagle-lab;5;{one.length};sendall;{said}") = -1 ENOENT'))
        lines.append(_line(at, f'sendto({socket}, ""..., {one.length}, 0, NULL, 0) = {one.length}'))
        lines += [f" > {frame}" for frame in stack(one.length)]
        last = one.ts_ns
    return "".join(f"{line}\n" for line in lines)


def _line(ns: int, text: str) -> str:
    return f"700<server> {ns // 10**9}.{ns % 10**9 // 1000:06} {text}"


def write_strace(folder: Path, segments: Iterable[Segment], **how: object) -> Path:
    """Write that to a file."""
    path = folder / "strace.txt"
    path.write_text(strace_text(segments, **how))  # type: ignore[arg-type]
    return path
