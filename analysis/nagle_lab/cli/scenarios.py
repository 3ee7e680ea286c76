"""nagle-lab list: the scenarios there are."""

from nagle_lab.errors import Exit
from nagle_lab.lab.scenario_file import find_scenario, scenarios
from nagle_lab.reports import listing, terminal


def list_scenarios(scenario: str | None) -> Exit:
    """Print every scenario, or all about one."""
    if scenario:
        listing.show_scenario(find_scenario(scenario), terminal.console())
    else:
        listing.show_scenarios(scenarios().values(), terminal.console())
    return Exit.OK
