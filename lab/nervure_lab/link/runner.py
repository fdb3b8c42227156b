"""Runs the experiment: every cell and seed, the adapters taking turns; writes the result file."""

from __future__ import annotations

import datetime
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nervure_lab.contract import Unavailable
from nervure_lab.link.contract import LinkAdapter
from nervure_lab.link.emulator import build_emulator, run_cell
from nervure_lab.link.plan import plan
from nervure_lab.machine import describe_machine, load_average, source_version
from nervure_lab.toolchain import Toolchain

SCHEMA = "nervure-lab/link@1"


def run_link(adapters: list[LinkAdapter], *, quick: bool, output: Path) -> dict[str, Any]:
    """Runs it and writes the result file, also when interrupted; ``Unavailable`` without the emulator."""
    emulator = build_emulator()
    with tempfile.TemporaryDirectory(prefix="nervure-lab-") as name:
        entries = _prepare(adapters, Path(name))
        available = [adapter for adapter, entry in zip(adapters, entries, strict=True) if entry["available"]]
        result: dict[str, Any] = {
            "schema": SCHEMA,
            "experiment": "link",
            "profile": "quick" if quick else "full",
            "command": shlex.join(["python", "-m", "nervure_lab", *sys.argv[1:]]),
            "source": source_version(),
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": describe_machine(),
            "load_average_before": load_average(),
            "interrupted": False,
            "adapters": entries,
            "runs": [],
        }
        start = time.monotonic()
        try:
            _run_all(emulator, available, quick, result["runs"])
        except KeyboardInterrupt:
            result["interrupted"] = True
        finally:
            result["seconds"] = round(time.monotonic() - start, 1)
            result["load_average_after"] = load_average()
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(result, separators=(",", ":")) + "\n")
    return result


def _prepare(adapters: list[LinkAdapter], directory: Path) -> list[dict[str, Any]]:
    toolchain = Toolchain()
    entries = []
    for adapter in adapters:
        entry: dict[str, Any] = {"name": adapter.name, "title": adapter.title, "settings": adapter.settings}
        try:
            adapter.prepare(toolchain, directory)
            entry |= {"available": True, "reason": "", "versions": adapter.versions()}
        except Unavailable as error:
            entry |= {"available": False, "reason": str(error), "versions": {}}
            print(f"{adapter.name} is not measured: {error}", file=sys.stderr)
        entries.append(entry)
    return entries


def _run_all(emulator: Path, adapters: list[LinkAdapter], quick: bool, runs: list[dict[str, Any]]) -> None:
    for planned in plan(quick):
        for seed in range(1, planned.seeds + 1):
            # Another one begins each time.
            turn = (seed - 1) % len(adapters)
            for adapter in adapters[turn:] + adapters[:turn]:
                if adapter.name != "nervure" and seed > planned.seeds_of_others:
                    continue
                run = run_cell(emulator, adapter, planned.cell, seed) | {"load_average": load_average()}
                runs.append(run)
                cell = planned.cell
                where = f"{cell.rate_mbit} Mbit/s, {cell.loss_percent} %, seed {seed}"
                print(f"{adapter.name}: {where}: {_told(run['receiver'])}", file=sys.stderr)


def _told(report: dict[str, Any] | None) -> str:
    """What a receiver says of itself, in brief."""
    if report is None:
        return "no report"
    streams = report.get("streams", {"the lab's": report})
    return f"{sum(stream['delivered'] for stream in streams.values())} delivered"
