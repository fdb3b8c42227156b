"""The code that all Python endpoints of ``local`` share; ``lab/programs/endpoint`` is the same in Rust.

It runs inside the peers' environments and needs NumPy alone. A message is published and received by the
contract of a peer (``nervure_lab.peer``).
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy

from nervure_lab.peer import Stamp
from nervure_lab.peer_endpoint import Driver, now_nanos

HEADER = struct.Struct("=3Q")
"""Sequence, time before the copy, time after the fill: nanoseconds of CLOCK_MONOTONIC."""
END_OF_STREAM = 2**64 - 1
END_BYTES = 64
FIRST_UNREAD_WORD = 8
"""First word that touching a payload reads: the words before it share the header's cache line."""
ENDS_UNTIL_LOST = 10
"""End-of-stream messages, 50 ms apart, after which a missing message counts as lost: it may be late."""

Publish = Callable[[bytearray, Stamp], None]


class Endpoint:
    """A process that knows its case and is connected to the driver."""

    def __init__(self) -> None:
        text = os.environ.get("NERVURE_LAB_CASE")
        if text is None:
            raise SystemExit("NERVURE_LAB_CASE is not set: `python -m nervure_lab run` starts this program")
        self.case = SimpleNamespace(**json.loads(text))
        self._driver = Driver(self.case.rendezvous)

    def ready_then_wait_for_start(self) -> None:
        """Sends the hello and waits for the driver's line."""
        self.report({"role": self.case.role, "index": self.case.index, "pid": os.getpid()})
        self.wait_for_line()

    def report(self, record: dict[str, Any]) -> None:
        self._driver.report(record)

    def wait_for_line(self) -> None:
        self._driver.line()

    def may_leave_within(self, timeout_seconds: float) -> bool:
        return self._driver.line(timeout_seconds) is not None


