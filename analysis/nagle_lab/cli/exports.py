"""The files that a command writes beside what it prints: JUnit, Markdown, HTML, CSV, Parquet."""

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from nagle_lab.errors import Exit, NagleLabError

if TYPE_CHECKING:
    from nagle_lab.diagnosis.result import Result
    from nagle_lab.evidence.examples import Examples
    from nagle_lab.reports.html import Shown
    from nagle_lab.reports.junit import Case, Suite
    from nagle_lab.reports.tabular import Tables
    from nagle_lab.runs.run import Run

# ruff: noqa: PLC0415  (imports inside methods: a diagnosis that exports nothing must not wait for them)


@dataclass(frozen=True)
class Wanted:
    """The files asked for; None: not."""

    junit: Path | None = None
    markdown: Path | None = None
    html: Path | None = None
    csv: Path | None = None
    parquet: Path | None = None


class Exports:
    """A context manager: collects what a command found, and writes the files at its end, each whole or not at all.

    Left by an exception it writes none. Entering raises NagleLabError where a file cannot be written.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._stack = ExitStack()
        self._tables: list[Tables] = []
        self._suites: list[Suite] = []
        self._cases: list[Case] = []
        self._pages: list[str] = []
        self._shown: list[Shown] = []
        self._unusable: list[tuple[str, str]] = []

    @property
    def wanted(self) -> bool:
        """Whether any file is."""
        return self._wanted != Wanted()

    @property
    def with_tables(self) -> bool:
        """Whether a file has a row for each exchange."""
        return bool(self._wanted.csv or self._wanted.parquet)

    @property
    def with_packets(self) -> bool:
        """Whether a file shows packets."""
        return bool(self._wanted.markdown or self._wanted.html)

    @property
    def with_report(self) -> bool:
        """Whether a file shows more packets than those of a typical stall."""
        return bool(self._wanted.html)

    def __enter__(self) -> Self:
        wanted = self._wanted
        files = [file for file in (wanted.junit, wanted.markdown, wanted.html, wanted.csv, wanted.parquet) if file]
        for file in files:
            require_writable(file)
        if len(set(files)) < len(files):
            raise NagleLabError("two outputs have the same name: name a file for each")
        with ExitStack() as stack:
            if self.with_tables:
                from nagle_lab.reports.tabular import CsvWriter, ParquetWriter, Tables

                for name, writer in ((wanted.csv, CsvWriter), (wanted.parquet, ParquetWriter)):
                    if name:
                        self._tables.append(stack.enter_context(Tables(name, writer)))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if kind is not None:
            return
        if self._wanted.junit:
            from nagle_lab.reports.junit import Suite, junit

            own = [Suite("captures", self._cases)] if self._cases else []
            write_whole(self._wanted.junit, junit([*self._suites, *own]))
        if self._wanted.markdown:
            write_whole(self._wanted.markdown, "\n".join(self._pages))
        if self._wanted.html:
            from nagle_lab.reports.html import report_page

            write_whole(self._wanted.html, report_page(self._shown, self._unusable))

    def capture(self, result: "Result", packets: "Examples", code: Exit, expected: str | None) -> None:
        """A diagnosed capture."""
        if self._wanted.junit:
            from nagle_lab.reports.junit import case_of_capture

            self._cases.append(case_of_capture(result, code, expected))
        if self._wanted.markdown:
            from nagle_lab.reports.markdown import page_of_capture

            against = f"expected {expected}, found {result.verdict}" if code is Exit.CONTRADICTED else ""
            self._pages.append(page_of_capture(result, packets.typical, against))
        if self._wanted.html:
            from nagle_lab.reports.html import shown_capture

            self._shown.append(shown_capture(result, packets))
        for tables in self._tables:
            tables.add(result.source.file, result)

    def run(self, judged: "Run", packets: "Examples", code: Exit, expected: str | None = None) -> None:
        """A judged run, held against ``expected``, or else against what its variant expects."""
        unlike = judged.contradictions
        if expected:
            unlike = [] if judged.verdict == expected else [f"expected {expected}, found {judged.verdict}"]
        if self._wanted.junit:
            from nagle_lab.reports.junit import suite_of_run

            self._suites.append(suite_of_run(judged, code, unlike))
        if self._wanted.markdown:
            from nagle_lab.reports.markdown import page_of_run

            self._pages.append(page_of_run(judged, packets.typical, unlike))
        if self._wanted.html:
            from nagle_lab.reports.html import shown_run

            self._shown.append(shown_run(judged, packets))
        for tables in self._tables:
            for name, result in judged.results.items():
                tables.add(f"{judged.folder.name}/{name}.pcap", result)

    def unusable(self, name: str, error: NagleLabError) -> None:
        """What could not be diagnosed at all."""
        self._unusable.append((name, str(error)))
        if self._wanted.junit:
            from nagle_lab.reports.junit import Case

            verdict = "INCONCLUSIVE" if error.exit_code is Exit.INCONCLUSIVE else "unusable"
            self._cases.append(Case(name, error.exit_code, verdict, str(error)))
        if self._wanted.markdown:
            from nagle_lab.reports.markdown import escaped

            self._pages.append(f"### ⚠️ unusable · {escaped(name)}\n\n{escaped(str(error))}\n")


def require_writable(file: Path) -> None:
    """Raise NagleLabError unless ``file`` can be written: better now than after an hour of runs."""
    if file.is_dir() or not file.parent.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise NagleLabError(f"{file} cannot be written: name a file in a folder that exists and is yours")


def write_whole(file: Path, text: str) -> None:
    """Write ``text`` to ``file``, whole or not at all; straight to what is no file (/dev/stdout, a pipe)."""
    content = text.encode("utf-8", "backslashreplace")
    if file.exists() and not file.is_file():
        file.write_bytes(content)
        return
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(file.resolve())
    finally:
        part.unlink(missing_ok=True)
