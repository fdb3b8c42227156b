"""The cost of a sample in a program that has slept, with caches that other programs have used meanwhile.

A node sends samples to itself, so that no process has to be woken. `loan` borrows memory and fills it, `send`
is the call that publishes, `take` the call that returns the sample. Figures are medians over repeats. With
another build in the folder of NERVURE_LAB_OTHER_BUILD (`nervure` and `examples/cold`, as in
`target/release`) both take turns, and the ratio is the median of the repeats' ratios with its quartiles.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nervure_lab.contract import Unavailable
from nervure_lab.experiments.own import Build, OwnExperiment, PlannedFigures
from nervure_lab.toolchain import Toolchain

STEPS = ("loan", "send", "take")


@dataclass(frozen=True)
class ColdCase:
    samples: int = 300
    payload_bytes: int = 64
    sleep_micros: int = 1000
    """Before each step."""
    swept_bytes: int = 4 << 20
    """Written before each step, to displace the caches."""


class OtherBuild(Build):
    """Another build to compare with, such as the one before a change."""

    name = "other"
    title = "Nervure, another build"

    def prepare(self, toolchain: Toolchain) -> None:
        folder = os.environ.get("NERVURE_LAB_OTHER_BUILD")
        if folder is None:
            raise Unavailable("NERVURE_LAB_OTHER_BUILD names no folder with another build")
        self.command = Path(folder, "nervure").resolve()
        self.example = Path(folder, "examples", "cold").resolve()

    def versions(self) -> dict[str, str]:
        return {"folder": str(self.command.parent)}


class Cold(OwnExperiment):
    name = "cold"
    summary = "sending and taking a sample after a sleep, with cold caches"

    def adapters(self) -> list[Build]:
        return [Build(example="cold"), OtherBuild(example="cold")]

    def plan(self, quick: bool) -> list[PlannedFigures]:
        return [PlannedFigures("64B", ColdCase(), 2 if quick else 10, self.name)]

    def expected_seconds(self, case: ColdCase) -> float:
        # Sweeping takes about as long as sleeping.
        return 1 + case.samples * 2 * 2 * case.sleep_micros * 1e-6

    def measure(self, build: Build, case: ColdCase, directory: Path) -> dict[str, Any]:
        node = {
            "id": "cold",
            "path": str(build.example),
            "args": f"{case.samples} {case.payload_bytes} {case.sleep_micros} {case.swept_bytes}",
            "inputs": {"in": "cold/out"},
            "outputs": ["out"],
        }
        words = build.logs_of(directory, [node], "cold")
        return {
            line[-3]: [float(line[-2]), float(line[-1])]
            for line in words
            if line[-3:-2] and line[-3] in STEPS
        }

    def lines(self, runs: list[dict[str, Any]]) -> list[str]:
        by_build: dict[str, list[dict[str, list[float]]]] = {}
        for run in runs:
            by_build.setdefault(run["adapter"], []).append(run["figures"])
        text = [f"{'nanoseconds':11}  {'  '.join(f'{name:>7}' for name in by_build)}"]
        for step in STEPS:
            for index, name in enumerate(("median", "p99")):
                columns = [[figures[step][index] for figures in repeats] for repeats in by_build.values()]
                line = f"{step} {name:6}  " + "  ".join(f"{statistics.median(it):7.0f}" for it in columns)
                if len(columns) == 2 and min(map(len, columns)) > 1:
                    ratios = [other / own for own, other in zip(*columns, strict=False)]
                    low, middle, high = statistics.quantiles(ratios, n=4)
                    line += f"  {middle:.2f}x [{low:.2f}, {high:.2f}]"
                text.append(line)
        return text


EXPERIMENT = Cold()
