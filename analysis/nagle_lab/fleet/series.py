"""Which files are one capture: of the same host and interface, rotated by number or time.

The name decides. What rotation adds is removed: a time (tcpdump -G, dumpcap, folders of days), a number of five
digits before it (dumpcap), one of three or more digits before the extension, and the number that tcpdump -C appends.
The rest is the series: its last part is the interface, the folders before it are the host. A manifest says what names
do not.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from nagle_lab.capture.stored import is_remote
from nagle_lab.capture.take import first_time
from nagle_lab.errors import NagleLabError, os_problem
from nagle_lab.fleet.results_folder import file_system, is_object_store, naming_url, url_of

# A date, with a time of day where there is one; or seconds since 1970.
_TIME = re.compile(
    r"(?<!\d)(?:(?:19|20)\d\d[-_./]?[01]\d[-_./]?[0-3]\d"
    r"(?:[-_./T ]?[0-2]\d(?:[-_.:h/]?[0-5]\d(?:[-_.:m/]?[0-5]\d)?)?)?|1\d{9})(?!\d)"
)
_DUMPCAP = re.compile(r"_(\d{5,})(?=_\d{14}(?!\d))")
_SUFFIX = re.compile(r"(?<=\.)(pcapng|pcap|cap|dump)(\d+)(?=$|\.)", re.IGNORECASE)  # tcpdump -C
_NUMBER = re.compile(r"(?<=[-_.])(\d{3,})(?=$|\.)")
_EXTENSION = re.compile(r"(\.(pcapng|pcap|cap|dump|gz|zst))+$", re.IGNORECASE)
_CAPTURE = re.compile(r"\.(pcapng|pcap|cap|dump)\d*(\.(gz|zst))?$", re.IGNORECASE)
_SEPARATORS = re.compile(r"[-_. ]+$|^[-_. ]+")
NO_TEXT = "its name is not UTF-8: rename the file or its folder"
MOST_NUMBERS_PER_FILE = 100  # if the numbers in names span more, they do not count files
_FILES_AT_ONCE = 32  # whose first packets are read at the same time


@dataclass(frozen=True)
class File:
    """A capture file: where it is, its size, and a version that shows changes.

    ``size`` is -1 if it cannot be read: ``version`` then says why, or is empty if the file is missing.
    """

    path: str
    size: int
    version: str = ""


@dataclass(frozen=True)
class Series:
    """One capture in files, oldest first."""

    host: str
    interface: str
    files: tuple[File, ...]

    @property
    def name(self) -> str:
        """The name of the series: host and interface."""
        return f"{self.host}/{self.interface}" if self.interface else self.host

    @property
    def size(self) -> int:
        """The size of all its files as stored, bytes."""
        return sum(max(file.size, 0) for file in self.files)


@dataclass(frozen=True)
class ParsedName:
    """What a name says: the file's series, and its place in it."""

    key: str
    parts: tuple[str, ...]
    times: tuple[tuple[int, ...], ...]
    numbers: tuple[int, ...]


def series_of(sources: Sequence[str]) -> list[Series]:
    """The series in files, folders, globs and manifests (.toml), by name.

    Raises NagleLabError if a source contains no capture, or a manifest is not valid.
    """
    listed: dict[str, File] = {}
    roots: list[str] = []
    found: list[Series] = []
    for source in sources:
        if not source:  # an empty name would be the working folder
            raise NagleLabError("the name is empty: name a folder, a file or a manifest")
        if source.endswith(".toml"):
            found += _manifest(source)
            continue
        root, files = _list(source)
        roots.append(root)
        listed |= {file.path: file for file in files}
    found += _recognised(_common(roots), listed.values())
    return sorted(_named_apart(found), key=lambda series: series.name)


