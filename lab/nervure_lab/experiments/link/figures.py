"""Computes the figures of cells from stored results, and from nothing else."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nervure_lab.contract import case_key
from nervure_lab.experiments.link.measures import (
    SAMPLE_SHARE,
    UDP_SHARE,
    cpu_seconds,
    is_crowded,
    kept,
    measures,
    stopped_share,
)
from nervure_lab.statistics import nearest_rank

FIELDS_WITHOUT_EFFECT = frozenset({"samples"})


@dataclass(frozen=True)
class Undisturbed:
    """Figures of the samples that were not in flight during a stop of the machine."""

    samples: int
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class RunFigures:
    """Figures of one run."""

    seed: int
    delivered_percent: float = 0.0
    """Share of the schedule, whether or not the sender kept up with it."""
    mean_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    goodput_mbit: float = 0.0
    limit_percent: float = 0.0
    """Goodput as a share of the link's rate with the loss that this run drew, less the headers of IP and
    UDP. No protocol over UDP can exceed 100."""
    own_limit_percent: float = 0.0
    """Goodput as a share of the same rate less Nervure's own headers too."""
    attainable_percent: float = 0.0
    """Goodput as a share of that limit, or of the offered rate if this is less."""
    bytes_per_byte: float = 0.0
    """IP bytes offered to the link for each byte delivered."""
    sender_cpu: float | None = None
    """Processor seconds for each gigabit delivered."""
    receiver_cpu: float | None = None
    gave_up: bool = False
    """Whether it was ended because no sample arrived."""
    machine_late_ms: float | None = None
    """Longest delay of a wake-up, of the emulator or of a ticker."""
    undisturbed: Undisturbed | None = None
    """None if the stops of the machine are not known."""
    more: dict[str, float] = field(default_factory=dict)
    """Figures that only runs of one kind have, by name."""
    fault: str = ""
    """The reason why the run has no figures; empty if it has."""


@dataclass(frozen=True)
class CellFigures:
    adapter: str
    case: dict[str, Any]
    runs: tuple[RunFigures, ...]

    @property
    def worst(self) -> RunFigures:
        return min(self.runs, key=lambda run: (run.delivered_percent, -run.p99_ms))


def cell_key(case: dict[str, Any]) -> str:
    """Returns the key that all runs of a cell share; adapters may differ in the number of samples."""
    return case_key(case, FIELDS_WITHOUT_EFFECT)


