"""What the lab writes into a run folder is what whoever judges the run reads."""

import json
from pathlib import Path

import msgspec
import pytest

from nagle_lab.errors import NagleLabError
from nagle_lab.lab.manifest import new_manifest, write_json, write_manifest
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from nagle_lab.runs.folder import read_manifest, read_witnesses
from nagle_lab.runs.manifest import CaptureRecord, Manifest, NamespaceRecord
from nagle_lab.runs.witnesses import CaptureNumbers, Counters, Lateness, Load, LoadRun, RecordedWitnesses, Witnesses

COUNTERS = {"Tcp.InSegs": 1, "Tcp.OutSegs": 2, "Tcp.RetransSegs": 0, "TcpExt.DelayedACKs": 0, "Tcp.MaxConn": -1}
LOAD = Load("ab", "ab -n 1", 0, 1, 1, 0, 1.5, 1, 1, {"50": 44}, non_2xx=0)


def begun() -> Manifest:
    """The manifest of a run that has just begun."""
    scenario = find_scenario("nginx-static")
    return new_manifest(scenario, scenario.variant("nodelay-off"), {"REQUESTS": "1"})


def recorded(folder: Path, load: LoadRun) -> Manifest:
    """Write the folder of a run of one capture, and return its manifest."""
    (folder / "server.pcap").write_bytes(b"packets")
    numbers, counters = CaptureNumbers(1, 1, 0, 0), Counters(COUNTERS, COUNTERS)
    late = Lateness(5000, 60, 80, 300, 2100)
    write_json(
        folder / "witnesses.json", RecordedWitnesses({"server": numbers}, {"server": counters}, load, None, late)
    )
    manifest = begun()
    manifest.captures = {"server": CaptureRecord("server-capture", "eth0", "server", 1500, {})}
    manifest.namespaces = {"server": NamespaceRecord(["server"], ["10.0.0.2"], {"net.ipv4.tcp_sack": "1"})}
    manifest.timings_s = {"load": 2}  # a whole number of seconds is a number of seconds
    manifest.complete, manifest.failure = True, None
    write_manifest(manifest, folder)
    return manifest


def test_what_was_written_is_read(tmp_path):
    manifest = recorded(tmp_path, LOAD)
    assert read_manifest(tmp_path) == manifest
    assert sorted(manifest.files) == ["server.pcap", "witnesses.json"]
    witnesses = read_witnesses(tmp_path, manifest)
    assert (witnesses.load, witnesses.timers) == (LOAD, Lateness(5000, 60, 80, 300, 2100))
    assert witnesses.counters["server"].after == COUNTERS


def test_a_run_that_was_killed_says_so(tmp_path):
    write_manifest(begun(), tmp_path)
    with pytest.raises(NagleLabError, match=r"this run did not complete \(nagle-lab was killed\)"):
        read_manifest(tmp_path)


def test_a_load_that_failed_has_no_figures_and_is_no_witness_of_a_complete_run(tmp_path):
    manifest = recorded(tmp_path, LoadRun("ab", "ab -n 1", 111))
    assert json.loads((tmp_path / "witnesses.json").read_text())["load"] == {
        "tool": "ab",
        "command": "ab -n 1",
        "exit_code": 111,
    }
    with pytest.raises(
        NagleLabError, match=r"missing required field `requests` - at `\$.load`: this nagle-lab cannot"
    ):
        read_witnesses(tmp_path, manifest)


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda w: w.update(lod=1), "unknown field `lod`"),
        (lambda w: w["load"].update(requests="1"), r"Expected `int`, got `str` - at `\$.load.requests`"),
        (lambda w: w["counters"]["server"]["after"].pop("Tcp.OutSegs"), "Counter `Tcp.OutSegs` is missing"),
        (
            lambda w: w["captures"]["server"].update(dropped=-1),
            r"Expected `int` >= 0 - at `\$.captures\[...\].dropped`",
        ),
    ],
)
def test_a_mistake_is_named_by_file_and_path(tmp_path, edit, fault):
    manifest = recorded(tmp_path, LOAD)
    content = json.loads((tmp_path / "witnesses.json").read_text())
    edit(content)
    (tmp_path / "witnesses.json").write_text(json.dumps(content))
    with pytest.raises(NagleLabError, match=rf"witnesses\.json: .*{fault}"):
        read_witnesses(tmp_path, manifest)


def test_the_witnesses_of_a_complete_run_are_those_that_the_lab_writes():
    """But for the load, which must have ended well."""
    written, read = (msgspec.structs.fields(form) for form in (RecordedWitnesses, Witnesses))
    assert [field.name for field in written] == [field.name for field in read]
    assert {a.name for a, b in zip(written, read, strict=True) if a.type != b.type} == {"load"}
