"""Opening captures: one file, several rotated ones as one, or standard input, whatever their format."""

from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import NamedTuple, Self

from nagle_lab.capture import pcap, pcapng
from nagle_lab.capture.clock import STRAY
from nagle_lab.capture.compression import BY_MAGIC, ENDS_EARLY, Decompressed
from nagle_lab.capture.pcap import PcapReader
from nagle_lab.capture.pcapng import PcapngReader
from nagle_lab.capture.records import ClockState, Facts, Position, RecordTaker, StoppedError, Trouble, TroubleKind
from nagle_lab.capture.stored import STDIN_NAME, Checksum, Stored, check_readable, name_of
from nagle_lab.capture.window import WINDOW_BYTES, Window
from nagle_lab.errors import NagleLabError, counted

MAGIC_BYTES = 8
# A few stray packets cost only the waits they fall into; with more, or one in a thousand, no verdict is CLEAN.
MOST_BREAKS = 2 * STRAY
UNREADABLE = {
    b"BZh": "compressed with bzip2: decompress it first",
    b"\xfd7zXZ": "compressed with xz: decompress it first",
    b"\x04\x22\x4d\x18": "compressed with lz4: decompress it first",
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"snoop\0\0\0": "a snoop file: convert it with editcap -F pcapng",
    b"GMBU": "a Network Monitor file: convert it with editcap -F pcapng",
    b"version https://git-lfs.": "a pointer of Git LFS, not the file itself: get that with git lfs pull",
}
BY_SUFFIX = {  # what has no first bytes of its own
    ".etl": "a trace of Windows: convert it with etl2pcapng, or with pktmon etl2pcap if pktmon made it",
    ".erf": "not a capture, or an ERF file: convert that with editcap -F pcapng",
}
_TELLING = 512  # bytes from which to tell what a file is that is no capture
_NO_TEXT = {*range(32), 127} - set(b"\t\n\f\r\x1b")  # bytes of no text, except escapes of colours


def open_capture(
    paths: str | Path | FileIO | Sequence[str | Path],
    *,
    window_bytes: int = WINDOW_BYTES,
    sha256: bool = True,
) -> "Capture":
    """Open a capture: a file, "-" for standard input, rotated files in order of time, read as one, or an open file.

    pcap (microseconds and nanoseconds) and pcapng, of either byte order, as they are or in gzip or zstd. Memory
    stays bounded by the window, whatever the input's size. ``sha256`` says whether to compute the checksum. Raises
    NagleLabError if the input is missing, not a file, unreadable, empty, not a capture, or cut within its header.
    Later damage is no error: see `Capture.trouble`.
    """
    several = [paths] if isinstance(paths, str | Path | FileIO) else paths
    return Capture([path if isinstance(path, FileIO) else str(path) for path in several], window_bytes, sha256)


def _what_else(begin: bytes, name: str) -> str:
    """What a file of that name is that begins so and is no capture, and what to do."""
    if known := next((what for magic, what in UNREADABLE.items() if begin.startswith(magic)), ""):
        return known
    if begin[257:262] == b"ustar":
        return "a tar archive: unpack it first"
    if not _NO_TEXT & set(begin):
        return f"not a capture, but text: record one with tcpdump {'-w -' if name == STDIN_NAME else '-w'}"
    if begin.startswith((b"\r\n\r\r\r\n", b"\n\r\n")):  # pcapng's first four bytes were chosen to show this
        return f"a pcapng file, but {pcap.OTHER_LINE_ENDS}"
    text = min((at for magic in (*pcap.MAGICS, pcapng.MAGIC) if (at := begin.find(magic)) > 0), default=0)
    if text and not _NO_TEXT & set(begin[:text]):
        return "text stands before the capture: record it again, without ssh -t and without 2>&1"
    return BY_SUFFIX.get(Path(name).suffix.lower(), "not a capture: give a pcap or pcapng file")


