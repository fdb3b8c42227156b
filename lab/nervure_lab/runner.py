"""Runs an experiment: every case, over and over, the adapters taking turns."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nervure_lab.contract import Adapter, RunResult, Unavailable
from nervure_lab.envelope import envelope
from nervure_lab.plan import Experiment, PlannedCase
from nervure_lab.toolchain import Toolchain

SCHEMA = "nervure-lab/result@1"


def run_experiment(
    experiment: Experiment, adapters: list[Adapter], *, quick: bool, output: Path
) -> dict[str, Any]:
    """Runs it and writes the result file, also when interrupted."""
    planned = experiment.plan(quick)
    entries = _prepare(adapters)
    available = [adapter for adapter, entry in zip(adapters, entries, strict=True) if entry["available"]]

    def keep(result: dict[str, Any]) -> None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, separators=(",", ":")) + "\n")

    with envelope(SCHEMA, experiment.name, "quick" if quick else "full", keep) as result:
        result |= {"adapters": entries, "runs": []}
        _run_all(planned, available, result["runs"])
    return result


def _prepare(adapters: list[Adapter]) -> list[dict[str, Any]]:
    toolchain = Toolchain()
    entries = []
    for adapter in adapters:
        entry = {
            "name": adapter.name,
            "title": adapter.title,
            "language": adapter.language,
            "kind": adapter.kind,
            "settings": adapter.settings,
            "copies_in_send": adapter.copies_in_send,
            "available": True,
            "reason": "",
            "versions": {},
        }
        print(f"preparing {adapter.name}", file=sys.stderr)
        try:
            adapter.prepare(toolchain)
            entry["versions"] = adapter.versions()
        except Unavailable as reason:
            entry.update(available=False, reason=str(reason))
            print(f"  not available: {reason}", file=sys.stderr)
        entries.append(entry)
    return entries


def _run_all(planned: list[PlannedCase], adapters: list[Adapter], runs: list[dict[str, Any]]) -> None:
    turns = list(_turns(planned, adapters))
    for number, (repeat, entry, adapter) in enumerate(turns, start=1):
        refusal = adapter.refusal(entry.case)
        result = RunResult("not_run", refusal) if refusal else adapter.run(entry.case)
        runs.append(
            {
                "adapter": adapter.name,
                "repeat": repeat,
                "case": dataclasses.asdict(entry.case),
                **result.as_json(),
            }
        )
        print(f"[{number:4}/{len(turns)}] {_progress(repeat, entry, adapter, result)}", file=sys.stderr)


def _turns(planned: list[PlannedCase], adapters: list[Adapter]) -> Iterator[tuple[int, PlannedCase, Adapter]]:
    """All adapters of a case in a row, another one first in each repeat: what drifts, drifts for all."""
    for repeat in range(max(entry.repeats for entry in planned)):
        for entry in planned:
            if repeat >= entry.repeats:
                continue
            taking_part = [
                adapter
                for adapter in adapters
                if adapter.language == entry.case.language
                and (entry.only is None or adapter.name in entry.only)
            ]
            for position in range(len(taking_part)):
                yield repeat, entry, taking_part[(position + repeat) % len(taking_part)]


def _progress(repeat: int, entry: PlannedCase, adapter: Adapter, result: RunResult) -> str:
    case = entry.case
    what = f"repeat {repeat} {case.mode} {case.payload_bytes} B 1->{case.consumers} {adapter.name}"
    reason = f" {result.reason}" if result.reason else ""
    lost = sum(consumer.lost for consumer in result.consumers)
    return f"{what}: {result.outcome}{reason}{f', lost {lost}' if lost else ''}"
