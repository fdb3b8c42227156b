"""The cost of recording: the recorder's share of a core for a camera and an IMU, the latency of the robot's
own nodes meanwhile, and the rate that reaches the disk.

The recordings go to `out/` of the checkout, so the figures are those of its disk.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nervure_lab.experiments.own import Build, OwnExperiment, PlannedFigures

START_SECONDS = 2.0
DISK_BYTES = 2 << 30
DISK_SECONDS = 10.0
"""Expected duration of the plain writes."""
BLOCK_BYTES = 4 << 20

CAMERA = """
import sys
import numpy as np
from nervure import Node

height, width = int(sys.argv[1]), int(sys.argv[2])
node = Node()
picture = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
for event in node:
    if event.id == "tick":
        with node.loan("image", picture.shape, "u1") as sample:
            sample.array[:] = picture
"""
IMU = """
import numpy as np
from nervure import Node

node = Node()
for event in node:
    if event.id == "tick":
        node.send("sample", np.zeros(9, np.float32))
"""
SINK = """
from nervure import Node

for event in Node():
    pass
"""


@dataclass(frozen=True)
class RecordingCase:
    records: bool
    height: int = 540
    width: int = 960
    camera_hz: int = 25
    seconds: int = 10

    @property
    def megabytes_per_second(self) -> float:
        return self.height * self.width * 3 * self.camera_hz / 1e6


class Recording(OwnExperiment):
    name = "recording"
    summary = "the recorder's share of a core, its effect on latency, and the rate of the disk"

    def adapters(self) -> list[Build]:
        return [Build(needs_python=True)]

    def plan(self, quick: bool) -> list[PlannedFigures]:
        flood = RecordingCase(True, height=1024, width=1366, camera_hz=48)
        cases = {"alone": RecordingCase(False), "recorded": RecordingCase(True), "flood": flood}
        return [PlannedFigures(name, case, 1, self.name) for name, case in cases.items()]

    def expected_seconds(self, case: RecordingCase) -> float:
        return case.seconds + 2 * START_SECONDS + (DISK_SECONDS if case.records else 0.0)

    def measure(self, build: Build, case: RecordingCase, directory: Path) -> dict[str, Any]:
        for name, text in (("camera", CAMERA), ("imu", IMU), ("sink", SINK)):
            (directory / f"{name}.py").write_text(text)
        figures: dict[str, Any] = {}
        if case.records:
            figures["disk_megabytes_per_second"] = _plain_write_rate(directory)
        name = f"lab-recording-{os.getpid()}"
        total_seconds = case.seconds + 2 * START_SECONDS
        options = ["--name", name, "--stop-after", f"{total_seconds:g}s"]
        robot = subprocess.Popen(
            build.run_arguments(directory, _nodes(case), *options),
            stdout=subprocess.PIPE,
            text=True,
            env=build.environment(directory),
        )
        time.sleep(START_SECONDS)
        if case.records:
            figures |= _record(build, name, directory, case.seconds)
        messages = [json.loads(line) for line in robot.communicate()[0].splitlines()]
        edges = messages[-1]["edges"]
        figures["p50_nanos"] = {edge["input"]: edge["latency_p50_nanos"] for edge in edges}
        return figures

    def lines(self, runs: list[dict[str, Any]]) -> list[str]:
        by_name = {run["name"]: run["figures"] for run in runs}
        text = []
        for run in runs:
            figures, case = run["figures"], RecordingCase(**run["case"])
            if case.records:
                text.append(
                    f"{case.width}x{case.height} RGB at {case.camera_hz} Hz ({case.megabytes_per_second:.0f} "
                    f"MB/s) and an IMU at 99 Hz: {figures['core_share']:.1%} of a core, "
                    f"{figures['summary']}; plain writes {figures['disk_megabytes_per_second']:.0f} MB/s"
                )
        if {"alone", "recorded"} <= set(by_name):
            for edge, alone in by_name["alone"]["p50_nanos"].items():
                recorded = by_name["recorded"]["p50_nanos"][edge]
                text.append(
                    f"  latency of {edge}: p50 {alone / 1000:.0f} us, "
                    f"while recording {recorded / 1000:.0f} us"
                )
        return text


def _nodes(case: RecordingCase) -> list[dict[str, Any]]:
    camera = {
        "id": "camera",
        "path": "camera.py",
        "args": f"{case.height} {case.width}",
        "outputs": ["image"],
    }
    imu = {"id": "imu", "path": "imu.py", "outputs": ["sample"]}
    inputs = {"image": "camera/image", "sample": "imu/sample"}
    return [
        camera | {"inputs": {"tick": f"nervure/timer/hz/{case.camera_hz}"}, "outputs": ["image"]},
        imu | {"inputs": {"tick": "nervure/timer/hz/99"}},
        {"id": "sink", "path": "sink.py", "inputs": inputs},
    ]


def _record(build: Build, name: str, directory: Path, seconds: int) -> dict[str, Any]:
    recording = directory / "run.mcap"
    command = [str(build.command), "record", "-d", name, "-o", str(recording)]
    recorder = subprocess.Popen(
        ["timeout", "-s", "INT", str(seconds), *command], stderr=subprocess.PIPE, text=True
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = recorder.communicate()[1].splitlines()[-1].split(": ", 1)[1]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    recording.unlink()
    return {"core_share": used / seconds, "summary": summary}


def _plain_write_rate(directory: Path) -> float:
    """Returns the megabytes per second of plain writes of 4 MB with a sync at the end."""
    block = os.urandom(BLOCK_BYTES)
    file_path = directory / "plain"
    begin = time.monotonic()
    with file_path.open("wb", buffering=0) as file:
        for _ in range(DISK_BYTES // BLOCK_BYTES):
            file.write(block)
        os.fsync(file.fileno())
    file_path.unlink()
    return DISK_BYTES / 1e6 / (time.monotonic() - begin)


EXPERIMENT = Recording()