def parsed_name(relative: str) -> ParsedName:
    """What a file's name says; the name is relative to the folder that all sources have in common."""
    times = tuple(tuple(map(int, re.findall(r"\d+", found))) for found in _TIME.findall(relative))
    numbers: list[int] = []

    def number(found: re.Match[str]) -> str:
        numbers.append(int(found[found.lastindex or 0]))
        return found[1] if found.lastindex == 2 else ""

    rest = _DUMPCAP.sub(number, relative)
    rest = _TIME.sub("", rest)
    folders, _, name = rest.rpartition("/")
    name = _NUMBER.sub(number, _SUFFIX.sub(number, name), count=1)
    parts = [*folders.split("/"), _EXTENSION.sub("", name)]
    kept = tuple(filter(None, (_SEPARATORS.sub("", part) for part in parts)))
    return ParsedName("/".join(kept), kept, times, tuple(numbers))


def _recognised(root: str, files: Iterable[File]) -> Iterator[Series]:
    together: dict[str, list[tuple[ParsedName, File]]] = {}
    for file in files:
        place = parsed_name(file.path.removeprefix(root).lstrip("/"))
        together.setdefault(place.key, []).append((place, file))
    for members in together.values():
        parts = members[0][0].parts or (root.rstrip("/").rpartition("/")[2] or "capture",)
        host, interface = ("/".join(parts[:-1]), parts[-1]) if len(parts) > 1 else (parts[0], "")
        yield Series(host, interface, tuple(_in_order(members)))


def _in_order(members: list[tuple[ParsedName, File]]) -> list[File]:
    """Oldest first: by the first packets, because times in names may be local ones, which the end of summer time
    repeats, and tcpdump -W begins again at 0.

    Names decide between files that began at the same time; a file without packets stays behind the one before it.
    Files elsewhere with times in their names are in the order of names: reading each would take a request.
    """
    members.sort(key=lambda of: (of[0].times, of[0].numbers, of[1].path))
    files = [file for _, file in members]
    is_timed = all(place.times for place, _ in members)
    if len(files) == 1 or (is_timed and any(is_remote(file.path) for file in files)):
        return files
    with ThreadPoolExecutor(_FILES_AT_ONCE) as threads:
        began = threads.map(lambda file: first_time(file.path), files)
    latest, keyed = 0, []
    for file, ns in zip(files, began, strict=True):
        latest = latest if ns is None else ns
        keyed.append((latest, file))
    return [file for _, file in sorted(keyed, key=lambda one: one[0])]


def missing_numbers(series: Series) -> list[int]:
    """Numbers missing between the first and the last file, if the files are numbered one by one."""
    numbers = [(0, *parsed_name(file.path).numbers)[-1] for file in series.files]  # the first of tcpdump -C has none
    if numbers != sorted(set(numbers)):
        return []
    if numbers[-1] - numbers[0] > MOST_NUMBERS_PER_FILE * len(numbers):
        return []
    return sorted(set(range(numbers[0], numbers[-1])) - set(numbers))


def _list(source: str) -> tuple[str, list[File]]:
    """The folder to which names are relative, and the capture files in it."""
    with naming_url(source):
        return _listed(source)


def _listed(source: str) -> tuple[str, list[File]]:
    fs, path = file_system(source)
    exists, is_glob = fs.exists(path), any(mark in path for mark in "*?[")
    if is_glob and not exists:
        found: dict[str, Any] = {}
        for name, info in fs.glob(path, detail=True).items():
            found |= _captures(fs, name) if info["type"] == "directory" else {name: info}
        root = path[: min(path.find(mark) for mark in "*?[" if mark in path)].rpartition("/")[0]
    elif fs.isdir(path):
        found, root = _captures(fs, path), path
    else:
        found, root = ({path: fs.info(path)} if exists else {}), path.rpartition("/")[0]
    files = [_file(url_of(name, source, fs), info) for name, info in sorted(found.items()) if info["type"] == "file"]
    if not files and not is_remote(source) and not is_glob and not exists:
        raise NagleLabError(f"{source}: no such file or folder: check the path")
    if not files:
        raise NagleLabError(f"{source}: no capture file in it (.pcap, .pcapng, .cap, as they are or .gz, .zst)")
    return url_of(root, source, fs), files


