"""The Mininet section: 30 configurations, the published method beside a corrected one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from nervure_lab.tsc.document import DIFFERS, FAILS, HOLDS, Cell, Finding, Section, Table
from nervure_lab.tsc.mininet_figures import figures
from nervure_lab.tsc.mininet_runs import (
    CYCLONE,
    FAST_ASYNC,
    FAST_SYNC,
    MIDDLEWARES,
    NOMINAL_HZ,
    Comparison,
    compare_with_summary,
    read_runs,
    run_table,
)
from nervure_lab.tsc.source import Source

ACCEPTABLE, DEGRADED, CYCLONE_ONLY, ZERO = "acceptable", "degraded", "Cyclone DDS only", "zero"
CLASSES = (ACCEPTABLE, DEGRADED, CYCLONE_ONLY, ZERO)
ACCEPTABLE_LOSS_PERCENT = 2.0
"""The report gives no limit. Any from 1.4 to 14.9 % yields its classes."""
KEYS = ["message", "bandwidth", "loss"]


def section(source: Source) -> Section:
    runs = read_runs(source)
    comparison = compare_with_summary(runs, source)
    table = run_table(runs)
    cells = summarise(table)
    classes = classify(cells)
    return Section(
        "Mininet: 30 configurations of bandwidth, loss and message",
        _METHOD,
        _findings(cells, classes, comparison),
        [_class_table(classes), *_cell_tables(cells)],
        figures(runs, table, cells, classes),
        _THREATS,
        facts=_facts(cells, classes, comparison),
    )


_METHOD = (
    "Two hosts and a switch; the bandwidth and the loss apply to both links, so that a loss of p on each "
    "hop is 1-(1-p)^2 end "
    "to end: 19, 36, 51 and 64 % for 10, 20, 30 and 40 %. One publisher at 30 Hz and one subscriber, "
    "reliable, keep last "
    "10, for 15 s, ten runs of each configuration. Lost is 1 - received / sent of a run; the latency of a "
    "run is the mean of "
    "the means of those seconds that received a sample; both are means over ten runs. Published method: a "
    "run without any "
    "reception has a latency of 0 ms. Corrected method: such a run has no latency, and its number stands "
    "beside. Losses are "
    "split into silent runs, the head until the second of the first reception (discovery, mostly), between "
    "receptions, and "
    "the tail after the last. The delivered rate stands beside the nominal 30 Hz, because a publisher that "
    "blocks sends less "
    "and so loses less."
)

_THREATS = (
    "A corrected latency is that of the samples that arrived, from the runs that received any: read it with "
    "the loss.",
    "The logs have one row a second: head and tail are known to the second, and percentiles of latency are "
    "not known.",
    "Loss also hit ARP and discovery, so that a silent run says little about the transport of data.",
    "In 6 of 900 runs the subscriber counts up to 6 more samples, received or lost, than the publisher "
    "logged as sent.",
    "The program of the experiment deleted runs that hung and repeated them; the data do not show how many.",
    "Each egress limits the rate before it drops, so that dropped packets consumed bandwidth of the hop "
    "before.",
    "The versions are those of October 2020.",
)


def summarise(table: pl.DataFrame) -> pl.DataFrame:
    """One row for each configuration and middleware; means over runs."""
    silent = pl.col("received") == 0
    return (
        table.group_by([*KEYS, "middleware"])
        .agg(
            pl.len().alias("runs"),
            silent.sum().alias("silent_runs"),
            pl.col("received").sum(),
            pl.col("lost").mean(),
            pl.col("lost").min().alias("lost_min"),
            pl.col("lost").max().alias("lost_max"),
            pl.col("latency").fill_null(0).mean().alias("published_latency"),
            pl.col("latency").mean().alias("corrected_latency"),
            pl.col("latency").min().alias("latency_min"),
            pl.col("latency").max().alias("latency_max"),
            pl.col("silent", "head", "between", "tail", "publish_hz", "delivered_hz", "first_s").mean(),
            pl.col("silent_end").sum(),
            pl.col("pub_cpu", "sub_cpu", "pub_mb", "sub_mb").mean(),
        )
        .sort([*KEYS, "middleware"])
    )


def classify(cells: pl.DataFrame) -> pl.DataFrame:
    """The class of each configuration."""
    rows: list[dict[str, Any]] = []
    for key, group in cells.group_by(KEYS, maintain_order=True):
        received = dict(zip(group["middleware"], group["received"], strict=True))
        if not any(received.values()):
            kind = ZERO
        elif not received.get(FAST_SYNC) and not received.get(FAST_ASYNC):
            kind = CYCLONE_ONLY
        elif all(lost < ACCEPTABLE_LOSS_PERCENT for lost in group["lost"]):
            kind = ACCEPTABLE
        else:
            kind = DEGRADED
        rows.append(dict(zip(KEYS, key, strict=True)) | {"class": kind})
    return pl.DataFrame(rows)


def value(
    cells: pl.DataFrame, column: str, message: str, bandwidth: int, loss: int, middleware: str
) -> float:
    key = {"message": message, "bandwidth": bandwidth, "loss": loss, "middleware": middleware}
    found = cells.filter(**key)[column]
    if len(found) != 1:
        raise ValueError(f"expected one configuration {key}, got {len(found)}")
    return float(found[0]) if found[0] is not None else 0.0


def cyclone_lower(cells: pl.DataFrame, classes: pl.DataFrame, column: str) -> tuple[int, int]:
    """Number of degraded configurations with Cyclone's value below both of Fast RTPS, and of all of them."""
    degraded = cells.join(classes.filter(pl.col("class") == DEGRADED), on=KEYS)
    lower = total = 0
    for _, group in degraded.group_by(KEYS):
        values = dict(zip(group["middleware"], group[column], strict=True))
        others = [values[name] for name in (FAST_SYNC, FAST_ASYNC) if values[name] is not None]
        total += 1
        lower += values[CYCLONE] is not None and all(values[CYCLONE] < other for other in others)
    return lower, total


