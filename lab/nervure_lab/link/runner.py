"""Runs the experiment: every seed of every cell, the adapters taking turns, several runs at a time where
the machine can; writes each run when it has ended.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nervure_lab.contract import Unavailable
from nervure_lab.envelope import envelope
from nervure_lab.link.analysis import cell_key
from nervure_lab.link.contract import JOIN_SECONDS, Cell, LinkAdapter
from nervure_lab.link.emulator import Processes, build_emulator, run_cell
from nervure_lab.link.measures import cores_taken, disturbance
from nervure_lab.link.plan import PlannedCell
from nervure_lab.link.results import SCHEMA, ResultFile, load
from nervure_lab.link.slots import BUDGET_PER_CORE, MOST, Job, Slots
from nervure_lab.machine import load_average, source_version
from nervure_lab.toolchain import Toolchain

OVERHEAD_SECONDS = 4.0
"""Of a run beside its schedule: start, connection, what is late."""
SET_UP_SECONDS = 1.0
"""What is begun beside others follows so much later: else the first samples of all wait for their set-up."""
TRIES = 3
"""Of a run that the machine disturbs; the least disturbed one counts."""
CONNECTION_SECONDS = 0.5
"""Expected of one connection of many."""


@dataclass(frozen=True)
class Options:
    """How to run."""

    profile: str
    resume: bool = False
    minutes: float | None = None
    """Nothing is begun that would end later than this."""
    parallel: int = MOST
    """Runs at the same time, at most."""


def run_link(
    wanted: list[PlannedCell],
    adapters: list[LinkAdapter],
    options: Options,
    output: Path,
    *,
    of: tuple[list[PlannedCell], list[str]] | None = None,
) -> dict[str, Any]:
    """Runs it and returns what the result file then holds; ``Unavailable`` without the emulator. ``of`` is
    the whole that was chosen from, cells and names of adapters: what is not wanted today lacks nevertheless.
    """
    emulator = build_emulator()
    with tempfile.TemporaryDirectory(prefix="nervure-lab-") as name:
        entries = _prepare(adapters, Path(name))
        available = [adapter for adapter, entry in zip(adapters, entries, strict=True) if entry["available"]]
        names = [adapter.name for adapter in available]
        file = ResultFile(output, resume=options.resume)
        have = load(output)["runs"] if file.resumed else []
        cells, others = of or (wanted, [])
        absent = {adapter.name for adapter in adapters} - set(names)
        planned = _planned(cells, [name for name in others or names if name not in absent])
        with envelope(SCHEMA, "link", options.profile, lambda end: file.add("end", _end(end))) as session:
            file.add("session", session | {"adapters": entries, "planned": planned})
            by_name = {adapter.name: adapter for adapter in available}
            _Experiment(emulator, by_name, file, have).work(jobs(wanted, names), options)
    return load(output)


def jobs(planned: list[PlannedCell], adapters: list[str]) -> list[Job]:
    """Every run in its order: all cells with the first seed, then all with the second, so that an interrupted
    experiment has some of everything. Of a seed, first what runs alone: nothing has to end for each. Another
    adapter begins each time. Cells that stand there twice are run once.
    """
    unique: dict[Cell, PlannedCell] = {}
    for entry in planned:
        unique.setdefault(entry.cell, entry)
    found: list[Job] = []
    for seed in range(1, max((entry.seeds for entry in planned), default=0) + 1):
        of_seed = []
        for entry in unique.values():
            for adapter in _turn(adapters, seed):
                if seed <= entry.seeds_of(adapter):
                    cell = entry.cell_of(adapter, in_full=False)
                    of_seed.append(Job(adapter, seed, entry, cell, _seconds(cell)))
        found += sorted(of_seed, key=lambda job: math.isfinite(job.cores))
    return found


def _turn(adapters: list[str], seed: int) -> Iterator[str]:
    first = (seed - 1) % len(adapters) if adapters else 0
    yield from adapters[first:]
    yield from adapters[:first]


def _seconds(cell: Cell) -> float:
    if cell.connects:
        return cell.connects * CONNECTION_SECONDS
    return cell.sending_seconds + OVERHEAD_SECONDS + (JOIN_SECONDS if cell.beside else 0.0)


class _Experiment:
    def __init__(
        self, emulator: Path, adapters: dict[str, LinkAdapter], file: ResultFile, have: list[dict[str, Any]]
    ) -> None:
        self._emulator = emulator
        self._adapters = adapters
        self._file = file
        self._runs = list(have)
        self._beside_others: set[Job] = set()
        self._processes = Processes()
        self._source = source_version()

    def work(self, wanted: list[Job], options: Options) -> None:
        jobs_left = [job for job in wanted if not self._has(job)]
        if len(jobs_left) < len(wanted):
            print(f"{len(wanted) - len(jobs_left)} runs are there already", file=sys.stderr)
        slots = Slots(jobs_left, BUDGET_PER_CORE * (os.cpu_count() or 1), options.parallel)
        for run in self._runs:
            _learn(run, slots)
        end = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
        self._total, self._ended = len(jobs_left), 0
        running: dict[Future[dict[str, Any]], Job] = {}
        with ThreadPoolExecutor(options.parallel) as pool:
            try:
                while True:
                    slots.drop_those_that_end_after(end, time.monotonic())
                    while job := slots.next(time.monotonic()):
                        if running:
                            time.sleep(SET_UP_SECONDS)
                            self._beside_others.update(running.values(), [job])
                        running[pool.submit(self._run, job)] = job
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        job = running.pop(future)
                        slots.finished(job)
                        beside_others = job in self._beside_others
                        self._beside_others.discard(job)
                        self._keep(job, future.result() | {"beside_others": beside_others}, slots)
            except BaseException:
                self._processes.end_all()
                raise

    def _run(self, job: Job) -> dict[str, Any]:
        adapter = self._adapters[job.adapter]
        cell = job.planned.cell_of(job.adapter, in_full=self._delivered_some(job))
        run = run_cell(self._emulator, adapter, cell, job.seed, self._processes)
        return run | {"name": job.name, "source": self._source, "load_average": load_average()}

    def _delivered_some(self, job: Job) -> bool:
        """Whether an earlier seed delivered neither nothing nor all: then it matters how much."""
        shares = [_delivered(run) / run["cell"]["samples"] for run in self._runs if self._is_of(run, job)]
        return any(0 < share < 1 for share in shares)

    def _keep(self, job: Job, run: dict[str, Any], slots: Slots) -> None:
        self._runs.append(run)
        self._file.add("run", run)
        _learn(run, slots)
        self._ended += 1
        left = slots.seconds_left(time.monotonic()) / 60
        progress = f"[{self._ended:4}/{self._total}, {left:.0f} min left]"
        told = f"{progress} {job.name} seed {job.seed} {job.adapter}: {_told(run)}"
        if not self._has(job):
            slots.again(job)
            self._total += 1
            told += f"; {disturbance(run)}, to be made anew"
        print(told, file=sys.stderr)

    def _has(self, job: Job) -> bool:
        of_seed = [run for run in self._runs if run["seed"] == job.seed and self._is_of(run, job)]
        made = [run for run in of_seed if run["cell"]["samples"] >= job.cell.samples]
        return len(made) >= TRIES or not all(map(disturbance, made))

    @staticmethod
    def _is_of(run: dict[str, Any], job: Job) -> bool:
        return run["adapter"] == job.adapter and cell_key(run["cell"]) == cell_key(asdict(job.cell))


def _learn(run: dict[str, Any], slots: Slots) -> None:
    if (cores := cores_taken(run)) is not None:
        slots.took(run["adapter"], run["name"], Cell(**run["cell"]), cores)


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


def _planned(planned: list[PlannedCell], adapters: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "group": entry.group,
            "name": entry.name,
            "cell": asdict(entry.cell),
            "seeds": {name: entry.seeds_of(name) for name in adapters if entry.seeds_of(name)},
        }
        for entry in planned
    ]


def _end(result: dict[str, Any]) -> dict[str, Any]:
    """What the beginning of a session does not have."""
    return {key: result[key] for key in ("interrupted", "seconds", "load_average_after")}


def _told(run: dict[str, Any]) -> str:
    """What the receivers say of themselves, in brief."""
    if any(flow["receiver"] is None for flow in run["flows"]):
        return "no report"
    return f"{_delivered(run)} delivered"


def _delivered(run: dict[str, Any]) -> int:
    """Samples, by all receivers together."""
    reports = [flow["receiver"] or {"delivered": 0} for flow in run["flows"]]
    streams = [stream for report in reports for stream in report.get("streams", {"": report}).values()]
    return sum(stream["delivered"] for stream in streams)
