"""The proof inside the capture: comments on its frames, and display filters that select them, for Wireshark."""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import groupby
from pathlib import Path

from nagle_lab.capture.comment_writer import copy_commented
from nagle_lab.capture.stored import writing_whole
from nagle_lab.diagnosis.result.result import Result, Stall
from nagle_lab.errors import NagleLabError, naming, printable
from nagle_lab.evidence.ladder import parts_of

MARK = "nagle-lab stall"
COMMENT_FILTER = f'frame.comment contains "{MARK}"'
LONGEST_FILTER = 100_000  # bytes; Linux takes no longer argument than 131,071 (MAX_ARG_STRLEN)
_STALLS_AT_ONCE = 1 << 12


def annotate(paths: Sequence[Path], result: Result, out: Path, *, force: bool = False) -> None:
    """Write the capture ``paths``, whose result is ``result``, to ``out`` as commented pcapng, whole or not at all.

    Raises NagleLabError if there is no packet; ``out`` exists without ``force``, is one of ``paths``, or is not a
    file; or the capture changed.
    """
    _require_free(out, paths, force)
    if not result.source.packets:
        raise NagleLabError(f"{paths[0]}: there is no packet in it to annotate: {result.reason}")
    with writing_whole(out) as file, naming(out):
        copied = copy_commented(paths, file, verdict_comment(result), comments(result))
        if copied != (result.source.packets, result.source.sha256):
            raise NagleLabError(f"{paths[0]}: changed while it was being annotated: copy it, then annotate the copy")
        _require_free(out, paths, force)


def _require_free(out: Path, paths: Sequence[Path], force: bool) -> None:
    if out.is_dir():
        raise NagleLabError(f"{out}: is a folder: name a file in it")
    if not (out.exists() or out.is_symlink()):
        return
    if any(path.exists() and out.exists() and path.samefile(out) for path in paths):
        raise NagleLabError(f"{out}: is the capture itself: name another file")
    if not out.is_file():
        raise NagleLabError(f"{out}: exists and is not a regular file: name another one")
    if not force:
        raise NagleLabError(f"{out}: exists: name another file, or use --force to overwrite")


def verdict_comment(result: Result) -> str:
    """One line: the verdict, its reason, and what removes the stall."""
    remedy = f" Remedy: {result.summary.remedy}" if result.summary.remedy else ""
    return printable(f"nagle-lab verdict: {result.verdict}: {result.reason}.{remedy}")


def comments(result: Result) -> Iterator[tuple[int, str]]:
    """(frame, comment) in order of frames: the verdict on the first, then three for every stall.

    Stalls come in order of their release, and each begins before its release. So the comments of one step are kept
    until no stall of a later step can begin before them. Memory is bounded by the stalls of one step and those that
    overlap it.
    """
    yield 1, verdict_comment(result)
    stalls, count = result.stalls, len(result.stalls)
    steps = range(0, count, _STALLS_AT_ONCE)
    begins = [min(stall.trigger_frame for stall in stalls[at : at + _STALLS_AT_ONCE]) for at in steps]
    for i in range(len(begins) - 1, 0, -1):
        begins[i - 1] = min(begins[i - 1], begins[i])
    waiting: list[tuple[int, int, int, str]] = []
    for step, at in enumerate(steps):
        for number, stall in enumerate(stalls[at : at + _STALLS_AT_ONCE], at + 1):
            for role, (frame, text) in enumerate(_of_stall(stall, f"{MARK} {number} of {count}")):
                heappush(waiting, (frame, number, role, text))
        until = begins[step + 1] if step + 1 < len(begins) else None
        while waiting and (until is None or waiting[0][0] < until):
            frame, _, _, text = heappop(waiting)
            yield frame, text


def _of_stall(stall: Stall, name: str) -> Iterator[tuple[int, str]]:
    held, delaying = (f"the {end.role} ({end})" for end in (stall.held_by, stall.delayed_by))
    trigger, ack, release = stall.trigger_frame, stall.ack_frame, stall.release_frame
    its_ack = f"frame {ack}" if ack else "not in this capture"
    after = f"{stall.release_us:.1f} µs after the late ACK" if ack else "after the late ACK, by its TCP timestamp"
    texts = {
        trigger: f"trigger: {stall.trigger_bytes} B from {held}. Until its ACK ({its_ack}, "
        f"{stall.wait_ms:.3f} ms later), Nagle's algorithm holds what comes next (frame {release}).",
        ack: f"late ACK: delayed by {delaying}, {stall.wait_ms:.3f} ms after the trigger (frame {trigger}). "
        f"It releases frame {release}.",
        release: f"release: {stall.released_bytes} B that {held} held behind frame {trigger} "
        f"until its ACK ({its_ack}), {stall.wait_ms:.3f} ms later; sent {after}.",
    }
    for frame, text in texts.items():
        if frame is not None:
            yield frame, f"{name}, {text}"


def frame_filter(result: Result) -> tuple[str, int]:
    """A display filter of frame numbers, and how many stalls it selects: all, or as many of the first as fit.

    Raises NagleLabError if there is no stall to select.
    """
    if not result.stalls:
        raise NagleLabError(f"{result.source.file}: there is no stall to select: {result.verdict}, {result.reason}")
    frames: set[int] = set()
    length = selected = 0
    for stall in result.stalls:
        new = parts_of(stall).keys() - frames
        length += sum(len(str(frame)) + 2 for frame in new)
        if length > LONGEST_FILTER - len("frame.number in {}"):
            break
        frames |= new
        selected += 1
    return f"frame.number in {{{', '.join(_ranges(sorted(frames)))}}}", selected


def _ranges(frames: Sequence[int]) -> Iterator[str]:
    """Frames that follow each other as ``first..last``."""
    for _, group in groupby(enumerate(frames), lambda item: item[1] - item[0]):
        run = [frame for _, frame in group]
        yield str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}"
