"""The figures of a run, or of all repeats of a cell, from the table of their messages. The warm-up counts
only for the losses, of which it is a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from nervure_lab.comparison.case import Case

Floats = NDArray[np.float64]
SILENCE_SECONDS = 5.0


def latencies_micros(table: pl.DataFrame, case: Case) -> Floats:
    """Of the delivered messages. On one host from the stamp, which excludes the copy into loaned memory. Over
    the link from the due time, so that a publisher that blocks delays its messages.
    """
    since = "due_nanos" if case.place == "link" else "stamped_nanos"
    kept = table.filter(~pl.col("warmup") & pl.col("received_nanos").is_not_null())
    return np.asarray((kept["received_nanos"] - kept[since]).to_numpy(), dtype=np.float64) / 1e3


def end_to_end_micros(table: pl.DataFrame) -> Floats:
    """From before the publication to the end of the read."""
    kept = table.filter(~pl.col("warmup") & pl.col("received_nanos").is_not_null())
    return np.asarray((kept["read_nanos"] - kept["before_nanos"]).to_numpy(), dtype=np.float64) / 1e3


def losses(table: pl.DataFrame) -> dict[str, int]:
    """Sums over all pairs of a publisher and a subscriber."""
    sums = dict.fromkeys(
        (
            "sent",
            "received",
            "lost",
            "lost_before_first",
            "lost_between",
            "lost_tail",
            "duplicated",
            "reordered",
        ),
        0,
    )
    for _, pair in table.group_by(["publisher", "subscriber"], maintain_order=True):
        for name, count in _losses_of_pair(pair.sort("sequence")).items():
            sums[name] += count
    return sums


def _losses_of_pair(pair: pl.DataFrame) -> dict[str, int]:
    arrived = pair["received_nanos"].is_not_null().to_numpy()
    places = np.flatnonzero(arrived)
    sent, received = len(pair), len(places)
    head = int(places[0]) if received else sent
    tail = sent - 1 - int(places[-1]) if received else 0
    order = pair.filter(pl.col("arrival").is_not_null()).sort("arrival")["sequence"].to_numpy()
    # Reordered: a later message arrived before it (RFC 4737, type-P-reordered).
    behind = order < np.maximum.accumulate(order) if received else np.zeros(0, dtype=bool)
    return {
        "sent": sent,
        "received": received,
        "lost": sent - received,
        "lost_before_first": head,
        "lost_between": sent - received - head - tail,
        "lost_tail": tail,
        "duplicated": int((pair["receptions"] - 1).clip(0).sum()),
        "reordered": int(behind.sum()),
    }


def spread(values: Floats) -> dict[str, float | int]:
    """Percentiles, linear between ranks, with the number of values; jitter is p99 less the median."""
    if not len(values):
        return {"count": 0}
    p50, p90, p99, p999 = (float(value) for value in np.percentile(values, [50, 90, 99, 99.9]))
    return {
        "count": len(values),
        "p50": p50,
        "p90": p90,
        "p99": p99,
        "p99_9": p999,
        "max": float(values.max()),
        "mean": float(values.mean()),
        "jitter": p99 - p50,
    }


def rate_over_time(table: pl.DataFrame, seconds: float, step: float = 1.0) -> list[tuple[float, float]]:
    """Messages received per second in each step, from the due time of the first message."""
    arrived = table.filter(pl.col("received_nanos").is_not_null())["received_nanos"].to_numpy() / 1e9
    edges = np.arange(0.0, seconds + step, step)
    counts, _ = np.histogram(arrived, bins=edges)
    return [(float(edge), float(count / step)) for edge, count in zip(edges, counts, strict=False)]


def figures(table: pl.DataFrame, case: Case) -> dict[str, Any]:
    """Every figure of one run."""
    measured = table.filter(~pl.col("warmup"))
    once = measured.filter(pl.col("subscriber") == 0)
    counted = losses(table)
    period_micros = 1e6 / case.rate_hz
    late = measured.filter((pl.col("received_nanos") - pl.col("due_nanos")) > 1000 * period_micros)
    return {
        **counted,
        "late": len(late),
        "delivered_percent": 100 * counted["received"] / counted["sent"] if counted["sent"] else 0.0,
        "latency_micros": spread(latencies_micros(table, case)),
        "end_to_end_micros": spread(end_to_end_micros(table)),
        "pacing_micros": spread(
            np.asarray((once["before_nanos"] - once["due_nanos"]).to_numpy(), float) / 1e3
        ),
        "publication_micros": spread(
            np.asarray((once["returned_nanos"] - once["before_nanos"]).to_numpy(), float) / 1e3
        ),
        "goodput_mbit": _goodput_mbit(table, case),
        "shares_mbit": _shares_mbit(table, case),
        "silent_at_end": _is_silent_at_end(table, case),
    }


def _goodput_mbit(table: pl.DataFrame, case: Case) -> float:
    """Payload received, over the time from the first due time to the last reception."""
    arrived = table.filter(pl.col("received_nanos").is_not_null())["received_nanos"]
    if not len(arrived):
        return 0.0
    seconds = max(float(arrived.max()) / 1e9, case.sending_seconds)  # type: ignore[arg-type]
    return len(arrived) * case.payload_bytes * 8e-6 / seconds


def _shares_mbit(table: pl.DataFrame, case: Case) -> list[float]:
    """The payload of each publisher that arrived within the schedule, over its duration."""
    within = table.filter(pl.col("received_nanos") <= case.sending_seconds * 1e9)
    counts = [len(within.filter(pl.col("publisher") == index)) for index in range(case.publishers)]
    return [count * case.payload_bytes * 8e-6 / case.sending_seconds for count in counts]


def _is_silent_at_end(table: pl.DataFrame, case: Case) -> bool:
    """Whether nothing was received in the last five seconds of a schedule that is longer."""
    if case.sending_seconds <= SILENCE_SECONDS:
        return False
    arrived = table["received_nanos"].drop_nulls()
    last = float(arrived.max()) / 1e9 if len(arrived) else 0.0  # type: ignore[arg-type]
    return last < case.sending_seconds - SILENCE_SECONDS


def violations(found: dict[str, Any], case: Case, link: dict[str, Any] | None) -> list[str]:
    """The gates: reasons why a run cannot be true."""
    reasons = []
    latency = found["latency_micros"]
    if latency["count"] and latency["p50"] < 0:
        reasons.append("messages arrived before they were sent: the clocks disagree")
    if found["received"] > found["sent"]:
        reasons.append("more messages arrived than were sent")
    if case.place == "link":
        if found["goodput_mbit"] > case.rate_mbit:
            reasons.append(
                f"goodput of {found['goodput_mbit']:.1f} Mbit/s is above the capacity of {case.rate_mbit:g}"
            )
        carried = carried_bytes(link)
        if carried is not None and carried < found["received"] * case.payload_bytes:
            reasons.append(
                "the link carried fewer bytes than arrived: they took another way, such as shared memory"
            )
    return reasons


def carried_bytes(link: dict[str, Any] | None) -> int | None:
    """Bytes that the emulated link delivered in both directions."""
    if link is None:
        return None
    return sum(int(host["delivered"]["bytes"]) for host in link["hosts"])


def interval(
    repeats: Sequence[Floats], percent: float = 50.0, *, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of a percentile: bootstrap over repeats, then over the messages of each (Davison and
    Hinkley 1997, section 3.8).
    """
    present = [values for values in repeats if len(values)]
    if not present:
        return (float("nan"), float("nan"))
    generator = np.random.default_rng(seed)
    found = np.empty(resamples)
    for number in range(resamples):
        chosen = generator.integers(0, len(present), len(present))
        drawn = [present[at][generator.integers(0, len(present[at]), len(present[at]))] for at in chosen]
        found[number] = np.percentile(np.concatenate(drawn), percent)
    low, high = np.percentile(found, [2.5, 97.5])
    return (float(low), float(high))
