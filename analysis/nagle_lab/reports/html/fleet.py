"""The page of a fleet: a heat map of hosts by time, the worst services with a ladder each, unusable files."""

import math
from datetime import datetime

from markupsafe import Markup

from nagle_lab.diagnosis.result.spread import duration_text
from nagle_lab.fleet.overview import Heat, Overview
from nagle_lab.reports.html.ladder_drawing import ladder_drawing
from nagle_lab.reports.html.template import ENVIRONMENT, render
from nagle_lab.reports.words.numbers import NONE, shortened, thousands

WIDTH, LABEL, ROW, TOP = 600, 176, 24, 44  # of the drawing, in its units
LEVELS = 5
LONGEST_NAME = 17  # characters; of longer ones the middle is left out
MOST_UNUSABLE = 50


def fleet_page(shown: Overview, title: str) -> str:
    """The overview: a whole document."""
    return render("fleet.html.j2", title=f"nagle-lab fleet: {title}", name=title, fleet=shown, most=MOST_UNUSABLE)


def heat_map(heat: Heat) -> Markup:
    """Hosts downwards, time to the right; the darker a cell, the more time was lost in it."""
    width = (WIDTH - LABEL) / len(heat.begins)
    most = max(cell[0] for row in heat.cells for cell in row if cell)
    cells = [
        {
            "x": LABEL + column * width,
            "y": TOP + row * ROW,
            "level": level(cell[0], most),
            "words": words(heat, row, column),
        }
        for row, line in enumerate(heat.cells)
        for column, cell in enumerate(line)
        if cell
    ]
    return Markup(
        render(
            "heat.svg.j2",
            cells=cells,
            width=round(width, 2),
            names=[(shortened(host, LONGEST_NAME), TOP + row * ROW) for row, host in enumerate(heat.hosts)],
            ticks=[(LABEL + at * width, text) for at, text in column_labels(heat)],
            height=TOP + len(heat.hosts) * ROW + 4,
            hosts=len(heat.hosts),
        )
    )


def level(lost: float, most: float) -> int:
    """How dark a cell is: 1 to LEVELS, each for four times the loss of the previous one; 0 if nothing was lost."""
    return max(1, LEVELS - int(math.log(most / lost, 4))) if lost > 0 else 0


def words(heat: Heat, row: int, column: int) -> list[str]:
    """The lines that a cell shows under the pointer."""
    cell = heat.cells[row][column]
    assert cell
    lost, stalls, exchanges = cell
    span = f"{heat.hours} h" if heat.hours < 24 else f"{heat.hours // 24} d"
    what = f"{duration_text(lost * 1e3)} lost in {thousands(stalls)} stalls" if stalls else "no stall"
    return [heat.hosts[row], f"{when(heat.begins[column])}, {span}", what, f"{thousands(exchanges)} exchanges"]


def column_labels(heat: Heat) -> list[tuple[int, str]]:
    """The columns with a label below, and their labels: as many as fit, at most four."""
    count = len(heat.begins)
    each = next(step for step in (1, 2, 3, 4, 6, 8, 12, 24, 48) if count / step <= 4)
    short = (
        "%H:%M" if heat.hours < 24 and count * heat.hours <= 24 else "%m-%d %H h" if heat.hours < 24 else "%Y-%m-%d"
    )
    return [(at, format(heat.begins[at], short)) for at in range(0, count, each) if at <= 0.8 * count]


def when(time: datetime | None) -> str:
    """A time, UTC, to the minute."""
    return format(time, "%Y-%m-%d %H:%M") if time else NONE


ENVIRONMENT.globals |= {"heat_map": heat_map, "ladder_drawing": ladder_drawing}
ENVIRONMENT.filters |= {"when": when}
