"""A declared experiment, as the runner sees it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nervure_lab.comparison.accounting import figures, violations
from nervure_lab.comparison.case import Case
from nervure_lab.comparison.declaration import Declaration, PlannedCase, declarations
from nervure_lab.comparison.results import LACKS_TYPE
from nervure_lab.comparison.samples import table_of_logs, write_table
from nervure_lab.comparison.session import Outcome, Session, find_emulator
from nervure_lab.contract import Experiment, Job
from nervure_lab.peer import Configuration, Peer
from nervure_lab.peers import all_peers
from nervure_lab.processes import Processes
from nervure_lab.toolchain import Toolchain

OVERHEAD_SECONDS = 3.0
"""Start and end of a run, beside its schedule; the runner only estimates with it."""


class PeerAdapter:
    """A peer in one of its configurations."""

    def __init__(self, peer: Peer, configuration: Configuration) -> None:
        self.peer = peer
        self.configuration = configuration
        self.name = f"{peer.name}-{configuration.name}"
        self.title = f"{peer.title}, {configuration.name}"
        self.settings = configuration.settings

    def prepare(self, toolchain: Toolchain) -> None:
        self.peer.prepare(toolchain)
        self.peer.prepare_configuration(toolchain, self.configuration.name)

    def versions(self) -> dict[str, str]:
        return self.peer.versions()


class DeclaredExperiment(Experiment[PeerAdapter, PlannedCase]):
    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.name = declaration.name
        self.summary = declaration.question
        self._places = {planned.case.place for planned in declaration.plans["full"]}
        self._emulator: Path | None = None
        self._samples = Path()

    def adapters(self) -> list[PeerAdapter]:
        return [
            PeerAdapter(peer, configuration)
            for peer in all_peers()
            for configuration in peer.configurations
            if self._places & configuration.places
        ]

    def plan(self, quick: bool) -> list[PlannedCase]:
        return self.declaration.plans["quick" if quick else "full"]

    def store_beside(self, output: Path) -> None:
        self._samples = output.parent / "samples"
        # The report reads the declaration from there, also that of a user.
        shutil.copyfile(self.declaration.file, output.with_suffix(".toml"))

    def set_up(self, toolchain: Toolchain) -> None:
        if "link" in self._places:
            self._emulator = find_emulator()

    def describe(self, adapter: PeerAdapter) -> dict[str, Any]:
        peer, configuration = adapter.peer, adapter.configuration
        return {
            "name": adapter.name,
            "title": adapter.title,
            "peer": peer.name,
            "language": configuration.value("language", peer),
            "settings": configuration.settings,
            "source": configuration.source,
            "copies_in_send": configuration.value("copies_in_send", peer),
            "encrypted": configuration.values.get("encrypted", False),
        }

    def jobs(self, planned: Sequence[PlannedCase], adapters: Sequence[PeerAdapter]) -> list[Job]:
        return list(_turns(planned, adapters))

    def run(
        self, adapter: PeerAdapter, job: Job, earlier: Sequence[dict[str, Any]], processes: Processes
    ) -> dict[str, Any]:
        case: Case = job.case
        configuration = adapter.configuration
        peer = adapter.peer
        if case.message not in configuration.value("messages", peer):
            reason = configuration.value("without_types", peer)
            lacking = Outcome(LACKS_TYPE, f"{peer.title}: {reason}")
            return {"case": asdict(case), "group": job.planned.group, **lacking.record()}
        file = configuration.values.get("settings_file", "")
        with Session(peer, case, job.repeat + 1, self._emulator, file) as session:
            found = session.measure(configuration.name)
        record: dict[str, Any] = {"case": asdict(case), "group": job.planned.group, **found.record()}
        if found.outcome in ("failed", "hung"):
            return record
        try:
            table = table_of_logs(
                found.logs,
                found.start_nanos,
                case.warmup,
                case.subscribers,
                echo=case.pattern == "echo",
                # A publisher that is late may not come to the end of the first messages.
                warmup_seconds=case.warmup / case.rate_hz if case.ends_on_time else None,
            )
        except ValueError as error:
            return record | {"outcome": "failed", "reason": str(error)}
        found_figures = figures(table, case)
        if reasons := violations(found_figures, case, found.link):
            record |= {"outcome": "untrue", "reason": "; ".join(reasons)}
        samples = self._samples / f"{self.name}--{job.name}--{adapter.name}--{job.repeat}.parquet"
        write_table(table, samples)
        return record | {"samples": samples.name, "figures": found_figures}

    def progress(self, run: dict[str, Any]) -> str:
        if run["outcome"] != "ok":
            return f"{run['outcome']}: {run['reason'][:120]}"
        found = run["figures"]
        median = found["latency_micros"].get("p50")
        text = f"{found['delivered_percent']:.1f} % delivered"
        return text if median is None else f"{text}, median {median:,.0f} us"

    def write_page(self, result: dict[str, Any], page: Path) -> list[str]:
        # The report is of the whole directory: `nervure-lab report DIR`.
        return [
            f"{run['name']} {run['adapter']} repeat {run['repeat']}: {run['reason']}"
            for run in result["runs"]
            if run["outcome"] == "untrue"
        ]


def _turns(planned: Sequence[PlannedCase], adapters: Sequence[PeerAdapter]) -> Iterator[Job]:
    """All adapters of a case in a row, another one first in each repeat, so that a drift of the machine
    affects all alike.
    """
    for repeat in range(max((entry.repeats for entry in planned), default=0)):
        for entry in planned:
            if repeat >= entry.repeats:
                continue
            taking_part = [it for it in adapters if entry.case.place in it.configuration.places]
            seconds = entry.case.sending_seconds + OVERHEAD_SECONDS
            for position in range(len(taking_part)):
                adapter = taking_part[(position + repeat) % len(taking_part)]
                yield Job(adapter.name, repeat, entry, entry.case, seconds)


def declared_experiments() -> list[DeclaredExperiment]:
    return [DeclaredExperiment(declaration) for declaration in declarations()]
