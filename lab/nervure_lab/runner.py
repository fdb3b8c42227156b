"""Runs an experiment: the adapters in turns, concurrent jobs as far as the machine allows, each run stored
when it has ended.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nervure_lab.contract import Adapter, Experiment, Job, Planned, Unavailable
from nervure_lab.machine import load_average, source_version
from nervure_lab.processes import Processes
from nervure_lab.slots import BUDGET_PER_CORE, MOST_JOBS, Slots
from nervure_lab.store import ResultFile, load, session
from nervure_lab.toolchain import Toolchain

SET_UP_SECONDS = 1.0
"""Delay of a job that starts beside others, so that its set-up does not delay their first samples."""


@dataclass(frozen=True)
class Options:
    profile: str
    resume: bool = False
    minutes: float | None = None
    """No job starts that would end later than this."""
    parallel: int = MOST_JOBS
    """Concurrent jobs, at most."""


def run_experiment(
    experiment: Experiment[Any, Any],
    wanted: Sequence[Planned],
    adapters: Sequence[Adapter],
    options: Options,
    output: Path,
    *,
    whole: tuple[Sequence[Planned], Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Runs it and returns the contents of the result file; raises ``Unavailable`` if it cannot run here.

    ``whole`` is the full plan and all names of adapters, from which ``wanted`` and ``adapters`` were chosen:
    the page names the missing ones.
    """
    with tempfile.TemporaryDirectory(prefix="nervure-lab-") as name:
        toolchain = Toolchain(Path(name))
        experiment.set_up(toolchain)
        entries = _prepare(experiment.describe, adapters, toolchain)
        available = [adapter for adapter, entry in zip(adapters, entries, strict=True) if entry["available"]]
        file = ResultFile(output, resume=options.resume)
        experiment.store_beside(output)
        stored = load(output)["runs"] if file.resumed else []
        cells, names = whole or (wanted, [adapter.name for adapter in available])
        absent = {adapter.name for adapter in adapters} - {adapter.name for adapter in available}
        planned = _planned(cells, [name for name in names if name not in absent])
        fields = {"adapters": entries, "planned": planned}
        with session(experiment.name, options.profile, fields, file.add):
            jobs = experiment.jobs(wanted, available)
            _Session(experiment, available, file, stored).work(jobs, options)
    return load(output)


class _Session:
    def __init__(
        self,
        experiment: Experiment[Any, Any],
        adapters: Sequence[Adapter],
        file: ResultFile,
        stored: list[dict[str, Any]],
    ) -> None:
        self._experiment = experiment
        self._adapters = {adapter.name: adapter for adapter in adapters}
        self._file = file
        self._runs = list(stored)
        self._beside_others: set[Job] = set()
        self._processes = Processes()
        self._source = source_version()

    def work(self, wanted: list[Job], options: Options) -> None:
        jobs = [job for job in wanted if not self._is_done(job)]
        if len(jobs) < len(wanted):
            print(f"{len(wanted) - len(jobs)} runs are in the file already", file=sys.stderr)
        slots = Slots(jobs, BUDGET_PER_CORE * (os.cpu_count() or 1), options.parallel)
        for run in self._runs:
            self._learn(run, slots)
        end = time.monotonic() + options.minutes * 60 if options.minutes else math.inf
        self._total, self._ended = len(jobs), 0
        running: dict[Future[dict[str, Any]], Job] = {}
        with ThreadPoolExecutor(options.parallel) as pool:
            try:
                while True:
                    slots.drop_those_that_end_after(end, time.monotonic())
                    while job := slots.next(time.monotonic()):
                        if math.isinf(job.cores):
                            # On this thread, so that an interruption reaches its processes at once.
                            self._keep(job, self._run(job), slots)
                            continue
                        if running:
                            time.sleep(SET_UP_SECONDS)
                            self._beside_others.update(running.values(), [job])
                        running[pool.submit(self._run, job)] = job
                    if not running:
                        return
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        self._keep(running.pop(future), future.result(), slots)
            except BaseException:
                self._processes.end_all()
                raise

    def _run(self, job: Job) -> dict[str, Any]:
        adapter = self._adapters[job.adapter]
        run = self._experiment.run(adapter, job, self._runs, self._processes)
        common = {"adapter": job.adapter, "name": job.name, "repeat": job.repeat}
        return common | run | {"source": self._source, "load_average": load_average()}

    def _keep(self, job: Job, run: dict[str, Any], slots: Slots) -> None:
        slots.finished(job)
        run |= {"beside_others": job in self._beside_others}
        self._beside_others.discard(job)
        self._runs.append(run)
        self._file.add("run", run)
        self._learn(run, slots)
        self._ended += 1
        left = slots.seconds_left(time.monotonic()) / 60
        text = f"[{self._ended:4}/{self._total}, {left:.0f} min left]"
        text += f" {job.name} repeat {job.repeat} {job.adapter}: {self._experiment.progress(run)}"
        if not self._is_done(job):
            slots.repeat(job)
            self._total += 1
            text += f"; {self._experiment.disturbance(run)}, to be repeated"
        print(text, file=sys.stderr)

    def _is_done(self, job: Job) -> bool:
        experiment = self._experiment
        made = [
            run
            for run in self._runs
            if run["repeat"] == job.repeat and experiment.is_of(run, job) and experiment.covers(run, job)
        ]
        return len(made) >= experiment.tries or not all(map(experiment.disturbance, made))

    def _learn(self, run: dict[str, Any], slots: Slots) -> None:
        if (cores := self._experiment.cores(run)) is not None:
            expected, taken = cores
            slots.took(run["adapter"], run["name"], expected, taken)


def prepare_all(adapters: Sequence[Adapter]) -> list[dict[str, Any]]:
    """Installs and builds without a run; returns whether each is available, or why not, and its versions."""
    with tempfile.TemporaryDirectory(prefix="nervure-lab-") as name:
        return _prepare(lambda adapter: {"name": adapter.name}, adapters, Toolchain(Path(name)))


def _prepare(
    describe: Callable[[Adapter], dict[str, Any]], adapters: Sequence[Adapter], toolchain: Toolchain
) -> list[dict[str, Any]]:
    entries = []
    for adapter in adapters:
        entry = describe(adapter)
        print(f"preparing {adapter.name}", file=sys.stderr)
        try:
            adapter.prepare(toolchain)
            entry |= {"available": True, "reason": "", "versions": adapter.versions()}
        except Unavailable as error:
            entry |= {"available": False, "reason": str(error), "versions": {}}
            print(f"{adapter.name} is not measured: {error}", file=sys.stderr)
        entries.append(entry)
    return entries


def _planned(planned: Sequence[Planned], adapters: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "group": entry.group,
            "name": entry.name,
            "case": asdict(entry.case),
            "repeats": {name: entry.repeats_of(name) for name in adapters if entry.repeats_of(name)},
        }
        for entry in planned
    ]
