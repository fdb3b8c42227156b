from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nervure_lab.experiments.local.endpoint import (
    END_OF_STREAM,
    ENDS_UNTIL_LOST,
    HEADER,
    Consumer,
    now_nanos,
)


class FakeEndpoint:
    """An endpoint without a driver."""

    def __init__(self, **case: Any) -> None:
        defaults = {"mode": "paced", "payload_bytes": 64, "touch": True, "warmup_messages": 2, "index": 0}
        self.case = SimpleNamespace(**{**defaults, "flood_warmup_seconds": 0.0, **case})
        self.record: dict[str, Any] = {}

    def ready_then_wait_for_start(self) -> None: ...

    def wait_for_line(self) -> None: ...

    def report(self, record: dict[str, Any]) -> None:
        self.record = record


def message(sequence: int, second: int = 0, third: int = 0) -> bytearray:
    content = bytearray(64)
    HEADER.pack_into(content, 0, sequence, second, third)
    return content


def test_latency_is_taken_before_and_end_to_end_after_the_payload_is_read() -> None:
    endpoint = FakeEndpoint(warmup_messages=1)
    consumer = Consumer(endpoint)  # type: ignore[arg-type]
    start = now_nanos()
    for sequence in range(3):
        consumer.observe(start + 500, message(sequence, start, start + 100))
    consumer.observe(now_nanos(), message(END_OF_STREAM, 3))
    assert consumer.finished
    consumer.report()
    assert endpoint.record["latency_nanos"] == [400, 400]
    assert endpoint.record["warmup_latency_nanos"] == [400]
    assert all(nanos > 0 for nanos in endpoint.record["end_to_end_nanos"])
    assert (endpoint.record["received"], endpoint.record["lost"]) == (3, 0)


def test_gaps_repeats_and_late_arrivals_are_counted() -> None:
    endpoint = FakeEndpoint()
    consumer = Consumer(endpoint)  # type: ignore[arg-type]
    for sequence in (2, 3, 5, 4, 5, 200):
        consumer.observe(now_nanos(), message(sequence))
    for _ in range(ENDS_UNTIL_LOST):
        assert not consumer.finished
        consumer.observe(now_nanos(), message(END_OF_STREAM, 300))
    assert consumer.finished
    consumer.report()
    counts = {
        name: endpoint.record[name]
        for name in ("received", "lost", "lost_before_first", "reordered", "duplicates")
    }
    assert counts == {"received": 5, "lost": 295, "lost_before_first": 2, "reordered": 1, "duplicates": 1}


def test_a_late_message_after_the_end_still_counts() -> None:
    endpoint = FakeEndpoint()
    consumer = Consumer(endpoint)  # type: ignore[arg-type]
    consumer.observe(now_nanos(), message(0))
    consumer.observe(now_nanos(), message(END_OF_STREAM, 2))
    assert not consumer.finished
    consumer.observe(now_nanos(), message(1))
    assert consumer.finished


def test_throughput_counts_intervals_after_the_warm_up() -> None:
    endpoint = FakeEndpoint(mode="flood", flood_warmup_seconds=1e-6)
    consumer = Consumer(endpoint)  # type: ignore[arg-type]
    for sequence, nanos in enumerate((10_000, 10_500, 11_000, 12_000, 13_000)):
        consumer.observe(nanos, message(sequence))
    consumer.report()
    record = endpoint.record
    assert (record["window_start_nanos"], record["last_receive_nanos"]) == (11_000, 13_000)
    assert (record["window_messages"], record["window_bytes"]) == (2, 128)