def _facts(cells: pl.DataFrame, classes: pl.DataFrame, comparison: Comparison) -> dict[str, float]:
    counts = {kind: classes.filter(pl.col("class") == kind).height for kind in CLASSES}
    at = ("Array1k", 54, 30, FAST_SYNC)
    return {
        "pairs": comparison.pairs,
        "mismatches": len(comparison.mismatches),
        **{f"class {kind}": count for kind, count in counts.items()},
        "published latency": value(cells, "published_latency", *at),
        "corrected latency": value(cells, "corrected_latency", *at),
        "published lower": cyclone_lower(cells, classes, "published_latency")[0],
        "corrected lower": cyclone_lower(cells, classes, "corrected_latency")[0],
    }


def _class_table(classes: pl.DataFrame) -> Table:
    rows: list[list[Cell]] = []
    for kind in CLASSES:
        found = classes.filter(pl.col("class") == kind)
        names = ", ".join(_name(*row) for row in found.select(KEYS).iter_rows())
        rows.append([kind, found.height, names])
    caption = "Classes of the 30 configurations. L is the loss of each hop, BW the bandwidth in Mbit/s."
    return Table("mininet-classes", caption, ["class", "configurations", "which"], rows)


def _name(message: str, bandwidth: int, loss: int) -> str:
    return f"BW{bandwidth}-L{loss:02}-{message}"


def _cell_tables(cells: pl.DataFrame) -> list[Table]:
    columns = {
        "message": "message",
        "bandwidth": "Mbit/s",
        "loss": "loss a hop, %",
        "middleware": "middleware",
        "lost": "lost, %",
        "silent": "silent runs, %",
        "head": "head, %",
        "between": "between, %",
        "tail": "tail, %",
        "first_s": "first reception, s",
        "publish_hz": "sent, Hz",
        "delivered_hz": "delivered, Hz",
        "published_latency": "latency published, ms",
        "corrected_latency": "latency corrected, ms",
        "silent_runs": "silent runs",
    }
    caption = (
        "All configurations, means of ten runs. The shares of silent runs, head, between and tail add up to "
        "the loss; "
        "a corrected latency is missing where no run received a sample."
    )
    resources = {
        "message": "message",
        "bandwidth": "Mbit/s",
        "loss": "loss a hop, %",
        "middleware": "middleware",
        "pub_cpu": "publisher CPU, %",
        "sub_cpu": "subscriber CPU, %",
        "pub_mb": "publisher memory, MiB",
        "sub_mb": "subscriber memory, MiB",
        "delivered_hz": "delivered, Hz",
    }
    return [
        Table("mininet-cells", caption, list(columns.values()), _rows(cells, list(columns))),
        Table(
            "mininet-resources",
            "CPU and largest resident memory, means of ten runs, with the rate that they paid for.",
            list(resources.values()),
            _rows(cells, list(resources)),
        ),
    ]


