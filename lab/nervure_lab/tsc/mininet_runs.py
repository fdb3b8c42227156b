"""The 900 runs of the Mininet experiment, from the raw logs, and their comparison with the summary table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from nervure_lab.performance_test import parse_log
from nervure_lab.tsc.ends import Ends
from nervure_lab.tsc.source import Source

LOGS = ("mininet_raw.tar.xz", "mininet_experiments")
SUMMARY = ("MininetResults.csv.xz", "MininetResults.csv", "mininet_experiments/MininetResults.csv")
CYCLONE, FAST_SYNC, FAST_ASYNC = "Cyclone DDS sync", "Fast RTPS sync", "Fast RTPS async"
MIDDLEWARES = (CYCLONE, FAST_SYNC, FAST_ASYNC)
_NAMES = {
    ("rmw_cyclonedds_cpp", "sync"): CYCLONE,
    ("rmw_fastrtps_cpp", "sync"): FAST_SYNC,
    ("rmw_fastrtps_cpp", "async"): FAST_ASYNC,
}
NOMINAL_HZ = 30.0
_FIELDS = {"rmw_implementation": str, "async_pub": str, "bandwidth": int, "loss": int, "message_type": str}


@dataclass(frozen=True)
class Run(Ends):
    experiment: str
    name: str
    middleware: str
    message: str
    bandwidth_mbit: int
    loss_percent: int
    """Of each of the two hops."""

    @property
    def lost_percent(self) -> float:
        return 100 * (1 - self.received / self.sent)

    @property
    def latency_ms(self) -> float | None:
        """The mean of the means of each second with a reception; None for a run without one."""
        latencies = self.subscriber.latencies()
        return sum(latencies) / len(latencies) if latencies else None

    @property
    def first_reception(self) -> int | None:
        """The index of the first second with a reception."""
        received = self.subscriber.column("received")
        return next((second for second, count in enumerate(received) if count > 0), None)

    def losses(self) -> dict[str, float]:
        """Samples lost before the first reception, between receptions, and after the last, in percent of the
        samples sent.

        The subscriber counts the gap before its first sample in the second of that sample, so that the whole
        second counts as the head. Samples that no gap accounts for came after the last reception.
        """
        first = self.first_reception
        if first is None:
            return {"silent": 100.0, "head": 0.0, "between": 0.0, "tail": 0.0}
        gaps = self.subscriber.column("lost")
        head, between = gaps[first], sum(gaps[first + 1 :])
        tail = max(self.sent - self.received - head - between, 0.0)
        share = 100 / self.sent
        return {"silent": 0.0, "head": head * share, "between": between * share, "tail": tail * share}

    def row(self) -> dict[str, Any]:
        seconds = self.publisher.total("T_loop")
        first = self.first_reception
        return {
            "message": self.message,
            "bandwidth": self.bandwidth_mbit,
            "loss": self.loss_percent,
            "middleware": self.middleware,
            "run": self.name,
            "sent": self.sent,
            "received": self.received,
            "lost": self.lost_percent,
            "latency": self.latency_ms,
            "publish_hz": self.sent / seconds,
            "delivered_hz": self.received / self.subscriber.total("T_loop"),
            "first_s": None if first is None else self.subscriber.column("T_experiment")[first],
            "silent_end": self.received > 0 and self.ended_silent,
            "pub_cpu": self.publisher.mean("cpu_usage (%)"),
            "sub_cpu": self.subscriber.mean("cpu_usage (%)"),
            "pub_mb": self.publisher.mean("ru_maxrss") / 1024,
            "sub_mb": self.subscriber.mean("ru_maxrss") / 1024,
        } | self.losses()


def read_runs(source: Source) -> list[Run]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name, text in source.logs(LOGS):
        experiment, run, file = ("", *name.split("/"))[-3:] if name.count("/") >= 2 else ("", "", name)
        parts = found.setdefault((experiment, run), {})
        if file == "experiment_config.json":
            parts["configuration"] = _configuration(text, name)
        elif file.startswith("pub_log"):
            parts["publisher"] = parse_log(text, name)
        elif file.startswith("sub_log"):
            parts["subscriber"] = parse_log(text, name)
        elif not parts:
            del found[experiment, run]
    return [_run(experiment, run, parts) for (experiment, run), parts in sorted(found.items())]


def _run(experiment: str, name: str, parts: dict[str, Any]) -> Run:
    if missing := [part for part in ("configuration", "publisher", "subscriber") if part not in parts]:
        raise ValueError(f"{experiment}/{name}: expected a run with its {', '.join(missing)}, got none")
    found = parts["configuration"]
    where = f"{experiment}/{name}/experiment_config.json"
    middleware = _NAMES.get((found["rmw_implementation"], found["async_pub"]))
    if middleware is None:
        raise ValueError(
            f"{where}: unknown middleware {found['rmw_implementation']!r}, {found['async_pub']!r}"
        )
    publisher, subscriber = parts["publisher"], parts["subscriber"]
    if not publisher.total("sent") > 0 or not subscriber.rows:
        raise ValueError(f"{experiment}/{name}: expected a publisher that sent and a subscriber with rows")
    link = found["bandwidth"], found["loss"]
    return Run(publisher, subscriber, experiment, name, middleware, found["message_type"], *link)


def _configuration(text: str, source: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{source}: expected JSON, {error}") from error
    for name, kind in _FIELDS.items():
        if not isinstance(found, dict) or not isinstance(found.get(name), kind):
            raise ValueError(f"{source}: expected {name} as {kind.__name__}, got {text[:60]!r}")
    return found  # type: ignore[no-any-return]


def run_table(runs: Sequence[Run]) -> pl.DataFrame:
    return pl.DataFrame([run.row() for run in runs], infer_schema_length=None)


@dataclass(frozen=True)
class Comparison:
    pairs: int
    mismatches: tuple[str, ...]
    """One line for each cell that differs."""
    cells: int
    not_comparable: int
    """Means over a second without a sample, which the summary table holds as 0 or infinite."""


def compare_with_summary(runs: Sequence[Run], source: Source) -> Comparison:
    table = source.table(SUMMARY, ["experiment", "run", "pub_sum_sent", "sub_sum_recv", "lost_prct"])
    by_name = {(run.experiment, run.name): run for run in runs}
    mismatches: list[str] = []
    cells = skipped = pairs = 0
    for row in table.iter_rows(named=True):
        where = f"{row['experiment']}/{row['run']}"
        run = by_name.pop((row["experiment"], row["run"]), None)
        if run is None:
            mismatches.append(f"{where}: no logs")
            continue
        pairs += 1
        for column, expected in _expected(run).items():
            if column not in row:
                continue
            if expected is None:
                skipped += 1
                continue
            cells += 1
            found = row[column]
            if found is None or not math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9):
                mismatches.append(f"{where}, {column}: the table has {found}, the logs {expected}")
    mismatches += [f"{experiment}/{run}: not in the table" for experiment, run in by_name]
    return Comparison(pairs, tuple(mismatches), cells, skipped)


def _expected(run: Run) -> dict[str, float | None]:
    """The expected row of the summary table for a run; None for a mean over a second without samples."""
    expected: dict[str, float | None] = {
        "bandwidth": run.bandwidth_mbit,
        "loss": run.loss_percent,
        "lost_prct": run.lost_percent,
        "sub_effective_latency": run.latency_ms or 0.0,
    }
    for end, log in (("pub", run.publisher), ("sub", run.subscriber)):
        for suffix, column in (("sent", "sent"), ("recv", "received"), ("lost", "lost")):
            expected[f"{end}_sum_{suffix}"] = log.total(column)
        for column in log.columns:
            mean = log.mean(column)
            # The table's latencies are not means of the column: an infinite minimum made them infinite.
            known = math.isfinite(mean) and not column.startswith("latency")
            expected[f"{end}_mean_{column}"] = mean if known else None
    return expected
