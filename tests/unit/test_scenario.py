"""Scenarios as data: each one loads, mistakes are named by file and key, parameters come from the right place."""

import re
from pathlib import Path

import pytest

from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.experiments.matrix import plan
from nagle_lab.lab.scenarios import scenario_file
from nagle_lab.lab.scenarios.parameters import MAKE_VARIABLES, ON_COMMAND_LINE, refuse_misspelled, resolve
from nagle_lab.lab.scenarios.scenario import (
    SHARED_SERVICES,
    CapturePoint,
    Claim,
    IntParameter,
    Listener,
    Prepare,
    Requirement,
    Scenario,
    ServerOption,
    Sweep,
)
from nagle_lab.lab.scenarios.scenario_file import find_scenario, load_scenario, scenarios
from support.repository import REPOSITORY, named

EXAMPLE = REPOSITORY / "tests" / "support" / "scenario.toml"  # what it says, the real ones may stop saying


@pytest.mark.parametrize("scenario", scenarios().values(), ids=lambda scenario: scenario.name)
def test_every_scenario_can_be_run(scenario: Scenario):
    for lab in scenario.labs.values():
        assert all(file.is_file() for file in lab.compose)
        assert all((image / "Dockerfile").is_file() for image in lab.images)
        assert lab.name in {variant.lab for variant in scenario.variants.values()}
    for variant in scenario.variants.values():
        values = resolve(scenario, variant, {}, {})
        assert variant.fixed.items() <= values.items()
        option = scenario.lab(variant).option
        for template in (scenario.load.command, *filter(None, [option and option.line])):
            assert not re.search(r"\{[A-Z_]+\}", scenario.rendered(template, values))


LABELS = ("nagle-lab.lock: ${NAGLE_LAB_LOCK", "nagle-lab.host: ${NAGLE_LAB_HOST")
LABS = [lab for scenario in scenarios().values() for lab in scenario.labs.values()]
EXTENDED = set((REPOSITORY / "scenarios").glob("*/services.yaml"))  # what Compose files of labs extend
FILES = sorted({file for lab in LABS for file in lab.compose} | EXTENDED)
STARTING = sorted({lab.compose[0] for lab in LABS} | EXTENDED - {SHARED_SERVICES})


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_compose_file_publishes_nothing(file: Path):
    forbidden = r"^\s*(ports|container_name|volumes|ipv4_address|subnet|privileged):"
    assert not re.search(forbidden, file.read_text(), re.MULTILINE)


@pytest.mark.parametrize("file", STARTING, ids=named)
def test_what_a_lab_makes_is_labelled(file: Path):
    """Services by what they extend, networks in the file itself. What Compose makes of all is seen in tests/lab."""
    services, _, networks = file.read_text().partition("\nnetworks:\n")
    extending = re.findall(r"^    extends: \{file: \S*services\.yaml, service: [a-z]+\}$", services, re.MULTILINE)
    assert len(extending) == len(re.findall(r"^  [a-z-]+:$", services, re.MULTILINE)) > 0
    assert not networks or all(label in networks for label in LABELS)


def test_what_labs_share_is_labelled():
    confined, _, services = SHARED_SERVICES.read_text().partition("\nservices:\n")
    assert all(label in confined for label in LABELS)
    assert services.count("    <<: *confined\n") == len(re.findall(r"^  [a-z]+:$", services, re.MULTILINE)) > 0


def test_an_image_has_one_folder():
    """Images are named after their folders: two folders of one name would be one image."""
    folders = {image for scenario in scenarios().values() for lab in scenario.labs.values() for image in lab.images}
    assert len({folder.name for folder in folders}) == len(folders)


def test_nginx_commands(nginx: Scenario):
    off = resolve(nginx, nginx.variant("nodelay-off"), {}, {})
    assert nginx.rendered(nginx.load.command, off) == "ab -n 1000 -c 100 -k http://server:8080/"
    assert nginx.rendered(nginx.labs["bridge"].option.line, off) == "tcp_nodelay off;"
    control = resolve(nginx, nginx.variant("no-keepalive"), {}, {})
    assert nginx.rendered(nginx.load.command, control) == "ab -n 1000 -c 100 http://server:8080/"


