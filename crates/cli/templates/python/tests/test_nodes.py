"""Tests of the computation, and of the dataflow as a whole."""

import subprocess
import sys
from pathlib import Path

import numpy as np

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT))

from brightness import brightness  # noqa: E402


def test_brightness() -> None:
    assert brightness(np.full((4, 4), 100, np.uint8)) == 100


def test_the_dataflow_runs() -> None:
    run = subprocess.run(
        ["nervure", "run", "--stop-after", "2s", "dataflow.yml"], cwd=PROJECT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "show" in run.stdout and "| 10" in run.stdout, run.stdout
