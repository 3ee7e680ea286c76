"""What happened to TCP_NODELAY on the sockets that held: never requested, or requested and lost, and how."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

from nagle_lab.diagnosis.result.spread import plural
from nagle_lab.diagnosis.result.writes import Option, Place, Write, here, place_text, write_text
from nagle_lab.experiments.writes.joining import CallPair
from nagle_lab.guard.tracing.calls import Call, Stream
from nagle_lab.packet.segment import end_text

_MISTAKEN = "SO_DEBUG"  # TCP_NODELAY at the wrong level, SOL_SOCKET: both are 1
_MOST_EVENTS = 4
Located = Callable[[Call], tuple[Write, Place | None]]
"""Says where a call was made, and where the program called the function that made it."""


def options_of(pair: CallPair, located: Located) -> list[Option]:
    """What was set or refused on the listener, on the socket that held, at the other end, and elsewhere."""
    ends = [("listener", pair.stream.listener), ("socket", pair.stream.options)]
    if pair.other:
        ends.append(("other end", pair.other.options))
    ends.append(("another socket", list(pair.elsewhere)))
    found = []
    for on, calls in ends:
        for call in calls:
            after = (call.at - pair.stream.began) / 1e6 if pair.stream.began else None
            since = None if after is None or after < 0 else round(after, 3)
            is_over = call.at > pair.release_ts
            found.append(Option(call.option, call.value, on, since, call.error, is_over, *located(call)))
    return found


def nodelay_of(pairs: Sequence[CallPair], located: Located) -> str:
    """What happened to TCP_NODELAY on the sockets that held: the most frequent stories, and of how many sockets."""
    stories: dict[Stream, str] = {}
    for pair in pairs:
        if pair.stream not in stories:
            stories[pair.stream] = _story(pair, located)
    first = {_untimed(story): story for story in reversed(stories.values())}
    counts = [(first[key], count) for key, count in Counter(map(_untimed, stories.values())).most_common()]
    if not counts:
        return ""
    if len(counts) == 1:
        return counts[0][0]
    return "; ".join(f"on {count} of {len(stories)} sockets: {story}" for story, count in counts[:3])


def _untimed(story: str) -> str:
    """The story of a socket without its times, to compare it with those of others."""
    return re.sub(r"[\d.]+ ms after", "after", story)


def _story(pair: CallPair, located: Located) -> str:
    """The story of one socket, until the held bytes were written."""
    wanted = [one for one in options_of(pair, located) if one.option in ("TCP_NODELAY", _MISTAKEN)]
    own = [one for one in wanted if one.on == "socket"]
    if did := [one for one in own if one.took_effect]:
        was_set = any(one.value for one in wanted if one.on in ("listener", "socket") and one.took_effect)
        events = _events(did)
        more = [f"{len(events) - _MOST_EVENTS} more"] if len(events) > _MOST_EVENTS else []
        return ("" if was_set else "never set, only ") + ", and ".join([*events[:_MOST_EVENTS], *more])
    if did := [one for one in wanted if one.on == "listener" and one.took_effect]:
        return f"{'set' if did[-1].value else 'cleared'} on the listening socket only, {_at(did[-1])}"
    if failed := [one for one in wanted if one.on in ("socket", "listener") and one.value]:
        return _failure(failed[0])
    if not pair.stream.began:
        return "not set while it was traced; the connection began before that"
    return f"never set on the socket that held{_set_elsewhere(pair, wanted)}"


def _failure(option: Option) -> str:
    """Why a setting on the right socket had no effect."""
    on = " on the listening socket" if option.on == "listener" else ""
    if option.option == _MISTAKEN:
        refused = f", and was refused ({option.error})" if option.error else ""
        return (
            f"never set: asked for{on} {_at(option)}, but at the wrong level: SOL_SOCKET made it SO_DEBUG"
            f"{refused}; use IPPROTO_TCP"
        )
    size = ": its value is an int of 4 bytes" if option.error == "EINVAL" else ""
    return f"never set: asked for{on} {_at(option)}, and refused ({option.error}){size}"


def _set_elsewhere(pair: CallPair, wanted: Sequence[Option]) -> str:
    """On which other sockets it was set; empty if on none.

    First those of its process: many clients set the option on their end, and that tells nothing.
    """
    of_process = [one for one in wanted if one.on == "another socket"]
    for call, option in zip(pair.elsewhere, of_process, strict=True):
        if call.socket == end_text(*pair.stream.way[0]):
            return f"; set on the listening socket {_at(option)}, after this connection had begun"
    if not of_process:
        others = [one for one in wanted if one.on == "other end" and one.value and one.took_effect]
        return f"; the other end set it on its own, {_at(others[0])}" if others else ""
    first, at = pair.elsewhere[0], _at(of_process[0])
    if len(pair.elsewhere) > 1:
        return f"; set on other sockets of that process, first {at}"
    return f"; set on another socket of that process ({_name(first.socket)}), {at}"


def _name(socket: str) -> str:
    return "not connected then" if socket.isdecimal() else socket.replace("->", " → ")


def _events(did: Sequence[Option]) -> list[str]:
    """The calls that took effect, in order; repeated calls from the same place are mentioned once."""
    found = []
    for _, alike in groupby(did, key=lambda one: (one.value, one.write.program, one.write.library)):
        first, *again = alike
        more = f", and {len(again)} more {plural('time', len(again))}" if again else ""
        found.append(_event(first) + more)
    return found


def _event(option: Option) -> str:
    when = (
        "before connecting"
        if option.after_connecting_ms is None
        else f"{option.after_connecting_ms:.1f} ms after connecting"
    )
    late = ", when the first stall was over" if option.after_stall else ""
    return f"{'set' if option.value else 'cleared'} {_at(option)}, {when}{late}"


def _at(option: Option) -> str:
    write = option.write
    called = f" (called at {place_text(option.caller, here())})" if option.caller else ""
    if write.program or write.library:
        return f"at {write_text(write, here())}{called}"
    return f"by {write.command}, process {write.process}"