def _rows(cells: pl.DataFrame, columns: Sequence[str]) -> list[list[Cell]]:
    return [list(row) for row in cells.select(columns).iter_rows()]


def _findings(cells: pl.DataFrame, classes: pl.DataFrame, comparison: Comparison) -> list[Finding]:
    return [
        _of_summary(comparison),
        _of_classes(classes),
        _of_cyclone_only(cells, classes),
        _of_latency(cells, classes),
        _of_silent_runs(cells),
        _of_loss(cells, classes),
        _of_delivery_at_54(cells),
        _of_latency_at_300(cells),
        _of_head(cells),
        _of_rates(cells),
        _of_blocking(cells),
        _of_memory(cells),
        _of_cpu(cells),
        _of_async_bars(cells),
        _of_hops(),
    ]


def _of_summary(comparison: Comparison) -> Finding:
    differing = len(comparison.mismatches)
    numbers = (
        f"{comparison.pairs} pairs of logs, {comparison.cells} cells compared, {differing} mismatches; "
        f"{comparison.not_comparable} means over a second without a sample cannot be compared."
    )
    if differing:
        numbers += f" First: {comparison.mismatches[0]}."
    return Finding(
        "2.2", "The summary table holds what the runs logged.", FAILS if differing else HOLDS, numbers
    )


def _of_classes(classes: pl.DataFrame) -> Finding:
    counts = [
        classes.filter(pl.col("class") == kind).height for kind in (ACCEPTABLE, ZERO, CYCLONE_ONLY, DEGRADED)
    ]
    claim = "Of 30 configurations 5 are acceptable, 11 zero, 4 served by Cyclone DDS only, 10 degraded."
    numbers = "Recomputed: {} acceptable, {} zero, {} Cyclone DDS only, {} degraded.".format(*counts)
    return Finding("2.3.1", claim, HOLDS if counts == [5, 11, 4, 10] else FAILS, numbers)


def _of_cyclone_only(cells: pl.DataFrame, classes: pl.DataFrame) -> Finding:
    found = cells.join(classes.filter(pl.col("class") == CYCLONE_ONLY), on=KEYS)
    found = found.filter(pl.col("middleware") == CYCLONE).sort("message", "bandwidth")
    delivered = [100 - lost for lost in found["lost"]]
    best = [100 - lost for lost in found["lost_min"]]
    names = [_name(*row) for row in found.select(KEYS).iter_rows()]
    means = ", ".join(f"{name} {share:.2f} %" for name, share in zip(names, delivered, strict=True))
    return Finding(
        "2.3.1",
        "In four configurations Cyclone DDS alone delivered 0.5 to 7 % of the messages.",
        HOLDS if delivered and all(0.5 <= share <= 7 for share in delivered) else DIFFERS,
        f"Delivered in the mean of ten runs: {means}; the best runs delivered up to "
        f"{max(best, default=0):.1f} %.",
    )


def _of_latency(cells: pl.DataFrame, classes: pl.DataFrame) -> Finding:
    published, total = cyclone_lower(cells, classes, "published_latency")
    corrected, _ = cyclone_lower(cells, classes, "corrected_latency")
    return Finding(
        "2.3.1",
        "In 60 % of the degraded configurations Cyclone DDS had the lower latency.",
        HOLDS if published == corrected else DIFFERS,
        f"Published method: {published} of {total}. With silent runs excluded: {corrected} of {total}. "
        "Both are latencies of the samples that arrived.",
    )


def _of_silent_runs(cells: pl.DataFrame) -> Finding:
    at = ("Array1k", 54, 30, FAST_SYNC)
    published, corrected = (value(cells, f"{way}_latency", *at) for way in ("published", "corrected"))
    silent, runs = (value(cells, column, *at) for column in ("silent_runs", "runs"))
    affected = cells.filter((pl.col("silent_runs") > 0) & (pl.col("received") > 0)).height
    return Finding(
        "2.2.1",
        "The mean latency counts only the time in which messages arrived.",
        FAILS if affected else HOLDS,
        f"Silent runs enter the mean as 0 ms in {affected} of {cells.height} means. Fast RTPS sync, 54 "
        "Mbit/s, 30 %, "
        f"Array1k, {silent:.0f} of {runs:.0f} runs silent: {published:.1f} ms published, {corrected:.1f} ms "
        "corrected.",
    )


