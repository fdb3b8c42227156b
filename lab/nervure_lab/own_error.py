"""The error of the measurement: ``python -m nervure_lab.own_error`` times the endpoint without a peer."""

from __future__ import annotations

from typing import Any

import numpy as np

from nervure_lab.peer import Stamp
from nervure_lab.peer_endpoint import Publications, now_nanos, wait_until, without_timer_slack

RATE_HZ = 100.0
MESSAGES = 1000
STAMPS = 100_000


class _Nowhere:
    def publish(self, source: Any, stamp: Stamp) -> None:
        stamp(source)


def stamp_micros() -> float:
    """The mean duration of one stamp: reading the clock and writing the header."""
    publications = Publications(_Nowhere(), 0, 64)
    began = now_nanos()
    for _ in range(STAMPS):
        publications.probe()
    return (now_nanos() - began) / STAMPS / 1e3


def pacing_micros() -> np.ndarray[Any, np.dtype[np.float64]]:
    """How late each message of a schedule is published."""
    publications = Publications(_Nowhere(), 0, 64)
    start = now_nanos() + 10_000_000
    for sequence in range(MESSAGES):
        due = start + int(sequence * 1e9 / RATE_HZ)
        wait_until(due)
        publications.publish(sequence, due)
    log = np.frombuffer(publications.log, dtype=np.int64).reshape(-1, 5)
    return (log[:, 2] - log[:, 1]) / 1e3


def main() -> None:
    without_timer_slack()
    print(f"stamp: {stamp_micros():.2f} us")
    late = pacing_micros()
    p50, p99, highest = np.percentile(late, [50, 99, 100])
    print(
        f"pacing error at {RATE_HZ:.0f} Hz: median {p50:.1f} us, p99 {p99:.1f} us, maximum {highest:.1f} us"
    )


if __name__ == "__main__":
    main()
