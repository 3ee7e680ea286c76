"""Where calls were made, if no hook said it: by their native stacks, or those of similar calls.

Stacks take long, so not every run has them for every call. Either the command runs once more, from its beginning and
with stacks for all calls (:func:`sites_in_another_run`), or a running program has them for a while, in its only trace
(:func:`sites_in_the_trace`). The two cases differ in which calls count as similar, and in what is reported when
similar calls came from several places.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Unpack

from nagle_lab.experiments.writes.joining import CallPair
from nagle_lab.guard.tracing.calls import Call, Trace
from nagle_lab.guard.tracing.native_frames import CallSite, HowToLook, where, why_attached

_NEARLY_ALL = 0.9  # share of similar calls that must come from one place


def unplaced(pairs: Sequence[CallPair], hooked: Container[int] = ()) -> list[Call]:
    """Calls for which no hook said where they were made; calls that set options only in processes without a hook."""
    writes = (call for pair in pairs for call in (pair.trigger, pair.held))
    options = (call for pair in pairs for call in _options(pair) if call.process not in hooked)
    return [call for call in dict.fromkeys(chain(writes, options)) if call.mark is None]


def _options(pair: CallPair) -> list[Call]:
    other = pair.other.options if pair.other else []
    return [*pair.stream.listener, *pair.stream.options, *other, *pair.elsewhere]


def sites_in_another_run(calls: Sequence[Call], traced: Trace, stacked: Trace) -> dict[Call, CallSite]:
    """Where calls similar to each call were made in another run of the same command with stacks.

    Similar are calls of one command, at one end of a connection, that wrote as many bytes with the same system call.
    If those came from several places, the call at the same position on the connection with the same number is taken,
    because both runs do the same from their beginning.
    """
    wanted = set(calls)
    keys = {call: key for key, call in _keyed(traced) if call in wanted}
    kinds = {_kind(key) for key in keys.values()}
    like = [(key, tuple(call.stack)) for key, call in _keyed(stacked) if _kind(key) in kinds and call.stack]
    sites = _sites((stack for _, stack in like), copies=stacked.programs)
    by_kind: dict[object, set[CallSite]] = defaultdict(set)
    exactly: dict[object, CallSite] = {}
    for key, stack in like:
        by_kind[_kind(key)].add(sites[stack])
        exactly[key] = sites[stack]
    found: dict[Call, CallSite] = {}
    for call, key in keys.items():
        alike = by_kind[_kind(key)]
        match = next(iter(alike)) if len(alike) == 1 else exactly.get(key)
        if not match and alike and not any(site.program for site in alike):  # an interpreter's, in several ways
            match = min(alike, key=repr)
        if match:
            found[call] = match
    return found


def _kind(key: Sequence[object]) -> tuple[object, ...]:
    return tuple(key[:-2])


def _keyed(trace: Trace) -> Iterable[tuple[tuple[object, ...], Call]]:
    """Every call with its keys: what it is, how many similar ones came before, and its connection."""
    streams = sorted((stream for streams in trace.streams.values() for stream in streams), key=lambda one: one.began)
    numbers = {True: 0, False: 0}
    for stream in streams:
        numbers[stream.accepted] += 1
        seen: Counter[tuple[object, ...]] = Counter()
        for on_listener, calls in ((True, stream.listener), (False, [*stream.options, *stream.writes])):
            for call in calls:
                kind = (stream.accepted, on_listener, *_what(call), call.wrote)
                seen[kind] += 1
                yield (*kind, seen[kind], numbers[stream.accepted]), call


@dataclass(frozen=True)
class SitesInTrace:
    """Where calls were made, by stacks in the same trace."""

    found: dict[Call, CallSite]
    guessed: int  # how many of these have no stack, and similar calls in more than one place
    ambiguous: set[Call]  # not found, because calls like them came from several places


def sites_in_the_trace(calls: Iterable[Call], trace: Trace, *, attached: bool, elsewhere: bool) -> SitesInTrace:
    """Where each call was made, by its own stack, otherwise by those of nearly all similar calls.

    Similar are calls of one command that did the same, if possible to the byte. Positions are not compared, because a
    running program is somewhere in the middle of its work, and which end accepted a connection may not be known.

    ``attached`` and ``elsewhere`` are those of :func:`nagle_lab.guard.tracing.native_frames.where`.
    """
    every = [
        call for streams in trace.streams.values() for stream in streams for call in stream.calls() if call.stack
    ]
    stacked = {call: tuple(call.stack) for call in every}
    sites = _sites(stacked.values(), attached=attached, elsewhere=elsewhere)
    alike: dict[object, Counter[CallSite]] = defaultdict(Counter)
    for call in every:
        for kind in _kinds(call):
            alike[kind][sites[stacked[call]]] += 1
    found: dict[Call, CallSite] = {}
    guessed, ambiguous = 0, set[Call]()
    for call in calls:
        same = next((alike[kind] for kind in _kinds(call) if kind in alike), Counter[CallSite]())
        if own := stacked.get(call):
            found[call] = sites[own]
        elif same and same.most_common(1)[0][1] >= _NEARLY_ALL * same.total():
            found[call] = same.most_common(1)[0][0]
            guessed += len(same) > 1
        elif same:
            ambiguous.add(call)
    if attached:
        found = {
            call: replace(site, why=why_attached(site, call.command, call.process)) for call, site in found.items()
        }
    return SitesInTrace(found, guessed, ambiguous)


def _kinds(call: Call) -> Iterable[object]:
    return (*_what(call), call.wrote), _what(call)


def _what(call: Call) -> tuple[object, ...]:
    """The command, and what it did."""
    return call.command, call.name, call.option, call.value


def _sites(stacks: Iterable[tuple[str, ...]], **how: Unpack[HowToLook]) -> dict[tuple[str, ...], CallSite]:
    """Where the calls with these stacks were made; each different one is looked at once."""
    different = list(dict.fromkeys(stacks))
    return dict(zip(different, where(different, **how), strict=True))
