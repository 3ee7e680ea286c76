"""The files that a command writes besides its output: JUnit, Markdown, HTML, CSV, Parquet."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from nagle_lab.capture.compression import GZIP_MAGIC, ZSTD_MAGIC
from nagle_lab.capture.pcap import MAGICS as PCAP_MAGICS
from nagle_lab.capture.pcapng import MAGIC as PCAPNG_MAGIC
from nagle_lab.capture.stored import STDIN, write_whole
from nagle_lab.errors import Exit, NagleLabError, naming

if TYPE_CHECKING:
    from nagle_lab.evidence.examples import Examples
    from nagle_lab.reports.files.junit import Case, Suite
    from nagle_lab.reports.files.tabular import TableFiles
    from nagle_lab.reports.html.shown import Shown
    from nagle_lab.reports.words.reported import ReportedCapture
    from nagle_lab.runs.run import Run

# ruff: noqa: PLC0415  (imports inside methods: a diagnosis that exports nothing must not wait for them)


class Exports:
    """A context manager: collects what a command reports, and writes ``files``, by format, each whole or not at all.

    After an exception it writes none. Entering raises NagleLabError if a file cannot be written, or is an input.
    """

    def __init__(
        self,
        files: Mapping[str, Path | None],
        *,
        reads: Iterable[Path] = (),
        suite: str = "captures",
    ) -> None:
        """``reads`` are the command's inputs, see :func:`require_outputs`; ``suite``: what JUnit calls captures."""
        self._reads, self._suite = reads, suite
        self.files = {name: file for name, file in files.items() if file}
        self._stack = ExitStack()
        self._tables: list[TableFiles] = []
        self._suites: list[Suite] = []
        self._cases: list[Case] = []
        self._first_time = ""  # of the earliest packet in the captures
        self._pages: list[str] = []
        self._shown: list[Shown] = []
        self._unusable: list[tuple[str, str]] = []
        self._is_written = False
        self._reader_left = False

    @property
    def with_exchanges(self) -> bool:
        """Whether a file has a row for each exchange."""
        return bool(self.files.keys() & {"csv", "parquet"})

    @property
    def with_packets(self) -> bool:
        """Whether a file shows packets."""
        return bool(self.files.keys() & {"markdown", "html"})

    @property
    def typical_only(self) -> bool:
        """Whether no file shows more packets than those of a typical stall."""
        return "html" not in self.files

    def __enter__(self) -> Self:
        require_writable(self.files.values())
        for name in self.files.keys() & {"csv", "parquet"}:
            if not _is_replaced(self.files[name]):
                raise NagleLabError(
                    f"--{name} {self.files[name]}: this option writes three files: name a regular file"
                )
        require_outputs(self._all_files(), self._reads)
        with ExitStack() as stack:
            if self.with_exchanges:
                from nagle_lab.host.children import ending_by_signals
                from nagle_lab.reports.files.tabular import WRITERS, table_files

                stack.enter_context(ending_by_signals())  # tables are open for as long as a capture is read
                for name, writer in WRITERS.items():
                    if name in self.files:
                        self._tables.append(stack.enter_context(table_files(self.files[name], writer)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        self._stack.__exit__(kind, *rest)
        if kind is None and not self._is_written:
            self.write()
        if kind is None and self._reader_left:
            raise BrokenPipeError

    @contextmanager
    def showing(self) -> Iterator[None]:
        """Within the block stdout is written. If its reader goes away (`| head`), files are written all the same."""
        try:
            yield
        except BrokenPipeError:
            if not self.files:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._reader_left = True

    def _all_files(self) -> list[Path]:
        """The requested files, and those beside a table."""
        files = list(self.files.values())
        if self.with_exchanges:
            from nagle_lab.reports.files.tabular import beside

            files += [
                other for name in ("csv", "parquet") if name in self.files for other in beside(self.files[name])
            ]
        return files

    def write(self) -> None:
        """Write JUnit, Markdown and HTML now, and not again at the end."""
        self._is_written = True
        markdown = "\n".join(self._pages)
        write_wanted(self.files, junit=self._junit, markdown=lambda: markdown, html=self._html)

    def _junit(self) -> str:
        from nagle_lab.reports.files.junit import Suite, junit

        started = self._first_time or f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}"
        return junit([*self._suites, *([Suite(self._suite, self._cases, started)] if self._cases else [])])

    def _html(self) -> str:
        from nagle_lab.reports.html.page import report_page

        return report_page(self._shown, self._unusable)

    def capture(self, of: "ReportedCapture") -> None:
        """Add a diagnosed capture."""
        source = of.result.source
        if "junit" in self.files:
            from nagle_lab.reports.files.junit import case_of_capture

            self._cases.append(case_of_capture(of))
            self._first_time = min(filter(None, (self._first_time, source.first_time)), default="")
        if "markdown" in self.files:
            from nagle_lab.reports.files.markdown import page_of_capture

            self._pages.append(page_of_capture(of))
        if "html" in self.files:
            from nagle_lab.reports.html.shown import shown_capture

            self._shown.append(shown_capture(of))
        for tables in self._tables:
            tables.add(source.file, of.result)

    def run(self, run: "Run", packets: "Examples", code: Exit, contradictions: list[str]) -> None:
        """Add a judged run, and how it contradicts its expectation."""
        if "junit" in self.files:
            from nagle_lab.reports.files.junit import suite_of_run

            self._suites.append(suite_of_run(run, code, contradictions))
        if "markdown" in self.files:
            from nagle_lab.reports.files.markdown import page_of_run

            self._pages.append(page_of_run(run, packets.written or packets.typical, contradictions))
        if "html" in self.files:
            from nagle_lab.reports.html.shown import shown_run

            self._shown.append(shown_run(run, packets))
        for tables in self._tables:
            for name, result in run.results.items():
                tables.add(f"{run.folder.name}/{name}.pcap", result)

    def unusable(self, name: str, error: NagleLabError) -> None:
        """Add an input that could not be diagnosed at all, and why."""
        self._unusable.append((name, str(error)))
        if "junit" in self.files:
            from nagle_lab.reports.files.junit import Case

            verdict = "INCONCLUSIVE" if error.exit_code is Exit.INCONCLUSIVE else "unusable"
            self._cases.append(Case(name, error.exit_code, verdict, str(error)))
        if "markdown" in self.files:
            from nagle_lab.reports.files.markdown import escaped

            self._pages.append(f"### ⚠️ unusable · {escaped(name)}\n\n{escaped(str(error))}\n")


def require_outputs(files: Iterable[Path | None], reads: Iterable[Path] = ()) -> None:
    """Raise NagleLabError unless the ``files`` differ, each can be written, and nothing is lost by that.

    ``reads`` are the command's inputs. This is checked first, not after an hour of runs.
    """
    wanted = [file for file in files if file]
    require_writable(wanted)
    if len({file.resolve() for file in wanted}) < len(wanted):
        raise NagleLabError("two output options name the same file: give each its own")
    require_not_read(wanted, reads)
    for file in wanted:
        if there := _what_is_lost(file):
            raise NagleLabError(f"{file} cannot be written: {there} is there, and would be lost: name another file")


def require_writable(files: Iterable[Path | None]) -> None:
    """Raise NagleLabError unless each of the ``files`` can be written."""
    for file in filter(None, files):
        if problem := _why_not_written(file):
            raise NagleLabError(f"{file} cannot be written: {problem}")


_REPORTS = {".html", ".xml", ".md", ".csv"}  # files that a person may have put into an input folder


def require_not_read(files: Iterable[Path | None], reads: Iterable[Path]) -> None:
    """Raise NagleLabError if one of the ``files`` to write is one of ``reads``, or in one of these folders.

    A capture is the only evidence and must not be lost. In a folder, reports may be replaced.
    """
    inputs = [Path("/dev/stdin") if str(path) == STDIN else path for path in reads]
    for file in filter(None, files):
        if any(_is_read(file, path) for path in inputs):
            raise NagleLabError(f"{file} cannot be written: it is an input of this command: name another file")


def _is_read(file: Path, path: Path) -> bool:
    """Whether writing ``file`` would destroy ``path``, or its content, under any name."""
    with suppress(OSError):  # a path without access is refused when it is opened
        if path.is_dir():
            return file.is_file() and file.suffix not in _REPORTS and file.resolve().is_relative_to(path.resolve())
        if file.exists() and not file.is_file():
            return False  # a terminal or a pipe
        return file.resolve() == path.resolve() or (file.exists() and path.exists() and file.samefile(path))
    return False


def _why_not_written(file: Path) -> str:
    """Why a file cannot be written, and what to do; or empty. Of a file to replace, its folder counts, too."""
    target = file.resolve()
    if target.is_dir():
        return "it is a folder: name a file"
    if not target.parent.is_dir():
        return f"there is no folder {file.parent}: create it, or name a file in one that exists"
    if target.exists() and not os.access(target, os.W_OK):
        return "permission denied: name another file"
    if _is_replaced(file) and not os.access(target.parent, os.W_OK | os.X_OK):
        return f"no permission to write in its folder {file.parent}: name a file in another one"
    return ""


_PRECIOUS = {
    PCAPNG_MAGIC: "a capture",
    **dict.fromkeys(PCAP_MAGICS, "a capture"),
    GZIP_MAGIC: "a compressed file",
    ZSTD_MAGIC: "a compressed file",
    b"#!": "a program",
}


def _what_is_lost(file: Path) -> str:
    """What an existing file is that no report may replace, as when ``--html *.pcap`` names a capture; or empty."""
    if not file.is_file() or not os.access(file, os.R_OK):
        return ""
    with file.open("rb") as stream:
        begin = stream.read(4)
    return next((what for magic, what in _PRECIOUS.items() if begin.startswith(magic)), "")


def write_wanted(files: Mapping[str, Path | None], **contents: Callable[[], str]) -> None:
    """Write those ``contents``, by format, for which there is a file; the others are never created."""
    for name, content in contents.items():
        if file := files.get(name):
            write_export(file, content())


_DEVICES = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))


def _is_replaced(file: Path) -> bool:
    """Whether the file is replaced as a whole; anything but a regular file is written to instead."""
    return not file.exists() or (file.is_file() and file.parent not in _DEVICES)


def write_export(file: Path, text: str) -> None:
    """Write ``text`` to ``file``, whole or not at all; directly if it is not a regular file (/dev/stdout, a pipe)."""
    content = text.encode("utf-8", "backslashreplace")
    if not _is_replaced(file):
        with naming(file), file.open("ab") as stream:  # /dev/stdout may be a file that others write to, too
            stream.write(content)
        return
    write_whole(file.resolve(), content)
