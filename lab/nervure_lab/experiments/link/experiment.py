"""The experiment ``link``: every seed of every case, with the adapters in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nervure_lab.contract import Experiment, Job
from nervure_lab.experiments.link.adapters import all_adapters
from nervure_lab.experiments.link.case import JOIN_SECONDS, LinkAdapter, LinkCase
from nervure_lab.experiments.link.emulator import build_emulator
from nervure_lab.experiments.link.figures import FIELDS_WITHOUT_EFFECT
from nervure_lab.experiments.link.measures import cores_taken, disturbance
from nervure_lab.experiments.link.plan import PlannedCase, plan
from nervure_lab.experiments.link.report import write_page
from nervure_lab.experiments.link.targets import is_judged_by_latency
from nervure_lab.processes import Processes
from nervure_lab.toolchain import REPOSITORY_DIRECTORY, Toolchain

OVERHEAD_SECONDS = 4.0
"""Duration of a run in addition to its schedule: start, connection, late samples."""
CONNECTION_SECONDS = 0.5
"""Expected duration of one connection of many."""
IDLE_CORES = 0.03
"""Cores of a run of Nervure, for the emulator and both ends, almost without traffic; measured once."""
CORES_PER_MBIT = 0.0028
"""Additional cores for each Mbit/s on the link."""
QUEUE_CORES = 0.25
"""Additional cores for the emulator's queue when the offered rate exceeds the link's."""
LIGHT_MBIT = 5.0
"""A stream below this rate neither disturbs other runs nor suffers from them."""


class Link(Experiment[LinkAdapter, PlannedCase]):
    name = "link"
    summary = "samples over an emulated bad link"
    page = REPOSITORY_DIRECTORY / "docs" / "reference" / "link.md"
    tries = 3
    fields_without_effect = FIELDS_WITHOUT_EFFECT

    def adapters(self) -> list[LinkAdapter]:
        return all_adapters()

    def plan(self, quick: bool) -> list[PlannedCase]:
        return plan(quick)

    def set_up(self, toolchain: Toolchain) -> None:
        self._emulator = build_emulator(toolchain)

    def jobs(self, planned: Sequence[PlannedCase], adapters: Sequence[LinkAdapter]) -> list[Job]:
        return jobs(planned, [adapter.name for adapter in adapters])

    def run(
        self, adapter: LinkAdapter, job: Job, earlier: Sequence[dict[str, Any]], processes: Processes
    ) -> dict[str, Any]:
        planned: PlannedCase = job.planned
        of_cell = [run for run in earlier if self.is_of(run, job)]
        case = planned.case_of(job.adapter, in_full=any(map(_delivered_a_part, of_cell)))
        return adapter.run(self._emulator, case, job.repeat, processes)

    def covers(self, run: dict[str, Any], job: Job) -> bool:
        return bool(run["case"]["samples"] >= job.case.samples)

    def disturbance(self, run: dict[str, Any]) -> str:
        return disturbance(run)

    def cores(self, run: dict[str, Any]) -> tuple[float, float] | None:
        expected, taken = _expected_cores(LinkCase(**run["case"])), cores_taken(run)
        return None if expected is None or taken is None else (expected, taken)

    def progress(self, run: dict[str, Any]) -> str:
        if any(flow["receiver"] is None for flow in run["flows"]):
            return "no report"
        return f"{_delivered(run)} delivered"

    def write_page(self, result: dict[str, Any], page: Path) -> list[str]:
        return write_page(result, page)


def jobs(planned: Sequence[PlannedCase], adapters: list[str]) -> list[Job]:
    """Returns all cases with the first seed, then all with the second. Within a seed the jobs that run alone
    come first, so that they do not wait for the end of other jobs. A cell that is planned twice is run once.
    """
    unique: dict[LinkCase, PlannedCase] = {}
    for entry in planned:
        unique.setdefault(entry.case, entry)
    found: list[Job] = []
    for seed in range(1, max((entry.seeds for entry in planned), default=0) + 1):
        of_seed = []
        for entry in unique.values():
            for adapter in _turn(adapters, seed):
                if seed <= entry.repeats_of(adapter):
                    of_seed.append(job_of(adapter, seed, entry))
        found += sorted(of_seed, key=lambda job: not job.runs_alone)
    return found


def job_of(adapter: str, seed: int, planned: PlannedCase) -> Job:
    case = planned.case_of(adapter, in_full=False)
    expected = _expected_cores(case)
    is_light = case.payload_mbit <= LIGHT_MBIT
    # A run that keeps starting programs, or whose latency is judged, needs the machine to itself.
    alone = expected is None or (is_judged_by_latency(planned.name) and not is_light)
    return Job(adapter, seed, planned, case, _seconds(case), expected, alone)


def _turn(adapters: list[str], seed: int) -> Iterator[str]:
    first = (seed - 1) % len(adapters) if adapters else 0
    yield from adapters[first:]
    yield from adapters[:first]


def _seconds(case: LinkCase) -> float:
    if case.connects:
        return case.connects * CONNECTION_SECONDS
    return case.sending_seconds + OVERHEAD_SECONDS + (JOIN_SECONDS if case.beside else 0.0)


def _expected_cores(case: LinkCase) -> float | None:
    """Returns None for a case that is not a single stream over the emulator."""
    if case.veth or case.robots > 1 or case.beside or case.connects:
        return None
    kept = 1 - case.loss_percent / 100
    if case.payload_mbit > case.rate_mbit * kept:
        return IDLE_CORES + QUEUE_CORES + CORES_PER_MBIT * case.rate_mbit
    return IDLE_CORES + CORES_PER_MBIT * case.payload_mbit / kept


def _delivered_a_part(run: dict[str, Any]) -> bool:
    """Whether some samples arrived, but not all, so that the exact share matters."""
    return 0.0 < _delivered(run) / int(run["case"]["samples"]) < 1.0


def _delivered(run: dict[str, Any]) -> int:
    """Returns the samples of all receivers together."""
    reports = [flow["receiver"] or {"delivered": 0} for flow in run["flows"]]
    streams = [stream for report in reports for stream in report.get("streams", {"": report}).values()]
    return sum(stream["delivered"] for stream in streams)


EXPERIMENT = Link()
