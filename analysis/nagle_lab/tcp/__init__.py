"""TCP: the machine that follows each connection, its C twin, and the tables of what they find."""

from nagle_lab.tcp.compiled import LIBRARY, CompiledEngine
from nagle_lab.tcp.engine import Engine


def make_engine(*, exchanges: bool = True, in_place: bool = True) -> Engine:
    """An engine: the compiled one if it is available, unless NAGLE_LAB_COMPILED=0 asks for plain Python.

    ``exchanges``: whether each exchange gets a row; ``in_place``: see :class:`nagle_lab.tcp.tables.Tables`.
    """
    if LIBRARY is not None:
        return CompiledEngine(LIBRARY, exchanges=exchanges, in_place=in_place)
    from nagle_lab.tcp.plain import PlainEngine  # noqa: PLC0415 - its import takes longer than a small capture

    return PlainEngine(exchanges=exchanges, in_place=in_place)