def produce(endpoint: Endpoint, publish: Publish) -> None:
    """Sends the messages of the case, reports, and repeats the end of the stream until all have it."""
    case = endpoint.case
    # Not zeros: the kernel would back a zeroed array with one shared page.
    source = bytearray(numpy.ones(case.payload_bytes // 8, dtype=numpy.uint64).tobytes())
    endpoint.ready_then_wait_for_start()
    usage = UsageWindow()
    sent = {"paced": _paced, "flood": _flood, "idle": _idle}[case.mode](case, publish, source)
    endpoint.report({"role": "producer", "sent": sent, "usage": usage.close()})
    end = bytearray(END_BYTES)
    while True:
        publish(end, lambda memory: HEADER.pack_into(memory, 0, END_OF_STREAM, sent, 0))
        if endpoint.may_leave_within(0.05):
            return


def _paced(case: SimpleNamespace, publish: Publish, source: bytearray) -> int:
    period_nanos = int(1e9 / case.rate_hz)
    total = case.warmup_messages + case.messages
    first_nanos = now_nanos() + period_nanos
    for sequence in range(total):
        time.sleep(max(0, first_nanos + sequence * period_nanos - now_nanos()) * 1e-9)
        before_copy_nanos = now_nanos()
        publish(source, _timed_stamp(sequence, before_copy_nanos))
    return total


def _flood(case: SimpleNamespace, publish: Publish, source: bytearray) -> int:
    end_nanos = now_nanos() + int(case.flood_seconds * 1e9)
    sequence = 0
    while now_nanos() < end_nanos:
        publish(source, _untimed_stamp(sequence))
        sequence += 1
    return sequence


def _timed_stamp(sequence: int, before_copy_nanos: int) -> Stamp:
    return lambda memory: HEADER.pack_into(memory, 0, sequence, before_copy_nanos, now_nanos())


def _untimed_stamp(sequence: int) -> Stamp:
    return lambda memory: HEADER.pack_into(memory, 0, sequence, 0, 0)


def _idle(case: SimpleNamespace, _publish: Publish, _source: bytearray) -> int:
    time.sleep(case.idle_seconds)
    return 0


class Consumer:
    """Counts and times the messages of one consumer."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._case = endpoint.case
        self._flood = self._case.mode == "flood"
        self._touch = self._case.touch and self._case.payload_bytes > END_BYTES
        self._seen = bytearray(1 << 16)
        self._received = self._duplicates = self._reordered = self._ends_seen = 0
        self._first: int | None = None
        self._highest = -1
        self._sent: int | None = None
        self._samples: list[tuple[int, int, int]] = []
        self._first_receive_nanos: int | None = None
        self._window_start_nanos = self._last_receive_nanos = self._window_messages = 0
        self._usage: UsageWindow | None = None
        self.finished = False

    def start(self) -> None:
        """Reports to the driver that this consumer is subscribed, and waits for the start."""
        self._endpoint.ready_then_wait_for_start()

    def observe(self, received_at_nanos: int, message: Any) -> None:
        """Takes one message: anything with the buffer protocol, not touched since ``received_at_nanos``."""
        sequence, before_copy_nanos, after_fill_nanos = HEADER.unpack_from(message)
        if sequence == END_OF_STREAM:
            self._ends_seen += 1
            self._sent = before_copy_nanos
            self.finished = self._received >= self._sent or self._ends_seen >= ENDS_UNTIL_LOST
            return
        if self._first_receive_nanos is None:
            self._first_receive_nanos = received_at_nanos
        if self._touch:
            numpy.frombuffer(message, dtype=numpy.uint64)[FIRST_UNREAD_WORD:].sum()
        if self._flood:
            self._count_throughput(received_at_nanos)
        else:
            touched_at_nanos = now_nanos()
            self._samples.append(
                (sequence, received_at_nanos - after_fill_nanos, touched_at_nanos - before_copy_nanos)
            )
            if self._usage is None and sequence >= self._case.warmup_messages:
                self._usage = UsageWindow()
        self._count_sequence(sequence)
        self._last_receive_nanos = received_at_nanos

    def report(self) -> None:
        """Reports to the driver, and waits until all endpoints have reported."""
        warmup = self._case.warmup_messages
        measured = [sample for sample in self._samples if sample[0] >= warmup]
        warming = [sample for sample in self._samples if sample[0] < warmup]
        self._endpoint.report(
            {
                "role": "consumer",
                "index": self._case.index,
                "received": self._received,
                "lost": max(0, (self._sent or 0) - self._received),
                "lost_before_first": self._first or 0,
                "reordered": self._reordered,
                "duplicates": self._duplicates,
                "warmup_latency_nanos": [sample[1] for sample in warming],
                "warmup_end_to_end_nanos": [sample[2] for sample in warming],
                "latency_nanos": [sample[1] for sample in measured],
                "end_to_end_nanos": [sample[2] for sample in measured],
                "first_receive_nanos": self._first_receive_nanos,
                "window_start_nanos": self._window_start_nanos,
                "last_receive_nanos": self._last_receive_nanos,
                "window_messages": self._window_messages,
                "window_bytes": self._window_messages * self._case.payload_bytes,
                "usage": self._usage.close() if self._usage else None,
            }
        )
        self._endpoint.wait_for_line()

    def _count_throughput(self, received_at_nanos: int) -> None:
        if self._usage is not None:
            self._window_messages += 1
            return
        if received_at_nanos >= self._first_receive_nanos + self._case.flood_warmup_seconds * 1e9:
            # The message that opens the window is not counted, so that a rate is messages over intervals.
            self._usage = UsageWindow()
            self._window_start_nanos = received_at_nanos

    def _count_sequence(self, sequence: int) -> None:
        if sequence >= len(self._seen):
            self._seen.extend(bytes(sequence + 1))
        if self._seen[sequence]:
            self._duplicates += 1
            return
        self._seen[sequence] = 1
        self._received += 1
        if self._first is None:
            self._first = sequence
        if sequence < self._highest:
            self._reordered += 1
        else:
            self._highest = sequence
        if self._sent is not None:
            self.finished = self._received >= self._sent


class UsageWindow:
    """CPU time and context switches of this process since construction."""

    def __init__(self) -> None:
        self._start_nanos = now_nanos()
        self._cpu_nanos = time.process_time_ns()
        self._switches = _voluntary_context_switches()

    def close(self) -> dict:
        return {
            "cpu_seconds": (time.process_time_ns() - self._cpu_nanos) * 1e-9,
            "window_seconds": (now_nanos() - self._start_nanos) * 1e-9,
            "voluntary_context_switches": max(0, _voluntary_context_switches() - self._switches),
            "max_rss_bytes": _status_field(Path("/proc/self/status"), "VmHWM") * 1024,
            "threads": _status_field(Path("/proc/self/status"), "Threads"),
        }


def _voluntary_context_switches() -> int:
    """Sums over the threads: `/proc/self/status` counts the main thread only."""
    threads = Path("/proc/self/task").iterdir()
    return sum(_status_field(thread / "status", "voluntary_ctxt_switches") for thread in threads)


def _status_field(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name + ":")), 0)
