"""How late this machine wakes up a process that only waits: `python -m nervure_lab.link.ticker FILE`. It ends
when it is asked to, and leaves one line of JSON. A latency that is no longer than the longest delay here may
be the machine's and not the link's.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

PERIOD_NANOS = 2_000_000
STALL_NANOS = 5_000_000
"""A delay that is longer counts as a stall."""


@contextmanager
def ticking(file: Path, environment: dict[str, str]) -> Iterator[None]:
    """Runs one beside what is done here; it has written its line at the end."""
    ticker = Popen([sys.executable, "-m", "nervure_lab.link.ticker", str(file)], env=environment)
    try:
        yield
    finally:
        ticker.terminate()
        ticker.wait()


def stolen_seconds() -> float:
    """Processor time that others on the host have had instead of this virtual machine, all cores together."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(fields[8]) / 100


class Lateness:
    """Of wake-ups that were due one period after the other."""

    def __init__(self, start_nanos: int) -> None:
        self.due_nanos = start_nanos + PERIOD_NANOS
        self._ticks = 0
        self._worst_nanos = 0
        self._stalls = 0
        self._stalled_nanos = 0

    def woke_up(self, now_nanos: int) -> None:
        """What was missed meanwhile is not made up for."""
        late = max(now_nanos - self.due_nanos, 0)
        self._ticks += 1
        self._worst_nanos = max(self._worst_nanos, late)
        if late > STALL_NANOS:
            self._stalls += 1
            self._stalled_nanos += late
        self.due_nanos = max(self.due_nanos + PERIOD_NANOS, now_nanos)

    @property
    def figures(self) -> dict[str, Any]:
        return {
            "ticks": self._ticks,
            "worst_ms": self._worst_nanos * 1e-6,
            "stalls": self._stalls,
            "stalled_ms": self._stalled_nanos * 1e-6,
        }


def main(file: Path) -> None:
    class Ended(Exception):
        pass

    def end(*_: object) -> None:
        raise Ended

    lateness = Lateness(time.monotonic_ns())
    # Ctrl-C is for the experiment, which then asks this to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        signal.signal(signal.SIGTERM, end)
        while True:
            time.sleep(max(lateness.due_nanos - time.monotonic_ns(), 0) * 1e-9)
            lateness.woke_up(time.monotonic_ns())
    except Ended:
        file.write_text(json.dumps(lateness.figures) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