def counting(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Selects one run of each adapter, case and seed: of the runs with the most samples the one that the
    machine disturbed least. The measured figures have no influence.
    """
    best: dict[tuple[str, str, int], dict[str, Any]] = {}
    for run in runs:
        key = (run["adapter"], cell_key(run["case"]), run["repeat"])
        best[key] = min(best.get(key, run), run, key=_rank)
    return list(best.values())


def _rank(run: dict[str, Any]) -> tuple[int, bool, float]:
    return -run["case"]["samples"], is_crowded(run), stopped_share(run)


def cells(result: dict[str, Any]) -> dict[tuple[str, str], CellFigures]:
    """Returns the figures by :func:`cell_key` and adapter, in the order of the runs."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in counting(result["runs"]):
        grouped.setdefault((cell_key(run["case"]), run["adapter"]), []).append(run)
    found = {
        key: CellFigures(key[1], runs[0]["case"], tuple(_figures(run) for run in runs))
        for key, runs in grouped.items()
    }
    return {key: _beside_udp(figures, found.get((key[0], "udp"))) for key, figures in found.items()}


def impossible(result: dict[str, Any]) -> list[str]:
    """Returns the runs that claim more than the link carried. They bypassed the link and are invalid."""
    return [
        f"{run['adapter']}, {run['case']['rate_mbit']} Mbit/s, {run['case']['loss_percent']} %, "
        f"seed {run['repeat']}: {fault}"
        for run in result["runs"]
        if (fault := _figures(run).fault).startswith("impossible")
    ]


def missing(result: dict[str, Any]) -> list[str]:
    """Returns the planned and missing runs, a line a case: `case: adapter (2 of 5 seeds), ..`. The last line
    lists the cells without any run. A case that is planned twice is listed once.
    """
    figures = cells(result)
    lines: dict[str, str] = {}
    untouched: dict[str, str] = {}
    for planned in result["planned"]:
        key = cell_key(planned["case"])
        lacking, have_any = [], False
        for adapter, seeds in planned["repeats"].items():
            have = len(figures[key, adapter].runs) if (key, adapter) in figures else 0
            have_any |= have > 0
            if have < seeds:
                lacking.append(f"{adapter} ({have} of {seeds} seeds)" if have else adapter)
        if lacking and have_any:
            lines.setdefault(key, f"{planned['name']}: {', '.join(lacking)}")
        elif lacking:
            untouched.setdefault(key, planned["name"])
    everything = [f"everything of {', '.join(untouched.values())}"] if untouched else []
    return [*lines.values(), *everything]


def _figures(run: dict[str, Any]) -> RunFigures:
    link, case = run["link"], run["case"]
    receivers = [flow["receiver"] for flow in run["flows"]]
    if not all(receivers) or (link is None and not case["veth"]):
        return RunFigures(run["repeat"], fault="no report")
    arrived = [_of_receiver(receiver) for receiver in receivers]
    delivered, latency, seconds = arrived[0]
    payload_bytes = sum(count for count, _, _ in arrived) * case["payload_bytes"]
    asked_mbit = case["payload_bytes"] * case["rate_hz"] * 8e-6
    goodput = delivered * case["payload_bytes"] * 8e-6 / seconds if seconds else 0.0
    figures = RunFigures(
        run["repeat"],
        100 * delivered / case["samples"],
        latency["mean_ms"],
        latency["p99_ms"],
        latency["max_ms"],
        goodput,
        attainable_percent=100 * goodput / asked_mbit,
        sender_cpu=_cpu([flow["sender"] for flow in run["flows"]], payload_bytes),
        receiver_cpu=_cpu(receivers, payload_bytes),
        gave_up=any(receiver.get("gave_up") for receiver in receivers),
        machine_late_ms=_machine_late_ms(run),
        undisturbed=_undisturbed(run),
    )
    if link is None:
        return figures
    senders = link["hosts"][1:]
    carried_mbit = case["rate_mbit"] * kept(senders)
    limit_mbit, own_limit_mbit = carried_mbit * UDP_SHARE, carried_mbit * SAMPLE_SHARE
    more = measures(run)
    if case["payload_bytes"] and not case["connects"]:
        serialisation_ms = case["payload_bytes"] * 8e-3 / (case["rate_mbit"] * UDP_SHARE)
        more["mean_of_serialisation"] = latency["mean_ms"] / serialisation_ms
    beside_bytes = run["beside"][-1][1] if run["beside"] else 0
    offered = sum(host["offered"]["bytes"] for host in senders)
    alone = len(run["flows"]) == 1 and run["beside"] is None
    return replace(
        figures,
        limit_percent=100 * goodput / limit_mbit if limit_mbit else 0.0,
        own_limit_percent=100 * goodput / own_limit_mbit if own_limit_mbit else 0.0,
        attainable_percent=100 * goodput / min(own_limit_mbit, asked_mbit) if own_limit_mbit else 0.0,
        bytes_per_byte=offered / payload_bytes if payload_bytes and alone else 0.0,
        more=more,
        fault=_fault(link, case, payload_bytes + beside_bytes, goodput if seconds > 1 else 0.0, limit_mbit),
    )


def _fault(
    link: dict[str, Any], case: dict[str, Any], payload_bytes: int, goodput: float, limit_mbit: float
) -> str:
    senders = link["hosts"][1:]
    arrived = sum(host["delivered"]["bytes"] for host in senders)
    sharing = link["hosts"] if case["half_duplex"] else senders
    airtime = sum(host["airtime_seconds"] for host in sharing)
    if payload_bytes > arrived:
        return f"impossible: {payload_bytes} bytes delivered, {arrived} came over the link"
    if airtime > link["seconds"] * 1.0001:
        return f"impossible: {airtime} s of airtime in {link['seconds']} s"
    if goodput > limit_mbit * 1.0001:
        return f"impossible: {goodput:.2f} Mbit/s, the limit is {limit_mbit:.2f}"
    return ""


def _machine_late_ms(run: dict[str, Any]) -> float | None:
    """Returns the longest known delay of a wake-up, of the tickers and the emulator."""
    known = [run.get("machine", {}).get("worst_ms")]
    if run["link"] and "late_longest_micros" in run["link"]:
        known.append(run["link"]["late_longest_micros"] * 1e-3)
    return max((late for late in known if late is not None), default=None)


def _undisturbed(run: dict[str, Any]) -> Undisturbed | None:
    machine, receptions = run.get("machine", {}), run["flows"][0].get("receptions_micros")
    if not machine.get("realtime") or "stops_micros" not in machine or not receptions:
        return None
    stops = machine["stops_micros"]
    ends = [end for _, end in stops]

    def meets_a_stop(due: int, received: int) -> bool:
        first = bisect_left(ends, due)
        return first < len(stops) and stops[first][0] <= received

    latencies = sorted(
        (received - due) * 1e-3 for _, due, received in receptions if not meets_a_stop(due, received)
    )
    if not latencies:
        return None
    return Undisturbed(len(latencies), nearest_rank(latencies, 0.99), latencies[-1])


def _of_receiver(report: dict[str, Any]) -> tuple[int, dict[str, float], float]:
    """Returns samples delivered, their latency, and the duration, from a report of the lab or of
    `nervure link bench`.
    """
    if "streams" not in report:
        return report["delivered"], report, report["seconds"]
    streams = list(report["streams"].values())
    if not streams:
        return 0, {"mean_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}, 0.0
    delivered = streams[0]["delivered"]
    return delivered, streams[0]["latency"], report["seconds"]


def _cpu(reports: Sequence[dict[str, Any] | None], payload_bytes: int) -> float | None:
    """Returns the CPU seconds of these ends together for each gigabit, or None if one is unknown."""
    seconds = cpu_seconds(reports)
    return None if seconds is None or not payload_bytes else seconds / (payload_bytes * 8e-9)


def _beside_udp(figures: CellFigures, udp: CellFigures | None) -> CellFigures:
    """Adds to runs without the emulator by how much a round trip exceeds one over plain UDP with the same
    seed; NaN if that run is missing.
    """
    if not figures.case["veth"]:
        return figures
    plain = {run.seed: run.mean_ms for run in udp.runs if not run.fault} if udp else {}
    runs = [
        replace(
            run,
            more=run.more
            | {"one_way_ms": run.mean_ms, "over_udp_ms": 2 * (run.mean_ms - plain.get(run.seed, math.nan))},
        )
        if not run.fault
        else run
        for run in figures.runs
    ]
    return replace(figures, runs=tuple(runs))
