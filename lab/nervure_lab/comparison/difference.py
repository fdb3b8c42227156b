"""Changes between two result sets: first the conditions, then the figures with their significance.

Every figure of a cell (an experiment, a case and an adapter) is tested, and every figure of an adapter over
all its cells, which finds a small change of all of them. One correction holds for all tests together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nervure_lab.comparison.report.summary import time_text
from nervure_lab.comparison.results import Cell, ResultSet, cpu_percent, is_measured, is_of_system
from nervure_lab.comparison.significance import (
    LEVEL,
    Pair,
    adjusted,
    can_be_significant,
    difference_interval,
    p_value,
)


@dataclass(frozen=True)
class Figure:
    name: str
    of_run: Callable[[dict[str, Any]], float | None]
    text: Callable[[float], str]
    as_ratio: bool
    """Compared by its logarithm, so that a change is a factor."""

    def values(self, cell: Cell) -> tuple[float, ...]:
        found = [self.of_run(run) for run in cell.runs]
        present = [value for value in found if value is not None and (value > 0 or not self.as_ratio)]
        return tuple(math.log(value) if self.as_ratio else value for value in present)


def _of_measured(run: dict[str, Any], value: Callable[[dict[str, Any]], float | None]) -> float | None:
    return value(run) if is_measured(run) else None


def _latency(percentile: str) -> Callable[[dict[str, Any]], float | None]:
    return lambda run: _of_measured(run, lambda it: it["figures"]["latency_micros"].get(percentile))


FIGURES = (
    Figure("runs that ended", lambda run: 100.0 * (run["outcome"] == "ok"), lambda it: f"{it:.0f} %", False),
    Figure(
        "delivered",
        lambda run: _of_measured(run, lambda it: float(it["figures"]["delivered_percent"])),
        lambda it: f"{it:.1f} %",
        False,
    ),
    Figure("median latency", _latency("p50"), time_text, True),
    Figure("p99 latency", _latency("p99"), time_text, True),
    Figure(
        "CPU",
        lambda run: _of_measured(run, lambda it: cpu_percent(it, is_of_system)),
        lambda it: f"{it:.1f} %",
        True,
    ),
)


@dataclass
class Tested:
    """A figure of a cell, or of an adapter over its cells."""

    subject: str
    figure: Figure
    pairs: list[Pair]
    cells: tuple[str, ...] = ()
    """Their names, if they are several."""
    p: float = 1.0
    p_adjusted: float = 1.0

    @property
    def has_enough_repeats(self) -> bool:
        return can_be_significant(self.pairs)

    @property
    def is_significant(self) -> bool:
        return self.has_enough_repeats and self.p_adjusted <= LEVEL

    @property
    def size(self) -> float:
        """For sorting: the change as a logarithm, or as a part of 100 %."""
        difference = abs(_mean_difference(self.pairs))
        return difference if self.figure.as_ratio else difference / 100

    def lines(self) -> Iterator[str]:
        amount = f"{self._change()}, p {self.p:.2g}, corrected {self.p_adjusted:.2g}"
        yield f"{self.subject}, {self.figure.name}: {amount}"
        if len(self.pairs) > 1:
            for cell, pair in zip(self.cells, self.pairs, strict=True):
                yield f"  {cell}: {_values_text(self.figure, pair)}"

    def _change(self) -> str:
        pairs, figure = self.pairs, self.figure
        change = _mean_difference(pairs)
        if len(pairs) > 1:
            amount = f"{math.exp(change):.3g} times" if figure.as_ratio else f"{change:+.3g}"
            return f"{amount} in the mean of {len(pairs)} cells"
        text = _values_text(figure, pairs[0])
        interval = difference_interval(pairs[0])
        if figure.as_ratio:
            text += f" ({math.exp(change):.3g} times"
            text += f", {math.exp(interval[0]):.3g} to {math.exp(interval[1]):.3g})" if interval else ")"
        elif interval:
            text += f" ({interval[0]:+.3g} to {interval[1]:+.3g})"
        return text


def _values_text(figure: Figure, pair: Pair) -> str:
    plain = math.exp if figure.as_ratio else float
    before, after = (plain(float(np.mean(it))) for it in (pair.before, pair.after))
    return f"{figure.text(before)} -> {figure.text(after)}"


def _mean_difference(pairs: list[Pair]) -> float:
    return float(np.mean([np.mean(pair.after) - np.mean(pair.before) for pair in pairs]))


@dataclass
class Comparison:
    conditions: list[str]
    """Further differences between the sets, which may be the cause of every change."""
    not_compared: list[str]
    tested: list[Tested]

    @property
    def changed(self) -> list[Tested]:
        return sorted((it for it in self.tested if it.is_significant), key=lambda it: -it.size)

    @property
    def decidable(self) -> list[Tested]:
        return [it for it in self.tested if it.has_enough_repeats]


def compare(before: ResultSet, after: ResultSet) -> Comparison:
    shared, not_compared = _shared_cells(before, after)
    tested = [
        Tested(f"{cell.experiment} {cell.name} {cell.adapter}", figure, [pair])
        for cell, other in shared
        for figure in FIGURES
        if (pair := _pair(figure, cell, other)) is not None
    ]
    tested += _over_cells(shared)
    decidable = [it for it in tested if it.has_enough_repeats]
    for it in decidable:
        it.p = p_value(it.pairs)
    for it, value in zip(decidable, adjusted([it.p for it in decidable]), strict=True):
        it.p_adjusted = value
    return Comparison(list(_conditions(before, after)), not_compared, tested)


def _pair(figure: Figure, cell: Cell, other: Cell) -> Pair | None:
    """None if there is nothing to compare, or all values are the same."""
    pair = Pair(figure.values(cell), figure.values(other))
    if not pair.before or not pair.after or len({*pair.before, *pair.after}) == 1:
        return None
    return pair


def _over_cells(shared: list[tuple[Cell, Cell]]) -> Iterator[Tested]:
    by_adapter: dict[tuple[str, str], list[tuple[Cell, Cell]]] = {}
    for cell, other in shared:
        by_adapter.setdefault((cell.experiment, cell.adapter), []).append((cell, other))
    for (experiment, adapter), cells in by_adapter.items():
        for figure in FIGURES:
            found = [(cell.name, _pair(figure, cell, other)) for cell, other in cells]
            usable = [(name, pair) for name, pair in found if pair is not None and pair.is_usable]
            if len(usable) > 1:
                names, pairs = zip(*usable, strict=True)
                yield Tested(f"{experiment}, all cells, {adapter}", figure, list(pairs), names)


def _shared_cells(before: ResultSet, after: ResultSet) -> tuple[list[tuple[Cell, Cell]], list[str]]:
    others = {(cell.experiment, cell.name, cell.adapter): cell for cell in after.cells}
    shared, not_compared = [], []
    for cell in before.cells:
        subject = f"{cell.experiment} {cell.name} {cell.adapter}"
        other = others.pop((cell.experiment, cell.name, cell.adapter), None)
        if other is None:
            not_compared.append(f"{subject}: only in A")
        elif other.case != cell.case:
            not_compared.append(f"{subject}: another case under the same name")
        else:
            shared.append((cell, other))
    not_compared += [f"{' '.join(key)}: only in B" for key in others]
    return shared, not_compared


def _conditions(before: ResultSet, after: ResultSet) -> Iterator[str]:
    for name in before.documents.keys() & after.documents.keys():
        ours, theirs = before.documents[name], after.documents[name]
        for key in sorted(ours["machine"].keys() | theirs["machine"].keys()):
            yield from _differs(f"{name}: machine, {key}", ours["machine"], theirs["machine"], key)
        for key in ("source", "profile"):
            yield from _differs(f"{name}: {key}", ours, theirs, key)
        yield from _adapters_differ(name, ours, theirs)
        loads = [document["load_average_before"] for document in (ours, theirs)]
        if abs(loads[0] - loads[1]) > 0.5:
            yield f"{name}: load average at the start: {loads[0]:.1f} -> {loads[1]:.1f}"


def _adapters_differ(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    others = {adapter["name"]: adapter for adapter in theirs["adapters"]}
    for adapter in ours["adapters"]:
        other = others.get(adapter["name"])
        if other is None or not (adapter["available"] and other["available"]):
            continue
        for key in sorted(adapter["versions"].keys() | other["versions"].keys()):
            yield from _differs(
                f"{name}: {adapter['name']}, {key}", adapter["versions"], other["versions"], key
            )
        yield from _differs(f"{name}: {adapter['name']}, settings", adapter, other, "settings")


def _differs(what: str, ours: dict[str, Any], theirs: dict[str, Any], key: str) -> Iterator[str]:
    if ours.get(key) != theirs.get(key):
        yield f"{what}: {ours.get(key)} -> {theirs.get(key)}"


def lines(found: Comparison, *, everything: bool = False) -> Iterator[str]:
    if found.conditions:
        yield "The conditions differ, which may be the cause of every change below:"
        yield from (f"  {it}" for it in found.conditions)
    if found.not_compared:
        yield f"Not compared: {len(found.not_compared)} cells"
        yield from (f"  {it}" for it in found.not_compared[: None if everything else 5])
        if len(found.not_compared) > 5 and not everything:
            yield f"  and {len(found.not_compared) - 5} more"
    decidable, changed = found.decidable, found.changed
    if not decidable:
        yield (
            "Not enough repeats to say: no figure could show a change at the level of 5 %. Run both sets "
            "with 4 repeats or more (`--full`)."
        )
    elif changed:
        yield (
            f"Changed from A to B: {len(changed)} of {len(decidable)} figures (false discovery rate 5 %, "
            "corrected for all of them)"
        )
        yield from (f"  {line}" for it in changed for line in it.lines())
    else:
        yield f"No significant change in {len(decidable)} figures."
    missing = len(found.tested) - len(decidable)
    if decidable and missing:
        yield f"Not enough repeats to say: {missing} figures"
    if everything:
        yield "Every other figure:"
        others = [it for it in found.tested if not it.is_significant]
        yield from (f"  {line}" for it in others for line in it.lines())
