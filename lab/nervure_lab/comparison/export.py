"""Writes stored runs as logs of performance_test, so that its users can plot and compare them as their own.

Latency is from the time of the stamp, as the tool measures it. Columns that the lab does not measure in each
second, such as the resource usage, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nervure_lab.comparison.case import Case
from nervure_lab.comparison.results import Cell, ResultSet
from nervure_lab.comparison.samples import read_table
from nervure_lab.performance_test import Log, write_log
from nervure_lab.quantities import format_size

Integers = NDArray[np.int64]
COLUMNS = (
    *("T_experiment", "T_loop", "received", "sent", "lost", "relative_loss", "data_received"),
    *(f"latency_{statistic} (ms)" for statistic in ("min", "max", "mean", "variance")),
)


def export(results: ResultSet, target: Path) -> int:
    """Writes two logs or more for each measured run, in `target/EXPERIMENT/CELL/ADAPTER/runNN`; returns the
    number of files.
    """
    written = 0
    for cell in results.cells:
        for run in cell.measured:
            table = read_table(results.directory / "samples" / run["samples"])
            folder = target / cell.experiment / cell.name / cell.adapter / f"run{run['repeat'] + 1:02}"
            folder.mkdir(parents=True, exist_ok=True)
            for name, log in logs_of(cell, table):
                write_log(log, folder / name)
                written += 1
    return written


def logs_of(cell: Cell, table: pl.DataFrame) -> Iterator[tuple[str, Log]]:
    """Returns the name and the log of each end."""
    case = cell.case
    last = max(_nanos(table, "before_nanos").max(initial=0), _nanos(table, "received_nanos").max(initial=0))
    seconds = max(math.ceil(last / 1e9), 1)
    for index in sorted(set(table["publisher"])):
        sent = table.filter((pl.col("publisher") == index) & (pl.col("subscriber") == 0))
        name = f"pub_log_{index}"
        yield name, Log(_preamble(cell, name, 1, 0), COLUMNS, tuple(_sent_rows(sent, seconds)))
    for index in sorted(set(table["subscriber"])):
        received = table.filter(pl.col("subscriber") == index)
        name = f"sub_log_{index}"
        rows = tuple(_received_rows(received, seconds, case))
        yield name, Log(_preamble(cell, name, 0, 1), COLUMNS, rows)


def _preamble(cell: Cell, name: str, publishers: int, subscribers: int) -> dict[str, str]:
    case = cell.case
    reliability = "RELIABLE" if case.reliable else "BEST_EFFORT"
    history = "KEEP_ALL" if case.keep_all else "KEEP_LAST"
    return {
        "Logfile name": name,
        "Communication mean": cell.adapter,
        "QOS": f"Reliability: {reliability} Durability: VOLATILE History kind: {history} "
        f"History depth: {case.depth}",
        "Publishing rate": f"{case.rate_hz:g}",
        "Topic name": format_size(case.payload_bytes).replace(" ", ""),
        "Maximum runtime (sec)": f"{math.ceil(case.sending_seconds)}",
        "Number of publishers": str(publishers),
        "Number of subscribers": str(subscribers),
        "Roundtrip Mode": "MAIN" if case.pattern == "echo" else "NONE",
    }


def _sent_rows(table: pl.DataFrame, seconds: int) -> Iterator[tuple[float, ...]]:
    counts, _ = np.histogram(_nanos(table, "before_nanos"), bins=_edges(seconds))
    for second, count in enumerate(counts, start=1):
        loss = 0.0 if count else math.nan
        yield (second, 1.0, 0, int(count), 0, loss, 0, math.inf, -math.inf, 0, 0)


def _received_rows(table: pl.DataFrame, seconds: int, case: Case) -> Iterator[tuple[float, ...]]:
    arrived = table.filter(pl.col("received_nanos").is_not_null()).sort("arrival")
    times = _nanos(arrived, "received_nanos")
    latencies_ms = (times - _nanos(arrived, "stamped_nanos")) / 1e6
    gaps = _gaps(arrived)
    places = np.clip(np.digitize(times, _edges(seconds)[1:-1]), 0, seconds - 1)
    for second in range(seconds):
        mine = latencies_ms[places == second]
        lost = int(gaps[places == second].sum())
        common = (second + 1, 1.0, len(mine), 0, lost, math.nan, len(mine) * case.payload_bytes)
        if not len(mine):
            yield (*common, math.inf, -math.inf, 0, math.nan)
            continue
        variance = float(np.var(mine, ddof=1)) * 1e-3 if len(mine) > 1 else 0.0  # s^2 x 1000
        yield (*common, float(mine.min()), float(mine.max()), float(mine.mean()), variance)


def _gaps(arrived: pl.DataFrame) -> Integers:
    """Messages that each reception skips, of its publisher: the loss that a receiver can see."""
    found = np.zeros(len(arrived), dtype=np.int64)
    publishers, sequences = arrived["publisher"].to_numpy(), arrived["sequence"].to_numpy()
    for publisher in set(publishers):
        places = np.flatnonzero(publishers == publisher)
        highest = np.maximum.accumulate(sequences[places])
        found[places[1:]] = np.maximum(np.diff(highest) - 1, 0)
    return found


def _nanos(table: pl.DataFrame, column: str) -> Integers:
    return np.asarray(table[column].drop_nulls().to_numpy(), dtype=np.int64)


def _edges(seconds: int) -> Integers:
    return np.arange(seconds + 1, dtype=np.int64) * 1_000_000_000