def test_settings_win_over_the_environment_and_that_over_defaults(nginx: Scenario):
    environment = {
        "REQUESTS": "300",
        "CONCURRENCY": "3",
        "PAGE_BYTES": "",
        "UNRELATED": "x",
    }
    values = resolve(nginx, nginx.variant("nodelay-on"), {"REQUESTS": "0200"}, environment)
    assert values == {
        "REQUESTS": "200",
        "CONCURRENCY": "3",
        "PAGE_BYTES": "615",
        "KEEPALIVE": "on",
        "TCP_NODELAY": "on",
        "TCP_NOPUSH": "off",
        "RTT_MS": "0",
    }


@pytest.mark.parametrize(
    ("settings", "environment", "message"),
    [
        ({}, {"TCP_NODELAY": "maybe"}, "TCP_NODELAY=maybe is not valid: use on or off"),
        ({"TCP_NODELAY": "maybe"}, {}, "TCP_NODELAY=maybe is not valid: use on or off"),
        (
            {"REQUESTS": "abc"},
            {},
            "REQUESTS=abc is not valid: use a whole number from 1",
        ),
        ({"REQUESTS": ""}, {}, "REQUESTS= is not valid: use a whole number from 1"),
        ({}, {"REQUESTS": "-5"}, "REQUESTS=-5 is not valid: use a whole number from 1"),
        (
            {},
            {"CONCURRENCY": "0"},
            "CONCURRENCY=0 is not valid: use a whole number from 1",
        ),
        ({"REQUESTS": "9" * 5000}, {}, " is not valid: use a whole number from 1"),
        ({"REQUESTS": "٣"}, {}, "REQUESTS=٣ is not valid: use a whole number from 1"),
        (
            {"REQUESTS": "10"},
            {},
            "CONCURRENCY=100 exceeds REQUESTS=10: lower CONCURRENCY",
        ),
        (
            {"PAGE_BYTES": "99999999999"},
            {},
            "PAGE_BYTES=99999999999 exceeds 33554432: lower PAGE_BYTES",
        ),
        (
            {"PAGES": "1"},
            {},
            "PAGES is not a parameter of nginx-static: choose from REQUESTS, CONCURRENCY",
        ),
        (
            {},
            {"TCP_NODELAY": "on"},
            "TCP_NODELAY=on contradicts variant nodelay-off, which fixes TCP_NODELAY=off",
        ),
        (
            {"TCP_NODELAY": "on"},
            {"TCP_NODELAY": "off"},
            "TCP_NODELAY=on contradicts variant nodelay-off, which fixes TCP_NODELAY=off",
        ),
    ],
)
def test_unusable_parameters_are_refused_in_one_line(nginx: Scenario, settings, environment, message: str):
    with pytest.raises(NagleLabError) as refused:
        resolve(nginx, nginx.variant("nodelay-off"), settings, environment)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code is Exit.UNUSABLE


def test_an_unknown_variant_names_the_known_ones(nginx: Scenario):
    with pytest.raises(
        NagleLabError,
        match=r"no variant 'nagle': choose one of nodelay-off, nodelay-on, no-keepalive",
    ):
        nginx.variant("nagle")


