"""The folder of results: a path or a URL that every worker can write to, through fsspec."""

import glob
import os
import posixpath
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from nagle_lab.capture.stored import first_line, is_remote, writing_whole
from nagle_lab.errors import NagleLabError


def extra(name: str) -> Any:
    """A module of the extra "fleet". Raises NagleLabError if it is not installed."""
    from importlib import import_module  # noqa: PLC0415

    try:
        return import_module(name)
    except ImportError as error:
        todo = f"{sys.executable} -m pip install fsspec pyarrow duckdb"
        raise NagleLabError(f"fleet needs {name.partition('.')[0]}: {todo}") from error


# What to install for a protocol; fsspec itself names only some.
PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "ssh": "sshfs", "sftp": "sshfs", "abfs": "adlfs",
    "az": "adlfs", "webhdfs": "requests",
}  # fmt: skip


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it. Raises NagleLabError if there is none."""
    protocol = url.partition("://")[0]
    try:
        with naming_url(url):
            fs, path = extra("fsspec").core.url_to_fs(url)
    except ImportError as error:
        todo = f"{sys.executable} -m pip install {PACKAGES[protocol]}" if protocol in PACKAGES else first_line(error)
        raise NagleLabError(f"{url}: {protocol}:// needs another package: {todo}") from error
    return fs, path.rstrip("/")


@contextmanager
def naming_url(url: str) -> Iterator[None]:
    """Turns errors of a protocol's library into a NagleLabError that names the URL; FileNotFoundError passes."""
    try:
        yield
    except (NagleLabError, ImportError, FileNotFoundError):
        raise
    except Exception as error:
        if is_remote(url):
            raise NagleLabError(f"{url}: {first_line(error)}: check the address and your credentials") from error
        raise


def is_object_store(path: str) -> bool:
    """Whether the file system is an object store: paths begin with a bucket, and no folders have to be made."""
    return not path.startswith("/")


def url_of(path: str, source: str, fs: Any) -> str:
    """A name for a path in the file system of ``source`` that works anywhere: with protocol, user, host and port."""
    if not is_remote(source):
        return path
    if is_object_store(path):
        named: str = fs.unstrip_protocol(path)
        return named
    protocol, _, rest = source.partition("://")
    return f"{protocol}://{rest.partition('/')[0]}{path}"


@contextmanager
def _object(fs: Any, path: str) -> Iterator[IO[bytes]]:
    """An object to write, which appears when it is closed; not after an exception, though closing a file of fsspec
    completes the upload then, too.
    """
    file = fs.open(path, "wb")
    try:
        yield file
    except BaseException:
        if isinstance(file, extra("fsspec").spec.AbstractBufferedFile):
            try:
                file.discard()
            finally:
                file.closed = True
        else:
            file.close()
            fs.rm(path)
        raise
    file.close()


class Folder:
    """A folder; names in it may have slashes, and files appear whole or not at all."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.fs, self.path = file_system(url)

    def __reduce__(self) -> tuple[type["Folder"], tuple[str]]:
        return Folder, (self.url,)  # a worker makes its own connections

    def at(self, name: str) -> str:
        """The path of a name in this folder."""
        return posixpath.join(self.path, name)

    def names(self, below: str) -> set[str]:
        """The names of the files in a folder in it; none if that folder does not exist."""
        with suppress(FileNotFoundError), naming_url(self.url):
            self.fs.invalidate_cache()
            return {posixpath.basename(path) for path in self.fs.ls(self.at(below), detail=False)}
        return set()

    def pattern(self, names: str) -> str:
        """The path of a pattern of names, in which the folder's own name stands for itself."""
        return posixpath.join(glob.escape(self.path), names)

    def matching(self, names: str) -> list[str]:
        """The paths of the files whose names match a pattern."""
        with naming_url(self.url):
            self.fs.invalidate_cache()
            found: list[str] = self.fs.glob(self.pattern(names))
        return found

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        with naming_url(self.url):
            content: bytes = self.fs.cat_file(self.at(name))
        return content

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        """A file to read."""
        with naming_url(self.url), self.fs.open(self.at(name), "rb") as file:
            yield file

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        with naming_url(self.url), self.writing(name) as file:
            file.write(content)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write; after an exception there is none."""
        path = self.at(name)
        if is_object_store(path):  # an object appears only when its upload is complete
            with _object(self.fs, path) as file:
                yield file
            return
        self.fs.makedirs(posixpath.dirname(path), exist_ok=True)
        if not is_remote(self.url):
            with writing_whole(Path(path)) as file:
                yield file
            return
        part = f"{path}.{os.getpid()}.part"
        try:
            with self.fs.open(part, "wb") as file:
                yield file
        except BaseException:
            self.fs.rm(part)
            raise
        with suppress(FileNotFoundError):
            self.fs.rm(path)
        self.fs.mv(part, path)

    def remove(self, name: str) -> None:
        """Remove a file or folder, if it is there."""
        with suppress(FileNotFoundError), naming_url(self.url):
            self.fs.rm(self.at(name), recursive=True)
