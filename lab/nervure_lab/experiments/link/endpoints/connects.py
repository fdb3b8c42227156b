"""Runs a command COUNT times in sequence and reports when each began: `connects.py COUNT COMMAND ..`."""

import subprocess
import sys
import time

from nervure_lab.experiments.link.endpoint import report

starts = []
for _ in range(int(sys.argv[1])):
    started_nanos = time.monotonic_ns()
    ended = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, check=False)
    starts.append([started_nanos, ended.returncode])
    report({"starts": starts})