@pytest.fixture
def edited(tmp_path: Path):
    """Return a function that writes tests/support/scenario.toml with one text replaced, and loads it."""

    def load(old: str, new: str) -> Scenario:
        text = EXAMPLE.read_text()
        assert old in text
        folder = tmp_path / "scenarios" / "edited"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("nginx", "client", "scenarios/shared/sidecar"):
            (tmp_path / name).mkdir(parents=True)
        (tmp_path / "compose.yaml").touch()
        (folder / "scenario.toml").write_text(text.replace(old, new, 1))
        return load_scenario(folder / "scenario.toml")

    return load


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title =", "titel =", "scenario.toml: Object contains unknown field `titel`"),
        ('stalled = "nodelay-off"', 'stalled = "nagle"', "stalled must be one of nodelay-off, nodelay-on, "),
        (
            'stalled = "nodelay-off"',
            'stalled = "nopush"',
            "stalled names variant nopush, which is not expected to be",
        ),
        (
            'fixed = "nodelay-on"',
            'fixed = "nodelay-off"',
            "fixed names variant nodelay-off, which is not expected to",
        ),
        ("default = 1000", "default = 0", "parameters.REQUESTS: default is less than min = 1"),
        ("question =", "surprise = 1\nquestion =", "scenario.toml: Object contains unknown field `surprise`"),
        (
            "port = 8080",
            'port = "8080"',
            "server.port: Expected `int`, got `str`",
        ),
        ("port = 8080", "port = true", "server.port: Expected `int`, got `bool`"),
        ("port = 8080", "port = 8080\nspeed = 1", "server: Object contains unknown field `speed`"),
        (
            'held_by = "server"',
            'held_by = "proxy"',
            "expected.held_by: Invalid enum value 'proxy': use client or server",
        ),
        (
            'kind = "int"',
            'kind = "float"',
            "parameters.REQUESTS.kind: Invalid value 'float': use int or choice",
        ),
        (
            "default = 1000",
            'default = "many"',
            "parameters.REQUESTS.default: Expected `int`, got `str`",
        ),
        (
            'max = "REQUESTS"',
            'max = "KEEPALIVE"',
            "parameters.CONCURRENCY.max must be one of REQUESTS, CONCURRENCY, PAGE_BYTES, not 'KEEPALIVE'",
        ),
        (
            'max = "REQUESTS"',
            "max = 1.5",
            "parameters.CONCURRENCY.max: Expected `int | str | null`, got `float`",
        ),
        (
            "-n {REQUESTS}",
            "-n {REQUEST}",
            "load.command names {REQUEST}, which is not a parameter",
        ),
        ("-n {REQUESTS}", "-n {REQUESTS", "load.command is not a template"),
        (
            'verdict = "STALL"',
            'verdict = "SLOW"',
            "variants.nodelay-off.verdict: Invalid enum value 'SLOW': use STALL or CLEAN",
        ),
        (
            "min_share_after_first = 0.9",
            "",
            "variants.nodelay-off: min_share_after_first is missing",
        ),
        (
            "min_share_after_first = 0.9",
            "min_share_after_first = 90.0",
            "variants.nodelay-off.min_share_after_first: Expected `float` <= 1.0",
        ),
        (
            'verdict = "CLEAN"',
            'verdict = "CLEAN"\nmin_share_after_first = 0.9',
            "variants.nodelay-on: held_by, delayed_by and min_share_after_first are for STALL: leave them out",
        ),
        (
            '{ TCP_NODELAY = "off"',
            '{ NODELAY = "off"',
            "variants.nodelay-off.fixed: each name must be one of REQUESTS, ",
        ),
        (
            '{ TCP_NODELAY = "off"',
            '{ TCP_NODELAY = "no"',
            "fixed has TCP_NODELAY=no is not valid: use on or off",
        ),
        (
            'compose = ["../../compose.yaml"]',
            'compose = ["compose.yml"]',
            "labs.bridge.compose[1]: compose.yml does not exist",
        ),
        ('compose = ["../../compose.yaml"]', "compose = []", "labs.bridge.compose: Expected `array` of length >= 1"),
        (', "../shared/sidecar"]', "]", "labs.bridge.images lacks the folder sidecar, whose image captures"),
        ("[labs.bridge]", "[labs]\n[surprise]", "labs: Expected `object` of length >= 1"),
        ("[server]", "captures = 1\n[server]", "labs.bridge.captures: Expected `object`, got `int`"),
        ("[server]", "captures = {}\n[server]", "labs.bridge.captures: Expected `object` of length >= 1"),
        (
            "[server]",
            'captures.lo = { service = "x" }\n[server]',
            "labs.bridge.captures.lo: Object missing required field `interface`",
        ),
        ("[server]", "prepare = [1]\n[server]", "labs.bridge.prepare[1]: Expected `object`, got `int`"),
        (
            "[server]",
            'prepare = [{ service = "client", command = "x {NO}" }]\n[server]',
            "labs.bridge.prepare[1].command names {NO}, which is not a parameter",
        ),
        (
            "[server]",
            'requires = [{ what = "x" }]\n[server]',
            "labs.bridge.requires[1]: Object missing required field `command`",
        ),
        ("[server]", "ready = 1\n[server]", "labs.bridge.ready: Expected `array`, got `int`"),
        (
            "[option]",
            '[[ready]]\nservice = "proxy-capture"\nport = 1\n[option]',
            "labs.bridge has no capture at proxy-capture, which [[ready]] asks",
        ),
        ("port = 8080", "port = 65536", "server.port: Expected `int` <= 65535"),
        (
            "[variants.nodelay-on]",
            '[variants.nodelay-on]\nlab = "moon"',
            "variants.nodelay-on.lab must be one of bridge, not 'moon'",
        ),
        (
            "[parameters.REQUESTS]",
            '[sweep]\nparameter = "KEEPALIVE"\nfrom = 1\nto = 2\nseries = {}\n[parameters.REQUESTS]',
            "sweep.parameter must be one of REQUESTS, CONCURRENCY, PAGE_BYTES, not 'KEEPALIVE'",
        ),
        (
            "[parameters.REQUESTS]",
            '[sweep]\nparameter = "PAGE_BYTES"\nfrom = 2\nto = 2\nseries = {}\n[parameters.REQUESTS]',
            "sweep: to must be more than from, and from more than 0, not 2 to 2",
        ),
        (
            "[parameters.REQUESTS]",
            '[sweep]\nparameter = "PAGE_BYTES"\nfrom = 1\nto = 2\nseries = { a = "b" }\n[parameters.REQUESTS]',
            "sweep.series: each variant must be one of nodelay-off, ",
        ),
        (
            "[load]",
            '[[claims]]\npublished = "x"\nmeasure = "mean_ms"\nof = "z"\nreproduced = [1, 2]\nwhy = "x"\n[load]',
            "claims[1].of must be one of nodelay-off, ",
        ),
        (
            "[load]",
            '[[claims]]\npublished = "x"\nmeasure = "mean_ms"\nof = "nopush"\nreproduced = [2, 1]\nwhy = "x"\n[load]',
            "claims[1]: reproduced must be two numbers, the lower first, not 2 and 1",
        ),
        (
            "[parameters.REQUESTS]",
            '[[claims]]\npublished = "x"\nmeasure = "speed"\n[parameters.REQUESTS]',
            "claims[1].measure: Expected `str` matching regex '^(stalled_share|wait_p50_ms|",
        ),
        ("[load]", "[load", "scenario.toml: "),
        ("title =", "# title =", "scenario.toml: Object missing required field `title`"),
        ("[server]", 'name = "x"\n[server]', "labs.bridge: Object contains unknown field `name`"),
        ('tool = "ab"', 'tool = "wrk"', "load.tool: Expected `str` matching regex '^(ab|json)$'"),
    ],
)
def test_a_mistake_is_named_by_file_and_key(edited, old: str, new: str, message: str):
    with pytest.raises(NagleLabError) as refused:
        edited(old, new)
    assert message in str(refused.value)
    assert "edited/scenario.toml" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_new_scenario_is_only_a_folder(edited):
    scenario = edited(
        "[parameters.PAGE_BYTES]",
        '[parameters.EXTRA]\nkind = "int"\ndefault = 1\nmin = 0\nabout = "x"\n\n[parameters.PAGE_BYTES]',
    )
    found = scenarios(scenario.labs["bridge"].compose[0].parent / "scenarios")
    assert found == {"edited": scenario}
    assert found["edited"].parameters["EXTRA"] == IntParameter("EXTRA", "x", 1, 0)


