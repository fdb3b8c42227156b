"""The cost of observing and recording: the latency of a robot's nodes with and without an observer.

- `hz`: a source of 4 KB at 200 Hz with `nervure topic hz`; and, in the same turns, beside an unrelated
  process that wakes up as often, which shows the cost of any third process on this machine.
- `record`: 960x540 RGB at 25 Hz and an IMU at 99 Hz with `nervure record` of both, and its share of a core.

Every 200 ms a sink reports the median and the 99th percentile of the time from the publication of a sample
until the sink takes it. Phases without and with the observer alternate. The ratio is that of the medians
over all windows of a kind; its interval is a bootstrap over rounds. The machine should be quiet.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nervure_lab.experiments.own import RESAMPLINGS, Build, OwnExperiment, PlannedFigures
from nervure_lab.processes import cpu_seconds

START_SECONDS = 1.0
SETTLING_SECONDS = 0.4
"""Time between the start or the end of an observer and the next measurement."""
WAKING_PROCESS = [sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)"]
"""Wakes up as often as an observer at a low rate."""
ROBOTS = {
    "hz": {"source": (4096, 200)},
    "record": {"camera": (960 * 540 * 3, 25), "imu": (36, 99)},
}
"""Sources by name: bytes of a sample, samples a second."""

Window = tuple[float, float, float]
"""Time of the report (seconds), median and 99th percentile (nanoseconds)."""


@dataclass(frozen=True)
class ObserversCase:
    robot: str
    rounds: int
    phase_seconds: float = 3.0


class Observers(OwnExperiment):
    name = "observers"
    summary = "the latency of a robot's nodes with and without an observer or a recorder"

    def adapters(self) -> list[Build]:
        return [Build(example="observed")]

    def plan(self, quick: bool) -> list[PlannedFigures]:
        rounds = 3 if quick else 20
        return [PlannedFigures(robot, ObserversCase(robot, rounds), 1, self.name) for robot in ROBOTS]

    def expected_seconds(self, case: ObserversCase) -> float:
        phases = case.rounds * len(_kinds(case.robot))
        return START_SECONDS + phases * (case.phase_seconds + SETTLING_SECONDS)

    def measure(self, build: Build, case: ObserversCase, directory: Path) -> dict[str, Any]:
        return _Measurement(build, case, directory).run()

    def lines(self, runs: list[dict[str, Any]]) -> list[str]:
        return [line for run in runs for line in _lines(run["case"]["robot"], run["figures"])]


class _Measurement:
    def __init__(self, build: Build, case: ObserversCase, directory: Path) -> None:
        self._build, self._case, self._directory = build, case, directory
        self._name = f"lab-{case.robot}-{os.getpid()}"
        self._windows: dict[str, list[Window]] = {name: [] for name in ROBOTS[case.robot]}
        self._phases: list[tuple[float, float]] = []
        self._kinds = _kinds(case.robot)
        self._shares: list[float] = []

    def run(self) -> dict[str, Any]:
        robot = subprocess.Popen(
            self._build.run_arguments(self._directory, self._nodes(), "--name", self._name),
            stdout=subprocess.PIPE,
            text=True,
            env=self._build.environment(self._directory),
        )
        threading.Thread(target=self._listen, args=(robot,), daemon=True).start()
        try:
            time.sleep(START_SECONDS)
            for _ in range(self._case.rounds):
                for kind in self._kinds:
                    self._phase(kind)
        finally:
            robot.terminate()
            robot.wait()
        return {
            "kinds": self._kinds,
            "phases_seconds": self._phases,
            "windows": self._windows,
            "observer_core_shares": self._shares,
        }

    def _nodes(self) -> list[dict[str, Any]]:
        sources = ROBOTS[self._case.robot]
        nodes: list[dict[str, Any]] = [
            {
                "id": name,
                "path": str(self._build.example),
                "args": f"source {size}",
                "inputs": {"tick": f"nervure/timer/hz/{rate_hz}"},
                "outputs": ["out"],
            }
            for name, (size, rate_hz) in sources.items()
        ]
        inputs = {name: f"{name}/out" for name in sources}
        return [*nodes, {"id": "sink", "path": str(self._build.example), "args": "sink", "inputs": inputs}]

    def _observer(self) -> list[str]:
        command = str(self._build.command)
        if self._case.robot == "hz":
            return [command, "topic", "hz", f"{self._name}:source/out", "--interval", "1h"]
        recording = str(self._directory / f"{len(self._phases)}.mcap")
        return [command, "record", "-d", self._name, "-o", recording]

    def _phase(self, kind: str) -> None:
        command = {"alone": None, "observed": self._observer()}.get(kind, WAKING_PROCESS)
        quiet = subprocess.DEVNULL
        other = subprocess.Popen(command, stdout=quiet, stderr=quiet) if command else None
        time.sleep(SETTLING_SECONDS)
        begin, used = time.monotonic(), _cpu_seconds(other)
        time.sleep(self._case.phase_seconds)
        end = time.monotonic()
        self._phases.append((begin, end))
        if other is None:
            return
        if other.poll() is not None:
            raise RuntimeError(f"`{' '.join(other.args)}` ended early")  # type: ignore[arg-type]
        if kind == "observed":
            self._shares.append((_cpu_seconds(other) - used) / (end - begin))
        other.terminate()
        other.wait()
        for recording in self._directory.glob("*.mcap"):
            recording.unlink()

    def _listen(self, robot: subprocess.Popen[str]) -> None:
        assert robot.stdout
        for line in robot.stdout:
            message = json.loads(line)
            if message["message"] == "log" and message["node"] == "sink":
                name, median, p99 = message["text"].split()
                self._windows[name].append((time.monotonic(), float(median), float(p99)))


def _kinds(robot: str) -> list[str]:
    """Returns the kinds of phases of a round, in their order."""
    return ["alone", "observed", *(["beside a process that wakes up"] if robot == "hz" else [])]


Rounds = list[list[list[tuple[float, float]]]]
"""Windows by round and kind of phase: median and 99th percentile."""


def _lines(robot: str, figures: dict[str, Any]) -> list[str]:
    share = statistics.median(figures["observer_core_shares"])
    text = [f"{robot}: the observer took {share:.1%} of a core"]
    kinds = figures["kinds"]
    for name, windows in figures["windows"].items():
        rounds = _rounds(windows, figures["phases_seconds"], len(kinds))
        for index, what in ((0, "median"), (1, "99 %")):
            alone = _median(rounds, 0, index) / 1000
            text.append(f"  {name}, {what}: {alone:.1f} us alone")
            for kind in range(1, len(kinds)):
                low, high = _interval(rounds, kind, index)
                other = _median(rounds, kind, index) / 1000
                text.append(
                    f"    {kinds[kind]}: {other:.1f} us, ratio {other / alone:.3f} "
                    f"(95 % interval {low:.3f} to {high:.3f})"
                )
    return text


def _rounds(windows: list[Window], phases: list[tuple[float, float]], kinds: int) -> Rounds:
    rounds: Rounds = []
    for first in range(0, len(phases), kinds):
        of_round = phases[first : first + kinds]
        rounds.append(
            [[(it[1], it[2]) for it in windows if begin <= it[0] <= end] for begin, end in of_round]
        )
    return rounds


def _median(rounds: Rounds, kind: int, index: int) -> float:
    return statistics.median(window[index] for of_round in rounds for window in of_round[kind])


def _interval(rounds: Rounds, kind: int, index: int) -> tuple[float, float]:
    """Returns the 95 % interval of the ratio to the phases alone."""
    generator = random.Random(0)
    ratios = []
    for _ in range(RESAMPLINGS):
        drawn = generator.choices(rounds, k=len(rounds))
        ratios.append(_median(drawn, kind, index) / _median(drawn, 0, index))
    ratios.sort()
    return ratios[int(0.025 * RESAMPLINGS)], ratios[int(0.975 * RESAMPLINGS)]


def _cpu_seconds(process: subprocess.Popen[bytes] | None) -> float:
    return 0.0 if process is None else cpu_seconds(process.pid)


EXPERIMENT = Observers()
