from __future__ import annotations

import random

import pytest
from nervure_lab.statistics import median, p99, percentile, ratio


def test_percentiles_interpolate_between_ranks() -> None:
    assert median([3, 1, 2]) == 2
    assert median([4, 1, 2, 3]) == 2.5
    assert percentile([10, 20, 30, 40], 25) == 17.5
    assert p99(range(101)) == 99
    assert p99([7]) == 7


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_drift_between_repeats_cancels_in_a_ratio() -> None:
    generator = random.Random(1)
    drift = [1.0, 3.0, 10.0, 2.0, 5.0]
    slow = [[scale * generator.gauss(20, 0.2) for _ in range(60)] for scale in drift]
    fast = [[scale * generator.gauss(10, 0.1) for _ in range(60)] for scale in drift]
    found = ratio(slow, fast)
    assert found.value == pytest.approx(2, rel=0.02)
    assert found.low <= found.value <= found.high
    assert found.high - found.low < 0.2


def test_an_interval_is_wide_where_repeats_disagree() -> None:
    one = [[10.0] * 50, [40.0] * 50, [10.0] * 50, [40.0] * 50]
    other = [[20.0] * 50] * 4
    found = ratio(one, other)
    assert (found.low, found.high) == (0.5, 2.0)


def test_a_ratio_repeats_itself() -> None:
    generator = random.Random(2)
    one, other = ([[generator.random() + 1 for _ in range(20)] for _ in range(3)] for _ in range(2))
    assert ratio(one, other, p99) == ratio(one, other, p99)


def test_a_ratio_wants_the_same_repeats_on_both_sides() -> None:
    with pytest.raises(ValueError, match="2 and 1"):
        ratio([[1.0], [2.0]], [[1.0]])
