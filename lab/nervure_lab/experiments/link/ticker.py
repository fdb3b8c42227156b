"""Detects when the host stopped this virtual machine: `python -m nervure_lab.experiments.link.ticker FILE
CORE` sleeps on one core and records late wake-ups. SIGTERM ends it; it then writes one line of JSON.

With real-time priority no process of this machine can delay it, so a late wake-up means that the host
stopped the core. Without that permission the load of the experiment itself may be the cause.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

from nervure_lab.reports import last_summary
from nervure_lab.toolchain import LAB_DIRECTORY

PERIOD_NANOS = 2_000_000
STOP_NANOS = 5_000_000
"""A longer delay counts as a stop."""
PRIORITY = 50
"""In the real-time scheduling class SCHED_FIFO, from 1 to 99."""


class Machine:
    """The disturbances of the machine during a run."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._before = self._after = ProcessorSeconds.now()

    def ended(self) -> None:
        self._after = ProcessorSeconds.now()

    def figures(self, origin_nanos: int | None) -> dict[str, Any]:
        """The stops are in microseconds from the origin; without one they are left out."""
        found = merged_stops(core for file in self._files if (core := last_summary(file)))
        stops = found.pop("stops_nanos")
        before, after = self._before, self._after
        found |= {
            "stolen_s": round(after.stolen - before.stolen, 2),
            "busy_share": round((after.busy - before.busy) / max(after.total - before.total, 0.01), 3),
        }
        if origin_nanos is None:
            return found
        micros = [[(nanos - origin_nanos) // 1000 for nanos in stop] for stop in stops]
        # The tickers start before the run.
        return found | {"stops_micros": [stop for stop in micros if stop[0] > 0]}


@contextmanager
def watched(directory: Path) -> Iterator[Machine]:
    """Runs a ticker on each core during the block; their files in the directory are written at its end."""
    files = {core: directory / f"ticker-{core}.json" for core in os.sched_getaffinity(0)}
    words = [sys.executable, "-m", __name__]
    environment = os.environ | {"PYTHONPATH": str(LAB_DIRECTORY)}
    tickers = [Popen([*words, str(file), str(core)], env=environment) for core, file in files.items()]
    machine = Machine(list(files.values()))
    try:
        yield machine
    finally:
        machine.ended()
        for ticker in tickers:
            ticker.terminate()
        for ticker in tickers:
            ticker.wait()


def merged_stops(cores: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Merges the reports of all cores: a stop of one core is a stop of the machine."""
    cores = list(cores)
    merged: list[list[int]] = []
    for begin, end in sorted(stop for core in cores for stop in core["stops_nanos"]):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return {
        "realtime": bool(cores) and all(core["realtime"] for core in cores),
        "worst_ms": max((core["worst_ms"] for core in cores), default=None),
        "stopped_ms": sum(end - begin for begin, end in merged) * 1e-6,
        "stops_nanos": merged,
    }


class ProcessorSeconds(NamedTuple):
    """Of all cores together since boot; see `proc_stat(5)`."""

    stolen: float
    """Time that the host gave to other virtual machines."""
    busy: float
    """Time that was not idle, stolen time included."""
    total: float

    @classmethod
    def now(cls) -> ProcessorSeconds:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
        # Guest time, the last two fields, is part of user time.
        used = [int(field) / 100 for field in fields[1:9]]
        _user, _nice, _system, idle, waits_for_disk, _irq, _softirq, stolen = used
        return cls(stolen, sum(used) - idle - waits_for_disk, sum(used))


class Lateness:
    """Delays of periodic wake-ups."""

    def __init__(self, start_nanos: int) -> None:
        self.due_nanos = start_nanos + PERIOD_NANOS
        self._worst_nanos = 0
        self._stops: list[tuple[int, int]] = []

    def woke_up(self, now_nanos: int) -> None:
        """Missed periods are skipped."""
        late = max(now_nanos - self.due_nanos, 0)
        self._worst_nanos = max(self._worst_nanos, late)
        if late > STOP_NANOS:
            # The stop may have begun at any time since the last wake-up.
            self._stops.append((self.due_nanos - PERIOD_NANOS, now_nanos))
        self.due_nanos = max(self.due_nanos + PERIOD_NANOS, now_nanos)

    @property
    def figures(self) -> dict[str, Any]:
        return {"worst_ms": self._worst_nanos * 1e-6, "stops_nanos": self._stops}


def main(file: Path, core: int) -> None:
    class Ended(Exception):
        pass

    def end(*_: object) -> None:
        raise Ended

    # Ctrl-C is for the experiment, which then sends SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, {core})
    realtime = _take_priority()
    lateness = Lateness(time.monotonic_ns())
    try:
        signal.signal(signal.SIGTERM, end)
        while True:
            time.sleep(max(lateness.due_nanos - time.monotonic_ns(), 0) * 1e-9)
            lateness.woke_up(time.monotonic_ns())
    except Ended:
        file.write_text(json.dumps({"realtime": realtime} | lateness.figures) + "\n")


def _take_priority() -> bool:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except PermissionError:
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
