"""Reproduce and diagnose TCP's Nagle × delayed-ACK stall.

    import nagle_lab

    result = nagle_lab.analyze("x.pcap")
    print(result.verdict, result.reason)

docs/library.md has more examples.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nagle_lab.diagnosis.analysis import Analysis, analyze, analyze_same_traffic
    from nagle_lab.diagnosis.pair import Pair
    from nagle_lab.diagnosis.result.result import Connection, Endpoint, Exchange, Result, Stall
    from nagle_lab.diagnosis.result.verdict import Verdict
    from nagle_lab.errors import NagleLabError

__version__ = "0.1.0"

__all__ = [
    "Analysis", "Connection", "Endpoint", "Exchange", "NagleLabError", "Pair", "Result", "Stall", "Verdict",
    "__version__", "analyze", "analyze_same_traffic",
]  # fmt: skip

# Loaded on first use: `nagle-lab --version` needs none of them.
_HOMES = {
    "Analysis": "diagnosis.analysis",
    "Connection": "diagnosis.result.result",
    "Endpoint": "diagnosis.result.result",
    "Exchange": "diagnosis.result.result",
    "NagleLabError": "errors",
    "Pair": "diagnosis.pair",
    "Result": "diagnosis.result.result",
    "Stall": "diagnosis.result.result",
    "Verdict": "diagnosis.result.verdict",
    "analyze": "diagnosis.analysis",
    "analyze_same_traffic": "diagnosis.analysis",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
