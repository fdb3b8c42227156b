"""Runs a stream over the emulated link with the defaults of a DDS and with a file of settings, through an
outage, and compares the deliveries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from nervure_lab.comparison.accounting import rate_over_time
from nervure_lab.comparison.declaration import read_declaration
from nervure_lab.comparison.experiment import DeclaredExperiment, PeerAdapter
from nervure_lab.comparison.report.summary import time_text
from nervure_lab.comparison.results import Cell, ResultSet
from nervure_lab.peer import LINK, Configuration, Peer
from nervure_lab.quantities import format_size
from nervure_lab.tuning.budget import Budget

NAME = "tune-dds"
BEFORE_OUTAGE_SECONDS = 4.0
LEAST_AFTER_SECONDS = 8.0
MOST_AFTER_SECONDS = 30.0
FRESH_PERIODS = 3.0
"""A sample of at most this age, beside the round trip, shows that the history has drained."""


@dataclass(frozen=True)
class Vendor:
    """A DDS as the lab runs it."""

    peer: Peer
    default: str
    """Name of the configuration with its defaults."""


class Verification(DeclaredExperiment):
    """Two adapters: the defaults, and the file."""

    def __init__(self, vendor: Vendor, settings: Path, declaration: Path) -> None:
        super().__init__(read_declaration(declaration))
        self._vendor = vendor
        self._settings = settings

    def adapters(self) -> list[PeerAdapter]:
        peer = self._vendor.peer
        default = next(it for it in peer.configurations if it.name == self._vendor.default)
        tuned = Configuration(
            "computed",
            f"The settings of `{self._settings.name}`.",
            "`nervure-lab tune-dds`",
            frozenset({LINK}),
            {"settings_file": str(self._settings.absolute())},
        )
        return [PeerAdapter(peer, default), PeerAdapter(peer, tuned)]


def write_declaration(budget: Budget, outage_seconds: float, round_trip_ms: float, file: Path) -> None:
    after = min(max(3 * budget.drain_seconds, LEAST_AFTER_SECONDS), MOST_AFTER_SECONDS)
    seconds = BEFORE_OUTAGE_SECONDS + outage_seconds + after
    grid = f"""
repeats = 1
[[{{profile}}.grid]]
messages = {math.ceil(seconds * budget.rate_hz)}
outage = [{BEFORE_OUTAGE_SECONDS}, {outage_seconds}]
"""
    stream = f"{format_size(budget.payload_bytes)} at {budget.rate_hz:g} Hz"
    link = f"{budget.bandwidth_bits / 1e6:g} Mbit/s with {100 * budget.loss:g} % loss"
    file.write_text(
        f"""name = "{NAME}"
title = "Computed settings of DDS beside its defaults"
question = "Reception of {stream} over {link}, through an outage of {outage_seconds:g} s"
source = "Poster on how to send large data in ROS 2: RELIABLE, KEEP_ALL"
figures = ["rate", "bars"]
cell = "outage-{{size}}"

[case]
place = "link"
payload_bytes = {budget.payload_bytes}
rate_hz = {float(budget.rate_hz)}
keep_all = true
warmup = 0
rate_mbit = {budget.bandwidth_bits / 1e6}
loss_percent = {100 * budget.loss}
round_trip_ms = {round_trip_ms}
drain_seconds = 3.0

[quick]{grid.format(profile="quick")}
[full]{grid.format(profile="full")}""",
        encoding="utf-8",
    )


def describe(directory: Path, budget: Budget) -> Iterator[str]:
    """Yields the lines that compare the adapters of a verification."""
    cells = {cell.adapter: cell for cell in ResultSet.load(directory).of(NAME)}
    for name, cell in cells.items():
        if not cell.measured:
            yield f"{name}: {cell.problems[0]}"
            continue
        yield from _describe(name, cell)
    if len(cells) == 2:
        yield (
            f"computed drain of a full history, {budget.history} samples beside the live stream: "
            f"{budget.drain_seconds:.1f} s"
        )


def _describe(name: str, cell: Cell) -> Iterator[str]:
    table, case = cell.tables[-1], cell.case
    assert case.outage is not None
    begin, duration = case.outage
    end = begin + duration
    before = _rate(table, 0.0, begin)
    after = _rate(table, end, case.sending_seconds)
    yield f"{name}: {cell.delivered_percent:.1f} % of {cell.total('sent')} delivered"
    yield f"  before the outage {before:.1f} Hz, after it {after:.1f} Hz, of {case.rate_hz:g} published"
    drained = drained_after(table, end, FRESH_PERIODS / case.rate_hz + case.round_trip_ms / 1000)
    yield (
        "  the history did not drain before the end"
        if drained is None
        else f"  the history drained {drained:.1f} s after the outage"
    )
    ages = (table["received_nanos"] - table["due_nanos"]).drop_nulls()
    if len(ages):
        yield f"  oldest sample on arrival: {time_text(float(np.max(ages.to_numpy())) / 1e3)}"
    steps = rate_over_time(table, case.sending_seconds)
    yield "  Hz in each second: " + " ".join(f"{rate:.0f}" for _, rate in steps)


def _rate(table: pl.DataFrame, begin: float, end: float) -> float:
    """Messages received per second between two times, in seconds of the schedule."""
    arrived = table["received_nanos"].drop_nulls().to_numpy() / 1e9
    return float(np.sum((arrived >= begin) & (arrived < end)) / (end - begin))


def drained_after(table: pl.DataFrame, end: float, fresh_seconds: float) -> float | None:
    """Seconds from the end of the outage to the arrival of the first sample that is no older than this;
    None without one.
    """
    ages = (pl.col("received_nanos") - pl.col("due_nanos")) / 1e9
    fresh = table.filter((pl.col("received_nanos") >= end * 1e9) & (ages <= fresh_seconds))
    if not len(fresh):
        return None
    return float(fresh["received_nanos"].min()) / 1e9 - end  # type: ignore[arg-type]
