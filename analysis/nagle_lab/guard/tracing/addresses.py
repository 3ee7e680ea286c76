"""Functions and source lines of addresses in a binary, from programs that read its debug information.

If that is in a separate file (Debian's -dbgsym packages), they find it by build ID or .gnu_debuglink;
eu-addr2line also asks the servers in DEBUGINFOD_URLS, if that is set.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from struct import unpack_from

Location = tuple[str, int, str]  # file ("" if not known), line (0 if not known), function

# Programs that find lines, in the order of trying: not each reads every compiler's debug information.
_OPTIONS = ("-a", "-C", "-f", "-i", "-e")
_ADDR2LINE = (("addr2line", *_OPTIONS), ("llvm-addr2line", *_OPTIONS), ("eu-addr2line", *_OPTIONS))
_LOAD, _DYNAMIC, _INTERP = 1, 2, 3  # kinds of entries in an ELF file's program header table (elf(5))
_GO_TOOL = ("go", "tool", "addr2line")


def lines(binary: str, addresses: set[int]) -> dict[int, list[Location]]:
    """The places of each address in the file, inlined functions first; nothing if they are not known."""
    loads = [(offset, at, size) for kind, offset, at, size in _program_headers(binary) if kind == _LOAD]
    if not loads:
        return {}
    # The return address is behind the call: one byte before it is in the call.
    virtual = {_virtual(address, loads) - 1: address for address in addresses}
    found: dict[int, list[Location]] = {}
    for command in (*_ADDR2LINE, _GO_TOOL):
        left = [at for at, address in virtual.items() if not any(line for _, line, _ in found.get(address, ()))]
        if not left or not shutil.which(command[0]) or (command is _GO_TOOL and not _is_go(binary)):
            continue
        for at, places in _asked(command, binary, left).items():
            if places and (any(line for _, line, _ in places) or virtual[at] not in found):
                found[virtual[at]] = places
    return found


def can_find() -> bool:
    """Whether any of these programs is installed."""
    return any(shutil.which(tool) for tool, *_ in _ADDR2LINE)


@cache
def sizes(binary: str) -> dict[str, int]:
    """The lengths in bytes of a binary's exported functions, if nm is installed."""
    with suppress(OSError, subprocess.TimeoutExpired):
        command = ["nm", "--dynamic", "--print-size", "--defined-only", binary]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=60)
        rows = (line.split() for line in done.stdout.splitlines())
        return {row[3].partition("@")[0]: int(row[1], 16) for row in rows if len(row) == 4}
    return {}


def plain(symbol: str) -> str:
    """A function without the hash that Rust appends."""
    return re.sub(r"::h[0-9a-f]{16}$", "", symbol)


def _without_types(name: str) -> str:
    """A Rust function without its type parameters, such as in "flush<Box<u8>>", which may have hundreds of
    letters.
    """
    depth = 0
    kept = []
    for before, letter in zip(f" {name}", name, strict=False):
        if letter == "<" and (depth or before.isalnum() or before in "_}"):
            depth += 1
        elif letter == ">" and depth and before != "-":  # of "->"
            depth -= 1
        elif not depth:
            kept.append(letter)
    return "".join(kept)


def _asked(command: Sequence[str], binary: str, addresses: Sequence[int]) -> dict[int, list[Location]]:
    """What one of those programs prints for some addresses."""
    texts = [hex(address) for address in addresses]
    asked = [*command, binary] if command is _GO_TOOL else [*command, binary, *texts]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            asked, input="\n".join(texts) + "\n", capture_output=True, text=True, errors="replace", check=False,
            timeout=120,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        if command is _GO_TOOL:  # a function and a line for each, in order
            parts = zip(texts, lines[::2], lines[1::2], strict=False)
            lines = [line for part in parts for line in part]
        return _places(lines)
    return {}


def _places(lines: Iterable[str]) -> dict[int, list[Location]]:
    """An address, and then a function and file:line for each frame at it."""
    found: dict[int, list[Location]] = {}
    places: list[Location] = []
    each = iter(lines)
    for line in each:
        if re.fullmatch(r"0x[0-9a-f]+", line):
            places = found.setdefault(int(line, 16), [])
            continue
        at = re.match(r"(.+?):(\d+)(:\d+)?( \(discriminator \d+\))?$", next(each, ""))
        file, number = (at[1], int(at[2])) if at and not at[1].startswith("??") else ("", 0)
        function = "" if line.startswith("??") else plain(line)
        function = _without_types(function) if file.endswith(".rs") else function
        if function or number:
            places.append((file if number else "", number, function))
    return found


def is_static(binary: str) -> bool:
    """Whether a 64-bit ELF file is a program into which all it calls is linked; False where that cannot be told."""
    kinds = {kind for kind, *_ in _program_headers(binary)}
    return bool(kinds) and not kinds & {_DYNAMIC, _INTERP}


def _is_go(binary: str) -> bool:
    with suppress(OSError), Path(binary).open("rb") as file:
        return b"\xff Go buildinf:" in file.read(64_000_000)
    return False


def _program_headers(binary: str) -> list[tuple[int, int, int, int]]:
    """Kind, offset, address and size of each entry in the program header table of a 64-bit ELF file."""
    entries = []
    with suppress(OSError, ValueError):
        if not Path(binary).is_file():
            return []
        with Path(binary).open("rb") as file:
            head = file.read(64)
            if len(head) < 64 or head[:5] != b"\x7fELF\x02":
                return []
            (start,), (size, count) = unpack_from("<Q", head, 32), unpack_from("<HH", head, 54)
            file.seek(start)
            table = file.read(size * count)
        for at in range(0, len(table) - 55, size):
            kind, _, offset, address, _, length = unpack_from("<IIQQQQ", table, at)
            entries.append((kind, offset, address, length))
    return entries


def _virtual(address: int, loads: Sequence[tuple[int, int, int]]) -> int:
    """The address of a byte of the file."""
    return next((at + address - start for start, at, size in loads if start <= address < start + size), address)
