"""Shared parts of the figures: colours that colour-blind readers can distinguish, and the output as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from nervure_lab.tsc.document import Figure, Table

BLUE, ORANGE, PURPLE, GREEN, GREY = "#0072b2", "#e69f00", "#cc79a7", "#009e73", "#666666"
"""From the palette of Okabe and Ito (2008)."""
HATCHES = {BLUE: "", ORANGE: "///", PURPLE: "...", GREEN: "xx", GREY: ""}
"""Bars differ in print without colour, too."""

plt.rcParams |= {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "nervure-lab",
}


def figure(name: str, caption: str, drawing: Drawing, data: Table) -> Figure:
    """Returns the drawing as SVG without a date, so that the same data give the same page."""
    output = io.StringIO()
    drawing.savefig(output, format="svg", metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    plt.close(drawing)
    svg = output.getvalue()
    svg = svg[svg.index("<svg") :]
    # Ids are unique within a drawing only, and a page has several.
    svg = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    return Figure(name, caption, svg, data)


def grouped_bars(
    axes: Axes,
    groups: Sequence[str],
    series: Sequence[tuple[str, str, Sequence[float | None]]],
    *,
    errors: Sequence[Sequence[tuple[float, float]] | None] = (),
) -> None:
    """Draws a bar for each group and series (name, colour, values); a missing value has no bar."""
    width = 0.8 / len(series)
    for at, (name, colour, values) in enumerate(series):
        positions = [group + (at - (len(series) - 1) / 2) * width for group in range(len(groups))]
        heights = [value or 0.0 for value in values]
        style = {"color": colour, "hatch": HATCHES[colour], "edgecolor": "white", "linewidth": 0}
        axes.bar(positions, heights, width * 0.94, label=name, **style)  # type: ignore[arg-type]
        if at < len(errors) and (interval := errors[at]) is not None:
            below = [max(height - low, 0) for height, (low, _) in zip(heights, interval, strict=True)]
            above = [max(high - height, 0) for height, (_, high) in zip(heights, interval, strict=True)]
            axes.errorbar(positions, heights, [below, above], fmt="none", ecolor="black", elinewidth=0.8)
    axes.set_xticks(range(len(groups)), groups)


def heat_map(
    axes: Axes,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    most: float,
    form: str = "{:.0f}",
) -> None:
    """Draws a map with the value in each cell; `most` is the value of the darkest colour."""
    axes.imshow(values, cmap="cividis_r", vmin=0, vmax=most, aspect="auto")
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            colour = "white" if value > most * 0.55 else "black"
            axes.text(x, y, form.format(value), ha="center", va="center", color=colour)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.grid(False)
