"""What the marker of a test says: ``@pytest.mark.nagle(expect="clean", port=8000)``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from nagle_lab.diagnosis.result.could_stall import IN_ONE_SEGMENT, Missing
from nagle_lab.diagnosis.result.result import Result
from nagle_lab.diagnosis.result.verdict import Verdict
from nagle_lab.experiments.software.guarded import Selection, allowed_end

NO_STALL, CLEAN, STALL, ANY = "", "clean", "stall", "any"  # without a marker: NO_STALL


@dataclass(frozen=True)
class ExpectedOfTest:
    """What is expected of a test, and on which connections."""

    expect: str
    one_write: bool
    selection: Selection
    marked: bool  # whether there is a marker

    def allows(self, verdict: Verdict, result: Result | None, missing: Missing | None) -> bool:
        """Whether it is INCONCLUSIVE only because there was no second write, and the marker does not ask for one."""
        return self.one_write and verdict is Verdict.INCONCLUSIVE and _is_each_in_one(result, missing)

    def complaint(self, verdict: Verdict, reason: str, result: Result | None, missing: Missing | None) -> str:
        """Why a test with this verdict fails; empty if it passes. ``result`` is None without traffic."""
        found = f"{verdict}: {reason}"
        if self.expect == ANY:
            return ""
        if self.expect == STALL:
            return "" if verdict is Verdict.STALL else f"expected STALL, found {found}"
        if verdict in (Verdict.STALL, Verdict.INVALID):
            return found
        if self.expect == CLEAN and verdict is Verdict.INCONCLUSIVE:
            if self.allows(verdict, result, missing):
                return ""
            return f"expected CLEAN, found {found}{_ONE_WRITE_HINT if _is_each_in_one(result, missing) else ''}"
        return ""


def _is_each_in_one(result: Result | None, missing: Missing | None) -> bool:
    """Whether each message left in one segment; a program that sleeps for 200 ms only looks as if it set TCP_CORK."""
    return missing in IN_ONE_SEGMENT and result is not None and not result.quality.unresolved


_ONE_WRITE_HINT = " (if single writes are the protection, add one_write=True to the marker)"


def options_of(config: pytest.Config) -> Selection:
    """The connections to judge according to the command line. Raises pytest.UsageError."""
    try:
        ports, allowed = _ports(config.option.nagle_port), _allowed(config.option.nagle_allow)
    except ValueError as error:
        raise pytest.UsageError(f"--nagle-port, --nagle-allow: {error}") from None
    return Selection(ports, allowed)


def expected_of(item: pytest.Item, options: Selection) -> ExpectedOfTest:
    """What the markers of the test, its class and its module say; the nearest counts. Raises pytest.UsageError."""
    markers = list(item.iter_markers("nagle"))
    said: dict[str, Any] = {}
    try:
        for marker in reversed(markers):
            if marker.args:
                raise ValueError(f"{marker.args[0]!r} must be a keyword argument: write expect={marker.args[0]!r}")
            if not marker.kwargs:
                raise ValueError('it says nothing: write expect="clean", or leave it out')
            said |= _read(marker.kwargs)
        if said.get("one_write") and said.get("expect") != CLEAN:
            raise ValueError('one_write=True needs expect="clean" beside it')
    except ValueError as error:
        raise pytest.UsageError(f"{item.nodeid}: marker nagle: {error}") from None
    selection = Selection(said.get("ports") or options.ports, options.allowed | said.get("allow", frozenset()))
    return ExpectedOfTest(said.get("expect", NO_STALL), said.get("one_write", False), selection, bool(markers))


def _read(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check one marker's arguments. Raises ValueError."""
    said: dict[str, Any] = {}
    for name, value in arguments.items():
        if name == "expect":
            if str(value).lower() not in (CLEAN, STALL, ANY):
                raise ValueError(f"expect={value!r} is not one of {CLEAN!r}, {STALL!r}, {ANY!r}")
            said[name] = str(value).lower()
        elif name == "one_write":
            if not isinstance(value, bool):
                raise ValueError(f"one_write={value!r} is not True or False")
            said[name] = value
        elif name in ("port", "ports"):
            said["ports"] = _ports([value] if name == "port" else value) | said.get("ports", frozenset())
        elif name == "allow":
            said[name] = _allowed([value] if isinstance(value, str) else value)
        else:
            raise ValueError(f"unknown argument {name}: use expect, one_write, port, ports or allow")
    return said


def _ports(values: object) -> frozenset[int]:
    if not isinstance(values, list | tuple | set | frozenset):
        raise ValueError(f"ports={values!r} is not a list")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
            raise ValueError(f"{value!r} is not a port: use a number from 1 to 65535")
    return frozenset(values)


def _allowed(values: object) -> frozenset[tuple[str, int]]:
    if not isinstance(values, list | tuple | set | frozenset):
        raise ValueError(f"allow={values!r} is not a list")
    return frozenset(allowed_end(value if isinstance(value, str) else repr(value)) for value in values)