FULL = """\
captures.loopback = { service = "server-capture", interface = "lo" }
prepare = [{ service = "client", command = "wait {PAGE_BYTES}" }]
requires = [{ what = "a moon", command = "test -e /moon" }]
ready = [{ service = "server-capture", port = 81 }]
option = { service = "client", configuration = "show", line = "bytes {PAGE_BYTES}" }

[labs.plain]
compose = ["../../compose.yaml", "overlay.yaml"]
images = ["../shared/sidecar"]

[sweep]
parameter = "PAGE_BYTES"
from = 64
to = 16384
series = { writes = "nodelay-off" }

[[claims]]
published = "44.6 ms"
measure = "mean_ms"
of = "nodelay-off"
against = "nodelay-on"
reproduced = [3, 4.5]
why = "x"

"""


def test_all_that_a_scenario_can_say(edited, tmp_path: Path):
    (tmp_path / "scenarios" / "edited").mkdir(parents=True)
    (tmp_path / "scenarios" / "edited" / "overlay.yaml").touch()
    scenario = edited("[server]\n", f"{FULL}[server]\n")
    first, plain = scenario.labs.values()
    assert first.captures == {"loopback": CapturePoint("server-capture", "lo")}
    assert first.prepare == (Prepare("client", "wait {PAGE_BYTES}"),)
    assert first.requires == (Requirement("a moon", "test -e /moon"),)
    assert first.ready == (Listener("server-capture", 81),)
    assert first.option == ServerOption("client", "show", "bytes {PAGE_BYTES}")
    assert [file.name for file in plain.compose] == ["compose.yaml", "overlay.yaml"]
    assert plain.captures == {end: CapturePoint(f"{end}-capture", "eth0") for end in ("server", "client")}
    assert plain.option == ServerOption("server", "nginx -T", "tcp_nodelay {TCP_NODELAY};")  # that of the scenario
    assert (plain.prepare, plain.requires, plain.ready) == ((), (), ())
    assert scenario.sweep == Sweep("PAGE_BYTES", 64, 16384, {"writes": "nodelay-off"})
    ratio = Claim("44.6 ms", "mean_ms", "nodelay-off", (3.0, 4.5), "x", against="nodelay-on")
    assert scenario.claims == (ratio,)
    assert scenario.lab(scenario.variant("nopush")) == first


