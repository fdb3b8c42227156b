"""The figures of a result as tables, for the page and the files beside it."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nervure_lab.experiments.link.figures import CellFigures, RunFigures, cell_key, cells, counting, missing
from nervure_lab.experiments.link.measures import disturbance
from nervure_lab.experiments.link.targets import ADAPTER, Verdict, verdicts
from nervure_lab.quantities import format_size

STREAM_COLUMNS = (
    "delivered_percent",
    "mean_ms",
    "p99_ms",
    "p99_outside_stops_ms",
    "samples_outside_stops",
    "machine_late_ms",
    "goodput_mbit",
    "of_limit_percent",
    "own_headers_off_percent",
    "bytes_on_air_per_byte",
    "sender_cpu_s_per_gbit",
    "receiver_cpu_s_per_gbit",
)
KIND_COLUMNS = {
    "fresh_after_ms": "fresh after ms",
    "oldest_ms": "oldest ms",
    "delivered": "delivered",
    "accepted": "accepted",
    "accepted_lost": "of them lost",
    "share_percent": "own share %",
    "other_percent": "other's share %",
    "jain": "Jain index",
    "aggregate_percent": "together, own headers off %",
    "least_mbit": "least Mbit/s",
    "most_mbit": "most Mbit/s",
    "wire_bytes_per_byte": "bytes on air per byte",
    "first_p50_ms": "p50 ms",
    "first_p95_ms": "p95 ms",
    "first_max_ms": "longest ms",
    "one_way_ms": "one way, mean ms",
    "over_udp_ms": "there and back over UDP's, ms",
}
GREATEST_IS_WORST = frozenset(
    {
        *("fresh_after_ms", "oldest_ms", "accepted_lost", "wire_bytes_per_byte", "one_way_ms"),
        *("first_p50_ms", "first_p95_ms", "first_max_ms", "over_udp_ms"),
    }
)
FIGURES_COLUMNS = ("group", "cell", "link", "adapter", "seeds", "fault", *STREAM_COLUMNS, *KIND_COLUMNS)
TARGETS_COLUMNS = ("cell", "target", "measured", "outside_stops", "verdict", "seeds", "planned_seeds")
Row = dict[str, str]


@dataclass(frozen=True)
class Tables:
    """The contents of the page, formatted as text."""

    figures: list[Row]
    """One row for each cell and adapter: the worst seed, by ``FIGURES_COLUMNS``."""
    targets: list[Row]
    """One row for each target and cell, by ``TARGETS_COLUMNS``."""
    runs: dict[str, Any]
    """The origin of the figures: machine, sessions, adapters, repeated and missing runs."""

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        _write_csv(folder / "link.csv", FIGURES_COLUMNS, self.figures)
        _write_csv(folder / "link-targets.csv", TARGETS_COLUMNS, self.targets)
        (folder / "link-runs.json").write_text(json.dumps(self.runs, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Tables:
        runs = json.loads((folder / "link-runs.json").read_text())
        return cls(_read_csv(folder / "link.csv"), _read_csv(folder / "link-targets.csv"), runs)


def tables(result: dict[str, Any]) -> Tables:
    figures = cells(result)
    rows = []
    for planned in result["planned"]:
        for adapter in (entry["name"] for entry in result["adapters"]):
            row = figures.get((cell_key(planned["case"]), adapter))
            if row is not None:
                head = {"group": planned["group"], "cell": planned["name"], "link": link_text(row.case)}
                rows.append(head | _figures(row))
    return Tables(rows, [_target(verdict) for verdict in verdicts(result)], _runs(result))


def _runs(result: dict[str, Any]) -> dict[str, Any]:
    counted = counting(result["runs"])
    adapters = [
        {key: entry[key] for key in ("name", "title", "available", "reason", "versions", "settings")}
        for entry in result["adapters"]
    ]
    return {
        "profile": result["profile"],
        "machine": result["machine"],
        "load_average_before": result["load_average_before"],
        "greatest_load_of_others": _load_of_others(result),
        "sessions": [_session(session) for session in result["sessions"] if session["runs"]],
        "notes": [],
        "runs": len(result["runs"]),
        "repeated_runs": len(result["runs"]) - len(counted),
        "counted_runs_disturbed": sum(bool(disturbance(run)) for run in counted),
        "missing": missing(result),
        "adapters": adapters,
    }


def _session(session: dict[str, Any]) -> dict[str, Any]:
    runs = session["runs"]
    return {
        "command": session["command"],
        "sources": list(dict.fromkeys(run["source"] for run in runs)),
        "started": session["started"],
        "runs": len(runs),
        "adapters": list(dict.fromkeys(run["adapter"] for run in runs)),
    }


def _load_of_others(result: dict[str, Any]) -> float:
    """Returns the greatest number of runnable processes beyond the four of a run's emulator and ends."""
    return max((run["load_average"] - 4.0 for run in result["runs"]), default=0.0)


