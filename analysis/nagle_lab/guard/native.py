"""Frames of native code, as strace prints them, as functions and lines of source.

Lines are found by addr2line, where that is installed and the binary has debug information.
"""

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import unpack_from

Place = tuple[str, int, str]  # file ("" if not known), line (0 if not known), function

_FRAME = re.compile(r"(.+?)\((?:(.*)\+0x([0-9a-f]+))?\) \[0x([0-9a-f]+)\]")
_SYSTEM = re.compile(r"(lib(c|pthread|m|dl|rt|gcc_s|stdc\+\+|c\+\+)[-.]|ld-|\[|linux-vdso)")  # plumbing
_SHARED = re.compile(r"\.so(\.|$)")
_EXTENSIONS = re.compile(r"/lib-dynload/")  # plumbing of Python's own
_INTERPRETER = re.compile(r"(?:lib)?(python|pypy|node|nodejs|jvm|java|ruby|perl|php)[-\d.]*m?(?:\.so[.\d]*)?$")
_LIBRARY_FILES = re.compile(
    r"^/rustc/|/rustlib/src/|/registry/src/|/git/checkouts/|/pkg/mod/|/usr/include/c\+\+/|@v\d"
)
_PLUMBING_FILES = re.compile(r"^/rustc/|/rustlib/src/|/usr/include/c\+\+/|/(tokio|mio|socket2)-\d")
_RUST = re.compile(r"<?&?(mut )?(dyn )?(std|core|alloc|tokio|mio|socket2)::|__rust|<.* as (std|core|tokio)::")
_GO = re.compile(r"((?:[^./]+/)*[^./(]+)\.")  # the import path of a package of the standard library
_GO_PLUMBING = re.compile(r"(net|syscall|runtime|bufio|io|internal/.*|crypto/tls)\.")
# What finds lines, in the order they are tried: not each reads the debug information of each compiler.
_OPTIONS = ("-a", "-C", "-f", "-i", "-e")
_ADDR2LINE = (("addr2line", *_OPTIONS), ("llvm-addr2line", *_OPTIONS), ("eu-addr2line", *_OPTIONS))
_MOST_OF_LIBRARIES = 8
_GO_TOOL = ("go", "tool", "addr2line")


@dataclass(frozen=True)
class Where:
    """Where a call was made."""

    program: Place | None
    libraries: tuple[Place, ...]  # the innermost first, without plumbing
    why: str  # why there is no line; empty where there is one


@dataclass(frozen=True)
class _Frame:
    binary: str
    symbol: str
    address: int  # in the file


def where(stacks: Iterable[Sequence[str]]) -> list[Where]:
    """Where each of the calls was made, by its stack; a binary's debug information is read once."""
    parsed = [_parsed(stack) for stack in stacks]
    wanted: dict[str, set[int]] = defaultdict(set)
    for stack in parsed:
        for frame in stack:
            if not _is_skipped(frame) and not _INTERPRETER.match(Path(frame.binary).name):
                wanted[frame.binary].add(frame.address)
    lines = {binary: _lines(binary, addresses) for binary, addresses in wanted.items()}
    return [_choose(stack, lines) for stack in parsed]


def _parsed(stack: Sequence[str]) -> list[_Frame]:
    found = (_FRAME.fullmatch(line) for line in stack)
    return [_Frame(one[1], one[2] or "", int(one[4], 16)) for one in found if one]


def _choose(stack: Sequence[_Frame], lines: dict[str, dict[int, list[Place]]]) -> Where:
    """The innermost place in the program's own code, and those of libraries up to it."""
    libraries: list[Place] = []
    nameless: Place | None = None
    binary = ""
    for frame in stack:
        name = Path(frame.binary).name
        if _is_skipped(frame):
            continue
        if _INTERPRETER.match(name):
            return Where(None, tuple(libraries), _why_interpreter(name))
        binary = binary or frame.binary
        for file, line, function in lines[frame.binary].get(frame.address) or [("", 0, _plain(frame.symbol))]:
            if not function and not file:
                nameless = nameless or ("", 0, f"{name}+{frame.address:#x}")
            elif not _is_library(file, function) and not _SHARED.search(name):
                return Where((file, line, function), tuple(libraries), "" if line else _why(frame.binary))
            elif not _is_plumbing(file, function) and len(libraries) < _MOST_OF_LIBRARIES:
                libraries.append((file, line, function or name))
    if not binary:
        return Where(None, (), "strace found no stack for it")
    has_line = any(line for _, line, _ in libraries)
    return Where(nameless, tuple(libraries), "" if has_line else _why(binary))