def test_a_variant_overrides_what_the_scenario_expects(edited):
    scenario = edited(
        "min_share_after_first = 0.9", 'min_share_after_first = 0.5\nport = 81\nheld_by = "client"\nlab = "bridge"'
    )
    expected = scenario.variant("nodelay-off").expected
    assert (expected.port, expected.held_by, expected.delayed_by) == (81, "client", "client")
    assert scenario.variant("nodelay-on").expected.port == 8080


def test_one_scenario_is_found_whatever_is_wrong_with_another(edited, tmp_path: Path):
    edited("title =", "title =")
    broken = tmp_path / "scenarios" / "broken"
    broken.mkdir()
    (broken / "scenario.toml").write_text("nonsense")
    assert find_scenario("edited", tmp_path / "scenarios").name == "edited"
    for name in ("nginx", "../scenarios/edited", ""):
        with pytest.raises(NagleLabError, match=f"no scenario '{name}': choose from broken, edited"):
            find_scenario(name, tmp_path / "scenarios")


def test_no_scenario_at_all(tmp_path: Path):
    with pytest.raises(NagleLabError, match="has no scenario"):
        scenarios(tmp_path)


def test_the_list_names_every_variant_and_fits_a_screen(run):
    code, out, err = run("list")
    assert (code, err) == (0, "")
    for scenario in scenarios().values():
        assert f"{scenario.name}: {scenario.title}"[:90] in out
        assert all(re.search(rf"(^| ){variant}(,|$| )", out, re.MULTILINE) for variant in scenario.variants)
    assert len(out.splitlines()) <= 24


