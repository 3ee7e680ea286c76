"""The two writes of each stall, with the lines of code that made them."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from statistics import median

from msgspec.structs import replace

from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.spread import spread
from nagle_lab.diagnosis.result.writes import Group, HeldWrite, Place, Write, Writes
from nagle_lab.experiments.writes.joining import NOT_ALL, NOT_SEEN, CallPair, Joined
from nagle_lab.experiments.writes.nodelay_calls import nodelay_of, options_of
from nagle_lab.guard.tracing.calls import Call, Trace
from nagle_lab.guard.tracing.hooking import source_of
from nagle_lab.guard.tracing.native_frames import CallSite

_AT_ONCE_US = 1000  # data that leaves so soon was not held
_ONE = 1.5  # exchanges: one more or less changes the share of a few by many points, which says nothing
_POINTS = 0.05  # difference of the shares with and without tracing that is not mentioned
MOST_STALLS = 1000  # that are listed one by one
_BEGINS = re.compile(r"<module>|(.*[.:])?main(\(.*)?")  # functions in which a program begins
_WHOLE = ("/", "<", "[", "…")  # how names of a program's own files begin


class CallPlaces:
    """Where calls were made: by a hook's mark, otherwise by the native stack of the same call in another run."""

    def __init__(self, native: dict[Call, CallSite] | None = None, why: Callable[[Call], str] | None = None) -> None:
        self._native = native or {}
        self._why = why or (lambda _: "")

    def pair(self, pair: CallPair) -> tuple[Write, Write]:
        """Both calls of a stall, by the innermost places of the program and of libraries at which they differ.

        A library's place is given only if the program's own places are the same, or there are none.
        """
        (mine, one, _), (other, two, _) = self._places(pair.trigger), self._places(pair.held)
        outer, inner = _first_difference(mine, other), _first_difference(one, two)
        differ = bool(mine and other) and _spot(mine[outer]) != _spot(other[outer])
        if differ and one[inner : inner + 1] == two[inner : inner + 1]:
            inner = max(len(one), len(two))
        return self.write(pair.trigger, outer, inner), self.write(pair.held, outer, inner)

    def write(self, call: Call, outer: int = 0, inner: int = 0) -> Write:
        """The call, with its place in the program and in the libraries, so many calls up in each."""
        program, libraries, why = self._places(call)
        return Write(
            call=call.name,
            by=call.mark.call if call.mark else "",
            bytes=call.wrote,
            at=f"{call.at // 10**9}.{call.at % 10**9 // 1000:06}",
            process=call.process,
            thread=call.thread,
            command=call.command,
            program=program[outer] if outer < len(program) else None,
            library=libraries[inner] if inner < len(libraries) else None,
            why_no_line=why,
        )

    def stack(self, call: Call) -> list[Place]:
        """All places of a call, innermost first: those in libraries, then those in the program."""
        program, libraries, _ = self._places(call)
        return [*libraries, *program]

    def option(self, call: Call) -> tuple[Write, Place | None]:
        """The call that set an option, and where the program called the function that made it."""
        caller = next(iter(self._places(call)[0][1:]), None)
        return self.write(call), None if caller and _BEGINS.fullmatch(caller.function) else caller

    def _places(self, call: Call) -> tuple[list[Place], list[Place], str]:
        """The program's, the libraries', each the innermost first, and why there is none."""
        if call.mark and call.mark.frames:
            places = [Place(source_of(file), line, name) for file, line, name in call.mark.frames]
            # For a library's file there is only the path inside its folder.
            libraries = list(takewhile(lambda place: not place.file.startswith(_WHOLE), places))
            return places[len(libraries) :], libraries, ""
        if found := self._native.get(call):
            program, libraries = ([Place(*place) for place in places] for places in (found.program, found.libraries))
            return program, libraries, found.why
        return [], [], self._why(call)


def _first_difference(some: Sequence[Place], others: Sequence[Place]) -> int:
    """How many places two stacks share at the beginning; 0 if they do not differ."""
    return next((i for i, (a, b) in enumerate(zip(some, others, strict=False)) if _spot(a) != _spot(b)), 0)


def _spot(place: Place) -> tuple[str, int | str]:
    """A line of code without its function's name: Rust functions have a name for each type parameter."""
    return place.file, place.line or place.function


