"""Which runs go at the same time: no clock and no threads, so that it can be tested by itself."""

from __future__ import annotations

from dataclasses import dataclass

from nervure_lab.link.contract import Cell
from nervure_lab.link.plan import PlannedCell

MBIT_PER_CORE = 320.0
"""Emulated Mbit/s at the same time for each core of the machine: two links of 300 and some small ones on
two.
"""
MOST = 6
"""Runs at the same time, at most."""
BURST = 10.0
"""A sample goes out at the rate of the link, and the ends rest between two: a stream that asks for little
loads the machine with this many times what it asks for, and with the rate of the link at most."""
FULL = 2.0
"""Where it asks for more than the link carries there is no rest: so many times the rate."""


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
    def mbit(self) -> float:
        """What it takes of the budget."""
        if self.cell.veth or self.cell.robots > 1:
            return float("inf")
        carried_mbit = self.cell.rate_mbit * (1 - self.cell.loss_percent / 100)
        if self.cell.beside or self.cell.payload_mbit > carried_mbit:
            return FULL * self.cell.rate_mbit
        return min(self.cell.rate_mbit, BURST * self.cell.payload_mbit)


class Slots:
    """Hands out runs in their order. One that has to wait for room is not overtaken by any that would keep
    it waiting longer, so a large one is never starved by small ones.
    """

    def __init__(self, jobs: list[Job], budget_mbit: float, most: int = MOST) -> None:
        self.waiting = list(jobs)
        self._budget_mbit = budget_mbit
        self._most = most
        self._running: dict[Job, float] = {}
        """When each ends at the latest."""

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

    def drop_those_that_end_after(self, end: float, now: float) -> None:
        """Runs for which there is no time left are not begun."""
        self.waiting = [job for job in self.waiting if now + job.at_most_seconds <= end]

    def seconds_left(self, now: float) -> float:
        """How long all that waits and runs takes, roughly."""
        shares = [max(min(job.mbit / self._budget_mbit, 1.0), 1 / self._most) for job in self.waiting]
        work = sum(share * job.at_most_seconds for share, job in zip(shares, self.waiting, strict=True))
        return work + max((end - now for end in self._running.values()), default=0.0)

    def _fits(self, job: Job, beside: list[Job]) -> bool:
        """What is larger than all runs alone."""
        if not beside:
            return True
        return len(beside) < self._most and sum(other.mbit for other in [*beside, job]) <= self._budget_mbit

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