class CaptureSoFar:
    """What is known about a capture so far, whether it was read here or by another process."""

    def __init__(self, names: list[str], facts: Facts | None = None, *, sha256: bool = False) -> None:
        self.names = names  # of its files
        self.facts = facts or Facts()  # what reading has shown
        self._packets_before = 0  # in earlier periods
        self._checksum = Checksum(sha256)

    @property
    def name(self) -> str:
        """The file, or the first and last of several."""
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]} … {self.names[-1]}"

    @property
    def format(self) -> str:
        """ "pcap" or "pcapng" ("pcap+pcapng" where rotated files differ)."""
        return "+".join(self.facts.formats)

    @property
    def link_types(self) -> list[int]:
        """LINKTYPE_… numbers in order of appearance."""
        return list(self.facts.link_types)

    @property
    def byte_count(self) -> int:
        """Stored bytes read so far."""
        return self._checksum.byte_count

    @property
    def sha256(self) -> str:
        """Hexadecimal, of the stored bytes; of several files, of all of them joined. "" if it was not asked for."""
        return self._checksum.hexdigest()

    @property
    def trouble(self) -> list[Trouble]:
        """What a person must know about the input before trusting a result; each has its `kind`."""
        return self.facts.trouble

    @property
    def set_back(self) -> bool:
        """Whether the clock was set back, so that no time in the capture can be trusted."""
        return any(trouble.kind is TroubleKind.SET_BACK for trouble in self.trouble)

    @property
    def packets(self) -> int:
        """Frames so far in this period, including those that had to be left out (no time of capture)."""
        return self.facts.packets - self._packets_before

    @property
    def dropped(self) -> int:
        """Packets that the capturing program says it lost so far, as soon as it says so, in all periods."""
        return self.facts.dropped

    def end(self, clock: ClockState) -> None:
        """End the capture: add trouble if its packets were out of order too often."""
        if not self.set_back and clock.epoch > max(MOST_BREAKS, self.packets // 1000):
            text = f"{self.name}: time goes back and forth {clock.epoch:,} times: sort the packets with reordercap"
            self.facts.warn(TroubleKind.UNORDERED, text)


class Part(NamedTuple):
    """A part of a file: from ``begin`` (None: its first record) up to the first record at or after byte ``until``.

    ``until`` None is the end of the file. A compressed file is read as a whole.
    """

    begin: Position | None = None
    until: int | None = None


WHOLE = Part()


class Capture(CaptureSoFar):
    """An open capture: a context manager whose records are taken once, by :meth:`read`.

    Its properties say what is known so far, and are complete after reading. ``after`` is what is known of the files
    before these, if the capture continues them; or of the file before this ``part`` of it.

    Raises NagleLabError for what :func:`open_capture` names.
    """

    def __init__(
        self,
        paths: Sequence[str | FileIO],
        window_bytes: int = WINDOW_BYTES,
        sha256: bool = True,
        after: CaptureSoFar | None = None,
        part: Part = WHOLE,
    ) -> None:
        if not paths:
            raise NagleLabError("no capture file given: name one, or - for standard input")
        before = (after.names[:-1] if part.begin else after.names) if after else []
        super().__init__([*before, *map(name_of, paths)], after.facts if after else None, sha256=sha256)
        self._files_before = len(before)
        self._paths, self._window_bytes, self._part = paths, window_bytes, part
        for path in paths[1:]:
            check_readable(path)
        self._current = self._open(paths[0])

    def note_interrupted(self) -> None:
        """Do not report an incomplete last record as damage: the user ended the recording."""
        self.facts.trouble = [trouble for trouble in self.trouble if trouble.kind is not TroubleKind.TRUNCATED]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; the properties stay."""
        self._current.close()

    def end_period(self) -> None:
        """End a period of the input: packets lost in it become trouble of that period."""
        self.facts.warn_lost(self._current.name)

    def begin_period(self) -> None:
        """Count packets and trouble anew from here on; call it after :meth:`end_period`."""
        self._packets_before = self.facts.packets
        self.facts.trouble, self.facts.kernel_answers = [], []

    def read(self, taker: RecordTaker) -> Iterator[None]:
        """Let ``taker`` take every record, in file order; yields after each window of bytes.

        Frame numbers continue from file to file. If a file ends early, that is added to ``trouble``, and nothing is
        raised.
        """
        yield from self.read_files(taker)
        self.end(taker.clock)

    def read_files(self, taker: RecordTaker) -> Iterator[None]:
        """Read without ending the capture, if it continues in other files: call :meth:`CaptureSoFar.end` after the
        last.
        """
        for number, path in enumerate(self._paths):
            if number and not self._next(path):
                continue
            if not self._part.begin:
                taker.clock.new_file()
            for _ in self._current.read(taker, self._part.until):
                if taker.clock.begins_before():
                    before = self.names[self._files_before + number - 1]
                    text = f"{self._current.name}: begins before {before} ends: give files in order"
                    self.facts.warn(TroubleKind.UNORDERED, text)
                self._note_set_back(taker.clock)
                yield

    @property
    def reached(self) -> Position | None:
        """Where the next part of the file begins; None after the file's last part."""
        return self._current.reached

    def _note_set_back(self, clock: ClockState) -> None:
        if clock.set_back and not self.set_back:
            frame, by = clock.set_back
            text = f"{self._current.name}: time goes back by {by / 1e9:.9g} s at frame {frame}"
            todo = "if the clock was set, record again; if packets are only out of order, sort them with reordercap"
            self.facts.warn(TroubleKind.SET_BACK, f"{text}: {todo}")

    def _next(self, path: str | FileIO) -> bool:
        """Open the next rotated file; False, and trouble, if it cannot be read (tcpdump's newest may be empty)."""
        self._current.close()
        try:
            self._current = self._open(path)
        except NagleLabError as error:
            self.facts.warn(TroubleKind.DAMAGED, str(error))
            return False
        return True

    def _open(self, path: str | FileIO) -> "_File":
        return _File(Stored(path, self._checksum), self.facts, self._window_bytes, self._part.begin)


class _File:
    """One file of a capture, from its stored bytes to its records."""

    def __init__(self, stored: Stored, facts: Facts, window_bytes: int, begin: Position | None) -> None:
        self.name = stored.name
        self._stored, self.facts = stored, facts
        self._packets_before = begin.packets if begin else facts.packets
        self._untimed_before = begin.untimed if begin else facts.untimed
        self.reached: Position | None = None
        self._decompressed: Decompressed | None = None
        try:
            self._reader = self._identify(window_bytes)
            if begin:
                stored.as_opened = begin.as_opened
                self._reader.go_to(begin)
        except BaseException:
            stored.close()
            raise

    def read(self, taker: RecordTaker, until: int | None) -> Iterator[None]:
        """Let the taker take its records, up to byte ``until``; yields after each window. An early end becomes
        trouble.
        """
        stopped: StoppedError | None = None
        try:
            for _ in self._reader.read(taker, None if self._decompressed else until):
                self.facts.packets = taker.frames
                yield
        except StoppedError as error:
            stopped = error
        self.facts.packets = taker.frames
        if self._reader.reached is not None:
            before = self._packets_before, self._untimed_before, self._stored.as_opened
            self.reached = Position(self._reader.reached, *before, self._reader.section)
            return
        yield  # what was taken before it stopped
        self._stored.drain()
        self._explain(stopped, self.facts.packets - self._packets_before)
        self.facts.warn_lost(self.name)
        if left_out := self.facts.untimed - self._untimed_before:
            without = f"{counted(left_out, 'packet')} without a time of capture (simple packet blocks)"
            text = f"{self.name}: left out {without}"
            self.facts.warn(TroubleKind.UNTIMED, text)

    def close(self) -> None:
        """Close the stored file."""
        self._stored.close()

    def _identify(self, window_bytes: int) -> PcapReader | PcapngReader:
        """Choose the reader by the file's first bytes. Raises NagleLabError if it is not a capture."""
        head = self._head()
        decompress = next((function for magic, function in BY_MAGIC.items() if head.startswith(magic)), None)
        if decompress:
            self._decompressed = Decompressed(self._stored, decompress, head)
            window = Window(self._decompressed, size=window_bytes)
        else:
            window = Window(self._stored, head, size=min(window_bytes, self._stored.expected_bytes or window_bytes))
        self._refuse_nothing(window)
        head = bytes(window.raw[:MAGIC_BYTES])
        if head[:4] in pcap.MAGICS:
            self.facts.formats["pcap"] = None
            return PcapReader(window, self.facts, self.name)
        if head.startswith(pcapng.MAGIC):
            self.facts.formats["pcapng"] = None
            return PcapngReader(window, self.facts, self.name)
        what = _what_else(bytes(window.raw[: min(window.end, _TELLING)]), self.name)
        raise NagleLabError(f"{self.name}: {what}")

    def _head(self) -> bytes:
        head = bytearray(MAGIC_BYTES)
        have = 0
        while have < MAGIC_BYTES and (count := self._stored.readinto(memoryview(head)[have:])):
            have += count
        return bytes(head[:have])

    def _refuse_nothing(self, window: Window) -> None:
        if self._stored.error and not window.end:
            raise NagleLabError(f"{self.name}: cannot be read: {self._stored.error}")
        if self._decompressed and self._decompressed.problem and window.end < pcap.FILE_HEADER:
            raise NagleLabError(f"{self.name}: its compressed data {self._decompressed.problem}, before any packet")
        if not window.end:
            if self.name == STDIN_NAME:
                raise NagleLabError(f"{self.name}: empty: the command before the pipe wrote nothing, see its output")
            raise NagleLabError(f"{self.name}: empty: nothing was recorded, record it again")

    def _explain(self, stopped: StoppedError | None, packets: int) -> None:
        """Say why the records ended, only the deepest cause, and whether a program was still writing."""
        kept = f"kept the {counted(packets, 'packet')} before it"
        problem = self._decompressed.problem if self._decompressed else ""
        if self._stored.error:
            what = f"cannot be read from byte {self._stored.byte_count:,} on ({self._stored.error})"
            self.facts.warn(TroubleKind.DAMAGED, f"{self.name}: {what}: {kept}")
        elif problem and (stopped is None or stopped.kind is TroubleKind.TRUNCATED):
            kind = TroubleKind.TRUNCATED if problem == ENDS_EARLY else TroubleKind.DAMAGED
            self.facts.warn(kind, f"{self.name}: its compressed data {problem}: {kept}")
        elif stopped:
            of = " of its decompressed data" if self._decompressed else ""
            is_cut = stopped.kind is TroubleKind.TRUNCATED and self.name != STDIN_NAME
            to_do = "; stop tcpdump (Ctrl-C) before its file is copied, and leave room on its disk" if is_cut else ""
            text = f"{self.name}: at byte {stopped.position:,}{of} {stopped.what}: {kept}{to_do}"
            self.facts.warn(stopped.kind, text)
        if changed := self._stored.changed:
            text = f"{self.name}: {changed} while it was read: the result covers {counted(packets, 'packet')} of it"
            self.facts.warn(TroubleKind.CHANGED, text)
