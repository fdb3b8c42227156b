"""Medians, percentiles, and ratios with their uncertainty."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Statistic = Callable[[Sequence[float]], float]
RESAMPLES = 1000


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest ranks, as NumPy's default (type 7 of Hyndman and Fan 1996)."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("a percentile of no values")
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    return percentile(values, 50)


def p99(values: Sequence[float]) -> float:
    return percentile(values, 99)


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The least of the ordered values that at least this share of them does not exceed."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def fairness(shares: Sequence[float]) -> float:
    """The index of Jain, Chiu and Hawe (1984): 1 if all are equal, 1/n if one has all."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


@dataclass(frozen=True)
class Ratio:
    """A ratio and the interval that holds it with 95 % confidence."""

    value: float
    low: float
    high: float


def ratio(
    numerators: Sequence[Sequence[float]],
    denominators: Sequence[Sequence[float]],
    statistic: Statistic = median,
    *,
    seed: int = 0,
) -> Ratio:
    """The ratio of a statistic of two sets of interleaved repeats.

    ``numerators[i]`` and ``denominators[i]`` are the samples of repeat i, which both sides ran in turn. The
    interval is the percentile bootstrap in two stages (Davison and Hinkley 1997, section 3.8): repeats are
    drawn with replacement, the same ones for both sides, so that drifts between repeats cancel; then samples
    within each.
    """
    if not numerators or len(numerators) != len(denominators):
        raise ValueError(
            f"expected as many repeats on both sides, got {len(numerators)} and {len(denominators)}"
        )
    value = statistic(_pooled(numerators)) / statistic(_pooled(denominators))
    generator = random.Random(seed)
    resampled = []
    for _ in range(RESAMPLES):
        repeats = generator.choices(range(len(numerators)), k=len(numerators))
        above = [generator.choices(numerators[repeat], k=len(numerators[repeat])) for repeat in repeats]
        below = [generator.choices(denominators[repeat], k=len(denominators[repeat])) for repeat in repeats]
        resampled.append(statistic(_pooled(above)) / statistic(_pooled(below)))
    return Ratio(value, percentile(resampled, 2.5), percentile(resampled, 97.5))


def _pooled(repeats: Sequence[Sequence[float]]) -> list[float]:
    return [value for repeat in repeats for value in repeat]
