#!/usr/bin/env python3
"""Measures what looking and recording cost a robot: the latency of its nodes with it and without.

    cargo build --release -p nervure-cli && cargo build --release -p nervure-node --examples
    python3 scripts/measure_observers.py [hz] [record] [--rounds N] [--seconds N] [--folder target/release]

- `hz`: a source of 4 KB at 200 Hz, and `nervure topic hz` on it; and, instead of that, a process that has
  nothing to do with the robot and only wakes up as often: what the machine itself makes of a third process
- `record`: 960x540 RGB at 25 Hz and an IMU at 99 Hz, and `nervure record` of both; also its share of a core

A sink tells the median and the 99th percentile of the time from publication until it took a sample, every
200 ms. Phases without and with the observer take turns. The machine should be quiet. The ratio is that of
the medians over all windows of a kind, its interval by bootstrap over rounds.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

# After an observer came or went.
SETTLING_SECONDS = 0.4
RESAMPLINGS = 2000
# As often as an observer looks that receives little.
WAKES_UP = [sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)"]
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")

# Sources by their names: bytes of a sample, samples a second.
ROBOTS = {
    "hz": {"source": (4096, 200)},
    "record": {"camera": (960 * 540 * 3, 25), "imu": (36, 99)},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=[], help="hz, record; both unless told")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a phase")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("target/release"))
    options = parser.parse_args()
    for what in options.what or ROBOTS:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            Measurement(what, options, pathlib.Path(folder).resolve()).run()


class Measurement:
    """One robot."""

    def __init__(self, what: str, options: argparse.Namespace, folder: pathlib.Path) -> None:
        self.what, self.options, self.folder = what, options, folder
        self.nervure = str((options.folder / "nervure").resolve())
        self.node = str((options.folder / "examples" / "observed").resolve())
        self.name = f"measure-{what}-{os.getpid()}"
        # By input: when it was told, median, 99th percentile.
        self.windows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ROBOTS[what]}
        # From when, to when, in the order of `kinds`, again and again.
        self.phases: list[tuple[float, float]] = []
        self.kinds = ["alone", "observed", *(["beside a process that wakes up"] if what == "hz" else [])]
        self.shares: list[float] = []

    def run(self) -> None:
        nodes = [
            {
                "id": name,
                "path": self.node,
                "args": f"source {size}",
                "inputs": {"tick": f"nervure/timer/hz/{hz}"},
                "outputs": ["out"],
            }
            for name, (size, hz) in ROBOTS[self.what].items()
        ]
        inputs = {name: f"{name}/out" for name in ROBOTS[self.what]}
        nodes.append({"id": "sink", "path": self.node, "args": "sink", "inputs": inputs})
        file = self.folder / "robot.yml"
        file.write_text(json.dumps({"nodes": nodes}), encoding="utf-8")
        run = subprocess.Popen(
            [self.nervure, "run", "--json", "--name", self.name, str(file)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"NERVURE_LOG_DIR": str(self.folder)},
        )
        threading.Thread(target=self.listen, args=(run,), daemon=True).start()
        try:
            time.sleep(1)
            for _ in range(self.options.rounds):
                for kind in self.kinds:
                    self.phase(kind)
        finally:
            run.terminate()
            run.wait()
        self.report()

    def observer(self) -> list[str]:
        if self.what == "hz":
            return [self.nervure, "topic", "hz", f"{self.name}:source/out", "--interval", "1h"]
        recording = str(self.folder / f"{len(self.phases)}.mcap")
        return [self.nervure, "record", "-d", self.name, "-o", recording]

    def phase(self, kind: str) -> None:
        command = {"alone": None, "observed": self.observer()}.get(kind, WAKES_UP)
        quiet = subprocess.DEVNULL
        other = subprocess.Popen(command, stdout=quiet, stderr=quiet) if command else None
        time.sleep(SETTLING_SECONDS)
        begin, used = time.monotonic(), cpu_seconds(other)
        time.sleep(self.options.seconds)
        end = time.monotonic()
        self.phases.append((begin, end))
        if other:
            assert other.poll() is None, "it has ended"
            if kind == "observed":
                self.shares.append((cpu_seconds(other) - used) / (end - begin))
            other.terminate()
            other.wait()
            for recording in self.folder.glob("*.mcap"):
                recording.unlink()

    def listen(self, run: subprocess.Popen[str]) -> None:
        assert run.stdout
        for line in run.stdout:
            message = json.loads(line)
            if message["message"] == "log" and message["node"] == "sink":
                input, median, high = message["text"].split()
                self.windows[input].append((time.monotonic(), float(median), float(high)))

    def report(self) -> None:
        print(f"{self.what}: the observer took {statistics.median(self.shares):.1%} of a core")
        count = len(self.kinds)
        for name, windows in self.windows.items():
            rounds = []
            for number in range(0, len(self.phases), count):
                phases = self.phases[number : number + count]
                rounds.append([[w[1:] for w in windows if begin <= w[0] <= end] for begin, end in phases])
            for at, what in ((0, "median"), (1, "99 %")):
                alone = median_of(rounds, 0, at) / 1000
                print(f"  {name}, {what}: {alone:.1f} us alone")
                for kind in range(1, count):
                    low, high = interval(rounds, kind, at)
                    other = median_of(rounds, kind, at) / 1000
                    print(
                        f"    {self.kinds[kind]}: {other:.1f} us, ratio {other / alone:.3f} "
                        f"(95 % interval {low:.3f} to {high:.3f})"
                    )


Rounds = list[list[list[tuple[float, ...]]]]


def median_of(rounds: Rounds, kind: int, at: int) -> float:
    return statistics.median(window[at] for round_ in rounds for window in round_[kind])


def interval(rounds: Rounds, kind: int, at: int) -> tuple[float, float]:
    """Of the ratio to the first kind, by bootstrap."""
    ratios = []
    for _ in range(RESAMPLINGS):
        chosen = random.choices(rounds, k=len(rounds))
        ratios.append(median_of(chosen, kind, at) / median_of(chosen, 0, at))
    ratios.sort()
    return ratios[int(0.025 * RESAMPLINGS)], ratios[int(0.975 * RESAMPLINGS)]


def cpu_seconds(process: subprocess.Popen[bytes] | None) -> float:
    """Of all its threads so far."""
    if process is None:
        return 0.0
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


if __name__ == "__main__":
    main()
