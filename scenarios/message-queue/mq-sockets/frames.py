"""The protocol between SDK and broker: frames of a 12-byte header (magic, kind, length of the body) and a body."""

import socket
import struct
from collections.abc import Callable, Iterator

MESSAGE, CONFIRM, SUCCESS = 1, 2, 3
_MAGIC = 0x4D515545
_HEADER = struct.Struct(">III")


def frame(kind: int, body: bytes = b"") -> bytes:
    """Return the bytes of one frame."""
    return _HEADER.pack(_MAGIC, kind, len(body)) + body


def frames(
    connection: socket.socket, after_recv: Callable[[socket.socket], None] = lambda _: None
) -> Iterator[tuple[int, bytes]]:
    """Yield kind and body of every frame until the peer closes; ``after_recv`` is called after each recv().

    Raises ConnectionError when what arrives is not a frame of ours.
    """
    waiting = b""
    while data := connection.recv(65536):
        after_recv(connection)
        waiting += data
        while len(waiting) >= _HEADER.size:
            magic, kind, length = _HEADER.unpack_from(waiting)
            if magic != _MAGIC:
                raise ConnectionError("the peer does not speak the queue's protocol")
            end = _HEADER.size + length
            if len(waiting) < end:
                break
            yield kind, waiting[_HEADER.size : end]
            waiting = waiting[end:]
