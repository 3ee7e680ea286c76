"""Whatever is in a capture, a file's name or somebody's run folder: on the terminal and in files it is only text."""

import csv
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nagle_lab.cli.shared.options import RUNS
from nagle_lab.errors import Exit
from support import hostile

STALLED = RUNS.parent / "reference" / "nginx-static-nodelay-off"
PROXIED = RUNS.parent / "workshop" / "redis-proxy-nginx-nodelay"
OURS = re.compile(r"\x1b\[(?:0|[127]|3[0-7]|9[0-7])(?:;(?:[127]|3[0-7]|9[0-7]))*m")  # colours; no blinking, no hiding
SPINNER = re.compile(r"\x1b\[\?25[lh]|\r?\x1b\[(?:2K|1A)|\r(?!\n)")  # what Rich draws while verify compares


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A hostile capture, hostile names of files, and a hostile run."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "evil.pcapng").write_bytes(hostile.capture())
    for number, text in enumerate((*hostile.CONTROLS, *hostile.MARKUP)):
        (folder / hostile.name(f"{number} {text}")).write_bytes((folder / "evil.pcapng").read_bytes())
    (folder / hostile.name(f"no capture {hostile.EVIL}")).write_bytes(
        b"no capture at all, but long enough to look at"
    )
    shutil.copytree(PROXIED, folder / hostile.name("run" + hostile.EVIL))
    hostile.run_folder(folder / hostile.name("run" + hostile.EVIL))
    return folder


def on_a_terminal(*arguments: object) -> tuple[int, str]:
    """Exit code of nagle-lab in a terminal of its own, and every byte that it sent there."""
    mine, its = pty.openpty()
    program = [sys.executable, "-c", "from nagle_lab.cli.main import main; main()", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LANG": "C.UTF-8"}
    process = subprocess.Popen(program, stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    sent = b""
    try:
        while part := os.read(mine, 1 << 16):
            sent += part
    except OSError:  # the other side is closed
        pass
    finally:
        os.close(mine)
    return process.wait(), sent.decode("utf-8")


def only_text(sent: str) -> str:
    """What is left without line ends and our colours, all of it printable."""
    text = OURS.sub("", sent.replace("\r\n", "\n"))
    assert text.replace("\n", "").isprintable(), ascii(re.search(r".{0,40}[^\n -~\xa1-\uffff].{0,40}", text))
    return text


def command(name: str, place: Path) -> list[object]:
    named = sorted(path for path in place.iterdir() if path.is_file())
    capture, run = place / "evil.pcapng", next(path for path in place.iterdir() if path.is_dir())
    return {
        "analyze": ["analyze", *named],
        "json": ["analyze", "--json", *named],
        "dissection": ["show", capture],
        "verify": ["verify", named[1]],
        "annotate": ["annotate", capture, "--force", "-o", place.parent / hostile.name(hostile.EVIL), "--filter"],
        "run": ["show", run],
        "run as json": ["show", "--json", run],
        "compare": ["compare", STALLED, run, capture],
        "no such": ["show", f"missing{hostile.EVIL}".replace("\0", "")],
    }[name]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("analyze", Exit.UNUSABLE),  # one of the files is no capture
        ("json", Exit.UNUSABLE),
        ("dissection", Exit.OK),
        ("verify", Exit.OK),
        ("annotate", Exit.OK),
        ("run", Exit.OK),
        ("run as json", Exit.OK),
        ("compare", Exit.OK),
        ("no such", Exit.UNUSABLE),
    ],
)
def test_a_terminal_is_sent_nothing_but_text_and_our_colours(place, tshark, name, code):
    assert tshark
    ended, sent = on_a_terminal(*command(name, place))
    assert ended == code
    text = only_text(SPINNER.sub("", sent) if name == "verify" else sent)
    assert text.strip() and "Traceback" not in text
    if "json" in name:
        assert [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if name in ("run", "compare"):
        assert "x1b]52;c;T1dORUQ" in text.replace("\n", "") and "CLEAN" in text
    if name == "dissection":
        assert "Transmission Control Protocol" in text and text.count("\nFrame ") == 3


def test_what_the_terminal_test_looks_for_would_be_seen():
    for text in hostile.CONTROLS[:-1]:
        with pytest.raises(AssertionError):
            only_text(f"\x1b[1;31m {text} \x1b[0m\r\n")
    assert only_text("\x1b[1;31mSTALL\x1b[0m\r\n") == "STALL\n"


def test_files_written_hold_nothing_that_acts(run, place, tmp_path):
    named = sorted(place.iterdir())
    wanted = {option: tmp_path / f"out.{option}" for option in ("junit", "markdown", "csv")}
    run("analyze", *named, *(word for option, file in wanted.items() for word in (f"--{option}", file)))
    for file in tmp_path.iterdir():
        assert file.read_text().replace("\n", "").replace("\u200b", "").isprintable(), file.name
    markdown = wanted["markdown"].read_text()
    assert not re.search(r"<(?!/?(?:details|summary)>)|(?<!\\)[\[\]]|@\w", markdown)
    with wanted["csv"].open() as file:
        cells = {row[0] for row in csv.reader(file)}
    assert len(cells) > 15 and not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)


# ------------------------------------------------------------------------------- a dissection that is imitated


def test_an_interface_cannot_write_lines_into_the_dissection_of_a_frame(run, tmp_path, tshark):
    """Its name is in the line about the frame, line ends and all: nothing is shown then but that it is so."""
    assert tshark
    forged = "eth0, id 0\nTransmission Control Protocol, FORGED\n    Flags: FORGED\nFrame 1: x"
    for text in (forged, f"eth0\n-- next frame --\n{forged}", "eth0\nFORGED"):
        path = tmp_path / "forged.pcapng"
        path.write_bytes(hostile.capture(text.encode()))
        code, out, _ = run("show", path)
        assert code == 0 and "FORGED" not in out
        assert "a name in this capture has lines that imitate it" in out
    path.write_bytes(hostile.capture(b"eth0\rFORGED, id 7"))  # one line, for a carriage return ends none
    code, out, _ = run("show", path)
    assert code == 0 and "FORGED" not in out and "Transmission Control Protocol" in out
