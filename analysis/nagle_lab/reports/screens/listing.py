"""The screen: the scenarios there are, or one of them with its variants and parameters."""

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nagle_lab.lab.scenarios.scenario import IntParameter, Parameter, Scenario, Variant


def show_scenarios(scenarios: Iterable[Scenario], screen: Console) -> None:
    """Every scenario: what it is, and the names of its variants."""
    for scenario in scenarios:
        screen.print(Text.assemble((scenario.name, "bold"), f": {scenario.title}"))
        screen.print(Padding(Text(", ".join(scenario.variants), "dim"), (0, 0, 0, 4), expand=False))
    screen.print(Text("Parameters and what each variant teaches: nagle-lab list SCENARIO", "dim"))


def show_scenario(scenario: Scenario, screen: Console) -> None:
    """One scenario: what it asks, where it comes from, its variants, and the parameters that --set takes."""
    screen.print(Text.assemble((scenario.name, "bold"), f": {scenario.title}"))
    screen.print(Text(f"{scenario.question}\n"))
    source = scenario.source
    screen.print(Text(f"Source: {source.title}" + (f", {source.url}" if source.url else "") + "\n", "dim"))
    table = _table("variant", "lab", "expected", "what it teaches")
    for variant in scenario.variants.values():
        table.add_row(variant.name, variant.lab, _expected(variant), variant.teaches)
    screen.print(table)
    table = _table("parameter", "default", "values", "what it is")
    for parameter in scenario.parameters.values():
        table.add_row(parameter.name, str(parameter.default), _values(parameter), parameter.about)
    screen.print("", table)


def _table(*headings: str) -> Table:
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _expected(variant: Variant) -> str:
    share = variant.expected.min_share_after_first
    return variant.expected.verdict + (f" ≥ {share:.0%}" if share else "")


def _values(parameter: Parameter) -> str:
    if isinstance(parameter, IntParameter):
        return f"{parameter.min} to {parameter.max}" if parameter.max is not None else f"from {parameter.min}"
    return ", ".join(parameter.choices)
