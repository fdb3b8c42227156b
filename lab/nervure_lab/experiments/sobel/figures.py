"""Figures 3 and 4 of ROS 2 for RoboCup: the density of each case, a box below, and every image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray

from nervure_lab.drawing import BLUE, GREY, ORANGE, Figure, Rows, finished, label_time_axis

_DENSITY_FROM, _DENSITY_HEIGHT = 0.48, 0.5
_BOX_AT, _BOX_HEIGHT = 0.36, 0.12
_POINTS_FROM, _POINTS_HEIGHT = 0.02, 0.2
_GRID_POINTS = 400
_MOST_VECTOR_POINTS = 400
_MOST_RANGE = 1000.0
"""Beyond this ratio only powers of ten are labelled."""
_COLOURS = {"library": GREY, "processes": BLUE, "composed": ORANGE}


@dataclass(frozen=True)
class Case:
    name: str
    """The place, after the name of a peer."""
    micros: list[NDArray[np.float64]]
    """From capture to the end of the operation: every image of every run."""

    @property
    def all_micros(self) -> NDArray[np.float64]:
        return np.concatenate(self.micros)


def draw(name: str, title: str, cases: list[Case]) -> Figure:
    """Logarithmic, unlike the paper's: a linear axis has room for the median or for the tail."""
    canvas = Canvas(figsize=(8, 1.75 * len(cases) + 0.5), layout="constrained")
    panels = canvas.subplots(len(cases), 1, sharex=True, squeeze=False).ravel()
    lowest = min(case.all_micros.min() for case in cases)
    highest = max(case.all_micros.max() for case in cases)
    panels[0].set_xscale("log")
    panels[0].set_xlim(lowest / 1.15, highest * 1.15)
    for panel, case in zip(panels, cases, strict=True):
        _draw_case(panel, case)
    label_time_axis(panels[-1], between_powers=highest < _MOST_RANGE * lowest)
    panels[-1].set_xlabel(
        "from capture to the end of the operation. Box: quartiles and median, whiskers: 1 % and 99 %; "
        "dotted: 99.9 %;\npoints: every image"
    )
    rows: Rows = [
        {"case": case.name, "run": run, "image": image, "micros": round(float(value), 1)}
        for case in cases
        for run, values in enumerate(case.micros)
        for image, value in enumerate(values)
    ]
    return finished(name, title, canvas, rows)


def _draw_case(axes: Axes, case: Case) -> None:
    values = case.all_micros
    place = case.name.split(" ")[-1]
    colour = next(colour for start, colour in _COLOURS.items() if place.startswith(start))
    low, first, middle, third, high, tail = np.percentile(values, (1, 25, 50, 75, 99, 99.9))
    at, density = _density(values)
    axes.fill_between(
        at,
        _DENSITY_FROM,
        _DENSITY_FROM + _DENSITY_HEIGHT * density / density.max(),
        color=colour,
        linewidth=0,
    )
    axes.plot([low, high], [_BOX_AT, _BOX_AT], color="black", linewidth=1)
    axes.barh(_BOX_AT, third - first, _BOX_HEIGHT, left=first, color="white", edgecolor="black", zorder=2)
    for x, height in ((middle, 1.0), (low, 0.5), (high, 0.5)):
        ends = [_BOX_AT - height * _BOX_HEIGHT / 2, _BOX_AT + height * _BOX_HEIGHT / 2]
        axes.plot([x, x], ends, color="black", linewidth=1.5 if x == middle else 1)
    axes.plot([tail, tail], [0, _DENSITY_FROM], color="black", linestyle=":", linewidth=1)
    places = _POINTS_FROM + _POINTS_HEIGHT * np.random.default_rng(0).random(len(values))
    axes.plot(values, places, ".", color=colour, markersize=2, rasterized=len(values) > _MOST_VECTOR_POINTS)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    text = " · ".join(
        f"{word} {micros / 1000:.2f}"
        for word, micros in (("median", middle), ("p99", high), ("p99.9", tail), ("maximum", values.max()))
    )
    axes.set_title(f"{case.name}: {len(values)} images, {text} ms", fontsize=9, loc="left")


def _density(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A Gaussian kernel over the logarithm, with the bandwidth of Silverman (1986), equation 3.31."""
    logs = np.log10(values)
    first, third = np.percentile(logs, (25, 75))
    spread = min(float(logs.std()), (third - first) / 1.34) or float(logs.std()) or 1e-3
    bandwidth = 0.9 * spread * len(logs) ** -0.2
    grid = np.linspace(logs.min() - 3 * bandwidth, logs.max() + 3 * bandwidth, _GRID_POINTS)
    # A column at a time: all of 10,000 images by 400 places would be 32 MB.
    density = np.array([np.exp(-0.5 * ((logs - at) / bandwidth) ** 2).sum() for at in grid])
    return 10**grid, density
