#!/usr/bin/env python3
"""Measures what a sample costs a program that has slept, and whose caches others have used meanwhile.

    cargo build --release -p nervure-cli && cargo build --release -p nervure-node --example cold
    python3 scripts/measure_cold.py [FOLDER] [OTHER FOLDER] [--rounds N]

A folder has `nervure` and `examples/cold` (`target/release` unless told). Of two, as before and after a
change, each round measures both, in either order: other load on the machine meets both alike. A node
sends samples to itself, so that nobody has to be woken. `loan` is borrowing memory and filling it,
`send` from there until `send` returns, `take` the call that returns the sample. Figures are medians over
rounds, in nanoseconds; a ratio is the median of those of the rounds, with its quartiles.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile

STEPS = ("loan", "send", "take")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=pathlib.Path, default=[pathlib.Path("target/release")])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--samples", type=int, default=300, help="of a round")
    parser.add_argument("--bytes", type=int, default=64, help="of a sample")
    parser.add_argument("--sleep", type=int, default=1000, help="microseconds before each step")
    parser.add_argument("--sweep", type=int, default=4 << 20, help="bytes written before each step")
    options = parser.parse_args()
    rounds: dict[pathlib.Path, list[dict[str, tuple[float, float]]]] = {it: [] for it in options.folders}
    for _ in range(options.rounds):
        for folder in random.sample(options.folders, len(options.folders)):
            rounds[folder].append(measure(folder, options))
    for step in STEPS:
        for index, name in enumerate(("median", "p99")):
            figures = [[round[step][index] for round in rounds[folder]] for folder in options.folders]
            text = "  ".join(f"{statistics.median(figure):6.0f}" for figure in figures)
            if len(figures) == 2:
                low, middle, high = statistics.quantiles((b / a for a, b in zip(*figures, strict=True)), n=4)
                text += f"  {middle:.2f}x [{low:.2f}, {high:.2f}]"
            print(f"{step} {name:6}  {text}")


def measure(folder: pathlib.Path, options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """One run: median and 99th percentile of each step."""
    node = {
        "id": "cold",
        "path": str((folder / "examples" / "cold").resolve()),
        "args": f"{options.samples} {options.bytes} {options.sleep} {options.sweep}",
        "inputs": {"in": "cold/out"},
        "outputs": ["out"],
    }
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "cold.yml")
        file.write_text(json.dumps({"nodes": [node]}), encoding="utf-8")
        run = subprocess.run(
            [(folder / "nervure").resolve(), "run", file],
            env={**os.environ, "NERVURE_LOG_DIR": directory},
            capture_output=True,
            text=True,
            check=True,
        )
    words = [line.split() for line in run.stdout.splitlines()]
    figures = {
        line[-3]: (float(line[-2]), float(line[-1])) for line in words if line[-3:-2] and line[-3] in STEPS
    }
    assert set(figures) == set(STEPS), run.stdout + run.stderr
    return figures


if __name__ == "__main__":
    main()
