"""What a command imports: the quick ones must stay quick."""

import subprocess
import sys

import pytest

from support.repository import STALLED

LAB = {
    "nagle_lab.lab",
    "nagle_lab.evidence.tshark",
    "nagle_lab.experiments.matrix",
    "nagle_lab.reports.screens.listing",
    "rich.progress",
    "subprocess",
}


def imported(*commands: list[str]) -> set[str]:
    """The modules in memory when these commands, in one process, are over."""
    program = (
        f"import sys\nfrom nagle_lab.cli.main import main\nfor arguments in {commands!r}:\n"
        "    sys.argv = ['nagle-lab', *arguments]\n"
        "    try:\n        main()\n    except SystemExit as end:\n        assert end.code == 0\n"
        "print('\\nMODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("MODULES")[2].split())


def test_version_and_help_import_nothing_that_works():
    found = imported(["--version"], ["--help"], ["matrix", "--help"], ["analyze", "--help"])
    assert "nagle_lab.cli.main" in found
    assert not found & {*LAB, "numpy", "rich", "concurrent.futures", "nagle_lab.diagnosis.analysis", "json"}


def test_a_diagnosis_imports_no_lab():
    found = imported(["analyze", str(STALLED)])
    assert "nagle_lab.diagnosis.analysis" in found
    assert not found & {*LAB, "numpy", "matplotlib", "nagle_lab.reports.html"}


def test_a_report_of_a_capture_imports_no_lab(tmp_path):
    found = imported(["analyze", str(STALLED), "--html", str(tmp_path / "report.html")])
    assert "matplotlib" in found
    assert "nagle_lab.lab" not in found


def test_the_overview_of_a_fleet_imports_no_matplotlib():
    program = "import sys, nagle_lab.cli.captures.fleet; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_report_without_matplotlib_says_so_and_has_the_rest():
    """As in a browser, which has no NumPy, either."""
    program = (
        "import sys\nsys.modules.update(dict.fromkeys(('matplotlib', 'numpy')))\n"
        "from pathlib import Path\nfrom nagle_lab.reports.html.page import report_page\n"
        "from nagle_lab.experiments.opened import opened\n"
        "from nagle_lab.reports.html.shown import shown_of\n"
        f"path = Path({str(STALLED)!r})\nprint(report_page([shown_of(opened(path), path)]))"
    )
    page = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "has no plots" in page and 'class="chart"' not in page
    assert "<h2>Stalls, segment by segment</h2>" in page and "<h2>Where the time went</h2>" in page
    assert "Remedy." in page and 'class="seg trigger"' in page


@pytest.mark.parametrize("module", ["overview", "page"])
def test_each_page_brings_what_its_template_calls(module):
    """In a process of its own, as a command runs: compare, sweep and matrix do not load the page of captures."""
    program = (
        f"import nagle_lab.reports.html.{module}; from nagle_lab.reports.html.template import ENVIRONMENT;"
        "missing = {'plots', 'cliff_plot', 'variant_plot', 'duration'} - ENVIRONMENT.globals.keys();"
        "import sys; sys.exit(str(missing) if missing else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_numpy_starts_no_threads_and_leaves_the_environment_to_those_we_start():
    program = (
        "import os; os.environ.pop('OPENBLAS_NUM_THREADS', None); from nagle_lab.tcp.arrays import numpy; numpy();"
        "print(len(os.listdir('/proc/self/task')), 'OPENBLAS_NUM_THREADS' in os.environ)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "1 False\n"
