"""The figures of the report. Each returns its picture and the values behind it as CSV."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from nervure_lab.comparison.accounting import Floats, interval, rate_over_time, spread
from nervure_lab.comparison.results import Cell, ResultSet
from nervure_lab.drawing import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Figure,
    Rows,
    duration_text,
    finished,
    label_time_axis,
)
from nervure_lab.messages import BYTES
from nervure_lab.quantities import format_size
from nervure_lab.statistics import fairness

_COLOURS = {
    "nervure": BLUE,
    "dora": ORANGE,
    "iceoryx2": GREEN,
    "zenoh": PURPLE,
    "zeromq": VERMILION,
    "cyclonedds": SKY,
    "fastdds": "#8C6D00",
}
_HATCHES = ("", "///", "...", "xx")
_MOST_POINTS = 400
_MOST_OF_RATE = 3.0
"""Of the rate of publication: a higher peak, of a queue that drains, is cut off and its height written."""


def figures_of(results: ResultSet, experiment: str, kinds: tuple[str, ...]) -> list[Figure]:
    """Draws the kinds that the experiment declares, and that have something to show."""
    found = []
    for kind in kinds:
        for name, title, draw in _DRAWN[kind](results, experiment):
            found.append(finished(f"{experiment}-{name}", title, *draw()))
    return found


Draw = Callable[[], tuple[Canvas, Rows]]
Drawn = list[tuple[str, str, Draw]]


def _colour(adapter: str) -> str:
    return next((colour for peer, colour in _COLOURS.items() if adapter.startswith(peer)), GREY)


def _latency_word(results: ResultSet, experiment: str) -> str:
    return "Round trip" if results.of(experiment)[0].case.pattern == "echo" else "Latency"


def _bars(results: ResultSet, experiment: str) -> Drawn:
    word = _latency_word(results, experiment)
    return _bars_of(results, experiment, "bars", word, lambda cell: cell.latencies)


def _end_to_end(results: ResultSet, experiment: str) -> Drawn:
    word = "From before the publish call to the end of the read"
    return _bars_of(results, experiment, "end-to-end", word, lambda cell: cell.ends_to_ends)


def _types(results: ResultSet, experiment: str) -> Drawn:
    """The messages with a type alone."""
    word = "Latency of messages with a type"
    return [
        drawn
        for drawn in _bars_of(results, experiment, "types", word, lambda cell: cell.latencies)
        if any(drawn[0] == f"types-{cell.name}" for cell in results.cells if cell.case.message != BYTES)
    ]


def _bars_of(
    results: ResultSet, experiment: str, kind: str, word: str, micros: Callable[[Cell], list[Floats]]
) -> Drawn:
    found: Drawn = []
    for name in results.names(experiment):
        cells = [cell for cell in results.measured(experiment, name) if cell.latency["count"]]
        if cells:

            def draw(cells: list[Cell] = cells) -> tuple[Canvas, Rows]:
                return _draw_bars(cells, micros)

            found.append((f"{kind}-{name}", f"{word}, {name}: median, p90, p99 and maximum", draw))
    return found


def _draw_bars(cells: list[Cell], micros: Callable[[Cell], list[Floats]]) -> tuple[Canvas, Rows]:
    canvas = Canvas(figsize=(7.5, 0.36 * len(cells) + 0.9))
    axes = canvas.subplots()
    rows: Rows = []
    for place, cell in enumerate(cells):
        latency = spread(np.concatenate(micros(cell)))
        low, high = interval(micros(cell))
        rows.append({"adapter": cell.adapter, **latency, "median_low": low, "median_high": high})
        colour = _colour(cell.adapter)
        # Three lengths of one bar: darker means more of the messages.
        for percentile, alpha in (("p99", 0.3), ("p90", 0.5), ("p50", 1.0)):
            axes.barh(place, latency[percentile], color=colour, alpha=alpha, height=0.7)
        axes.plot([latency["max"]], [place], "|", color="black", markersize=9)
        axes.plot([low, high], [place, place], color="black", linewidth=1.2)
        lost = cell.total("lost")
        text = duration_text(float(f"{latency['p50']:.3g}")) + (f", {lost} lost" if lost else "")
        axes.annotate(
            text, (latency["max"], place), (6, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_yticks(range(len(cells)), [cell.adapter for cell in cells])
    axes.invert_yaxis()
    axes.set_xscale("log")
    low_limit = min(float(row["p50"]) for row in rows) / 2
    axes.set_xlim(low_limit, max(float(row["max"]) for row in rows) * 6)
    axes.grid(axis="y", visible=False)
    label_time_axis(axes)
    axes.set_xlabel("bars: median (in figures), p90, p99; tick: maximum; line: 95 % interval of the median")
    return canvas, rows


def _histogram(results: ResultSet, experiment: str) -> Drawn:
    return _small_multiples(results, experiment, "histogram", "distribution of all messages", _one_histogram)


def _one_histogram(axes: Axes, cell: Cell, limits: tuple[float, float]) -> Rows:
    values = np.concatenate(cell.latencies)
    edges = np.geomspace(limits[0], limits[1], 50)
    counts, _ = np.histogram(values, edges)
    shares = 100 * counts / len(values)
    axes.stairs(shares, edges, fill=True, color=_colour(cell.adapter))
    axes.axvline(float(np.percentile(values, 99)), color="black", linestyle=":", linewidth=1)
    axes.set_xscale("log")
    label_time_axis(axes)
    return [
        {"adapter": cell.adapter, "from_micros": float(low), "percent": float(share)}
        for low, share in zip(edges[:-1], shares, strict=True)
        if share
    ]


def _over_time(results: ResultSet, experiment: str) -> Drawn:
    return _small_multiples(
        results, experiment, "over-time", "every message of the first repeat", _one_series
    )


def _one_series(axes: Axes, cell: Cell, limits: tuple[float, float]) -> Rows:
    table = cell.tables[0].filter(~cell.tables[0]["warmup"] & cell.tables[0]["received_nanos"].is_not_null())
    times = table["due_nanos"].to_numpy() / 1e9
    values = (table["received_nanos"] - table["stamped_nanos"]).to_numpy() / 1e3
    axes.plot(
        times, values, ".", markersize=2, color=_colour(cell.adapter), rasterized=len(times) > _MOST_POINTS
    )
    axes.set_yscale("log")
    axes.set_ylim(*limits)
    label_time_axis(axes, of_x=False)
    return [
        {"adapter": cell.adapter, "due_seconds": float(time), "micros": float(value)}
        for time, value in zip(times, values, strict=True)
    ]


def _small_multiples(
    results: ResultSet,
    experiment: str,
    kind: str,
    title: str,
    draw_one: Callable[[Axes, Cell, tuple[float, float]], Rows],
) -> Drawn:
    """One panel for each adapter, in the cell in the middle of the sizes of each place."""
    found: Drawn = []
    for suffix, names in _names_by_place(results, experiment).items():
        name = names[len(names) // 2]
        cells = [cell for cell in results.measured(experiment, name) if cell.latency["count"]]
        if cells:
            heading = f"{_latency_word(results, experiment)}, {name}: {title}"
            found.append((kind + suffix, heading, _panels(cells, kind, draw_one)))
    return found


def _panels(
    cells: list[Cell], kind: str, draw_one: Callable[[Axes, Cell, tuple[float, float]], Rows]
) -> Draw:
    def draw() -> tuple[Canvas, Rows]:
        columns = 3
        lines = math.ceil(len(cells) / columns)
        canvas = Canvas(figsize=(9, 1.5 * lines + 0.4), layout="constrained")
        panels = np.asarray(canvas.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)).ravel()
        low = min(float(np.concatenate(cell.latencies).min()) for cell in cells)
        high = max(float(cell.latency["p99_9"]) for cell in cells)
        rows: Rows = []
        for panel, cell in zip(panels, cells, strict=False):
            rows += draw_one(panel, cell, (max(low / 1.3, 1.0), high * 1.5))
            panel.set_title(cell.adapter, fontsize=9)
        _finish_panels(panels, len(cells), columns)
        if kind == "histogram":
            canvas.supylabel("% of messages (dotted: p99)", fontsize=9)
        else:
            canvas.supxlabel("s from the first message", fontsize=9)
        return canvas, rows

    return draw


def _finish_panels(panels: NDArray[Any], used: int, columns: int) -> None:
    """Hides the panels without a cell; the lowest visible one of each column has the labels of the axis."""
    for panel in panels[used:]:
        panel.set_axis_off()
    for panel in panels[max(used - columns, 0) : used]:
        panel.tick_params(labelbottom=True)


def _places(cells: list[Cell]) -> list[str]:
    return [place for place in _PLACES if any(cell.case.place == place for cell in cells)]


def _names_by_place(results: ResultSet, experiment: str) -> dict[str, list[str]]:
    """The names of cells by a suffix for names of figures, which is empty if there is one place."""
    cells = results.of(experiment)
    places = _places(cells)
    return {
        f"-{place}" if len(places) > 1 else "": [
            name
            for name in results.names(experiment)
            if any(cell.name == name and cell.case.place == place for cell in cells)
        ]
        for place in places
    }


def _by_size(results: ResultSet, experiment: str) -> Drawn:
    latency = _Curve("by-size", "Median latency", "median", "latency", "p50")
    curves = [latency]
    if any(cell.case.reads for cell in results.of(experiment)):
        curves.append(
            _Curve(
                "end-to-end-by-size",
                "Median time from before the publish call to the end of the read",
                "median",
                "end_to_end",
                "p50",
            )
        )
    return [drawn for curve in curves for drawn in _curves(results, experiment, curve)]


def _throughput(results: ResultSet, experiment: str) -> Drawn:
    curve = _Curve("throughput", "Messages received per second", "received per second", "received_hz", "mean")
    return _curves(results, experiment, curve)


@dataclass(frozen=True)
class _Curve:
    """A figure of cells over their payload."""

    kind: str
    title: str
    label: str
    attribute: str
    """Of a cell: a dictionary of statistics."""
    statistic: str

    @property
    def is_time(self) -> bool:
        return self.statistic == "p50"


def _curves(results: ResultSet, experiment: str, curve: _Curve) -> Drawn:
    """A picture for each place that has several sizes."""
    found: Drawn = []
    cells = results.of(experiment)
    places = _places(cells)
    for place in places:
        # Of two cells of one size the one with the higher rate.
        fastest = {
            cell.case.payload_bytes: cell.name
            for cell in sorted(cells, key=lambda cell: cell.case.rate_hz)
            if cell.case.place == place and cell.case.message == BYTES
        }
        names = list(fastest.values())
        if len(names) < 2:
            continue

        def draw(names: list[str] = names) -> tuple[Canvas, Rows]:
            return _draw_by_size(results, experiment, names, curve)

        several = len(places) > 1
        kind = f"{curve.kind}-{place}" if several else curve.kind
        title = f"{curve.title}, by payload" + (f", {_PLACES[place]}" if several else "")
        found.append((kind, title, draw))
    return found


_PLACES = {"process": "in one process", "host": "two processes of one host", "link": "over the link"}


def _draw_by_size(
    results: ResultSet, experiment: str, names: list[str], curve: _Curve
) -> tuple[Canvas, Rows]:
    canvas = Canvas(figsize=(7.5, 4.5))
    axes = canvas.subplots()
    rows: Rows = []
    seen: dict[str, int] = {}
    for adapter in results.adapters(experiment):
        cells = [results.find(experiment, name, adapter["name"]) for name in names]
        shown = [cell for cell in cells if cell is not None and cell.latency["count"]]
        if not shown:
            continue
        style = seen.get(adapter["peer"], 0)
        seen[adapter["peer"]] = style + 1
        shown.sort(key=lambda cell: cell.case.payload_bytes)
        axes.plot(
            [cell.case.payload_bytes for cell in shown],
            [float(getattr(cell, curve.attribute)[curve.statistic]) for cell in shown],
            color=_colour(adapter["name"]),
            linestyle=("-", "--", ":", "-.")[style % 4],
            marker=("o", "s", "^", "x")[style % 4],
            markersize=4,
            label=adapter["name"],
        )
        rows += [
            {
                "adapter": cell.adapter,
                "payload_bytes": cell.case.payload_bytes,
                **getattr(cell, curve.attribute),
            }
            for cell in shown
        ]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(round(value))))
    if curve.is_time:
        label_time_axis(axes, of_x=False)
    axes.set_xlabel("payload")
    axes.set_ylabel(curve.label)
    axes.legend(fontsize=7, ncols=1, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return canvas, rows


def _loss_map(results: ResultSet, experiment: str) -> Drawn:
    names = results.names(experiment)
    adapters = [
        adapter["name"]
        for adapter in results.adapters(experiment)
        if any(results.find(experiment, name, adapter["name"]) for name in names)
    ]
    if not adapters:
        return []

    def draw() -> tuple[Canvas, Rows]:
        grid = np.full((len(adapters), len(names)), np.nan)
        texts: dict[tuple[int, int], str] = {}
        rows: Rows = []
        for line, adapter in enumerate(adapters):
            for column, name in enumerate(names):
                cell = results.find(experiment, name, adapter)
                if cell is None:
                    continue
                texts[line, column] = "no type" if cell.lacks_type else "failed"
                if cell.delivered_percent is not None:
                    grid[line, column] = cell.delivered_percent
                    texts[line, column] = _percent(cell.delivered_percent)
                    median = cell.latency.get("p50", math.nan)
                    rows.append(
                        {
                            "adapter": adapter,
                            "cell": name,
                            "delivered_percent": cell.delivered_percent,
                            "median_micros": float(median),
                        }
                    )
        canvas = Canvas(figsize=(1.15 * len(names) + 2.5, 0.4 * len(adapters) + 1.4))
        axes = canvas.subplots()
        image = axes.imshow(grid, cmap="cividis", vmin=0, vmax=100, aspect="auto")
        axes.grid(visible=False)
        # Nothing is written where an adapter does not take part.
        for (line, column), text in texts.items():
            shade = "white" if grid[line, column] < 55 else "black"
            axes.text(column, line, text, ha="center", va="center", color=shade, fontsize=8)
        axes.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(adapters)), adapters)
        canvas.colorbar(image, ax=axes, label="% delivered")
        return canvas, rows

    return [("loss-map", "Messages delivered, % of those sent", draw)]


def _percent(value: float) -> str:
    return f"{value:.0f}" if value in (0.0, 100.0) else f"{value:.1f}"


def _rate(results: ResultSet, experiment: str) -> Drawn:
    found: Drawn = []
    for name in results.names(experiment):
        cells = list(results.measured(experiment, name))
        if cells:

            def draw(cells: list[Cell] = cells) -> tuple[Canvas, Rows]:
                return _draw_rate(cells)

            shaded = ", the outage shaded" if cells[0].case.outage else ""
            found.append((f"rate-{name}", f"Messages received per second, {name}{shaded}", draw))
    return found


def _draw_rate(cells: list[Cell]) -> tuple[Canvas, Rows]:
    columns = 3
    lines = math.ceil(len(cells) / columns)
    canvas = Canvas(figsize=(9, 1.45 * lines + 0.4), layout="constrained")
    panels = np.asarray(canvas.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)).ravel()
    rows: Rows = []
    highest = cells[0].case.rate_hz
    for panel, cell in zip(panels, cells, strict=False):
        case = cell.case
        series = rate_over_time(cell.tables[0], case.sending_seconds + case.drain_seconds, 0.5)
        panel.step(
            [at for at, _ in series], [rate for _, rate in series], where="post", color=_colour(cell.adapter)
        )
        panel.axhline(case.rate_hz, color="black", linestyle=":", linewidth=0.8)
        if case.outage:
            panel.axvspan(case.outage[0], sum(case.outage), color="#999999", alpha=0.35, linewidth=0)
        arrived = cell.tables[0]["received_nanos"].drop_nulls().to_numpy() / 1e9
        last = float(arrived.max()) if len(arrived) else 0.0
        beyond = f" (on until {last:.0f} s)" if last > series[-1][0] else ""
        peak = max(rate for _, rate in series)
        beyond += f" (peak {peak:.0f} Hz)" if peak > _MOST_OF_RATE * case.rate_hz else ""
        panel.set_title(cell.adapter + beyond, fontsize=9)
        highest = max(highest, min(peak, _MOST_OF_RATE * case.rate_hz))
        rows += [{"adapter": cell.adapter, "seconds": at, "received_hz": rate} for at, rate in series]
    panels[0].set_ylim(0, 1.08 * highest)
    _finish_panels(panels, len(cells), columns)
    canvas.supylabel("received, Hz (dotted: sent)", fontsize=9)
    canvas.supxlabel("s from the first message", fontsize=9)
    return canvas, rows


def _cpu(results: ResultSet, experiment: str) -> Drawn:
    """Of the last cell of each place."""
    return [
        (f"cpu{suffix}", f"CPU, {names[-1]}", _cpu_bars(cells))
        for suffix, names in _names_by_place(results, experiment).items()
        if (cells := list(results.measured(experiment, names[-1])))
    ]


def _cpu_bars(cells: list[Cell]) -> Draw:
    roles = {role: role for role in cells[0].case.process_roles} | {"daemon": "daemon or broker"}

    def draw() -> tuple[Canvas, Rows]:
        canvas = Canvas(figsize=(7.5, 0.33 * len(cells) + 0.9))
        axes = canvas.subplots()
        rows: Rows = []
        left = np.zeros(len(cells))
        for (role, label), colour, hatch in zip(
            roles.items(), (BLUE, ORANGE, "#999999"), _HATCHES, strict=False
        ):
            shares = np.array([cell.cpu_percent(role) for cell in cells])
            axes.barh(
                range(len(cells)), shares, left=left, color=colour, hatch=hatch, label=label, height=0.7
            )
            left += shares
            rows += [
                {"adapter": cell.adapter, "role": label, "cpu_percent": float(share)}
                for cell, share in zip(cells, shares, strict=True)
            ]
        axes.set_yticks(range(len(cells)), [cell.adapter for cell in cells])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("% of one core")
        axes.legend(fontsize=8, frameon=False)
        return canvas, rows

    return draw


def _blocking(results: ResultSet, experiment: str) -> Drawn:
    cells = [cell for name in results.names(experiment) for cell in results.measured(experiment, name)]
    if not cells:
        return []

    def draw() -> tuple[Canvas, Rows]:
        canvas = Canvas(figsize=(7.5, 0.33 * len(cells) + 0.9))
        axes = canvas.subplots()
        rows: Rows = []
        for place, cell in enumerate(cells):
            found = cell.measured[0]["figures"]["publication_micros"]
            if not found["max"]:
                axes.annotate("not measured", (0.01, place), xycoords=("axes fraction", "data"), va="center")
                continue
            rows.append({"adapter": cell.adapter, "cell": cell.name, **found})
            for percentile, alpha in (("p99", 0.4), ("p50", 1.0)):
                axes.barh(place, found[percentile], color=_colour(cell.adapter), alpha=alpha, height=0.7)
            axes.plot([found["max"]], [place], "|", color="black", markersize=9)
        axes.set_yticks(range(len(cells)), [f"{cell.adapter}, {cell.name}" for cell in cells])
        axes.set_ylim(len(cells) - 0.5, -0.5)
        axes.set_xscale("log")
        axes.grid(axis="y", visible=False)
        label_time_axis(axes)
        axes.set_xlabel("duration of the publish call: median, p99; tick: maximum")
        return canvas, rows

    return [("blocking", "How long the publish call takes", draw)]


def _sharing(results: ResultSet, experiment: str) -> Drawn:
    found: Drawn = []
    for name in results.names(experiment):
        cells = list(results.measured(experiment, name))
        if cells:

            def draw(cells: list[Cell] = cells) -> tuple[Canvas, Rows]:
                return _draw_sharing(cells)

            found.append((f"sharing-{name}", f"What arrived from each host, {name}", draw))
    return found


def _draw_sharing(cells: list[Cell]) -> tuple[Canvas, Rows]:
    case = cells[0].case
    canvas = Canvas(figsize=(7.5, 0.36 * len(cells) + 1.0))
    axes = canvas.subplots()
    rows: Rows = []
    for place, cell in enumerate(cells):
        left = 0.0
        robots = [(f"robot {index}", share) for index, share in enumerate(cell.shares_mbit)]
        neighbours = [(f"neighbour {index}", share) for index, share in enumerate(cell.neighbours_mbit)]
        for host, share in robots + neighbours:
            is_robot = host.startswith("robot")
            colour = _colour(cell.adapter) if is_robot else "#999999"
            hatch = "" if is_robot else _HATCHES[1]
            axes.barh(place, share, left=left, color=colour, hatch=hatch, edgecolor="white", height=0.7)
            left += share
            rows.append({"adapter": cell.adapter, "host": host, "mbit": share})
        several = case.publishers > 1
        text = f"fairness {fairness(cell.shares_mbit):.2f}" if several else f"robot {robots[0][1]:.1f}"
        axes.annotate(text, (left, place), (6, 0), textcoords="offset points", va="center", fontsize=8)
    axes.axvline(case.payload_mbit, color="black", linestyle=":", linewidth=1)
    axes.set_xlim(0, 1.15 * max(case.rate_mbit, case.payload_mbit))
    axes.set_yticks(range(len(cells)), [cell.adapter for cell in cells])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    grey = "; grey: the neighbour's TCP" if case.neighbours else ""
    axes.set_xlabel(f"payload in time, Mbit/s, a part for each robot{grey}; dotted: sent by the robots")
    return canvas, rows


_DRAWN: dict[str, Callable[[ResultSet, str], Drawn]] = {
    "bars": _bars,
    "end-to-end": _end_to_end,
    "histogram": _histogram,
    "over-time": _over_time,
    "by-size": _by_size,
    "throughput": _throughput,
    "loss-map": _loss_map,
    "rate": _rate,
    "cpu": _cpu,
    "types": _types,
    "blocking": _blocking,
    "sharing": _sharing,
}
