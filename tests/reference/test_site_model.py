"""The simulator's model, in a browser as the page runs it, against what was recorded with real kernels."""

import json
import re
import shutil
import subprocess

import pytest

from support.repository import REPOSITORY
from support.site import SITE, load_model, module, predicted, sources

SWEEPS = (REPOSITORY / "docs" / "sweeps.md").read_text()
CLIFF = re.compile(
    r"^(starts to stall|stops stalling) at \w+=(\d+)(?:, the first clean size)? \(last (?:clean|stalled): (\d+)\)",
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def model():
    return sources()


@pytest.fixture(scope="module")
def page(browser, model, tmp_path_factory):
    load_model(browser, model, tmp_path_factory.mktemp("model"))
    return browser


@pytest.fixture(scope="module")
def rows(page):
    return predicted(page)


def named(row) -> str:
    return f"{row['of']} {row['name']} {row.get('size', '')}: {row['predicted']}, recorded {row['recorded']}"


def test_every_prediction_agrees_with_its_recording(rows):
    assert [named(row) for row in rows if not row["agrees"]] == []
    assert {row["kind"] for row in rows} == {"variant", "size", "case", "exhibit"}
    assert {row["recorded"]["verdict"] for row in rows} == {"STALL", "CLEAN", "RACE"}


def test_node_predicts_the_same(rows, tmp_path):
    """The modules as they stand, in another engine."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; Chromium runs the same modules")
    for file in SITE.glob("*.js"):
        shutil.copyfile(file, tmp_path / file.name)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "data.js").write_text(module("build").data_module())
    (tmp_path / "run.js").write_text(
        'import { DATA } from "./data.js"; import { predictions } from "./predictions.js";'
        "console.log(JSON.stringify(predictions(DATA)));"
    )
    said = subprocess.run([node, tmp_path / "run.js"], check=True, capture_output=True, text=True).stdout
    assert json.loads(said) == rows


def test_every_cliff_is_predicted_to_the_byte(page):
    """Between the recorded sizes, too: the verdict changes at the cliffs of docs/sweeps.md and nowhere else."""
    checked = 0
    for section in re.split(r"^## ", SWEEPS, flags=re.MULTILINE)[1:]:
        scenario = section.split("\n")[0]
        for series in re.split(r"^(?=[\w-]+: variant )", section, flags=re.MULTILINE)[1:]:
            cliffs = [(kind, int(at)) for kind, at, before in CLIFF.findall(series) if int(before) == int(at) - 1]
            assert len(cliffs) == len(re.findall("(?:starts to stall|stops stalling) at", series))
            variant = series.split(",")[0].removeprefix(series.split(":")[0] + ": variant ")
            sizes = [int(size) for size in re.findall(r"^ +(\d+) +\d+%", series, re.MULTILINE)]
            found = page.js(
                f"""(() => {{
                const name = {json.dumps(scenario)}, one = DATA.scenarios[name];
                const variant = one.variants[{json.dumps(variant)}];
                const verdict = (size) => predictSize(name, variant, one.parameter, size) !== "CLEAN";
                const near = {json.dumps([at for _, at in cliffs])}.flatMap((at) =>
                  Array.from({{ length: 41 }}, (_, i) => at - 20 + i));
                const sizes = [...new Set([...{sizes}, ...near])].sort((a, b) => a - b);
                const stalls = sizes.map(verdict);
                const change = (size, i) => [[stalls[i] ? "starts to stall" : "stops stalling", size]];
                return sizes.flatMap((size, i) => i && stalls[i] !== stalls[i - 1] ? change(size, i) : []);
                }})()"""
            )
            assert [tuple(each) for each in found] == cliffs, f"{scenario} {variant}"
            checked += len(cliffs)
    assert checked == len(re.findall("^(?:starts to stall|stops stalling) at", SWEEPS, re.MULTILINE)) > 0


# A rule of the model, and what it would be if it were wrong.
MISTAKES = {
    "Linux holds behind any segment": ("kernel", 'if (nagle === "rfc896")', "if (true)"),
    "RFC 896 is Minshall's": ("kernel", 'if (nagle === "rfc896") return "nagle";', ""),
    "a full segment is held": ("kernel", "if (size >= this.full) return null;", ""),
    "a new connection is interactive": ("kernel", "this.pingpong = 0;\n    this.", "this.pingpong = 1;\n    this."),
    "every full segment is acknowledged": (
        "kernel", "else if (unacked > this.rcv_mss)", "else if (unacked >= this.rcv_mss)",
    ),
    "the timer leaves a connection interactive": ("kernel", "this.pingpong = 0; // inet_csk_exit_pingpong_mode", ""),
    "an idle end stays interactive": ("kernel", "if (this.world.now - this.lrcvtime < this.ato)", "if (true)"),
    "reading acknowledges nothing": ("kernel", "(this.pushed2 || (this.pushed && !this.interactive))", "false"),
    "the ACK timer is longer": ("kernel", "return this.options.delack * MS;", "return 3 * this.options.delack * MS;"),
    "no loss probe sends held data": ("kernel", "sendProbe() {", "sendProbe() { return;"),
    "another MSS": ("scenarios", "const ETHERNET = 1448", "const ETHERNET = 1460"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_rule_shows(mistake, model, page, tmp_path):
    name, right, wrong = MISTAKES[mistake]
    assert model[name].count(right) == 1
    load_model(page, {**model, name: model[name].replace(right, wrong)}, tmp_path)
    assert page.js(
        "(() => { try { return predictions(DATA).some((row) => !row.agrees); }"
        "catch (error) { return error.message; } })()"
    )
