"""Scenarios as data: each one loads, mistakes are named by file and key, parameters come from the right place."""

import re
from pathlib import Path

import pytest

from nagle_lab.errors import Exit, NagleLabError
from nagle_lab.lab.parameters import rendered, resolve
from nagle_lab.lab.scenario import (
    REPOSITORY,
    IntParameter,
    Scenario,
    load_scenario,
    scenarios,
)

NGINX = REPOSITORY / "scenarios" / "nginx-static" / "scenario.toml"


@pytest.fixture
def nginx() -> Scenario:
    return load_scenario(NGINX)


@pytest.mark.parametrize("scenario", scenarios().values(), ids=lambda scenario: scenario.name)
def test_every_scenario_can_be_run(scenario: Scenario):
    assert scenario.compose.is_file()
    assert all((image / "Dockerfile").is_file() for image in scenario.images)
    assert {variant.expected.verdict for variant in scenario.variants.values()} == {
        "STALL",
        "CLEAN",
    }
    for variant in scenario.variants.values():
        values = resolve(scenario, variant, {}, {})
        assert variant.fixed.items() <= values.items()
        assert "{" not in rendered(scenario.load.command, scenario, values)
        stalls = variant.expected.verdict == "STALL"
        assert (variant.expected.held_by is not None) == stalls
        assert (variant.expected.min_share_after_first is not None) == stalls


@pytest.mark.parametrize("scenario", scenarios().values(), ids=lambda scenario: scenario.name)
def test_every_compose_file_labels_what_it_makes_and_publishes_nothing(
    scenario: Scenario,
):
    text = scenario.compose.read_text()
    assert "nagle-lab.lock: ${NAGLE_LAB_LOCK" in text and "nagle-lab.host: ${NAGLE_LAB_HOST" in text
    assert not re.search(
        r"^\s*(ports|container_name|volumes|ipv4_address|subnet|privileged):",
        text,
        re.MULTILINE,
    )


def test_nginx_commands(nginx: Scenario):
    off = resolve(nginx, nginx.variant("nodelay-off"), {}, {})
    assert rendered(nginx.load.command, nginx, off) == "ab -n 1000 -c 100 -k http://server:8080/"
    assert rendered(nginx.server.option, nginx, off) == "tcp_nodelay off;"
    control = resolve(nginx, nginx.variant("no-keepalive"), {}, {})
    assert rendered(nginx.load.command, nginx, control) == "ab -n 1000 -c 100 http://server:8080/"


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
            "CONCURRENCY=100 is more than REQUESTS=10: lower CONCURRENCY",
        ),
        (
            {"PAGE_BYTES": "99999999999"},
            {},
            "PAGE_BYTES=99999999999 is more than 33554432: lower PAGE_BYTES",
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
    """Return a function that writes nginx's scenario with one text replaced, and loads it."""

    def load(old: str, new: str) -> Scenario:
        text = NGINX.read_text()
        assert old in text
        folder = tmp_path / "scenarios" / "edited"
        folder.mkdir(parents=True)
        for name in ("nginx", "client", "sidecar"):
            (tmp_path / name).mkdir()
        (tmp_path / "compose.yaml").touch()
        (folder / "scenario.toml").write_text(text.replace(old, new, 1))
        return load_scenario(folder / "scenario.toml")

    return load


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title =", "titel =", "title is missing"),
        ("default = 1000", "default = 0", "parameters.REQUESTS.default is less than min = 1"),
        ("question =", "surprise = 1\nquestion =", "surprise is not a known key"),
        (
            "port = 8080",
            'port = "8080"',
            "server.port must be a whole number, not '8080'",
        ),
        ("port = 8080", "port = true", "server.port must be a whole number, not True"),
        ("port = 8080", "port = 8080\nspeed = 1", "server.speed is not a known key"),
        (
            'held_by = "server"',
            'held_by = "proxy"',
            "expected.held_by must be one of server, client, not 'proxy'",
        ),
        (
            'kind = "int"',
            'kind = "float"',
            "parameters.REQUESTS.kind must be one of int, choice",
        ),
        (
            "default = 1000",
            'default = "many"',
            "parameters.REQUESTS.default must be a whole number",
        ),
        (
            'max = "REQUESTS"',
            'max = "KEEPALIVE"',
            "parameters.CONCURRENCY.max names KEEPALIVE, which is not",
        ),
        (
            'max = "REQUESTS"',
            "max = 1.5",
            "parameters.CONCURRENCY.max must be a whole number or",
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
            "variants.nodelay-off.verdict must be one of STALL, CLEAN",
        ),
        (
            "min_share_after_first = 0.9",
            "",
            "variants.nodelay-off.min_share_after_first is missing",
        ),
        (
            "min_share_after_first = 0.9",
            "min_share_after_first = 90.0",
            "must lie above 0 and not above 1, not 90.0",
        ),
        (
            'verdict = "CLEAN"',
            'verdict = "CLEAN"\nmin_share_after_first = 0.9',
            "is not a known key",
        ),
        (
            '{ TCP_NODELAY = "off"',
            '{ NODELAY = "off"',
            "variants.nodelay-off.fixed names NODELAY, which is not",
        ),
        (
            '{ TCP_NODELAY = "off"',
            '{ TCP_NODELAY = "no"',
            "fixed has TCP_NODELAY=no is not valid: use on or off",
        ),
        (
            'compose = "../../compose.yaml"',
            'compose = "compose.yml"',
            "lab.compose names compose.yml, which does not",
        ),
        ("[load]", "[load", "scenario.toml: "),
        ('tool = "ab"', 'tool = "wrk"', "load.tool must be one of ab, not 'wrk'"),
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
    found = scenarios(scenario.compose.parent / "scenarios")
    assert found == {"edited": scenario}
    assert found["edited"].parameters["EXTRA"] == IntParameter("EXTRA", "x", "1", 0, None)


def test_no_scenario_at_all(tmp_path: Path):
    with pytest.raises(NagleLabError, match="holds no scenario"):
        scenarios(tmp_path)
