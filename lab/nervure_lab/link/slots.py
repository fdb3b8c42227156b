"""Which runs go at the same time: no clock and no threads, so that it can be tested by itself."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from nervure_lab.link.contract import Cell
from nervure_lab.link.plan import PlannedCell
from nervure_lab.link.targets import is_judged_by_latency

BUDGET_PER_CORE = 0.6
"""How much of each core runs may take at the same time, on average: samples go out in bursts."""
MOST = 12
"""Runs at the same time, at most."""
IDLE_CORES = 0.03
"""What a run of Nervure took on one machine: emulator and both ends, with next to nothing to carry, .."""
CORES_PER_MBIT = 0.0028
""".. for each Mbit/s on the link, .."""
QUEUE_CORES = 0.25
""".. and for the emulator's queue where more is asked for than the link carries."""
LIGHT_MBIT = 5.0
"""A stream that asks for less disturbs nobody, and is disturbed by nothing but the machine."""


@dataclass(frozen=True)
class Job:
    """A run that waits for its turn."""

    adapter: str
    seed: int
    planned: PlannedCell
    cell: Cell
    """As this adapter runs it."""
    at_most_seconds: float

    @property
    def name(self) -> str:
        return self.planned.name

    @property
    def cores(self) -> float:
        """What it is expected to take of the budget. One whose latency is judged runs alone, and one whose
        programs are timed as they start, and disturb all others.
        """
        is_light = self.cell.payload_mbit <= LIGHT_MBIT
        if not _is_one_stream(self.cell) or (is_judged_by_latency(self.name) and not is_light):
            return math.inf
        return _expected_cores(self.cell)


def _is_one_stream(cell: Cell) -> bool:
    return not (cell.veth or cell.robots > 1 or cell.beside or cell.connects)


def _expected_cores(cell: Cell) -> float:
    kept = 1 - cell.loss_percent / 100
    if cell.payload_mbit > cell.rate_mbit * kept:
        return IDLE_CORES + QUEUE_CORES + CORES_PER_MBIT * cell.rate_mbit
    return IDLE_CORES + CORES_PER_MBIT * cell.payload_mbit / kept


class Slots:
    """Hands out runs in their order. One that has to wait for room is not overtaken by any that would keep
    it waiting longer, so a large one is never starved by small ones.
    """

    def __init__(self, jobs: list[Job], budget_cores: float, most: int = MOST) -> None:
        self.waiting = list(jobs)
        self._budget_cores = budget_cores
        self._most = most
        self._running: dict[Job, float] = {}
        """When each ends at the latest."""
        self._taken: dict[tuple[str, str], float] = {}
        """What the last run of an adapter and a cell took."""
        self._ratios: dict[str, list[float]] = {}
        """What the runs of an adapter took beside what was expected."""

    def next(self, now: float) -> Job | None:
        """A run to start now, which is counted as running; none if there is no room, or nothing left."""
        if not self.waiting:
            return None
        first = self.waiting[0]
        if self._fits(first, list(self._running)):
            return self._start(first, now)
        room_at = self._room_at(first)
        for job in self.waiting[1:]:
            if now + job.at_most_seconds <= room_at and self._fits(job, list(self._running)):
                return self._start(job, now)
        return None

    def finished(self, job: Job) -> None:
        del self._running[job]

    def took(self, adapter: str, name: str, cell: Cell, cores: float) -> None:
        """Learns what a run took: a slower machine, or an adapter with more to do, has room for fewer."""
        if _is_one_stream(cell):
            self._taken[adapter, name] = cores
            self._ratios.setdefault(adapter, []).append(cores / _expected_cores(cell))

    def again(self, job: Job) -> None:
        """Once more, after all others."""
        self.waiting.append(job)

    def drop_those_that_end_after(self, end: float, now: float) -> None:
        """Runs for which there is no time left are not begun."""
        self.waiting = [job for job in self.waiting if now + job.at_most_seconds <= end]

    def seconds_left(self, now: float) -> float:
        """How long all that waits and runs takes, roughly."""
        shares = [
            max(min(self._cores(job) / self._budget_cores, 1.0), 1 / self._most) for job in self.waiting
        ]
        work = sum(share * job.at_most_seconds for share, job in zip(shares, self.waiting, strict=True))
        return work + max((end - now for end in self._running.values()), default=0.0)

    def _fits(self, job: Job, beside: list[Job]) -> bool:
        """What is larger than all runs alone."""
        if not beside:
            return True
        return len(beside) < self._most and sum(map(self._cores, [*beside, job])) <= self._budget_cores

    def _cores(self, job: Job) -> float:
        """As much as with another seed; else as much more than expected as others of its adapter."""
        if math.isinf(job.cores):
            return job.cores
        ratio = statistics.fmean(self._ratios.get(job.adapter, [1.0]))
        return self._taken.get((job.adapter, job.name), job.cores * ratio)

    def _room_at(self, job: Job) -> float:
        """When enough of the running ones have ended for this one, at the latest."""
        left = sorted(self._running, key=lambda running: self._running[running])
        while left:
            ended = left.pop(0)
            if self._fits(job, left):
                return self._running[ended]
        raise AssertionError("a run fits where nothing runs")

    def _start(self, job: Job, now: float) -> Job:
        self.waiting.remove(job)
        self._running[job] = now + job.at_most_seconds
        return job
