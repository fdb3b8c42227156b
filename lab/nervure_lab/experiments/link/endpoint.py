"""Schedule, clock and report of the link experiment's Python endpoints. Standard library alone.

Sample n is due at ``start + n / rate``, regardless of the samples before it: an open loop. A sample begins
with its due time (CLOCK_MONOTONIC, the same in both hosts) and its number. Latency is the time from the due
time to the reception.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Callable
from typing import Any

from nervure_lab.endpoint import Endpoint
from nervure_lab.statistics import nearest_rank

HEADER = struct.Struct("<QQ")
DRAIN_SECONDS = 3.0
"""Time that the receiver waits for late samples after the end of the schedule."""
CONNECT_SECONDS = 10.0
"""Time limit for reaching the other end; after that an end reports that it is ready nevertheless, because
the experiment measures transport, not discovery."""
GIVE_UP_SECONDS = 10.0
"""Time without any sample after which a run ends."""


class Run:
    """The case, and its start time, which is set when both ends are ready."""

    def __init__(self) -> None:
        self._endpoint = Endpoint()
        self.samples: int = self._endpoint.case.samples
        self.rate_hz: float = self._endpoint.case.rate_hz
        self.payload_bytes: int = self._endpoint.case.payload_bytes
        self.start_nanos = 0
        self._cpu_before = 0.0

    def ready(self) -> None:
        self.start_nanos = int(self._endpoint.ready_then_wait_for_start())
        self._cpu_before = time.process_time()

    @property
    def end_nanos(self) -> int:
        return self.start_nanos + int((self.samples / self.rate_hz + DRAIN_SECONDS) * 1e9)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all threads of this process since the start."""
        return time.process_time() - self._cpu_before

    def send_all(self, publish: Callable[[bytes], None]) -> None:
        """Publishes each sample at its due time, or when the publication of the sample before returns. Then
        waits for SIGTERM, which comes when the receiver has ended, or for the end of the drain time.
        """

        def end(*_: object) -> None:
            report({"cpu_s": self.cpu_seconds})
            os._exit(0)

        signal.signal(signal.SIGTERM, end)
        filler = os.urandom(max(self.payload_bytes - HEADER.size, 0))
        for number in range(self.samples):
            due = self.start_nanos + int(number * 1e9 / self.rate_hz)
            wait = due - time.monotonic_ns()
            if wait > 0:
                time.sleep(wait * 1e-9)
            publish(HEADER.pack(due, number) + filler)
        time.sleep(max(self.end_nanos - time.monotonic_ns(), 0) * 1e-9)
        end()


class Receptions:
    """The samples that arrived, with their times."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._received: dict[int, tuple[int, int]] = {}
        self._duplicates = 0
        self._last_nanos = 0
        self._gave_up = False

    def add(self, sample: bytes | memoryview) -> None:
        now = time.monotonic_ns()
        if len(sample) != max(self.run.payload_bytes, HEADER.size):
            raise ValueError(f"a sample of {len(sample)} bytes")
        due, number = HEADER.unpack_from(sample)
        self._duplicates += number in self._received
        self._received.setdefault(number, (due, now))
        self._last_nanos = now

    @property
    def seconds_left(self) -> float:
        """Time until this run ends; 0 if all samples arrived, or none within ``GIVE_UP_SECONDS``."""
        if len(self._received) == self.run.samples:
            return 0.0
        now = time.monotonic_ns()
        left = (self.run.end_nanos - now) * 1e-9
        if not self._received:
            until = (self.run.start_nanos - now) * 1e-9 + GIVE_UP_SECONDS
            self._gave_up = until <= 0 < left
            left = min(left, until)
        return max(left, 0.0)

    def report(self) -> None:
        """Writes report and receptions. Call it before closing anything, which may wait for the other end."""
        latencies = sorted((received - due) * 1e-6 for due, received in self._received.values())
        count = len(latencies)

        def percentile(share: float) -> float:
            return nearest_rank(latencies, share) if latencies else 0.0

        report(
            {
                "delivered": count,
                "duplicates": self._duplicates,
                "mean_ms": sum(latencies) / count if count else 0.0,
                "p50_ms": percentile(0.5),
                "p99_ms": percentile(0.99),
                "max_ms": percentile(1.0),
                "seconds": max(self._last_nanos - self.run.start_nanos, 0) * 1e-9,
                "cpu_s": self.run.cpu_seconds,
                "gave_up": self._gave_up,
            }
        )
        with open(os.environ["NERVURE_LAB_RECEPTIONS"], "w", encoding="ascii") as file:  # noqa: PTH123
            for number, (due, received) in self._received.items():
                file.write(f"lab {number} {due} {received}\n")


def report(figures: dict[str, Any]) -> None:
    """Writes the report of this end, in place of an earlier one."""
    with open(os.environ["NERVURE_LAB_REPORT"], "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(figures, file)
        file.write("\n")