def _of_loss(cells: pl.DataFrame, classes: pl.DataFrame) -> Finding:
    fewer, total = cyclone_lower(cells, classes, "lost")
    return Finding(
        "2.3.1",
        "Of the degraded configurations, Cyclone DDS lost fewer messages in all.",
        HOLDS if fewer == total else DIFFERS,
        f"It lost the fewest in {fewer} of {total}. In BW1000-L30-Array1k, for example, it lost "
        f"{value(cells, 'lost', 'Array1k', 1000, 30, CYCLONE):.1f} %, Fast RTPS sync "
        f"{value(cells, 'lost', 'Array1k', 1000, 30, FAST_SYNC):.1f} %. At BW54-L00-PointCloud512k, Cyclone "
        "DDS sent "
        f"{value(cells, 'publish_hz', 'PointCloud512k', 54, 0, CYCLONE):.1f} of 30 Hz, and delivered fewer "
        "messages a "
        f"second ({value(cells, 'delivered_hz', 'PointCloud512k', 54, 0, CYCLONE):.1f}) than Fast RTPS async "
        f"({value(cells, 'delivered_hz', 'PointCloud512k', 54, 0, FAST_ASYNC):.1f}).",
    )


def _of_delivery_at_54(cells: pl.DataFrame) -> Finding:
    received = value(cells, "received", "Array1k", 54, 30, FAST_ASYNC)
    return Finding(
        "2.2.1",
        "At 54 Mbit/s there are four poor cases in which all middlewares delivered messages.",
        DIFFERS if received == 0 else HOLDS,
        f"In one of them, L30/Array1k, Fast RTPS async delivered {received:.0f} messages in ten runs.",
    )


def _of_latency_at_300(cells: pl.DataFrame) -> Finding:
    def lowest(column: str) -> list[str]:
        names = []
        for loss in (10, 20, 30):
            values = {name: value(cells, column, "Array1k", 300, loss, name) for name in MIDDLEWARES}
            if min(values, key=lambda name: values[name]) == CYCLONE:
                names.append(f"L{loss}")
        return names

    published, corrected = lowest("published_latency"), lowest("corrected_latency")
    return Finding(
        "2.2.2",
        "At 300 Mbit/s Cyclone DDS had lower latency in only one of three cases (L10/Array1k).",
        HOLDS if corrected == ["L10"] else DIFFERS,
        f"Published method: {', '.join(published)}. With silent runs excluded: {', '.join(corrected)}.",
    )


def _of_head(cells: pl.DataFrame) -> Finding:
    def share(middleware: str) -> str:
        head, between = (value(cells, part, "Array1k", 300, 20, middleware) for part in ("head", "between"))
        silent, lost = (value(cells, part, "Array1k", 300, 20, middleware) for part in ("silent", "lost"))
        parts = f"{silent:.1f} silent runs, {head:.1f} head, {between:.1f} between"
        return f"{middleware} {lost:.1f} % lost, of which {parts}"

    return Finding(
        "2.2",
        "The percentage of lost messages describes the transport of messages.",
        DIFFERS,
        "Most of it precedes the first reception. BW300-L20-Array1k: "
        + "; ".join(map(share, MIDDLEWARES))
        + ". The column `lost` of the logs counts gaps up to the last reception: it misses the tail, and is "
        "0 in a silent run.",
    )


def _of_rates(cells: pl.DataFrame) -> Finding:
    at = ("PointCloud512k", 54, 0)
    figures = ", ".join(
        f"{name} {value(cells, 'lost', *at, name):.1f} % lost but "
        f"{value(cells, 'delivered_hz', *at, name):.1f} of "
        f"{NOMINAL_HZ:.0f} Hz delivered"
        for name in MIDDLEWARES
    )
    return Finding(
        "2.2.1",
        "At 54 Mbit/s without loss, Cyclone DDS delivered more of PointCloud512k than the others.",
        DIFFERS,
        f"The percentage hides back-pressure: {figures}. The link carries 12.9 Hz of 524288 bytes at most.",
    )


