"""Which cells, how many samples, which seeds."""

from __future__ import annotations

from dataclasses import dataclass

from nervure_lab.link.contract import Cell


@dataclass(frozen=True)
class PlannedCell:
    cell: Cell
    seeds: int
    """For Nervure; the others run with fewer where time counts."""
    seeds_of_others: int


def plan(quick: bool) -> list[PlannedCell]:
    return _quick() if quick else _full()


def _quick() -> list[PlannedCell]:
    """Five minutes: enough to see where things stand, not enough for a claim."""
    pairs = [(300, 0), (300, 20), (300, 40), (54, 20), (1000, 20)]
    return [PlannedCell(Cell(rate, loss, samples=120), 1, 1) for rate, loss in pairs]


def _full() -> list[PlannedCell]:
    """About seven hours: a thousand samples and five seeds a cell."""
    losses = (0, 1, 10, 20, 40)
    planned = [PlannedCell(Cell(rate, loss), 5, 1) for rate in (54, 300, 1000) for loss in losses]
    for loss in losses:
        planned.append(PlannedCell(Cell(300, loss, payload_bytes=1024), 5, 1))
    # Mininet's experiment of the 2020 report: loss on each of two hops, Array1k and PointCloud512k. One link
    # here has the loss of both.
    for rate in (54, 300, 1000):
        for hop_loss in (0, 10, 20, 30, 40):
            loss = round(100 * (1 - (1 - hop_loss / 100) ** 2), 2)
            planned += [PlannedCell(Cell(rate, loss, payload_bytes=size), 5, 1) for size in (1024, 524_288)]
    # Large data over lossy wireless, the poster: sizes and losses.
    for kib in (32, 64, 128, 256):
        planned += [PlannedCell(Cell(300, loss, payload_bytes=kib * 1024), 5, 1) for loss in (0, 1, 20)]
    special = [
        Cell(300, 20, round_trip_ms=40),
        Cell(300, 20, round_trip_ms=200),
        Cell(300, 10, fade="270ms:30ms"),
        Cell(300, 20, jitter_ms=5),
        Cell(300, 20, half_duplex=True),
        Cell(54, 10, queue_ms=5),
        Cell(300, 20, queue_ms=1000),
    ]
    planned += [PlannedCell(cell, 5, 1) for cell in special]
    # Cells that two experiments share are measured once.
    return list(dict.fromkeys(planned))
