"""Which jobs run at the same time. No clock and no threads, so that it can be tested by itself."""

from __future__ import annotations

import math
import statistics

from nervure_lab.contract import Job

BUDGET_PER_CORE = 0.6
"""Share of each core that concurrent jobs may take on average: samples go out in bursts."""
MOST_JOBS = 12
"""Concurrent jobs, at most."""


class Slots:
    """Assigns jobs in their order. Only jobs that end before there is room for a waiting job may overtake it,
    so that small jobs never starve a large one.
    """

    def __init__(self, jobs: list[Job], budget_cores: float, most: int = MOST_JOBS) -> None:
        self.waiting = list(jobs)
        self._budget_cores = budget_cores
        self._most = most
        self._running: dict[Job, float] = {}
        """The latest end of each."""
        self._taken: dict[tuple[str, str], float] = {}
        """Cores that the last run of an adapter and a cell took."""
        self._ratios: dict[str, list[float]] = {}
        """Cores taken over cores expected, for the runs of an adapter."""

    def next(self, now: float) -> Job | None:
        """Returns a job to start now and counts it as running; None without room, or at the end."""
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

    def took(self, adapter: str, name: str, expected_cores: float, cores: float) -> None:
        """Learns from a run: a slower machine, or an adapter that does more, has room for fewer."""
        self._taken[adapter, name] = cores
        self._ratios.setdefault(adapter, []).append(cores / expected_cores)

    def repeat(self, job: Job) -> None:
        """Queues a job again, after all others."""
        self.waiting.append(job)

    def drop_those_that_end_after(self, end: float, now: float) -> None:
        """Drops the jobs for which there is no time left."""
        self.waiting = [job for job in self.waiting if now + job.at_most_seconds <= end]

    def seconds_left(self, now: float) -> float:
        """Rough duration of everything that waits and runs."""
        shares = [
            max(min(self._cores(job) / self._budget_cores, 1.0), 1 / self._most) for job in self.waiting
        ]
        work = sum(share * job.at_most_seconds for share, job in zip(shares, self.waiting, strict=True))
        return work + max((end - now for end in self._running.values()), default=0.0)

    def _fits(self, job: Job, beside: list[Job]) -> bool:
        """A job above the budget fits alone."""
        if not beside:
            return True
        return len(beside) < self._most and sum(map(self._cores, [*beside, job])) <= self._budget_cores

    def _cores(self, job: Job) -> float:
        """As many as with another repeat; else the expected ones, scaled as for the adapter's other runs."""
        if math.isinf(job.cores):
            return job.cores
        ratio = statistics.fmean(self._ratios.get(job.adapter, [1.0]))
        return self._taken.get((job.adapter, job.name), job.cores * ratio)

    def _room_at(self, job: Job) -> float:
        """The latest time at which enough running jobs have ended for this one."""
        left = sorted(self._running, key=lambda running: self._running[running])
        while left:
            ended = left.pop(0)
            if self._fits(job, left):
                return self._running[ended]
        raise AssertionError("a job fits where nothing runs")

    def _start(self, job: Job, now: float) -> Job:
        self.waiting.remove(job)
        self._running[job] = now + job.at_most_seconds
        return job