CONTROL = """\
title = "One write never waits"
question = "Does a reply in one segment wait?"
source = { title = "RFC 896" }
server = { service = "server", port = 8080, version = "nginx -v" }
labs.bridge = { compose = ["compose.yaml"], images = ["sidecar"] }
load = { service = "client", tool = "ab", command = "ab -n 10 http://server:8080/" }
parameters = {}
variants.one-write = { fixed = {}, verdict = "CLEAN", teaches = "Nothing to hold." }
"""
SECOND = 'variants.again = { fixed = {}, verdict = "CLEAN", teaches = "The same." }\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """A folder of scenarios, which the commands take for the repository's, with a control in it."""
    home = tmp_path / "scenarios"
    (home / "control" / "sidecar").mkdir(parents=True)
    (home / "control" / "compose.yaml").touch()
    (home / "control" / "scenario.toml").write_text(CONTROL + SECOND)
    monkeypatch.setattr(scenario_file, "SCENARIOS", home)
    return home


def test_a_control_expects_only_clean(folder: Path, run):
    control = find_scenario("control")
    assert control.is_control
    assert [variant.name for variant in control.story] == ["one-write", "again"]
    assert {variant.expected.held_by for variant in control.variants.values()} == {None}
    assert len(plan([control], 1).rows) == 2
    assert run("list", "control", "--pair") == (0, "one-write again\n", "")
    assert "one-write, again" in run("list")[1]
    assert run("list", "control")[0] == 0


def test_a_control_of_one_variant_has_nothing_to_compare(folder: Path, run):
    (folder / "control" / "scenario.toml").write_text(CONTROL)
    code, out, err = run("list", "control", "--pair")
    assert (code, out, err.count("\n")) == (Exit.UNUSABLE, "", 1)
    assert "has only the variant one-write" in err


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ('stalled = "again"\n', "stalled is for a scenario with a variant that expects STALL: leave it out"),
        (
            'expected = { held_by = "server", delayed_by = "client" }\n'
            'variants.slow = { fixed = {}, verdict = "STALL", min_share_after_first = 0.9, teaches = "x" }\n',
            "stalled is missing: name the variant that is to be STALL",
        ),
        (
            'variants.slow = { fixed = {}, verdict = "STALL", min_share_after_first = 0.9, teaches = "x" }\n',
            "expected: Object missing required field `held_by`",
        ),
    ],
)
def test_what_is_no_control_tells_its_story(folder: Path, added: str, message: str):
    (folder / "control" / "scenario.toml").write_text(added + CONTROL + SECOND)
    with pytest.raises(NagleLabError, match=re.escape(message)):
        find_scenario("control")


def test_a_scenario_that_cannot_be_read_is_named_and_the_others_are_listed(folder: Path, run):
    (folder / "broken").mkdir()
    (folder / "broken" / "scenario.toml").write_text(CONTROL)
    code, out, err = run("list")
    assert (code, err.count("\n")) == (Exit.UNUSABLE, 1)
    assert "control: One write never waits" in out
    assert "broken/scenario.toml: labs.bridge.compose[1]: compose.yaml does not exist" in err


@pytest.mark.parametrize("name", [scenario.name for scenario in scenarios().values() if not scenario.is_control])
def test_the_pair_of_a_scenario_is_the_stalled_and_the_fixed_variant(run, name):
    scenario = find_scenario(name)
    assert run("list", name, "--pair") == (0, f"{scenario.stalled} {scenario.fixed}\n", "")


def test_the_pair_of_no_scenario_is_wrong_usage(run):
    code, out, err = run("list", "--pair")
    assert (code, out, err.count("\n")) == (Exit.UNUSABLE, "", 1)


def on_command_line(*names: str) -> dict[str, str]:
    """An environment in which make was given these variables."""
    return {ON_COMMAND_LINE: " ".join(names), **dict.fromkeys(names, "5")}


@pytest.mark.parametrize(
    ("environment", "meant"),
    [
        ({"REQUESTZ": "5"}, "did you mean REQUESTS"),
        ({"requests": "5"}, "did you mean REQUESTS"),
        ({"CONCURENCY": "5"}, "did you mean CONCURRENCY"),
        ({"TCP_NO_DELAY": "on"}, "did you mean TCP_NODELAY"),
        (on_command_line("REQUESTZ"), "did you mean REQUESTS"),
        (on_command_line("NODELAY"), "did you mean TCP_NODELAY"),
        (on_command_line("SCENARI"), "did you mean SCENARIO"),
    ],
)
def test_a_misspelled_parameter_is_noticed(nginx: Scenario, environment, meant):
    with pytest.raises(NagleLabError, match=meant):
        refuse_misspelled([nginx], environment)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"PATH": "/bin", "HTTP_PROXY": "http://a", "PAGES": "5", "TARGET": "5"},
        {"REQUEST": "GET", "TCP_NODELAYS": "maybe"},  # near, but with a value that is none of the parameter's
        on_command_line("REQUESTS", "SCENARIO", "AGAIN"),
        on_command_line("DOCKER_HOST", "TMPDIR", "NAGLE_LAB_NO_INSTALL", "LANG"),
    ],
)
def test_other_variables_are_no_mistake(nginx: Scenario, environment):
    refuse_misspelled([nginx], environment)


def test_every_variable_that_the_makefile_reads_is_known():
    makefile = (REPOSITORY / "Makefile").read_text()
    read = set(re.findall(r"\$\$\{([A-Z_]+)|\$\$([A-Z_]+)\b|\$\(([A-Z_]{4,})\)", makefile))
    names = {name for each in read for name in each if name} - {"MAKE", "MAKEFILE_LIST", "EPOCHSECONDS"}
    assert names <= MAKE_VARIABLES
    assert len(names) > 10


def test_the_list_of_one_scenario_says_all_and_names_its_parameters(run):
    code, out, _ = run("list", "nginx-static")
    assert code == 0
    assert "The file waits" in out and "STALL ≥ 75%" in out
    assert re.search(r"CONCURRENCY +100 +1 to REQUESTS +connections at once", out)
    assert run("list", "moon")[0] == Exit.UNUSABLE
