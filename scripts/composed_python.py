"""Measures the hand-over between two nodes in Python: in one process, and in two, in turns.

    .venv/bin/python scripts/composed_python.py

The consumer sleeps before each sample. The time is from just before the producer sends memory that it has
borrowed, until the consumer has the event. `--busy` adds a node that computes in Python without a pause, in
the same process or in a third one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SIZES = [64, 4096, 1 << 20, 32 << 20]

SOURCE = """
import sys, time
from nervure import Node

node = Node()
size, count, period = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
for _ in range(count):
    time.sleep(period)
    loan = node.loan("out", size, "u1")
    array = loan.array
    stamp = array[:8].view("i8")
    stamp[0] = time.monotonic_ns()
    del array, stamp
    loan.send()
"""

SINK = """
import json, sys, time
from nervure import Node

node = Node()
nanos = []
for event in node:
    now = time.monotonic_ns()
    if event.type == "INPUT":
        nanos.append(now - int(event.numpy()[:8].view("i8")[0]))
    del event
with open(sys.argv[1], "w") as file:
    json.dump(nanos[len(nanos) // 10 :], file)
"""

BUSY = """
from nervure import Node

node = Node()
total = 0
while not node.stopping:
    for number in range(1000):
        total += number
"""


def dataflow(folder: Path, size: int, arguments: argparse.Namespace, *, composed: bool) -> dict[str, Any]:
    """The dataflow of one run."""
    keys = {"process": "both"} if composed else {}
    source = [str(size), str(arguments.samples), str(1 / arguments.hz)]
    once = {"source": "source/out", "queue_size": 1}
    nodes = [
        {"id": "source", "path": "source.py", "args": source, "outputs": ["out"], **keys},
        {
            "id": "sink",
            "path": "sink.py",
            "args": [str(folder / "nanos.json")],
            "inputs": {"in": once},
            **keys,
        },
    ]
    if arguments.busy:
        nodes.append({"id": "busy", "path": "busy.py", "inputs": {"in": once}, **keys})
    return {"nodes": nodes}


def run(folder: Path, size: int, arguments: argparse.Namespace, *, composed: bool) -> list[float]:
    """Returns the times of one run, in microseconds."""
    file = folder / "dataflow.yml"
    # JSON is a subset of YAML.
    file.write_text(json.dumps(dataflow(folder, size, arguments, composed=composed)))
    environment = os.environ | {"VIRTUAL_ENV": sys.prefix}
    command = [str(Path(sys.prefix) / "bin" / "nervure"), "run", "--no-logs", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ended.returncode:
        sys.exit(ended.stderr)
    return [nanos / 1000 for nanos in json.loads((folder / "nanos.json").read_text())]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="Run each case this many times (default: 3)")
    parser.add_argument(
        "--samples", type=int, default=500, help="Send this many samples a run (default: 500)"
    )
    parser.add_argument("--hz", type=float, default=200, help="Send at this rate (default: 200)")
    parser.add_argument("--busy", action="store_true", help="Add a node that computes without a pause")
    arguments = parser.parse_args()
    print(
        f"{'bytes':>10}{'one process: p50':>20}{'p99':>10}{'two processes: p50':>22}{'p99':>10}{'ratio':>8}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for id, code in [("source", SOURCE), ("sink", SINK), ("busy", BUSY)]:
            (folder / f"{id}.py").write_text(code)
        for size in SIZES:
            times: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(arguments.rounds):
                for composed in (True, False):
                    times[composed] += run(folder, size, arguments, composed=composed)
            medians = {composed: statistics.median(values) for composed, values in times.items()}
            tails = {composed: statistics.quantiles(values, n=100)[98] for composed, values in times.items()}
            print(
                f"{size:>10}{medians[True]:>20.1f}{tails[True]:>10.1f}{medians[False]:>22.1f}{tails[False]:>10.1f}"
                f"{medians[True] / medians[False]:>8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
