#!/usr/bin/env python3
"""Measures what an observer costs a dataflow: the latency of its nodes with one attached and without.

    cargo build --release -p nervure-cli && cargo build --release -p nervure-node --examples
    python3 scripts/measure_observers.py [--bytes N] [--hz N] [--rounds N] [--folder target/release]

A source sends to a sink, which tells the median time from publication until it took a sample, every 200 ms.
In every other phase `nervure topic hz` observes the source's output. The machine should be quiet.
The ratio is that of the medians over all windows of a kind, its interval by bootstrap over rounds.
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

PHASE_SECONDS = 2.0
# After an observer came or went.
SETTLING_SECONDS = 0.4
RESAMPLINGS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bytes", type=int, default=4096)
    parser.add_argument("--hz", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("target/release"))
    options = parser.parse_args()
    nervure, node = (str((options.folder / name).resolve()) for name in ("nervure", "examples/observed"))
    nodes = [
        {
            "id": "source",
            "path": node,
            "args": f"source {options.bytes}",
            "inputs": {"tick": f"nervure/timer/hz/{options.hz}"},
            "outputs": ["out"],
        },
        {"id": "sink", "path": node, "args": "sink", "inputs": {"in": "source/out"}},
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "observers.yml"
        file.write_text(json.dumps({"nodes": nodes}), encoding="utf-8")
        environment = os.environ | {"NERVURE_LOG_DIR": folder}
        name = f"observers-{os.getpid()}"
        run = subprocess.Popen(
            [nervure, "run", "--json", "--name", name, str(file)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        windows: list[tuple[float, float, float]] = []
        threading.Thread(target=listen, args=(run, windows), daemon=True).start()
        try:
            phases = alternate(nervure, name, options.rounds)
        finally:
            run.terminate()
            run.wait()
    report(windows, phases)


def listen(run: subprocess.Popen[str], windows: list[tuple[float, float, float]]) -> None:
    assert run.stdout
    for line in run.stdout:
        message = json.loads(line)
        if message["message"] == "log" and message["node"] == "sink":
            median, high = message["text"].split()
            windows.append((time.monotonic(), float(median), float(high)))


def alternate(nervure: str, name: str, rounds: int) -> list[tuple[bool, float, float]]:
    """Whether it was observed, and from when to when."""
    time.sleep(1)
    phases = []
    for _ in range(rounds):
        for is_observed in (False, True):
            observer = None
            if is_observed:
                command = [nervure, "topic", "hz", f"{name}:source/out", "--interval", "1h"]
                observer = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            begin = time.monotonic() + SETTLING_SECONDS
            time.sleep(PHASE_SECONDS)
            phases.append((is_observed, begin, time.monotonic()))
            if observer:
                assert observer.poll() is None, "the observer has ended"
                observer.kill()
                observer.wait()
    return phases


def report(windows: list[tuple[float, float, float]], phases: list[tuple[bool, float, float]]) -> None:
    rounds = []
    for alone, observed in zip(phases[::2], phases[1::2], strict=True):
        rounds.append(
            [[w[1:] for w in windows if begin <= w[0] <= end] for _, begin, end in (alone, observed)]
        )
    for at, what in ((0, "median"), (1, "99 %")):

        def median_of(chosen: list[list[list[tuple[float, ...]]]], kind: int, at: int = at) -> float:
            return statistics.median(window[at] for round_ in chosen for window in round_[kind])

        def ratio_of(chosen: list[list[list[tuple[float, ...]]]]) -> float:
            return median_of(chosen, 1) / median_of(chosen, 0)

        resampled = sorted(ratio_of(random.choices(rounds, k=len(rounds))) for _ in range(RESAMPLINGS))
        low, high = (resampled[int(share * RESAMPLINGS)] for share in (0.025, 0.975))
        alone, observed = (median_of(rounds, kind) / 1000 for kind in (0, 1))
        print(
            f"{what}: {alone:.1f} us alone, {observed:.1f} us observed, "
            f"ratio {ratio_of(rounds):.3f} (95 % interval {low:.3f} to {high:.3f})"
        )


if __name__ == "__main__":
    main()