def filled_in(empty: Writes, result: Result, found: Joined, lines: CallPlaces, trace: Trace) -> Writes:
    """Everything found about the stalls; all other fields are those of ``empty``."""
    pairs, early = found.pairs, early_us(found.pairs)
    return replace(
        empty,
        problem=_missing_calls(found, trace),
        named=len(pairs),
        stalls=len(result.stalls),
        groups=groups_of(pairs, lines),
        true_hold_ms=spread(pair.hold_ms(early) for pair in pairs),
        early_us=early,
        nodelay=nodelay_of(pairs, lines.option),
        options=options_of(pairs[0], lines.option) if pairs else [],
        pairs=[_held_write(pair, lines, early) for pair in pairs[:MOST_STALLS]],
    )


def _missing_calls(found: Joined, trace: Trace) -> str:
    """How many stalls have unknown calls, and why, in a sentence; empty if all are known."""
    if not (missing := found.missing.total()):
        return ""
    whys = dict(found.missing)
    if trace.io_uring:
        unseen = sum(whys.pop(why, 0) for why in (NOT_SEEN, NOT_ALL))
        whys |= {"io_uring was used, whose writes strace does not see": unseen} if unseen else {}
    said = "; ".join(f"{why} ({count})" if len(whys) > 1 else why for why, count in whys.items())
    return f"the calls of {missing} of {missing + len(found.pairs)} stalls were not found: {said}"


def compared(writes: Writes, exchanges: int, stalled: int) -> Writes:
    """Add how many exchanges there were and stalled without tracing; and a note if tracing changed the share."""
    share = _share(writes.stalled_exchanges, writes.exchanges) - _share(stalled, exchanges)
    by = f"tracing changed the share of stalled exchanges by {100 * share:+.0f} points"
    lines = ": the lines hold, but not how often each stalls" if writes.named else ""
    more_than_one = abs(share) * min(writes.exchanges, exchanges) > _ONE
    notes = [by + lines] if abs(share) > _POINTS and more_than_one else []
    return replace(
        writes,
        untraced_exchanges=exchanges,
        untraced_stalled_exchanges=stalled,
        notes=[*notes, *writes.notes],
    )


def _share(stalled: int, exchanges: int) -> float:
    return stalled / exchanges if exchanges else 0.0


_Named = tuple[CallPair, Write, Write]


def groups_of(pairs: Iterable[CallPair], lines: CallPlaces) -> list[Group]:
    """Stalls grouped by the places of their writes, the largest group first."""
    members: dict[object, list[_Named]] = defaultdict(list)
    for pair in pairs:
        trigger, held = lines.pair(pair)
        of_both = *_place_key(trigger), *_place_key(held)
        # Without places the size of the trigger tells pairs apart; what is held may be of any size.
        by_size = None if trigger.program or trigger.library else trigger.bytes
        members[of_both, by_size, pair.trigger is pair.held].append((pair, trigger, held))
    groups = [_group(group, lines) for group in members.values()]
    return sorted(groups, key=lambda group: -group.stalls)


def _place_key(write: Write) -> tuple[object, ...]:
    """What two writes have in common that are of one place; of what has none, who wrote."""
    if write.program or write.library:
        return write.call, write.by, write.program, write.library
    return write.call, write.command


def _group(members: Sequence[_Named], lines: CallPlaces) -> Group:
    first, trigger, held = members[0]
    triggers, helds = [one.bytes for _, one, _ in members], [one.bytes for _, _, one in members]
    return Group(
        stalls=len(members),
        trigger=trigger,
        held=held,
        trigger_bytes=(min(triggers), max(triggers)),
        held_bytes=(min(helds), max(helds)),
        one_write=first.trigger is first.held,
        between_ms=round(median(pair.between_ms for pair, _, _ in members), 3),
        trigger_stack=lines.stack(first.trigger),
        held_stack=lines.stack(first.held),
    )


def early_us(pairs: Sequence[CallPair]) -> float:
    """How long before its bytes leave a call begins, by strace's time, µs: the median of triggers, as none is held.

    strace stamps a call before the kernel begins with it. If the capture was taken elsewhere, the value includes the
    way there, and the difference of the clocks. 0 if no trigger left within a millisecond.
    """
    apart = [(pair.trigger_ts - pair.trigger.at) / 1e3 for pair in pairs]
    return round(median(at_once), 1) if (at_once := [us for us in apart if abs(us) < _AT_ONCE_US]) else 0.0


def _held_write(pair: CallPair, lines: CallPlaces, early: float) -> HeldWrite:
    """One stall with its two writes, if calls are stamped ``early`` µs too early."""
    stall = pair.stall
    return HeldWrite(
        stall.connection, stall.exchange, stall.trigger_frame, stall.release_frame, *lines.pair(pair),
        pair.trigger is pair.held, pair.held_writes, round(pair.between_ms, 3), round(pair.hold_ms(early), 3),
    )  # fmt: skip
