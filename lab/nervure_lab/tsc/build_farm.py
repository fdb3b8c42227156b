"""The build farm section: an empty node, and one publisher with one subscriber in one and two processes."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt
import polars as pl

from nervure_lab.tsc.document import DIFFERS, FAILS, HOLDS, Cell, Figure, Finding, Section, Table
from nervure_lab.tsc.drawing import BLUE, GREY, ORANGE, PURPLE, figure, grouped_bars
from nervure_lab.tsc.source import Source, numbers

_NODE = "build_farm/node_perf.csv"
_FILES = {
    "one process": "build_farm/perf_network_results.csv",
    "two processes": "build_farm/two_process_perf_network_results.csv",
}
_NODE_COLUMNS = (
    "physical memory (Mb)",
    "virtual memory (Mb)",
    "resident anonymous memory (Mb)",
    "cpu_usage (%)",
)
_COLUMNS = {
    "mean sent": "sent",
    "mean received": "received",
    "sum lost": "lost",
    "mean latency_mean (ms)": "latency",
    "mean cpu_usage (%)": "cpu",
    "max ru_maxrss": "memory",
}
_CYCLONE, _SYNC, _ASYNC = "Cyclone DDS sync", "Fast RTPS sync", "Fast RTPS async"
_SERIES = {
    ("cyclonedds", "cpp_sync"): (_CYCLONE, BLUE),
    ("fastrtps", "cpp_sync"): (_SYNC, ORANGE),
    ("fastrtps", "cpp_async"): (_ASYNC, PURPLE),
}
_MESSAGES = (
    "Array1k",
    "Array4k",
    "Array16k",
    "Array32k",
    "Array60k",
    "Array1m",
    "Array2m",
    "Array4m",
    "Array8m",
)
NOMINAL_HZ = 1000
SECONDS = 27
"""Of 30, less the first three."""


def section(source: Source) -> Section:
    node = _node(source)
    streams = {mode: _streams(source, file) for mode, file in _FILES.items()}
    return Section(
        "Build farm: an empty node, and streams without a network",
        _METHOD,
        _findings(node, streams),
        [_node_table(node), *(_stream_table(mode, table) for mode, table in streams.items())],
        [_node_figure(node), *(_stream_figure(mode, table) for mode, table in streams.items())],
        _THREATS,
        facts=_facts(node, streams),
    )


_METHOD = (
    "From the tables of one night of the build farm (2020-10-14); its logs are not stored. Empty node: CPU "
    "and memory of a "
    "node that spins, mean, median and 95th percentile. Streams: one publisher at nominally 1000 Hz, one "
    "subscriber, best "
    "effort, keep last 10, 30 s of which the first three are ignored; means of 27 seconds. The variants "
    "shown are the ROS "
    "middlewares `rmw_cyclonedds_cpp` and `rmw_fastrtps_cpp`; the tables hold those with dynamic types and "
    "without ROS, too."
)

_THREATS = (
    "One run of each test on a shared build machine: no variation is known, and no interval can be given.",
    "Two processes: the table has the subscriber's log, so that the publishers' rates are unknown.",
    "With best effort, a faster publisher loses more: compare received messages, not lost ones.",
    "Memory in Mb as the tables say; `physical memory` is the resident set.",
)


def _node(source: Source) -> pl.DataFrame:
    names = [f"{kind}{column}" for column in _NODE_COLUMNS for kind in ("", "median ", "mean ")]
    table = source.table([_NODE], ["file_name", *names])
    for name in names:
        table = numbers(table, name, _NODE)
    # The tables' own columns of vendor and configuration are cut in the middle of names.
    labels = [_label(name) for name in table["file_name"]]
    return table.with_columns(pl.Series("middleware", labels)).sort("middleware")


def _label(file: str) -> str:
    found = re.search(r"rmw_(cyclonedds|connext|fastrtps)_(dynamic_)?cpp_(a?sync)", file)
    if found is None:
        raise ValueError(f"{_NODE}: expected a file name with its middleware, got {file!r}")
    vendor = {"cyclonedds": "Cyclone DDS", "connext": "Connext", "fastrtps": "Fast RTPS"}[found[1]]
    return f"{vendor}{' dynamic' if found[2] else ''} {found[3]}"


def _streams(source: Source, file: str) -> pl.DataFrame:
    table = source.table([file], ["data_type", "vendor", "flavor", *_COLUMNS])
    for column in _COLUMNS:
        table = numbers(table, column, file)
    return table.rename(_COLUMNS).select("data_type", "vendor", "flavor", *_COLUMNS.values())


def _cell(table: pl.DataFrame, message: str, series: str, column: str) -> float:
    vendor, flavor = next(key for key, (name, _) in _SERIES.items() if name == series)
    found = table.filter(data_type=message, vendor=vendor, flavor=flavor)[column]
    if len(found) != 1 or found[0] is None:
        raise ValueError(
            f"expected one row of {message} and {series} in a build farm table, got {len(found)}"
        )
    return float(found[0])


def _node_of(node: pl.DataFrame, middleware: str, column: str) -> float:
    found = node.filter(middleware=middleware)[column]
    if len(found) != 1:
        raise ValueError(f"{_NODE}: expected one row of {middleware}, got {len(found)}")
    return float(found[0])


def _facts(node: pl.DataFrame, streams: dict[str, pl.DataFrame]) -> dict[str, float]:
    two = streams["two processes"]
    facts = {
        "node memory Cyclone": _node_of(node, _CYCLONE, "mean physical memory (Mb)"),
        "node cpu Cyclone": _node_of(node, _CYCLONE, "mean cpu_usage (%)"),
    }
    fast = node.filter(pl.col("middleware").str.starts_with("Fast"))["mean physical memory (Mb)"].to_list()
    facts |= {"node memory Fast least": min(fast), "node memory Fast most": max(fast)}
    for message in ("Array4m", "Array8m"):
        facts |= {f"{message} {name}": _cell(two, message, name, "received") for name, _ in _SERIES.values()}
    return facts


def _findings(node: pl.DataFrame, streams: dict[str, pl.DataFrame]) -> list[Finding]:
    one, two = streams["one process"], streams["two processes"]
    facts = _facts(node, streams)
    cpu = {name: _node_of(node, name, "mean cpu_usage (%)") for name in node["middleware"]}
    cyclone_least = all(
        facts["node memory Cyclone"] < memory for memory in (facts["node memory Fast least"],)
    ) and cpu[_CYCLONE] == min(cpu.values())

    def received(table: pl.DataFrame, message: str) -> str:
        values = [f"{name} {_cell(table, message, name, 'received'):.0f}" for name, _ in _SERIES.values()]
        return f"{message} " + ", ".join(values)

    def best(table: pl.DataFrame, message: str) -> str:
        return max(
            (name for name, _ in _SERIES.values()), key=lambda name: _cell(table, message, name, "received")
        )

    leaders = {
        mode: [best(table, message) for message in ("Array4m", "Array8m")] for mode, table in streams.items()
    }
    return [
        Finding(
            "1.3",
            "An empty node takes less CPU and memory with Cyclone DDS.",
            HOLDS if cyclone_least else FAILS,
            f"Cyclone DDS {facts['node memory Cyclone']:.1f} Mb and {facts['node cpu Cyclone']:.2f} % CPU; "
            "Fast RTPS "
            f"{facts['node memory Fast least']:.1f} to {facts['node memory Fast most']:.1f} Mb and "
            f"{min(cpu[name] for name in cpu if 'Fast' in name):.2f} to "
            f"{max(cpu[name] for name in cpu if 'Fast' in name):.2f} %. "
            f"Its virtual memory is the greater: {_node_of(node, _CYCLONE, 'mean virtual memory (Mb)'):.0f} "
            "Mb against "
            f"{_node_of(node, _SYNC, 'mean virtual memory (Mb)'):.0f}.",
        ),
        Finding(
            "1.2.3",
            "The plots show the messages received out of 1000 sent.",
            DIFFERS,
            "They show messages a second of nominally 1000 Hz over 27 s. With Array8m in one process the "
            "publishers reached "
            + ", ".join(f"{name} {_cell(one, 'Array8m', name, 'sent'):.0f}" for name, _ in _SERIES.values())
            + " Hz.",
        ),
        Finding(
            "Summary",
            "Fast RTPS sync is the best implementation for every message size.",
            DIFFERS if leaders["one process"] != leaders["two processes"] else HOLDS,
            f"Received a second in two processes: {received(two, 'Array4m')}; {received(two, 'Array8m')}. "
            "In one process: "
            f"{received(one, 'Array4m')}; {received(one, 'Array8m')}.",
        ),
        Finding(
            "1.3",
            "Above 1 MB Cyclone DDS has better results, with lower latency and more messages.",
            DIFFERS if leaders["one process"] != leaders["two processes"] else HOLDS,
            "True in one process, false in two, and so in contradiction to the summary, which reads the "
            "other case: latency "
            "of Array4m in one process "
            + ", ".join(
                f"{name} {_cell(one, 'Array4m', name, 'latency'):.2f} ms" for name, _ in _SERIES.values()
            )
            + "; in two "
            + ", ".join(
                f"{name} {_cell(two, 'Array4m', name, 'latency'):.2f} ms" for name, _ in _SERIES.values()
            )
            + ".",
        ),
        Finding(
            "1.3",
            "Up to about 1 MB both perform well.",
            HOLDS,
            f"Received a second with Array1m in two processes: {received(two, 'Array1m')}; with Array2m: "
            f"{received(two, 'Array2m')}.",
        ),
        Finding(
            "2.1.5.1",
            "CPU utilization of asynchronous publishing falls for very large messages.",
            DIFFERS,
            "It falls with the messages received: Array8m in two processes "
            + ", ".join(
                f"{name} {_cell(two, 'Array8m', name, 'cpu'):.1f} % for "
                f"{_cell(two, 'Array8m', name, 'received'):.0f} messages"
                for name, _ in _SERIES.values()
            )
            + ".",
        ),
    ]


def _node_table(node: pl.DataFrame) -> Table:
    columns = ["mean cpu_usage (%)", "cpu_usage (%)", "mean physical memory (Mb)", "physical memory (Mb)"]
    columns += ["mean resident anonymous memory (Mb)", "mean virtual memory (Mb)"]
    titles = [
        "CPU, mean %",
        "CPU, p95 %",
        "physical, mean",
        "physical, p95",
        "anonymous, mean",
        "virtual, mean",
    ]
    rows: list[list[Cell]] = [list(row) for row in node.select("middleware", *columns).iter_rows()]
    return Table("build-farm-node", "An empty node; memory in Mb.", ["middleware", *titles], rows)


def _stream_table(mode: str, table: pl.DataFrame) -> Table:
    rows: list[list[Cell]] = []
    for message in (*_MESSAGES, "PointCloud512k", "PointCloud8m"):
        for (vendor, flavor), (name, _) in _SERIES.items():
            for row in table.filter(data_type=message, vendor=vendor, flavor=flavor).iter_rows(named=True):
                sent = row["sent"] if mode == "one process" else None
                rows.append(
                    [message, name, sent, *(row[key] for key in ("received", "lost", "latency", "cpu"))]
                )
                rows[-1].append(row["memory"] / 1024)
    titles = ["message", "middleware", "sent/s", "received/s", "lost", "latency, ms", "CPU, %", "memory, MiB"]
    return Table(
        f"build-farm-{mode.replace(' ', '-')}", f"One publisher, one subscriber, {mode}.", titles, rows
    )


def _node_figure(node: pl.DataFrame) -> Figure:
    names = node["middleware"].to_list()
    drawing, (cpu, memory) = plt.subplots(1, 2, figsize=(8, 3.4))
    labels = [name.replace(" ", "\n") for name in names]
    kinds = (("mean", "mean ", BLUE), ("median", "median ", ORANGE), ("95th percentile", "", PURPLE))
    grouped_bars(cpu, labels, [(kind, c, node[f"{head}cpu_usage (%)"].to_list()) for kind, head, c in kinds])
    cpu.set_title("CPU, %", fontsize=9)
    cpu.legend(fontsize=8)
    of_memory = (("virtual", GREY), ("physical", BLUE), ("resident anonymous", ORANGE))
    columns = {"resident anonymous": "resident anonymous memory (Mb)"}
    series = [
        (kind, c, node[f"mean {columns.get(kind, kind + ' memory (Mb)')}"].to_list()) for kind, c in of_memory
    ]
    grouped_bars(memory, labels, series)
    memory.set_title("mean memory, Mb", fontsize=9)
    memory.set_yscale("log")
    memory.set_yticks([2, 5, 10, 20, 50, 100, 200], ["2", "5", "10", "20", "50", "100", "200"])
    memory.legend(fontsize=8)
    for axes in (cpu, memory):
        axes.tick_params(axis="x", labelsize=7)
    return figure("build-farm-node-bars", "CPU and memory of an empty node.", drawing, _node_table(node))


def _stream_figure(mode: str, table: pl.DataFrame) -> Figure:
    drawing, line = plt.subplots(1, 3, figsize=(8, 3))
    for axes, (column, title) in zip(
        line,
        (("received", "received a second"), ("latency", "mean latency, ms"), ("cpu", "CPU, %")),
        strict=True,
    ):
        for (name, colour), marker in zip(_SERIES.values(), "os^", strict=True):
            values = [_cell(table, message, name, column) for message in _MESSAGES]
            axes.plot(range(len(values)), values, f"{marker}-", color=colour, ms=4, label=name)
        axes.set_title(title, fontsize=9)
        labels = [message.removeprefix("Array") for message in _MESSAGES]
        axes.set_xticks(range(len(_MESSAGES)), labels, rotation=60, fontsize=8)
    line[1].set_yscale("log")
    drawing.legend(*line[0].get_legend_handles_labels(), ncols=3, loc="outside upper center", fontsize=8)
    caption = f"Messages received, latency and CPU by size of the message (Array), {mode}."
    return figure(f"build-farm-{mode.replace(' ', '-')}-sizes", caption, drawing, _stream_table(mode, table))
