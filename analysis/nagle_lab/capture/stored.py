"""The bytes of the input as they are stored: files, one after the other, or standard input, with their SHA-256.

A path with a protocol (s3://, gs://, hdfs://, ssh://) is read through fsspec. Also: writing files whole or not at
all.
"""

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO

from nagle_lab.errors import NagleLabError, naming

STDIN, STDIN_NAME = "-", "standard input"


WORTH_A_THREAD = 1 << 19  # adding so many bytes to a SHA-256 takes longer than starting a thread


class Checksum:
    """The SHA-256 of the bytes read, if it is asked for, and how many bytes that was.

    Large chunks are added in a thread, while the caller goes on: hashlib releases the GIL meanwhile.
    """

    def __init__(self, sha256: bool) -> None:
        self.byte_count = 0
        self._sha256: Any = None
        self._adding: Thread | None = None
        if sha256:
            import hashlib  # noqa: PLC0415 - this loads OpenSSL: a small capture is read in that time

            self._sha256 = hashlib.sha256()

    def update(self, chunk: memoryview) -> None:
        """Add bytes."""
        self.byte_count += len(chunk)
        if not self._sha256:
            return
        self._wait()
        if len(chunk) >= WORTH_A_THREAD:
            with suppress(RuntimeError):  # there are no threads (in a browser), or no more of them
                self._adding = Thread(target=self._sha256.update, args=(bytes(chunk),))
                self._adding.start()
                return
        self._sha256.update(chunk)

    def hexdigest(self) -> str:
        """The checksum of everything so far, hexadecimal; "" if it is not asked for."""
        self._wait()
        return self._sha256.hexdigest() if self._sha256 else ""

    def _wait(self) -> None:
        if self._adding and self._adding.ident:
            self._adding.join()


class Stored:
    """One stored file, read once from beginning to end; afterwards `changed` and `error` say whether that succeeded.

    ``path`` is its path, or an open file, which messages call by its ``name``.
    """

    def __init__(self, path: str | io.FileIO, checksum: Checksum) -> None:
        self.name = name_of(path)
        self.byte_count = 0
        self.error = ""
        self._checksum = checksum
        self._file = path if isinstance(path, io.FileIO) else _open(path)
        self.as_opened = self._size_and_mtime()  # ns; None for anything but a regular file

    def _size_and_mtime(self) -> tuple[int, int] | None:
        if not isinstance(self._file, io.FileIO):
            return None
        now = os.fstat(self._file.fileno())
        return (now.st_size, now.st_mtime_ns) if stat.S_ISREG(now.st_mode) else None

    @property
    def expected_bytes(self) -> int:
        """The size of a file; 0 if it is not known."""
        return self.as_opened[0] if self.as_opened else 0

    def readinto(self, view: memoryview) -> int:
        """Fill `view` from its start with one read; returns the number of bytes, 0 at the end of the file."""
        try:
            while (count := self._file.readinto(view)) is None:  # O_NONBLOCK, as another program may have set it
                _wait_for(self._file.fileno())
        except OSError as error:
            self.error = error.strerror or str(error)
            return 0
        self._checksum.update(view[:count])
        self.byte_count += count
        return count

    def seek(self, position: int) -> None:
        """Continue at another byte of a file. Raises OSError for an input without positions, such as a pipe."""
        self._file.seek(position)
        self.byte_count = position

    def drain(self) -> None:
        """Read the rest of a file, for the checksum, but not that of a pipe, which may never end."""
        if not self.as_opened:
            return
        buffer = memoryview(bytearray(1 << 16))
        while self.readinto(buffer):
            pass

    @property
    def changed(self) -> str:
        """How the file changed since it was opened; empty if it did not, or if that is not known."""
        before, after = self.as_opened, self._size_and_mtime()
        if before is None or after is None or before == after:
            return ""
        if after[0] != before[0]:
            return f"{'grew' if after[0] > before[0] else 'shrank'} from {before[0]:,} to {after[0]:,} bytes"
        return "was written to"

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _wait_for(file: int) -> None:
    """Wait until there is something to read from a pipe that does not block, or it has ended."""
    import select  # noqa: PLC0415 - hardly ever needed

    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    waiting.poll()