def _file(path: str, info: Any) -> File:
    """A listed file; one whose name is not text is not read, because the store needs text."""
    as_text = path.encode("utf-8", "backslashreplace").decode()
    if as_text != path:
        return File(as_text, -1, NO_TEXT)
    return File(path, int(info["size"] or 0), _version(info))


def _captures(fs: Any, folder: str) -> dict[str, Any]:
    """The capture files in a folder and its subfolders; raises OSError for a folder that cannot be read.

    Links are followed, except those to files that are found anyway: a capture counts once.
    """
    if is_object_store(folder):  # in one request
        files = fs.find(folder, detail=True).items()
        return {name: info for name, info in files if _CAPTURE.search(name)}
    found, links = _below(fs, folder)
    seen = set(map(os.path.realpath, (folder, *found))) if links else set()
    for link in links:  # links in folders behind links are added to these
        target = os.path.realpath(link)
        if target in seen or os.path.realpath(folder).startswith(f"{target.rstrip('/')}/"):
            continue
        seen.add(target)
        more: dict[str, Any] = {}
        if os.path.isdir(target):  # noqa: PTH112 - names of fsspec are text
            more, others = _below(fs, link)
            links += others
        elif _CAPTURE.search(link):
            more = {link: fs.info(link) if os.path.exists(target) else _MISSING}  # noqa: PTH110
        for name, info in more.items():
            if name == link or os.path.realpath(name) not in seen:
                found[name] = info
                seen.add(os.path.realpath(name))
    return found


_MISSING = {"type": "file", "size": -1}  # what a link leads to


def _below(fs: Any, folder: str) -> tuple[dict[str, Any], list[str]]:
    """The capture files in a folder and its subfolders, and the links there, which are not followed."""
    found: dict[str, Any] = {}  # fsspec's own find silently skips what it may not read
    links: list[str] = []
    for info in fs.ls(folder, detail=True):
        if info.get("islink"):
            links.append(info["name"])
        elif info["type"] == "directory":
            files, more = _below(fs, info["name"])
            found |= files
            links += more
        elif _CAPTURE.search(info["name"]):
            found[info["name"]] = info
    return found, links


def _version(info: dict[str, Any]) -> str:
    """What distinguishes two files of the same name and size: the time of writing, or the store's version."""
    return next(
        (str(info[name]) for name in ("ETag", "etag", "mtime", "LastModified", "updated") if name in info), ""
    )


def _common(roots: Sequence[str]) -> str:
    """The folder that all are in."""
    common: list[str] = []
    for names in zip(*(root.split("/") for root in roots), strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return "/".join(common)


def _named_apart(found: list[Series]) -> Iterator[Series]:
    """Gives two series of the same name (one from a manifest, one recognised) different names."""
    taken: dict[str, int] = {}
    for series in found:
        count = taken[series.name] = taken.get(series.name, 0) + 1
        yield series if count == 1 else Series(f"{series.host} ({count})", series.interface, series.files)


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    host: str
    files: list[str]  # paths, URLs and globs, oldest first; a glob's files in order of names
    interface: str = ""


class _Manifest(msgspec.Struct, forbid_unknown_fields=True):
    series: list[_Entry]


def _manifest(path: str) -> Iterator[Series]:
    try:
        entries = msgspec.convert(tomllib.loads(Path(path).read_text(encoding="utf-8")), _Manifest).series
    except OSError as error:
        raise os_problem(error) from error
    except ValueError as error:
        raise NagleLabError(f"{path}: not a manifest of series: {error} (see docs/fleet.md)") from error
    for entry in entries:
        if not entry.files:
            raise NagleLabError(f"{path}: the series of {entry.host} has no files: name some, or leave it out")
        files = [file for name in entry.files for file in _files_of_entry(name)]
        yield Series(entry.host, entry.interface, tuple(files))


def _files_of_entry(name: str) -> list[File]:
    """The files of a manifest's line; a missing one is reported, not left out."""
    try:
        return _list(name)[1]
    except NagleLabError as error:
        return [File(name, -1, str(error).removeprefix(f"{name}: "))]
