"""nagle-lab list: the existing scenarios."""

import sys

import click

from nagle_lab.errors import Exit, NagleLabError, tell
from nagle_lab.lab.scenarios.parameters import refuse_misspelled
from nagle_lab.lab.scenarios.scenario import Scenario
from nagle_lab.lab.scenarios.scenario_file import find_scenario, readable_scenarios
from nagle_lab.reports.screens.listing import show_scenario, show_scenarios
from nagle_lab.reports.screens.terminal import console


def command(scenario: str | None, pair: bool) -> Exit:
    """Print every scenario, or everything about one, or only the two variants to compare."""
    if pair:
        return _print_pair(scenario)
    if scenario:
        _print_all_about(find_scenario(scenario))
        return Exit.OK
    found, mistakes = readable_scenarios()
    show_scenarios(found.values(), console())
    for mistake in mistakes:
        tell(str(mistake))
    return Exit.UNUSABLE if mistakes else Exit.OK


def _print_all_about(scenario: Scenario) -> None:
    """Print a scenario; through a pager if the terminal is not high enough."""
    screen = console()
    with screen.capture() as captured:
        show_scenario(scenario, screen)
    text = captured.get()
    if screen.is_terminal and text.count("\n") >= screen.height:
        click.echo_via_pager(text)
    else:
        sys.stdout.write(text)


def _print_pair(name: str | None) -> Exit:
    if not name:
        raise NagleLabError("--pair takes a SCENARIO: nagle-lab list SCENARIO --pair")
    scenario = find_scenario(name)
    refuse_misspelled([scenario])
    names = [variant.name for variant in scenario.story]
    if len(names) < 2:
        raise NagleLabError(f"scenario {name} has only the variant {names[0]}: there is nothing to compare it with")
    sys.stdout.write(f"{' '.join(names)}\n")
    return Exit.OK
