"""What the Python endpoints of the link experiment share: schedule, clock, report. Standard library alone.

Sample n is due at ``start + n / rate``, whatever became of those before it: an open loop. It begins with
the time at which it was due (CLOCK_MONOTONIC, the same in both hosts) and its number. Latency is from
there to the reception.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

HEADER = struct.Struct("<QQ")
DRAIN_SECONDS = 3.0
"""How long the receiver waits for what is late, past the end of the schedule."""


class Run:
    """The cell, and when it starts: when both ends have said that they are ready."""

    def __init__(self) -> None:
        cell = json.loads(os.environ["LAB_CELL"])
        self.samples: int = cell["samples"]
        self.rate_hz: float = cell["rate_hz"]
        self.payload_bytes: int = cell["payload_bytes"]
        self._rendezvous = socket.socket(socket.AF_UNIX)
        self._rendezvous.connect(os.environ["LAB_RENDEZVOUS"])
        self.start_nanos = 0

    def ready(self) -> None:
        self._rendezvous.sendall(b"ready\n")
        line = self._rendezvous.makefile().readline()
        self.start_nanos = int(line)

    @property
    def end_nanos(self) -> int:
        return self.start_nanos + int((self.samples / self.rate_hz + DRAIN_SECONDS) * 1e9)

    def send_all(self, publish: Callable[[bytes], None]) -> None:
        """Publishes each sample when it is due, or as soon as the one before has been taken."""
        filler = os.urandom(max(self.payload_bytes - HEADER.size, 0))
        for number in range(self.samples):
            due = self.start_nanos + int(number * 1e9 / self.rate_hz)
            wait = due - time.monotonic_ns()
            if wait > 0:
                time.sleep(wait * 1e-9)
            publish(HEADER.pack(due, number) + filler)
        time.sleep(max(self.end_nanos - time.monotonic_ns(), 0) * 1e-9)


class Receptions:
    """What arrived, and when."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._latency_ms: dict[int, float] = {}
        self._duplicates = 0
        self._last_nanos = 0

    def add(self, sample: bytes | memoryview) -> None:
        now = time.monotonic_ns()
        if len(sample) != max(self.run.payload_bytes, HEADER.size):
            raise ValueError(f"a sample of {len(sample)} bytes")
        due, number = HEADER.unpack_from(sample)
        self._duplicates += number in self._latency_ms
        self._latency_ms.setdefault(number, (now - due) * 1e-6)
        self._last_nanos = now

    @property
    def seconds_left(self) -> float:
        """Until this run ends; 0 when all has arrived."""
        if len(self._latency_ms) == self.run.samples:
            return 0.0
        return max((self.run.end_nanos - time.monotonic_ns()) * 1e-9, 0.0)

    def report(self) -> None:
        latencies = sorted(self._latency_ms.values())
        count = len(latencies)

        def percentile(share: float) -> float:
            return latencies[max(math.ceil(share * count) - 1, 0)] if latencies else 0.0

        result: dict[str, Any] = {
            "delivered": count,
            "duplicates": self._duplicates,
            "mean_ms": sum(latencies) / count if count else 0.0,
            "p50_ms": percentile(0.5),
            "p99_ms": percentile(0.99),
            "max_ms": percentile(1.0),
            "seconds": max(self._last_nanos - self.run.start_nanos, 0) * 1e-9,
        }
        with open(os.environ["LAB_REPORT"], "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(result, file)
