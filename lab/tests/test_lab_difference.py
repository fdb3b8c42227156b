"""The comparison of result sets finds known differences, and reports none for equal sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nervure_lab import cli
from nervure_lab.comparison.case import Case
from nervure_lab.comparison.commands import CHANGED, UNDECIDED
from nervure_lab.comparison.difference import compare
from nervure_lab.comparison.results import ResultSet
from nervure_lab.comparison.significance import (
    Pair,
    adjusted,
    can_be_significant,
    difference_interval,
    p_value,
)

ADAPTERS = ("one", "two", "three")
CELLS = (64, 1024, 4096)
MACHINE = {"cpu": "a processor", "cores": 2, "kernel": "6.1"}


def write_set(
    directory: Path,
    seed: int,
    repeats: int = 5,
    factor: Callable[[str, int], float] = lambda adapter, size: 1.0,
    machine: dict[str, Any] | None = None,
    version: str = "1.0",
    hung: str = "",
) -> Path:
    """A result set whose latencies vary by 10 % between repeats, with these factors on the medians."""
    random = np.random.default_rng(seed)
    directory.mkdir(exist_ok=True)
    cases = {size: Case(payload_bytes=size, rate_hz=50.0, messages=100) for size in CELLS}
    session = {
        "kind": "session",
        "schema": "nervure-lab/result@2",
        "experiment": "local-latency",
        "profile": "full",
        "command": "",
        "source": "0123456",
        "started": "",
        "machine": machine or MACHINE,
        "load_average_before": 0.1,
        "adapters": [
            {"name": name, "available": True, "versions": {"library": version}, "settings": ""}
            for name in ADAPTERS
        ],
        "planned": [],
    }
    runs = [
        {
            "kind": "run",
            "name": str(size),
            "adapter": adapter,
            "repeat": repeat,
            "case": asdict(case),
            "outcome": "hung" if adapter == hung else "ok",
            "reason": "",
            "discovery": {},
            "window_seconds": 2.0,
            "processes": [{"role": "publisher-0", "cpu_seconds": 0.5 * random.lognormal(0, 0.05)}],
            "samples": "",
            "figures": {
                "delivered_percent": 100.0,
                "latency_micros": {
                    "p50": 100.0 * random.lognormal(0, 0.1) * factor(adapter, size),
                    "p99": 300.0 * random.lognormal(0, 0.2),
                },
            },
        }
        for size, case in cases.items()
        for adapter in ADAPTERS
        for repeat in range(repeats)
    ]
    end = {"kind": "end", "interrupted": False, "seconds": 1.0, "load_average_after": 0.1}
    (directory / "local-latency.jsonl").write_text(
        "".join(json.dumps(it) + "\n" for it in [session, *runs, end])
    )
    return directory


def test_the_exact_test_counts_every_assignment() -> None:
    """Of the 20 ways to divide six values, the observed one and its mirror are the most extreme."""
    assert p_value([Pair((1.0, 2.0, 3.0), (11.0, 12.0, 13.0))]) == pytest.approx(2 / 20)
    assert p_value([Pair((1.0, 2.0), (1.0, 2.0))]) == 1.0


def test_too_few_repeats_cannot_be_significant() -> None:
    values = tuple(float(number) for number in range(5))
    assert not can_be_significant([Pair(values[:3], values[:3])])
    assert can_be_significant([Pair(values[:4], values[:4])])
    # Two cells together can, but never with one run on a side.
    assert can_be_significant([Pair(values[:3], values[:3])] * 2)
    assert not can_be_significant([Pair(values[:1], values[:1])] * 20)


def test_p_values_of_equal_sets_are_uniform() -> None:
    """At the level of 5 %, single tests are false in at most about 5 of 100 cases."""
    random = np.random.default_rng(1)
    one, several = [], []
    for seed in range(400):
        pairs = [Pair(tuple(random.lognormal(size=5)), tuple(random.lognormal(size=5))) for _ in range(3)]
        one.append(p_value(pairs[:1]))
        if seed < 150:
            several.append(p_value(pairs, seed=seed))
    assert 0.02 <= float(np.mean(np.array(one) <= 0.05)) <= 0.08
    assert 0.01 <= float(np.mean(np.array(several) <= 0.05)) <= 0.09


def test_the_correction_is_that_of_benjamini_and_hochberg() -> None:
    assert adjusted([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])
    assert adjusted([]) == []


def test_the_interval_holds_the_true_difference() -> None:
    random = np.random.default_rng(3)
    holds = 0
    for seed in range(100):
        pair = Pair(tuple(random.normal(0.0, 1.0, 12)), tuple(random.normal(2.0, 1.0, 12)))
        interval = difference_interval(pair, seed=seed)
        assert interval is not None
        holds += interval[0] <= 2.0 <= interval[1]
    assert holds >= 85
    assert difference_interval(Pair((1.0, 2.0, 3.0), (1.0, 2.0, 3.0))) is None


def test_equal_sets_are_rarely_called_changed(tmp_path: Path) -> None:
    """With a false discovery rate of 5 %, and no true change, at most about one comparison in 20."""
    wrong = 0
    for seed in range(40):
        before = ResultSet.load(write_set(tmp_path / "a", 2 * seed))
        after = ResultSet.load(write_set(tmp_path / "b", 2 * seed + 1))
        wrong += bool(compare(before, after).changed)
    assert wrong <= 5


def test_a_known_change_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def slower(adapter: str, _: int) -> float:
        return 1.5 if adapter == "two" else 1.0

    before, after = write_set(tmp_path / "a", 1), write_set(tmp_path / "b", 2, factor=slower)
    found = compare(ResultSet.load(before), ResultSet.load(after))
    assert {(it.subject.rpartition(" ")[2], it.figure.name) for it in found.changed} == {
        ("two", "median latency")
    }
    assert cli.main(["compare", str(before), str(after)]) == CHANGED
    printed = capsys.readouterr().out
    assert "local-latency, all cells, two, median latency: 1.49 times in the mean of 3 cells" in printed
    assert "    1024: 10" in printed
    assert "conditions differ" not in printed


def test_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write_set(tmp_path / "a", 1), write_set(tmp_path / "b", 2)
    assert cli.main(["compare", str(before), str(after), "--all"]) == 0
    printed = capsys.readouterr().out
    assert "No significant change in 36 figures." in printed
    assert printed.count("median latency") == 12


def test_too_few_repeats_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write_set(tmp_path / "a", 1, repeats=1)
    after = write_set(tmp_path / "b", 2, repeats=1, factor=lambda adapter, size: 100.0)
    assert cli.main(["compare", str(before), str(after)]) == UNDECIDED
    assert "Not enough repeats to say" in capsys.readouterr().out


def test_different_conditions_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write_set(tmp_path / "a", 1)
    after = write_set(tmp_path / "b", 2, machine=MACHINE | {"cores": 8}, version="1.1")
    cli.main(["compare", str(before), str(after)])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("The conditions differ")
    assert "  local-latency: machine, cores: 2 -> 8" in printed
    assert "  local-latency: one, library: 1.0 -> 1.1" in printed


def test_hung_runs_are_a_change(tmp_path: Path) -> None:
    before, after = write_set(tmp_path / "a", 1), write_set(tmp_path / "b", 2, hung="three")
    found = compare(ResultSet.load(before), ResultSet.load(after))
    assert {(it.subject.rpartition(" ")[2], it.figure.name) for it in found.changed} == {
        ("three", "runs that ended")
    }


def test_other_cells_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write_set(tmp_path / "a", 1), write_set(tmp_path / "b", 2)
    file = after / "local-latency.jsonl"
    text = (
        file.read_text().replace('"name": "64"', '"name": "65"').replace('"messages": 100', '"messages": 200')
    )
    file.write_text(text)
    assert cli.main(["compare", str(before), str(after)]) == UNDECIDED
    printed = capsys.readouterr().out
    assert "Not compared: 12 cells" in printed
    assert "64 one: only in A" in printed
    assert "another case under the same name" in printed
