"""From result files to the figures of cells. Reads result files and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADER_ADJUSTED = 1472 / 1500
"""What IP and UDP headers leave of a packet of 1500 bytes."""


@dataclass(frozen=True)
class RunFigures:
    """One run."""

    seed: int
    delivered_percent: float
    """Of the schedule, whether the sender kept up with it or not."""
    mean_ms: float
    p99_ms: float
    goodput_mbit: float
    limit_percent: float
    """Goodput as a share of what the link carries, headers taken off, with the loss that this run drew."""
    bytes_per_byte: float
    """IP bytes offered to the link for each byte delivered."""
    fault: str
    """Why the run does not count as one, or nothing."""


@dataclass(frozen=True)
class CellFigures:
    adapter: str
    cell: dict[str, Any]
    runs: tuple[RunFigures, ...]

    @property
    def worst(self) -> RunFigures:
        return min(self.runs, key=lambda run: (run.delivered_percent, -run.p99_ms))


def load(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text())
    if result.get("schema") != "nervure-lab/link@1":
        raise ValueError(f"{path}: expected a result of the experiment link, got {result.get('schema')!r}")
    return result


def cells(result: dict[str, Any]) -> list[CellFigures]:
    """The cells in the order of the runs, each with its runs."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for run in result["runs"]:
        grouped.setdefault(json.dumps([run["adapter"], run["cell"]]), []).append(run)
    return [
        CellFigures(runs[0]["adapter"], runs[0]["cell"], tuple(_figures(run) for run in runs))
        for runs in grouped.values()
    ]


def impossible(result: dict[str, Any]) -> list[str]:
    """Runs that claim more than the link carried: something went past it, and nothing of them holds."""
    return [
        f"{cell.adapter}, {cell.cell['rate_mbit']} Mbit/s, {cell.cell['loss_percent']} %, seed {run.seed}: "
        f"{run.fault}"
        for cell in cells(result)
        for run in cell.runs
        if run.fault.startswith("impossible")
    ]


def _figures(run: dict[str, Any]) -> RunFigures:
    receiver, link, cell = run["receiver"], run["link"], run["cell"]
    if receiver is None or link is None:
        return RunFigures(run["seed"], 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, "no report")
    delivered, latency, seconds = _of_receiver(receiver)
    payload = delivered * cell["payload_bytes"]
    sender = link["hosts"][1]
    arrived, offered = sender["delivered"], sender["offered"]["bytes"]
    decided = arrived["packets"] + sum(
        sender[cause]["packets"] for cause in ("lost_random", "lost_burst", "lost_outage")
    )
    kept = arrived["packets"] / decided if decided else 1.0
    limit_mbit = cell["rate_mbit"] * kept * HEADER_ADJUSTED
    goodput = payload * 8e-6 / seconds if seconds else 0.0
    fault = ""
    if payload > arrived["bytes"]:
        fault = f"impossible: {payload} bytes delivered, {arrived['bytes']} came over the link"
    elif sender["airtime_seconds"] > link["seconds"] * 1.0001:
        fault = f"impossible: {sender['airtime_seconds']} s of airtime in {link['seconds']} s"
    elif goodput > limit_mbit * 1.0001 and seconds > 1:
        fault = f"impossible: {goodput:.2f} Mbit/s, the limit is {limit_mbit:.2f}"
    return RunFigures(
        run["seed"],
        100 * delivered / cell["samples"],
        latency["mean_ms"],
        latency["p99_ms"],
        goodput,
        100 * goodput / limit_mbit if limit_mbit else 0.0,
        offered / payload if payload else 0.0,
        fault,
    )


def _of_receiver(report: dict[str, Any]) -> tuple[int, dict[str, float], float]:
    """Samples delivered, their latency, how long it took: of the lab's endpoints, or of `nervure link bench`."""
    if "streams" not in report:
        return report["delivered"], report, report["seconds"]
    streams = list(report["streams"].values())
    if not streams:
        return 0, {"mean_ms": 0.0, "p99_ms": 0.0}, 0.0
    delivered = streams[0]["delivered"]
    return delivered, streams[0]["latency"], report["seconds"]
