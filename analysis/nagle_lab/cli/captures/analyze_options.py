"""What the options of nagle-lab analyze ask of every capture."""

from dataclasses import dataclass
from pathlib import Path

from nagle_lab.cli.shared.ctrl_c import CtrlC
from nagle_lab.cli.shared.exports import Exports
from nagle_lab.diagnosis.result.verdict import Verdict


@dataclass(frozen=True)
class AnalyzeOptions:
    """What the options ask of every capture, and the files to write."""

    expected: Verdict | None
    as_json: bool
    strace: Path | None
    exports: Exports
    ctrl_c: CtrlC
