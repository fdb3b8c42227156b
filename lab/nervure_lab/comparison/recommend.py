"""Answers which peer suits a stream, from results within their range; outside of it names the run that is
missing.

Within means: between two measured values of a quantity, or at one. Two measured cells that differ in one
quantity enclose a wish between them; the answer is then the worse of both, never an interpolation.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

from nervure_lab.comparison.case import Case
from nervure_lab.comparison.report.summary import LOSSLESS_PERCENT, time_text
from nervure_lab.comparison.results import Cell, ResultSet
from nervure_lab.messages import BYTES
from nervure_lab.quantities import parse_bandwidth, parse_loss, parse_size

QUANTITIES = ("payload_bytes", "rate_hz", "loss_percent", "rate_mbit")
_NEAR = 0.05
"""Values closer than this are the same: 512 KB and 512 KiB."""


@dataclass(frozen=True)
class Wanted:
    payload_bytes: float
    rate_hz: float
    loss_percent: float
    rate_mbit: float
    """0 for one host."""

    @classmethod
    def parse(cls, payload: str, rate_hz: float, loss: str, bandwidth: str | None) -> Wanted:
        """Raises ``ValueError`` with the value and the expectation."""
        size = parse_size(payload, "--payload")
        mbit = parse_bandwidth(bandwidth, "--bandwidth") if bandwidth else 0.0
        percent = parse_loss(loss, "--loss")
        if rate_hz <= 0 or size <= 0:
            raise ValueError(f"expected a payload and a rate above 0, got {payload} at {rate_hz} Hz")
        if percent and not mbit:
            raise ValueError("--loss is of a link: give its --bandwidth, too")
        return cls(size, rate_hz, percent, mbit)


@dataclass(frozen=True)
class Answer:
    known: bool
    text: str


def answer(directory: Path, wanted: Wanted) -> Answer:
    cells = [cell for cell in ResultSet.load(directory).cells if _comparable(cell, wanted)]
    enclosing = _enclosing(cells, wanted)
    if not enclosing:
        return Answer(False, _refusal(cells, wanted))
    named = ", ".join(sorted({f"{cell.experiment} {cell.name}" for cell in enclosing}))
    lines = [f"From {named}, the worse value of each peer:"]
    by_adapter: dict[str, list[Cell]] = {}
    for cell in enclosing:
        by_adapter.setdefault(cell.adapter, []).append(cell)
    count = max(len(found) for found in by_adapter.values())
    rows = [_worst(name, found) for name, found in by_adapter.items() if len(found) == count]
    for delivered, p99, name in sorted(
        rows, key=lambda row: (row[0] < LOSSLESS_PERCENT, -row[0] if row[0] < LOSSLESS_PERCENT else row[1])
    ):
        lines.append(f"  {name}: {delivered:.1f} % delivered, p99 {time_text(p99)}")
    if all(row[0] < LOSSLESS_PERCENT for row in rows):
        offered = wanted.payload_bytes * wanted.rate_hz * 8e-6
        lines.append(
            f"No peer delivered {LOSSLESS_PERCENT} % there. The stream needs {offered:.0f} Mbit/s of "
            "payload: lower its rate or size, or accept a part."
        )
    return Answer(True, "\n".join(lines))


def _comparable(cell: Cell, wanted: Wanted) -> bool:
    case = cell.case
    simple = case.pattern == "stream" and case.publishers == case.subscribers == 1
    simple = simple and case.message == BYTES and not (case.outage or case.neighbours or case.work_millis)
    return simple and case.place == ("link" if wanted.rate_mbit else "host") and bool(cell.measured)


def value_of(case: Case, quantity: str) -> float:
    return 100 * case.host_to_host_loss if quantity == "loss_percent" else float(getattr(case, quantity))


def _enclosing(cells: list[Cell], wanted: Wanted) -> list[Cell]:
    """The cells at the corners of the smallest box of measured values around the wish; empty without one."""
    bounds = []
    for quantity in QUANTITIES:
        values = sorted({value_of(cell.case, quantity) for cell in cells})
        wish = float(getattr(wanted, quantity))
        same = [value for value in values if abs(value - wish) <= _NEAR * max(wish, value)]
        if same:
            bounds.append({min(same, key=lambda value: abs(value - wish))})
            continue
        below = [value for value in values if value < wish]
        above = [value for value in values if value > wish]
        if not below or not above:
            return []
        bounds.append({below[-1], above[0]})
    corners = set(itertools.product(*bounds))
    found = [cell for cell in cells if _corner(cell) in corners]
    return found if {_corner(cell) for cell in found} == corners else []


def _corner(cell: Cell) -> tuple[float, ...]:
    return tuple(value_of(cell.case, quantity) for quantity in QUANTITIES)


def _worst(name: str, cells: list[Cell]) -> tuple[float, float, str]:
    delivered = min(cell.delivered_percent or 0.0 for cell in cells)
    p99 = max(float(cell.latency.get("p99", float("nan"))) for cell in cells)
    return (delivered, p99, name)


def _refusal(cells: list[Cell], wanted: Wanted) -> str:
    lines = ["These results do not enclose that stream, and nothing is extrapolated."]
    for quantity in QUANTITIES:
        values = sorted({value_of(cell.case, quantity) for cell in cells})
        wish = float(getattr(wanted, quantity))
        if values and not values[0] * (1 - _NEAR) <= wish <= values[-1] * (1 + _NEAR):
            lines.append(f"  {quantity}: wanted {wish:g}, measured from {values[0]:g} to {values[-1]:g}")
    experiment = "mininet or large-data" if wanted.rate_mbit else "local-latency"
    lines.append(
        f"This run would answer it: `nervure-lab run {experiment.replace(' or ', ' ')} --full --out DIR`,"
    )
    grid = f"payload_bytes = [{wanted.payload_bytes:g}], rate_hz = {wanted.rate_hz:g}"
    if wanted.rate_mbit:
        grid += f", loss_percent = [{wanted.loss_percent:g}], rate_mbit = {wanted.rate_mbit:g}"
    lines.append(f"if its cells enclose it; otherwise add a grid to one of these experiments: {grid}")
    return "\n".join(lines)
