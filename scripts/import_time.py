#!/usr/bin/env python3
"""Measures the time of imports: `import nervure`, Nervure's `import dora`, and dora's own.

Each runs in a new interpreter, in turns, after one warm-up round. Prints medians and quartiles in
milliseconds, and the median of the differences within the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40, help="rounds that count")
    parser.add_argument("--dora-python", type=Path, help="the Python of an environment with dora-rs")
    arguments = parser.parse_args()
    import nervure

    dora_path = {"PYTHONPATH": str(Path(nervure.__file__).parent / "_dora_path")}
    imports = {
        "python": (Path(sys.executable), "pass", {}),
        "import nervure": (Path(sys.executable), "import nervure", {}),
        "import dora (Nervure's)": (Path(sys.executable), "import dora", dora_path),
    }
    if arguments.dora_python:
        imports["import dora (dora's)"] = (arguments.dora_python, "import dora", {})
    rounds = [
        {name: milliseconds(*what) for name, what in imports.items()} for _ in range(arguments.rounds + 1)
    ][1:]
    for name in imports:
        low, middle, high = statistics.quantiles([times[name] for times in rounds], n=4)
        print(f"{name:24} {middle:6.1f} ms [{low:.1f}, {high:.1f}]")
    beyond = statistics.median(times["import dora (Nervure's)"] - times["import nervure"] for times in rounds)
    print(f"`import dora` beyond `import nervure`: {beyond:.1f} ms")
    return 0


def milliseconds(python: Path, program: str, variables: dict[str, str]) -> float:
    begin = time.perf_counter()
    subprocess.run([python, "-c", program], env=os.environ | variables, check=True)
    return (time.perf_counter() - begin) * 1000


if __name__ == "__main__":
    sys.exit(main())
