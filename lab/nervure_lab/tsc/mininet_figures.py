"""The figures of the Mininet section."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import polars as pl
from matplotlib.patches import Rectangle

from nervure_lab.tsc.document import Cell, Figure, Table
from nervure_lab.tsc.drawing import BLUE, ORANGE, PURPLE, figure, grouped_bars, heat_map
from nervure_lab.tsc.mininet_runs import CYCLONE, FAST_ASYNC, FAST_SYNC, MIDDLEWARES, NOMINAL_HZ, Run

COLOURS = {CYCLONE: BLUE, FAST_SYNC: ORANGE, FAST_ASYNC: PURPLE}
LOSSES = (0, 10, 20, 30, 40)
BANDWIDTHS = (54, 300, 1000)
MESSAGES = ("Array1k", "PointCloud512k")


def figures(
    runs: Sequence[Run], table: pl.DataFrame, cells: pl.DataFrame, classes: pl.DataFrame
) -> list[Figure]:
    return [
        *(_poor_performers(cells, classes, bandwidth) for bandwidth in BANDWIDTHS),
        _map(cells, "lost", "Messages lost, %, by the loss of each hop and the bandwidth.", 100.0),
        _map(
            cells,
            "delivered_hz",
            "Messages delivered a second, of nominally 30, by the loss of each hop and the bandwidth.",
            NOMINAL_HZ,
        ),
        _loss_parts(cells),
        _latency_boxes(table, classes),
        _rates_over_time(runs),
        *(_resources(cells, bandwidth) for bandwidth in (54, 300)),
    ]


def _poor_performers(cells: pl.DataFrame, classes: pl.DataFrame, bandwidth: int) -> Figure:
    found = cells.join(classes, on=["message", "bandwidth", "loss"])
    found = found.filter((pl.col("bandwidth") == bandwidth) & (pl.col("class") != "acceptable"))
    found = found.sort("message", "loss")
    groups = found.filter(pl.col("middleware") == CYCLONE).select("message", "loss").rows()
    drawing, (latency, lost) = plt.subplots(2, 1, figsize=(8, 5.6), sharex=True)
    names = [f"L{loss}\n{message.replace('PointCloud', 'Cloud')}" for message, loss in groups]
    by_name = {name: found.filter(pl.col("middleware") == name) for name in MIDDLEWARES}

    def bars(column: str) -> list[tuple[str, str, Sequence[float | None]]]:
        return [(name, COLOURS[name], by_name[name][column].to_list()) for name in MIDDLEWARES]

    def spread(low: str, high: str) -> list[list[tuple[float, float]]]:
        return [
            [(a or 0.0, b or 0.0) for a, b in by_name[name].select(low, high).iter_rows()]
            for name in MIDDLEWARES
        ]

    grouped_bars(latency, names, bars("corrected_latency"), errors=spread("latency_min", "latency_max"))
    for at, name in enumerate(MIDDLEWARES):
        positions = [group + (at - 1) * 0.8 / 3 for group in range(len(groups))]
        published = [late or None for late in by_name[name]["published_latency"]]
        label = "published" if at == 0 else None
        latency.plot(positions, published, "D", ms=4, mfc="white", mec="black", ls="none", label=label)
    for group, (message, loss) in enumerate(groups):
        cell = found.filter(message=message, loss=loss)
        if not cell["received"].sum():
            latency.text(group, 0, "nothing\nreceived", ha="center", va="bottom", fontsize=7, color="#666666")
    latency.set_ylabel("mean latency, ms")
    latency.legend(ncols=4, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    grouped_bars(lost, names, bars("lost"), errors=spread("lost_min", "lost_max"))
    lost.set_ylabel("lost, %")
    lost.set_ylim(0, 105)
    data = Table(
        f"mininet-poor-{bandwidth}",
        "",
        ["message", "loss", "middleware", "published ms", "corrected ms", "silent runs", "lost %"],
        _rows(
            found,
            [
                "message",
                "loss",
                "middleware",
                "published_latency",
                "corrected_latency",
                "silent_runs",
                "lost",
            ],
        ),
    )
    caption = (
        f"Poor performers at {bandwidth} Mbit/s: bars are the corrected mean latency (above) and the loss "
        "(below), lines "
        "the least and the greatest run, diamonds the published latency, with silent runs as 0 ms."
    )
    return figure(data.name, caption, drawing, data)


def _rows(table: pl.DataFrame, columns: Sequence[str]) -> list[list[Cell]]:
    return [list(row) for row in table.select(columns).iter_rows()]


def _map(cells: pl.DataFrame, column: str, caption: str, most: float) -> Figure:
    drawing, grid = plt.subplots(2, 3, figsize=(8, 4.6), sharex=True, sharey=True)
    for line, message in zip(grid, MESSAGES, strict=True):
        for axes, name in zip(line, MIDDLEWARES, strict=True):
            found = cells.filter(message=message, middleware=name)
            by_link = {(row["bandwidth"], row["loss"]): row[column] for row in found.iter_rows(named=True)}
            values = [[by_link.get((width, loss), float("nan")) for loss in LOSSES] for width in BANDWIDTHS]
            heat_map(
                axes,
                [f"{width}" for width in BANDWIDTHS],
                [f"{loss} %" for loss in LOSSES],
                values,
                most=most,
            )
            axes.set_title(f"{name}, {message}", fontsize=8)
    drawing.supxlabel("loss of each hop", fontsize=9)
    drawing.supylabel("Mbit/s", fontsize=9)
    columns = ["message", "bandwidth", "loss", "middleware", column]
    return figure(f"mininet-map-{column}", caption, drawing, Table("", "", columns, _rows(cells, columns)))


def _loss_parts(cells: pl.DataFrame) -> Figure:
    """The parts of the loss of Array1k at 300 Mbit/s."""
    found = cells.filter(message="Array1k", bandwidth=300)
    parts = {"silent": "#666666", "head": BLUE, "between": ORANGE, "tail": PURPLE}
    titles = {
        "silent": "runs without any reception",
        "head": "before the first",
        "between": "between",
        "tail": "after the last",
    }
    drawing, line = plt.subplots(1, 3, figsize=(8, 3), sharey=True)
    for axes, name in zip(line, MIDDLEWARES, strict=True):
        one = found.filter(middleware=name).sort("loss")
        below = [0.0] * one.height
        for part, colour in parts.items():
            values = one[part].to_list()
            hatch = {"silent": "", "head": "", "between": "///", "tail": "..."}[part]
            axes.bar(
                range(one.height),
                values,
                bottom=below,
                color=colour,
                hatch=hatch,
                ec="white",
                lw=0,
                label=titles[part],
            )
            below = [a + b for a, b in zip(below, values, strict=True)]
        axes.set_xticks(range(one.height), [f"{loss} %" for loss in one["loss"]])
        axes.set_title(name, fontsize=9)
    line[0].set_ylabel("messages lost, %")
    drawing.supxlabel("loss of each hop", fontsize=9)
    drawing.legend(*line[0].get_legend_handles_labels(), ncols=4, loc="outside upper center", fontsize=8)
    columns = ["loss", "middleware", *parts]
    data = Table("", "", columns, _rows(found, columns))
    caption = "Lost messages of Array1k at 300 Mbit/s: most were sent before the subscriber received any."
    return figure("mininet-loss-parts", caption, drawing, data)


def _latency_boxes(table: pl.DataFrame, classes: pl.DataFrame) -> Figure:
    degraded = table.join(classes.filter(pl.col("class") == "degraded"), on=["message", "bandwidth", "loss"])
    keys = (
        degraded.select("message", "bandwidth", "loss").unique().sort("message", "bandwidth", "loss").rows()
    )
    drawing, axes = plt.subplots(figsize=(8, 3.6))
    rows: list[list[Cell]] = []
    for group, (message, bandwidth, loss) in enumerate(keys):
        for at, name in enumerate(MIDDLEWARES):
            one = degraded.filter(message=message, bandwidth=bandwidth, loss=loss, middleware=name)
            values = one["latency"].drop_nulls().to_list()
            rows += [
                [message, bandwidth, loss, name, run, late]
                for run, late in one.select("run", "latency").iter_rows()
            ]
            if values:
                box = axes.boxplot(
                    [values],
                    positions=[group + (at - 1) * 0.27],
                    widths=0.22,
                    patch_artist=True,
                    flierprops={"ms": 3},
                )
                box["boxes"][0].set(facecolor=COLOURS[name], alpha=0.75)
                box["medians"][0].set(color="black")
                axes.text(
                    group + (at - 1) * 0.27, max(values) * 1.15, str(len(values)), ha="center", fontsize=7
                )
    axes.set_yscale("log")
    axes.set_ylabel("latency of a run, ms")
    axes.set_yticks([20, 50, 100, 200, 500], ["20", "50", "100", "200", "500"])
    axes.minorticks_off()
    names = [
        f"BW{bandwidth}\nL{loss}\n{message.replace('PointCloud', 'Cloud')}"
        for message, bandwidth, loss in keys
    ]
    axes.set_xticks(range(len(keys)), names, fontsize=7)
    handles = [Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in MIDDLEWARES]
    axes.legend(handles, MIDDLEWARES, ncols=3, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    data = Table("", "", ["message", "bandwidth", "loss", "middleware", "run", "latency ms"], rows)
    caption = (
        "Latency of each run in the ten degraded configurations, silent runs excluded; the number above a "
        "box is "
        "that of its runs, of ten."
    )
    return figure("mininet-latency-runs", caption, drawing, data)


def _rates_over_time(runs: Sequence[Run]) -> Figure:
    drawing, grid = plt.subplots(3, 5, figsize=(8, 4.8), sharex=True, sharey=True)
    rows: list[list[Cell]] = []
    for line, name in zip(grid, MIDDLEWARES, strict=True):
        for axes, loss in zip(line, LOSSES, strict=True):
            found = [
                run
                for run in runs
                if (run.middleware, run.loss_percent, run.bandwidth_mbit, run.message)
                == (name, loss, 54, "PointCloud512k")
            ]
            for end, column, colour in (("publisher", "sent", ORANGE), ("subscriber", "received", BLUE)):
                series = [getattr(run, end).column(column) for run in found]
                for run, values in zip(found, series, strict=True):
                    axes.plot(range(1, len(values) + 1), values, color=colour, alpha=0.2, lw=0.7)
                    rows += [[name, loss, run.name, column, at, count] for at, count in enumerate(values, 1)]
                shortest = min(map(len, series))
                mean = [sum(values[at] for values in series) / len(series) for at in range(shortest)]
                style = "-" if end == "subscriber" else "--"
                axes.plot(range(1, shortest + 1), mean, color=colour, lw=1.6, ls=style, label=column)
            if loss == 0:
                axes.set_ylabel(name.replace(" ", "\n", 1), fontsize=8)
            if name == CYCLONE:
                axes.set_title(f"loss {loss} %", fontsize=8)
    grid[0][0].set_ylim(0, 65)
    drawing.supxlabel("seconds", fontsize=9)
    drawing.supylabel("messages a second", fontsize=9)
    drawing.legend(*grid[0][0].get_legend_handles_labels(), ncols=2, loc="outside upper center", fontsize=8)
    data = Table("", "", ["middleware", "loss", "run", "what", "second", "messages"], rows)
    caption = (
        "PointCloud512k at 54 Mbit/s: messages sent and received in each second; thin lines are runs, thick "
        "ones means. One second of a blocked publisher has 175 messages, above the scale."
    )
    return figure("mininet-rates", caption, drawing, data)


def _resources(cells: pl.DataFrame, bandwidth: int) -> Figure:
    found = cells.filter(message="Array1k", bandwidth=bandwidth).sort("loss")
    drawing, grid = plt.subplots(2, 2, figsize=(8, 4.6), sharex=True)
    titles = {"pub_cpu": "publisher CPU, %", "sub_cpu": "subscriber CPU, %"}
    titles |= {"pub_mb": "publisher memory, MiB", "sub_mb": "subscriber memory, MiB"}
    for axes, (column, title) in zip(grid.flat, titles.items(), strict=True):
        series = [
            (name, COLOURS[name], found.filter(middleware=name)[column].to_list()) for name in MIDDLEWARES
        ]
        grouped_bars(axes, [f"{loss} %" for loss in LOSSES], series)
        drawn = found.filter(middleware=FAST_SYNC)[column].to_list()
        positions = [group + 0.8 / 3 for group in range(len(drawn))]
        axes.plot(
            positions, drawn, "D", ms=4, mfc="white", mec="black", ls="none", label="async as published"
        )
        axes.set_title(title, fontsize=9)
    drawing.supxlabel("loss of each hop", fontsize=9)
    drawing.legend(*grid[0][0].get_legend_handles_labels(), ncols=4, loc="outside upper center", fontsize=8)
    columns = ["loss", "middleware", *titles]
    data = Table("", "", columns, _rows(found, columns))
    caption = (
        f"CPU and memory at {bandwidth} Mbit/s with Array1k. Diamonds show the published bars of Fast RTPS "
        "async, which are "
        "those of Fast RTPS sync."
    )
    return figure(f"mininet-resources-{bandwidth}", caption, drawing, data)