def _of_blocking(cells: pl.DataFrame) -> Finding:
    def rates(middleware: str) -> str:
        found = [
            value(cells, "publish_hz", "PointCloud512k", 54, loss, middleware) for loss in (0, 10, 20, 30, 40)
        ]
        return f"{middleware} " + ", ".join(f"{rate:.1f}" for rate in found)

    return Finding(
        "2.1.5.2",
        "A full link blocks synchronous publishers; asynchronous ones almost keep 30 Hz; with more loss the "
        "rate rises.",
        HOLDS,
        "Published messages a second at 54 Mbit/s and 0, 10, 20, 30, 40 % loss: "
        + "; ".join(map(rates, MIDDLEWARES))
        + ". With more loss fewer publishers discover a subscriber whose acknowledgements they would await, "
        "which is the likely cause of the rise. From 0 to 10 % the rate of Cyclone DDS falls.",
    )


def _of_memory(cells: pl.DataFrame) -> Finding:
    def takes(middleware: str) -> float:
        of_it = (pl.col("message") == "Array1k") & (pl.col("middleware") == middleware)
        return float(cells.filter(of_it)["pub_mb"].to_numpy().mean())

    wide = cells.pivot("middleware", index=KEYS, values=["pub_mb", "sub_mb"])
    counts = {}
    for end in ("pub", "sub"):
        others = pl.min_horizontal(f"{end}_mb_{FAST_SYNC}", f"{end}_mb_{FAST_ASYNC}")
        counts[end] = wide.filter(pl.col(f"{end}_mb_{CYCLONE}") < others).height
    return Finding(
        "2.3.1",
        "Cyclone DDS has the smaller memory footprint of publisher and subscriber.",
        HOLDS if set(counts.values()) == {wide.height} else DIFFERS,
        f"Smaller in {counts['pub']} of {wide.height} configurations for the publisher, {counts['sub']} for "
        f"the subscriber; with Array1k publishers take {takes(CYCLONE):.1f} MiB in the mean, and "
        f"{takes(FAST_SYNC):.1f} and {takes(FAST_ASYNC):.1f} MiB those of {FAST_SYNC} and {FAST_ASYNC}.",
    )


def _of_cpu(cells: pl.DataFrame) -> Finding:
    parts = []
    for bandwidth in (300, 1000):
        at = ("PointCloud512k", bandwidth, 0)
        figures = ", ".join(
            f"{name} {value(cells, 'pub_cpu', *at, name):.2f} and {value(cells, 'sub_cpu', *at, name):.2f} %"
            for name in MIDDLEWARES
        )
        parts.append(f"{bandwidth} Mbit/s: {figures}")
    higher = value(cells, "sub_cpu", "PointCloud512k", 1000, 0, CYCLONE) > value(
        cells, "sub_cpu", "PointCloud512k", 1000, 0, FAST_SYNC
    )
    return Finding(
        "2.3.1",
        "Where messages are delivered, Cyclone DDS has lower CPU consumption.",
        FAILS if higher else HOLDS,
        f"False for PointCloud512k without loss, publisher and subscriber at {'; '.join(parts)}. With "
        "Array1k without loss "
        "its publisher takes less, and its subscriber more than Fast RTPS async.",
    )


def _of_async_bars(cells: pl.DataFrame) -> Finding:
    at = ("Array1k", 54, 0)
    right, shown = (value(cells, "pub_cpu", *at, name) for name in (FAST_ASYNC, FAST_SYNC))
    return Finding(
        "2.2.4",
        "The resource plots show Fast RTPS async beside Fast RTPS sync.",
        FAILS,
        "The program of the plots indexes the table of sync for the bars of async. Publisher CPU at "
        "BW54-L00-Array1k: "
        f"drawn {shown:.3f} %, measured {right:.3f} %. The figures below show what was measured.",
    )


def _of_hops() -> Finding:
    ends = ", ".join(f"{100 * (1 - (1 - loss / 100) ** 2):.0f}" for loss in (10, 20, 30, 40))
    return Finding(
        "2.2",
        "The packet loss was 10, 20, 30 and 40 %.",
        DIFFERS,
        f"Of each of two hops in sequence; end to end {ends} % of the packets are lost in either direction, "
        "so that a "
        "round trip fails more often still. A 512 KiB message has 360 packets of 1472 bytes.",
    )
