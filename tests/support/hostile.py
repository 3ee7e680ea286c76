"""Malicious captures and names, full of characters on which a terminal or a browser acts."""

import json
import struct
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from support.run_folders import change, write
from support.stories import server_held, talk
from support.synthetic import ETHERNET, Segment, packet_bytes, pcapng_block

CONTROLS = (
    "\x1b[8;6mHIDDEN\x1b[2J\x1b[H",  # CSI: conceal and blink, clear, home
    "\x1b]0;OWNED\x07",  # OSC 0: the window's title
    "\x1b]52;c;T1dORUQ=\x07",  # OSC 52: the clipboard
    "\x1b]8;;http://evil.test/\x1b\\click\x1b]8;;\x1b\\",  # OSC 8: a link
    "\x9b6mC1\x9d0;OWNED\x9c\x90x\x9c",  # C1: CSI, OSC and DCS in one byte
    "over\rwritten\b\b\x07\x0b\x0c\x7f\x00",
    "\u202egpj.exe\u202c\u2066\u2069\u200f\u2028\ufeff",  # direction marks, a line separator
    "[red]rich[/red][link=http://evil.test/]x[/link]:boom:",
)
MARKUP = (
    "<script>window.owned=1</script>",
    "</script><script>window.owned=2</script>",
    "</title></style></svg>--><img src=x onerror=window.owned=3>",
    '" onmouseover="window.owned=4" autofocus onfocus=\'window.owned=5\'',
    "javascript:window.owned=6",
    "<a href=javascript:window.owned=7 id=tip data-tip=x>x</a>",
    "&lt;script&gt;window.owned=8&#10;",
    "$\\frac{$ ]]> {{7*7}}",
    "![x](http://evil.test/x.png) [y](javascript:window.owned=9) @everyone `code` |",
)
EVIL = "".join((*CONTROLS, *MARKUP))


def http(segments: Iterable[Segment]) -> list[tuple[int, bytes]]:
    """(time in ns, frame): the segments, with HTTP messages in which every header is hostile."""
    headers = "".join(f"X-{i}: {text}\r\n" for i, text in enumerate((*CONTROLS, *MARKUP))).encode("utf-8")
    frames = []
    for segment in segments:
        data = packet_bytes(segment, ETHERNET)
        if segment.length:
            start = (
                b"HTTP/1.1 200 \x1b]0;OWNED\x07\r\n" if segment.sport == 80 else b"GET /\x1b[8m<script> HTTP/1.1\r\n"
            )
            text = (start + headers + b"\r\n").ljust(segment.length, b"\x9b")[: segment.length]
            data = data[: -segment.length] + text
        frames.append((segment.ts_ns, data))
    return frames


def capture(evil: bytes = EVIL.encode()) -> bytes:
    """A pcapng file that stalls, hostile in its payloads, and ``evil`` wherever a block has text."""
    texts = b"".join(_option(code, evil) for code in (1, 2, 3, 4))
    section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + texts + _END
    interface = (
        struct.pack("<HHI", ETHERNET, 0, 2000) + texts_of_interface(evil) + struct.pack("<HHB3x", 9, 1, 9) + _END
    )
    blocks = [pcapng_block(0x0A0D0D0A, section), pcapng_block(1, interface), pcapng_block(4, _names(evil))]
    for ns, data in http(talk(server_held, 4).segments):
        head = struct.pack("<IIIII", 0, ns >> 32, ns & 0xFFFFFFFF, len(data), len(data))
        comment = _option(1, b"\n-- next frame --\n" + evil)
        blocks.append(pcapng_block(6, head + data + bytes(-len(data) % 4) + comment + _END))
    return b"".join(blocks)


_END = bytes(4)


def texts_of_interface(text: bytes) -> bytes:
    """Comment, name, description, operating system and hardware of an interface."""
    return b"".join(_option(code, text) for code in (1, 2, 3, 12, 15))


def _names(text: bytes) -> bytes:
    """A name resolution block: both ends have hostile names."""
    name = text.replace(b"\0", b"") + b"\0"
    records = b""
    for address in ((10, 0, 0, 1), (10, 0, 0, 2)):
        record = bytes(address) + name
        records += struct.pack("<HH", 1, len(record)) + record + bytes(-len(record) % 4)
    return records + _END


def _option(code: int, text: bytes) -> bytes:
    return struct.pack("<HH", code, len(text)) + text + bytes(-len(text) % 4)


def name(text: str) -> str:
    """A file of that name can be made."""
    return text.replace("/", "\u2215").replace("\0", "")[:120]


def run_folder(folder: Path) -> None:
    """Put hostile text wherever a run's manifest and witnesses have text, and update the checksums."""

    def texts(value: Any, *, kept: Collection[str]) -> Any:
        if isinstance(value, dict):
            return {key: member if key in kept else texts(member, kept=kept) for key, member in value.items()}
        if isinstance(value, list):
            return [texts(member, kept=kept) for member in value]
        return EVIL if isinstance(value, str) else value

    form = ("schema", "verdict", "files", "namespace", "addresses", "file", "held_by", "delayed_by", "service")
    for file in ("witnesses.json", "manifest.json"):
        write(folder, file, texts(json.loads((folder / file).read_text()), kept=form))
    change(folder, "manifest.json", lambda m: m.update(parameters={EVIL: EVIL}))
