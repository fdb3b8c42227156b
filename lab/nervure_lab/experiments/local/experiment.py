"""The experiment ``local``: repeats of every case, with the adapters in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nervure_lab.contract import Experiment, Job
from nervure_lab.experiments.local.adapters import all_adapters
from nervure_lab.experiments.local.case import LocalAdapter, RunResult
from nervure_lab.experiments.local.plan import PlannedCase, plan
from nervure_lab.experiments.local.report import write_page
from nervure_lab.processes import Processes
from nervure_lab.toolchain import REPOSITORY_DIRECTORY

OVERHEAD_SECONDS = 2.0
"""Duration of a run in addition to its sending."""


class Local(Experiment[LocalAdapter, PlannedCase]):
    name = "local"
    summary = "one host: latency, fan-out, flood, idle cost, start"
    page = REPOSITORY_DIRECTORY / "docs" / "reference" / "performance.md"

    def adapters(self) -> list[LocalAdapter]:
        return all_adapters()

    def plan(self, quick: bool) -> list[PlannedCase]:
        return plan(quick)

    def jobs(self, planned: Sequence[PlannedCase], adapters: Sequence[LocalAdapter]) -> list[Job]:
        return list(_turns(planned, adapters))

    def describe(self, adapter: LocalAdapter) -> dict[str, Any]:
        fields = ("name", "title", "language", "kind", "settings", "copies_in_send")
        return {field: getattr(adapter, field) for field in fields}

    def run(
        self, adapter: LocalAdapter, job: Job, earlier: Sequence[dict[str, Any]], processes: Processes
    ) -> dict[str, Any]:
        refusal = adapter.refusal(job.case)
        result = RunResult("not_run", refusal) if refusal else adapter.run(job.case)
        return {"case": asdict(job.case), **result.as_json()}

    def progress(self, run: dict[str, Any]) -> str:
        lost = sum(consumer["lost"] for consumer in run["consumers"])
        reason = f" {run['reason']}" if run["reason"] else ""
        return f"{run['outcome']}{reason}{f', lost {lost}' if lost else ''}"

    def write_page(self, result: dict[str, Any], page: Path) -> list[str]:
        write_page(result, page)
        return []


def _turns(planned: Sequence[PlannedCase], adapters: Sequence[LocalAdapter]) -> Iterator[Job]:
    """All adapters of a case in a row, another one first in each repeat, so that a drift of the machine
    affects all alike.
    """
    for repeat in range(max((entry.repeats for entry in planned), default=0)):
        for entry in planned:
            if repeat >= entry.repeats:
                continue
            taking_part = [
                adapter
                for adapter in adapters
                if adapter.language == entry.case.language and entry.repeats_of(adapter.name)
            ]
            seconds = entry.case.expected_seconds + OVERHEAD_SECONDS
            for position in range(len(taking_part)):
                adapter = taking_part[(position + repeat) % len(taking_part)]
                yield Job(adapter.name, repeat, entry, entry.case, seconds)


EXPERIMENT = Local()
