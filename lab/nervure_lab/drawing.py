"""Shared parts of the figures of reports: look, colours, and the conversion of a canvas to a ``Figure``."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, NullFormatter

matplotlib.use("Agg")
matplotlib.rcParams |= {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.fonttype": "none",
    "svg.hashsalt": "nervure-lab",
}
BLUE, ORANGE, GREEN, PURPLE, VERMILION, SKY, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#56B4E9",
    "#666666",
)
"""After Okabe and Ito (2008), which people with the common colour deficiencies can distinguish."""
_FEW_POWERS = 15.0


@dataclass
class Figure:
    name: str
    title: str
    svg: str
    csv: str
    """The values behind it."""
    png: bytes


Rows = list[dict[str, Any]]


def finished(name: str, title: str, canvas: Canvas, rows: Rows) -> Figure:
    text, picture = io.StringIO(), io.BytesIO()
    canvas.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    canvas.savefig(picture, format="png", bbox_inches="tight", dpi=100)
    svg = text.getvalue()
    return Figure(name, title, svg[svg.index("<svg") :], _csv(rows), picture.getvalue())


def _csv(rows: Rows) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    lines = [",".join(names)]
    lines += [",".join(_plain(row[name]) for name in names) for row in rows]
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def label_time_axis(axes: Axes, of_x: bool = True, *, between_powers: bool = False) -> None:
    """Of a logarithmic axis in microseconds."""
    axis = axes.xaxis if of_x else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda micros, _: duration_text(micros)))
    low, high = axes.get_xlim() if of_x else axes.get_ylim()
    # Within about a decade the labels of its powers alone would be one or none.
    labels = between_powers or high < _FEW_POWERS * low
    text = FuncFormatter(lambda micros, _: duration_text(micros) if f"{micros:e}"[0] in "25" else "")
    axis.set_minor_formatter(text if labels else NullFormatter())


def duration_text(micros: float) -> str:
    if micros >= 1e6:
        return f"{micros / 1e6:g} s"
    return f"{micros / 1e3:g} ms" if micros >= 1e3 else f"{micros:g} µs"
