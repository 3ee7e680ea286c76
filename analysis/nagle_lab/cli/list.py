"""nagle-lab list: the scenarios there are."""

from nagle_lab.errors import Exit
from nagle_lab.lab.scenario_file import find_scenario, scenarios
from nagle_lab.reports.listing import show_scenario, show_scenarios
from nagle_lab.reports.terminal import console


def command(scenario: str | None) -> Exit:
    """Print every scenario, or all about one."""
    if scenario:
        show_scenario(find_scenario(scenario), console())
    else:
        show_scenarios(scenarios().values(), console())
    return Exit.OK
