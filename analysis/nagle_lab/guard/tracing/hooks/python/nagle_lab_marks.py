"""Say, before each write to a socket, which line of the program makes it.

A mark is a system call that cannot succeed and whose path contains the information: strace sees it in the thread that
writes, right before the write. nagle_lab/guard/tracing/strace_output.py explains its format.

Python 3.7 must be able to read this file, which is loaded by the program's Python and not by ours.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

_rmdir, _fstat = os.rmdir, os.fstat  # saved before the program can replace them
_LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120
_SCRIPTS = os.path.join(sys.prefix, "bin") + os.sep  # noqa: PTH118 - those that pip makes to start a library
_LOOPS = {  # file of the standard library, and which functions of it call the program; "": all
    "asyncio/events.py": "", "asyncio/runners.py": "", "socketserver.py": "process_request finish_request",
}  # fmt: skip
_PLUMBING = ("socket.py", "ssl.py", "socketserver.py")
_OURS = __file__
_DEEPEST, _MOST_OF_LIBRARIES, _MOST_OF_PROGRAM, _LONGEST = 60, 8, 8, 200
_folders: dict[str, str] = {}  # of a source file: the folder of the library it is in, "" for the program's own


def start() -> None:
    """Wrap the methods that write. Every socket class derives from _socket's, also gevent's."""
    import _socket  # noqa: PLC0415

    _cover_sockets(_socket)
    for name in ("write", "writev", "sendfile"):
        original = getattr(os, name, None)
        if original:
            setattr(os, name, _file_call(original, name))
    _mark("hook", "python")


def _cover_sockets(module: Any) -> None:
    base = module.socket
    names = ("send", "sendall", "sendto", "sendmsg", "setsockopt")
    methods: dict[str, Any] = {name: _method(getattr(base, name), name) for name in names}
    if "socket" in sys.modules:  # its class exists: it gets the methods
        for name, method in methods.items():
            setattr(sys.modules["socket"].socket, name, method)
        return
    methods["__init__"] = _covering_ssl(base.__init__)
    module.socket = type("socket", (base,), {"__slots__": (), "__module__": "_socket", **methods})


def _covering_ssl(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap TLS when the first socket is made after ssl was imported, because most programs never import it."""
    covered: list[bool] = []

    def __init__(self: Any, *arguments: Any, **more: Any) -> None:  # noqa: N807
        original(self, *arguments, **more)
        module = sys.modules.get("ssl")
        if not covered and hasattr(module, "SSLSocket"):
            covered.append(True)
            for name in ("send", "write", "do_handshake"):
                setattr(module.SSLSocket, name, _secure(getattr(module.SSLSocket, name), name))  # type: ignore[union-attr]

    return __init__


def _secure(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **more: Any) -> Any:
        _tell(self.fileno(), 0, f"ssl.{name}")  # the kernel gets more bytes than the program wrote
        return original(self, *arguments, **more)

    method.__name__ = name
    method.__doc__ = original.__doc__
    return method


def _method(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    is_option = name == "setsockopt"

    def method(self: Any, *arguments: Any) -> Any:
        if not is_option:
            _tell(self.fileno(), _length(name, arguments), name)
        elif arguments[:1] == (6,) or arguments[:2] == (1, 1):  # IPPROTO_TCP; TCP_NODELAY's number at SOL_SOCKET
            _tell(self.fileno(), 0, name)
        return original(self, *arguments)

    method.__name__ = name
    method.__doc__ = original.__doc__
    return method


def _file_call(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        fd: Any = arguments[0] if arguments else more.get("out_fd")  # sendfile takes its arguments by name, too
        try:
            is_socket = stat.S_ISSOCK(_fstat(fd).st_mode)
        except (OSError, TypeError):
            is_socket = False
        if is_socket:
            _tell(fd, _length(name, arguments[1:]), f"os.{name}")
        return original(*arguments, **more)

    call.__name__ = name
    call.__doc__ = original.__doc__
    return call


def _length(name: str, arguments: Any) -> int:
    """The number of bytes to write; 0 if it is not obvious."""
    if not arguments or name == "sendfile":
        return 0
    try:
        if name in ("sendmsg", "writev"):
            if not isinstance(arguments[0], (list, tuple)):
                return 0  # what can be read only once is left to the program
            return sum(memoryview(part).nbytes for part in arguments[0])
        return memoryview(arguments[0]).nbytes
    except TypeError:
        return 0


def _tell(fd: int, length: int, call: str) -> None:
    try:
        places = map(_place, _frames(sys._getframe(2)))
        _mark(str(fd), str(length), call, *(part for place in places for part in place))
    except Exception:  # the program continues as it would without us
        pass


def _mark(*words: str) -> None:
    path = "/proc/nagle-lab;" + ";".join(word.replace(";", ",").replace("\0", "") for word in words)
    with suppress(OSError):
        _rmdir(path)


def _frames(frame: FrameType | None) -> list[FrameType]:
    """The libraries' frames, innermost first and without plumbing, up to the program's frames, and then these.

    Frames outside an event loop called the loop, not the write.
    """
    found: list[FrameType] = []
    program: list[FrameType] = []
    innermost: list[FrameType] = []
    for _ in range(_DEEPEST):
        if frame is None or len(program) == _MOST_OF_PROGRAM:
            break
        file, folder = frame.f_code.co_filename, _folder(frame.f_code.co_filename)
        short = file[len(folder) :]
        if not file.startswith("<frozen") and short != _OURS:
            if not folder:
                program.append(frame)
            if short in _LOOPS and frame.f_code.co_name in (_LOOPS[short].split() or [frame.f_code.co_name]):
                break
            innermost = innermost or [frame]
            if not program and short not in _PLUMBING and len(found) < _MOST_OF_LIBRARIES:
                found.append(frame)
        frame = frame.f_back
    return [*found, *program] or innermost


def _folder(file: str) -> str:
    """The folder of the library that this file belongs to; "" for the program's own files."""
    found = _folders.get(file)
    if found is None:
        found = _folders[file] = _look_up(file)
    return found


def _look_up(file: str) -> str:
    for name in ("/site-packages/", "/dist-packages/"):
        if name in file:
            return file[: file.rindex(name) + len(name)]
    for folder in (_LIBRARY, _SCRIPTS):
        if file.startswith(folder):
            return folder
    for path in sys.path:  # where pip put packages with --target
        if path and file.startswith(path.rstrip(os.sep) + os.sep):
            try:
                names = os.listdir(path)  # noqa: PTH208
            except OSError:
                continue
            if any(name.endswith(".dist-info") for name in names):
                return path.rstrip(os.sep) + os.sep
    return ""


def _place(frame: FrameType) -> tuple[str, str, str]:
    """File, line and function; for a library's file the path inside the library's folder."""
    file = frame.f_code.co_filename
    short = file[len(_folder(file)) :]
    if not _folder(file) and not file.startswith("<"):
        short = os.path.abspath(file)  # noqa: PTH100
    if len(short) > _LONGEST:
        short = "…" + short[-_LONGEST:]
    return short, str(frame.f_lineno), frame.f_code.co_name
