"""Write the output shown in the pages again, from the commands that made it: `make docs`.

In every Markdown file of the repository, a fenced block behind a line such as

    <!-- output: nagle-lab analyze captures/lookalikes/server-held/server.pcap.gz | from ms  client -->

holds what that command prints. It is run in the repository's root, on committed captures, and gives the same text
everywhere. Between bars may follow, in any order and number: `from TEXT` leaves out the lines before the first that
contains TEXT, `before TEXT` leaves out that line and all after it.

With --check nothing is written; exit code 1 names the pages that are out of date.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nagle_lab.diagnosis.result.result import json_schema as result_schema
from nagle_lab.diagnosis.result.schema import schema_of, schema_text
from nagle_lab.live.watch.live_findings import Event
from nagle_lab.reports.experiments.nodelay import NodelayReport
from nagle_lab.reports.screens.sockets import Sockets
from nagle_lab.runs.result import RunResult

REPOSITORY = Path(__file__).resolve().parents[1]
SCHEMAS = REPOSITORY / "analysis" / "nagle_lab" / "schema"
TYPES = {  # what a schema's file follows from, and its title
    "run": (RunResult, "nagle-lab: what one run of the lab shows"),
    "sockets": (Sockets, "nagle-lab: the TCP sockets of a host"),
    "nodelay": (NodelayReport, "nagle-lab: TCP_NODELAY tried on running sockets"),
    "watch": (Event, "nagle-lab watch --json: one line"),
}
NAGLE_LAB = Path(sys.executable).with_name("nagle-lab")
BLOCK = re.compile(r"^(<!-- output: (.+?) -->\n+```\w*\n)(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every Markdown file that git would commit."""
    trusted = f"safe.directory={REPOSITORY}"  # whoever owns the checkout: only names are read
    command = ["git", "-c", trusted, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    return [
        REPOSITORY / name for name in sorted(set(filter(None, listed.split("\0")))) if (REPOSITORY / name).is_file()
    ]


def refreshed(text: str) -> str:
    """The page with every marked block as its command prints it now."""
    return BLOCK.sub(lambda found: f"{found[1]}{output(found[2])}```", text)


def output(recipe: str) -> str:
    """What a command and its filters give; ValueError where the recipe is not understood or the command fails."""
    command, *filters = recipe.split(" | ")
    lines = printed(command)
    for each in filters:
        verb, _, text = each.partition(" ")
        at = next((i for i, line in enumerate(lines) if text in line), None)
        if verb not in ("from", "before") or at is None:
            raise ValueError(f"{recipe}: {each!r} is no filter, or finds nothing")
        lines = lines[at:] if verb == "from" else lines[:at]
    return "".join(f"{line}\n" for line in trimmed(lines))


@cache
def printed(command: str) -> list[str]:
    """The lines on standard output, without blanks at their ends."""
    name, *arguments = shlex.split(command)
    if name != "nagle-lab":
        raise ValueError(f"{command}: only nagle-lab is run")
    code, out, err = ended(arguments)
    if code not in (0, 1, 3):
        raise ValueError(f"{command}: exit code {code}: {err.strip()}")
    return [line.rstrip() for line in out.splitlines()]


def ended(arguments: list[str]) -> tuple[int, str, str]:
    """How nagle-lab ends with these arguments: its exit code, and what it wrote to standard output and error."""
    done = subprocess.run([NAGLE_LAB, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def trimmed(lines: list[str]) -> list[str]:
    """Without empty lines at both ends."""
    full = [i for i, line in enumerate(lines) if line]
    return lines[full[0] : full[-1] + 1] if full else []


def outdated() -> Iterator[tuple[Path, str]]:
    """Each page that is not as its commands say, and what it should be; and the schema that follows from types."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        wanted = refreshed(text)
        if wanted != text:
            yield page, wanted
    for file, schema in schemas().items():
        if file.read_text(encoding="utf-8") != schema:
            yield file, schema


def schemas() -> dict[Path, str]:
    """The file of each JSON Schema that follows from types, and what it should be."""
    generated = {name: schema_text(schema_of(of, title)) for name, (of, title) in TYPES.items()}
    return {SCHEMAS / f"{name}.schema.json": text for name, text in (generated | {"result": result_schema()}).items()}


def main() -> int:
    """Write, or with --check only name, the pages that are out of date."""
    check = sys.argv[1:] == ["--check"]
    found = list(outdated())
    for page, wanted in found:
        print(f"{page.relative_to(REPOSITORY)}: {'out of date, run make docs' if check else 'written again'}")
        if not check:
            page.write_text(wanted, encoding="utf-8")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
