"""Runs a command COUNT times in sequence and prints when each began: `connects.py COUNT COMMAND ..`."""

from __future__ import annotations

import json
import subprocess
import sys
import time


def main(count: int, command: list[str]) -> None:
    starts = []
    for _ in range(count):
        started_nanos = time.monotonic_ns()
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        starts.append([started_nanos, ended.returncode])
        # A line after each, of which the last one counts: the run may be ended before all have.
        print(json.dumps({"starts": starts}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
