"""Whether two sets of repeats differ: permutation tests on repeats, with one correction for all figures.

A figure of a run (a median, a percentage) is one value; the messages within a run are not independent of each
other and are never counted as repeats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVEL = 0.05
"""False discovery rate, and the level that a single test has to be able to reach."""
RESAMPLES = 10_000
_MOST_EXACT = 5_000
"""Assignments up to which all are tried."""
_LEAST_FOR_INTERVAL = 4
"""Repeats below which the bootstrap draws too few different sets."""
_LEAST_REPEATS = 2
_EPSILON = 1e-12


@dataclass(frozen=True)
class Pair:
    """The same figure of both sets, a value for each repeat."""

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def is_usable(self) -> bool:
        return min(len(self.before), len(self.after)) >= _LEAST_REPEATS

    @property
    def assignments(self) -> int:
        """Ways to divide the values between the sets."""
        return math.comb(len(self.before) + len(self.after), len(self.before))


def can_be_significant(pairs: Sequence[Pair]) -> bool:
    """Whether the repeats suffice: whether the least p-value that they allow reaches the level."""
    usable = [pair for pair in pairs if pair.is_usable]
    return bool(usable) and 2 / math.prod(pair.assignments for pair in usable) <= LEVEL


def p_value(pairs: Sequence[Pair], *, seed: int = 0) -> float:
    """The two-sided permutation test of the sum of the differences of means; values change sides within their
    pair only (Good 2005, section 3.6; for a single pair the classical test of Fisher and Pitman).
    """
    usable = [pair for pair in pairs if pair.is_usable]
    if len(usable) == 1 and usable[0].assignments <= _MOST_EXACT:
        differences = _all_differences(usable[0])
        observed = abs(differences[0])
        return float(np.mean(np.abs(differences) >= observed - _EPSILON))
    generator = np.random.default_rng(seed)
    observed = sum(_difference(pair) for pair in usable)
    total = np.zeros(RESAMPLES)
    for pair in usable:
        total += _drawn_differences(pair, generator)
    # The observed assignment is one of those that the hypothesis allows (Phipson and Smyth 2010).
    return float((1 + np.sum(np.abs(total) >= abs(observed) - _EPSILON)) / (1 + RESAMPLES))


def _difference(pair: Pair) -> float:
    return float(np.mean(pair.after) - np.mean(pair.before))


def _all_differences(pair: Pair) -> Floats:
    """The first is the observed one."""
    values = np.array([*pair.before, *pair.after])
    total, count, size = float(values.sum()), len(pair.before), len(values)
    sums = np.array([values[list(chosen)].sum() for chosen in combinations(range(size), count)])
    return (total - sums) / (size - count) - sums / count


def _drawn_differences(pair: Pair, generator: np.random.Generator) -> Floats:
    values = np.array([*pair.before, *pair.after])
    count = len(pair.before)
    drawn = generator.permuted(np.broadcast_to(values, (RESAMPLES, len(values))), axis=1)
    return np.asarray(drawn[:, count:].mean(axis=1) - drawn[:, :count].mean(axis=1))


def adjusted(p_values: Sequence[float]) -> list[float]:
    """The p-values after Benjamini and Hochberg (1995): among figures whose value is at most 0.05, 5 % are
    expected to be false.
    """
    count = len(p_values)
    order = sorted(range(count), key=lambda place: p_values[place], reverse=True)
    found, least = [1.0] * count, 1.0
    for rank, place in enumerate(order):
        least = min(least, p_values[place] * count / (count - rank))
        found[place] = least
    return found


def difference_interval(pair: Pair, *, seed: int = 0) -> tuple[float, float] | None:
    """The 95 % bootstrap interval of the difference of means; None with too few repeats for one."""
    if min(len(pair.before), len(pair.after)) < _LEAST_FOR_INTERVAL:
        return None
    generator = np.random.default_rng(seed)
    before, after = (
        generator.choice(np.array(values), (RESAMPLES, len(values))).mean(axis=1)
        for values in (pair.before, pair.after)
    )
    low, high = np.percentile(after - before, [2.5, 97.5])
    return (float(low), float(high))
