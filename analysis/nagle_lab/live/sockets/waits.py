"""Whether a small segment waits in a socket at this moment, and what for."""

from enum import StrEnum

from nagle_lab.host.sock_diag import ListedSocket
from nagle_lab.live.sockets.socket_options import Options


class Waits(StrEnum):
    """Why a small segment waits in a socket at this moment."""

    HELD = "held now"  # by Nagle's algorithm: a small one is on its way and not acknowledged
    MAYBE_HELD = "held?"  # the same, but whether TCP_NODELAY is off may not be read
    CORKED = "corked"  # TCP_CORK


def waits(listed: ListedSocket, options: Options | None) -> Waits | None:
    """Whether less than a segment waits in it, and why, as Linux decides it (ListedSocket.holds_small).

    Where the congestion window or the other end's window is full, that is why it waits.
    """
    info = listed.info
    is_small_waiting = info is not None and 0 < info.unsent < info.mss
    bypasses_nagle = options is not None and options.nodelay and not options.cork
    if not is_small_waiting or bypasses_nagle:
        return None
    if options and options.cork:
        return Waits.CORKED
    if not listed.holds_small:
        return None
    return Waits.HELD if options else Waits.MAYBE_HELD