def _is_skipped(frame: _Frame) -> bool:
    return bool(_SYSTEM.match(Path(frame.binary).name) or _EXTENSIONS.search(frame.binary))


def _is_library(file: str, function: str) -> bool:
    if _LIBRARY_FILES.search(file) or (_RUST.match(function) and not file):
        return True
    if file.endswith((".go", ".s")):
        if not file.startswith("/"):  # -trimpath
            return bool((found := _GO.match(function)) and found[1] != "main")
        return _in_go(file)
    return not file and function.partition(".")[0] in ("runtime", "syscall", "net", "bufio", "io")


def _in_go(file: str) -> bool:
    root, source, _ = file.partition("/src/")
    return bool(source) and Path(f"{root}/src/runtime/proc.go").exists()


def _is_plumbing(file: str, function: str) -> bool:
    go = file.endswith((".go", ".s")) and _GO_PLUMBING.match(function)
    return bool(_PLUMBING_FILES.search(file) or go or _RUST.match(function))


def _why(binary: str) -> str:
    if not any(shutil.which(tool) for tool, *_ in _ADDR2LINE):
        return "lines of native code need addr2line: install the package binutils"
    return f"{Path(binary).name} has no debug information for it: build it with that (-g), and do not strip it"


def _why_interpreter(name: str) -> str:
    if re.match(r"(lib)?(python|node)", name):
        return (
            f"{name} wrote without our hook: it takes none (python -I, -E or -S), or a library in C wrote by itself"
        )
    return f"{name} is an interpreter, and there are hooks for Python and Node.js only"


def _plain(symbol: str) -> str:
    """Without the hash that Rust appends."""
    return re.sub(r"::h[0-9a-f]{16}$", "", symbol)


def _lines(binary: str, addresses: set[int]) -> dict[int, list[Place]]:
    """Of each address in the file its places, what was inlined first; nothing where nothing is known."""
    loads = _loads(binary)
    if not loads:
        return {}
    # Where a call returns to is behind it: a byte less is in it.
    virtual = {_virtual(address, loads) - 1: address for address in addresses}
    found: dict[int, list[Place]] = {}
    for command in (*_ADDR2LINE, _GO_TOOL):
        left = [at for at, address in virtual.items() if not any(line for _, line, _ in found.get(address, ()))]
        if not left or not shutil.which(command[0]) or (command is _GO_TOOL and not _is_go(binary)):
            continue
        for at, places in _asked(command, binary, left).items():
            if places and (any(line for _, line, _ in places) or virtual[at] not in found):
                found[virtual[at]] = places
    return found


def _asked(command: Sequence[str], binary: str, addresses: Sequence[int]) -> dict[int, list[Place]]:
    """What one of those programs says of addresses."""
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


def _places(lines: Iterable[str]) -> dict[int, list[Place]]:
    """An address, and then a function and file:line for each frame at it."""
    found: dict[int, list[Place]] = {}
    places: list[Place] = []
    each = iter(lines)
    for line in each:
        if re.fullmatch(r"0x[0-9a-f]+", line):
            places = found.setdefault(int(line, 16), [])
            continue
        at = re.match(r"(.+?):(\d+)(:\d+)?( \(discriminator \d+\))?$", next(each, ""))
        file, number = (at[1], int(at[2])) if at and not at[1].startswith("??") else ("", 0)
        function = "" if line.startswith("??") else _plain(line)
        if function or number:
            places.append((file if number else "", number, function))
    return found


def _is_go(binary: str) -> bool:
    with suppress(OSError), Path(binary).open("rb") as file:
        return b"\xff Go buildinf:" in file.read(64_000_000)
    return False


def _loads(binary: str) -> list[tuple[int, int, int]]:
    """Offset in the file, address, and size of each part of a 64-bit ELF file that is loaded."""
    loads = []
    with suppress(OSError, ValueError), Path(binary).open("rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:5] != b"\x7fELF\x02":
            return []
        (start,), (size, count) = unpack_from("<Q", head, 32), unpack_from("<HH", head, 54)
        file.seek(start)
        table = file.read(size * count)
        for at in range(0, len(table) - 55, size):
            kind, _, offset, address, _, length = unpack_from("<IIQQQQ", table, at)
            if kind == 1:
                loads.append((offset, address, length))
    return loads


def _virtual(address: int, loads: Sequence[tuple[int, int, int]]) -> int:
    """The address of a byte of the file."""
    return next((at + address - start for start, at, size in loads if start <= address < start + size), address)
