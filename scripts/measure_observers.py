#!/usr/bin/env python3
"""Measures what looking and recording cost a robot: the latency of its nodes with it and without.

    cargo build --release -p nervure-cli && cargo build --release -p nervure-node --examples
    python3 scripts/measure_observers.py [hz] [record] [--rounds N] [--seconds N] [--folder target/release]

- `hz`: a source of 4 KB at 200 Hz, and `nervure topic hz` on it
- `record`: 960x540 RGB at 25 Hz and an IMU at 99 Hz, and `nervure record` of both; also its share of a core

A sink tells the median and the 99th percentile of the time from publication until it took a sample, every
200 ms. In every other phase of a run the observer is there. The machine should be quiet. The ratio is that of
the medians over all windows of a kind, its interval by bootstrap over rounds.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import threading
import time

# After an observer came or went.
SETTLING_SECONDS = 0.4
RESAMPLINGS = 2000
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
        # Whether it was observed, from when, to when.
        self.phases: list[tuple[bool, float, float]] = []
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
                self.phase(None)
                self.phase(self.observer())
        finally:
            run.terminate()
            run.wait()
        self.report()

    def observer(self) -> list[str]:
        if self.what == "hz":
            return [self.nervure, "topic", "hz", f"{self.name}:source/out", "--interval", "1h"]
        recording = str(self.folder / f"{len(self.phases)}.mcap")
        return [self.nervure, "record", "-d", self.name, "-o", recording]

    def phase(self, command: list[str] | None) -> None:
        quiet = subprocess.DEVNULL
        observer = subprocess.Popen(command, stdout=quiet, stderr=quiet) if command else None
        time.sleep(SETTLING_SECONDS)
        begin, used = time.monotonic(), cpu_seconds(observer)
        time.sleep(self.options.seconds)
        end = time.monotonic()
        self.phases.append((bool(observer), begin, end))
        if observer:
            assert observer.poll() is None, "the observer has ended"
            self.shares.append((cpu_seconds(observer) - used) / (end - begin))
            observer.terminate()
            observer.wait()
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
        for name, windows in self.windows.items():
            rounds = []
            for pair in zip(self.phases[::2], self.phases[1::2], strict=True):
                rounds.append([[w[1:] for w in windows if begin <= w[0] <= end] for _, begin, end in pair])
            for at, what in ((0, "median"), (1, "99 %")):
                low, high = interval(rounds, at)
                alone, observed = (median_of(rounds, kind, at) / 1000 for kind in (0, 1))
                print(
                    f"  {name}, {what}: {alone:.1f} us alone, {observed:.1f} us observed, ratio "
                    f"{observed / alone:.3f} (95 % interval {low:.3f} to {high:.3f})"
                )


Rounds = list[list[list[tuple[float, ...]]]]


def median_of(rounds: Rounds, kind: int, at: int) -> float:
    return statistics.median(window[at] for round_ in rounds for window in round_[kind])


def interval(rounds: Rounds, at: int) -> tuple[float, float]:
    """Of the ratio, by bootstrap."""
    ratios = []
    for _ in range(RESAMPLINGS):
        chosen = random.choices(rounds, k=len(rounds))
        ratios.append(median_of(chosen, 1, at) / median_of(chosen, 0, at))
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