class Remote(io.RawIOBase):
    """A file of another file system, through fsspec; any failure while it is read becomes an OSError."""

    def __init__(self, path: str) -> None:
        try:
            import fsspec  # noqa: PLC0415 - an extra

            self._file = fsspec.open(path, "rb").open()
        except ImportError as error:
            raise NagleLabError(f"{path}: {error}: pip install fsspec, and what it names") from error
        except FileNotFoundError as error:
            raise NagleLabError(f"{path}: no such file: check the path") from error
        except Exception as error:  # whatever a protocol's library raises
            raise NagleLabError(f"{path}: cannot be opened: {first_line(error)}") from error

    def readinto(self, view: Any) -> int:
        """Fill `view` from its start with what there is; returns the number of bytes, 0 at the end of the file."""
        try:
            content = self._file.read(len(view))
        except Exception as error:
            raise OSError(first_line(error)) from error
        view[: len(content)] = content
        return len(content)

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        """Continue at another byte."""
        try:
            reached: int = self._file.seek(position, whence)
        except Exception as error:
            raise OSError(first_line(error)) from error
        return reached

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            super().close()
            self._file.close()


_LONGEST_END = 200  # bytes of a file's name, of which a file system takes 255: its end, in which tables differ


@contextmanager
def writing_whole(file: Path) -> Iterator[BinaryIO]:
    """A stream whose bytes replace ``file`` when the block ends; after an exception ``file`` is unchanged.

    A file that was there keeps its owner and its permissions. Raises OSError.
    """
    end = os.fsdecode(os.fsencode(file.name)[-_LONGEST_END:])
    part = file.with_name(f".{end}.{os.getpid()}.part")
    part.unlink(missing_ok=True)  # left by a killed process of that number; or a link that somebody put there
    try:
        stream = part.open("xb")
        try:
            _make_like(file, stream.fileno())
            yield stream
        finally:
            with naming(file):
                stream.close()
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _make_like(file: Path, new: int) -> None:
    """Give an open file the owner and the permissions of ``file``, if that exists, as far as we may."""
    with suppress(OSError):
        there = file.stat()
        os.fchown(new, there.st_uid, there.st_gid)
        os.fchmod(new, there.st_mode & 0o777)


def write_whole(file: Path, content: bytes) -> None:
    """Write or replace ``file``, whole or not at all. Raises OSError."""
    with writing_whole(file) as stream, naming(file):
        stream.write(content)


def first_line(error: BaseException) -> str:
    """The first line of what an error says."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def check_readable(path: str | io.FileIO) -> None:
    """Raise NagleLabError if there is nothing to read at `path`, without taking bytes from a pipe."""
    if not isinstance(path, io.FileIO) and path != STDIN and not Path(path).is_fifo():
        _open(path).close()


def _open(path: str) -> io.FileIO | Remote:
    if is_remote(path):
        return Remote(path)
    try:
        if path != STDIN:
            return io.FileIO(path)
        if not os.isatty(0):
            return io.FileIO(0, closefd=False)
        problem = "is a terminal: name a capture file, or pipe one in"
    except FileNotFoundError:
        problem = "no such file: check the path"
    except IsADirectoryError:
        problem = "is a directory: name the capture files in it"
    except PermissionError:
        problem = "permission denied: make it readable for your account (tcpdump run as root writes as user tcpdump)"
    except (OSError, ValueError) as error:
        problem = f"cannot be opened: {error}"
    raise NagleLabError(f"{name_of(path)}: {problem}")


def is_remote(path: str) -> bool:
    """Whether a path names its file system, as in s3://bucket/file: the protocol, then ://."""
    return "://" in path


def name_of(path: str | io.FileIO) -> str:
    """What to call an input in messages and results."""
    if isinstance(path, io.FileIO):
        return str(path.name)
    return STDIN_NAME if path == STDIN else path