def _figures(row: CellFigures) -> Row:
    common = {"adapter": row.adapter, "seeds": str(len(row.runs))}
    kind = [column for column in KIND_COLUMNS if any(column in run.more for run in row.runs)]
    if not kind:
        return common | _stream_figures(row.worst, row.adapter == ADAPTER)
    if faults := [run.fault for run in row.runs if run.fault]:
        return common | {"fault": faults[0]}
    values = {}
    for column in kind:
        seen = [value for run in row.runs if not math.isnan(value := run.more.get(column, math.nan))]
        values[column] = number((max if column in GREATEST_IS_WORST else min)(seen)) if seen else ""
    return common | values


def _stream_figures(worst: RunFigures, is_own: bool) -> Row:
    late = {} if worst.machine_late_ms is None else {"machine_late_ms": f"{worst.machine_late_ms:.0f}"}
    if worst.fault:
        return {"fault": worst.fault}
    if worst.delivered_percent == 0:
        return late | {"delivered_percent": "0", "goodput_mbit": "0", "of_limit_percent": "0"}
    figures = late | {
        "delivered_percent": f"{worst.delivered_percent:.1f}",
        "mean_ms": f"{worst.mean_ms:.0f}",
        "p99_ms": f"{worst.p99_ms:.0f}",
        "goodput_mbit": f"{worst.goodput_mbit:.1f}",
        "of_limit_percent": f"{worst.limit_percent:.0f}",
        "bytes_on_air_per_byte": f"{worst.bytes_per_byte:.2f}",
    }
    if is_own:
        figures["own_headers_off_percent"] = f"{worst.own_limit_percent:.0f}"
    if worst.undisturbed:
        figures["p99_outside_stops_ms"] = f"{worst.undisturbed.p99_ms:.0f}"
        figures["samples_outside_stops"] = str(worst.undisturbed.samples)
    for end, cpu in (("sender", worst.sender_cpu), ("receiver", worst.receiver_cpu)):
        figures[f"{end}_cpu_s_per_gbit"] = "" if cpu is None else f"{cpu:.2f}"
    return figures


def _target(verdict: Verdict) -> Row:
    return {
        "cell": verdict.name,
        "target": verdict.target.text,
        "measured": number(verdict.value),
        "outside_stops": number(verdict.undisturbed),
        "verdict": verdict.word,
        "seeds": str(verdict.seeds),
        "planned_seeds": str(verdict.planned_seeds),
    }


def number(value: float | None) -> str:
    if value is None:
        return ""
    if math.isinf(value):
        return "never" if value > 0 else "nothing"
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.4g}"


def link_text(case: dict[str, Any]) -> str:
    """Describes the link and the stream of a case."""
    text = format_size(case["payload_bytes"])
    stream = f"{text} at {case['rate_hz']:g} Hz"
    if case["veth"]:
        return f"Ethernet pair; {stream}"
    parts = [f"{case['rate_mbit']:g} Mbit/s, {case['loss_percent']:g} % loss"]
    if case["connects"]:
        parts.append(f"{case['connects']} connections, each for {text}")
    else:
        parts.append(stream + (f" from each of {case['robots']}" if case["robots"] > 1 else ""))
    parts.append(f"RTT {case['round_trip_ms']:g} ms, queue {case['queue_ms']:g} ms")
    if case["jitter_ms"]:
        parts.append(f"jitter {case['jitter_ms']:g} ms")
    if case["fade"]:
        good, bad = case["fade"].split(":")[:2]
        parts.append(f"fades of {bad} every {good}")
    if case["half_duplex"]:
        parts.append("half-duplex")
    if case["keep_all"]:
        parts.append("KEEP_ALL")
    elif case["keep_last"] != 10:
        parts.append(f"KEEP_LAST({case['keep_last']})")
    if case["lifespan_ms"]:
        parts.append(f"lifespan {case['lifespan_ms']:g} ms")
    if case["outage"]:
        parts.append("outage of {1:g} s after {0:g} s".format(*case["outage"]))
    others = {
        "cubic-first": "joins one TCP flow",
        "cubic-later": "one TCP flow joins",
        "same-later": "another of its kind joins",
    }
    if case["beside"]:
        parts.append(others[case["beside"]])
    return "; ".join(parts)


def _write_csv(path: Path, columns: Sequence[str], rows: list[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _read_csv(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: value for key, value in row.items() if value} for row in csv.DictReader(file)]
