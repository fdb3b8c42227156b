#!/usr/bin/env python3
"""What recording costs, with real processes: the recorder's share of a core for a camera and an IMU, what it
does to the latency of the robot's own nodes, and how much goes to disk.

    .venv/bin/python scripts/measure_recording.py [--folder FOLDER_ON_THE_DISK]
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 10

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where the recordings are written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="measure-recording-") as folder:
        disk = write_plainly(Path(folder), 2 << 30)
        print(f"this disk: {disk:.0f} MB/s for plain writes of 4 MB and a sync")
        robot = {"height": 540, "width": 960, "camera_hz": 25}
        plain = run(Path(folder), record=False, **robot)
        recorded = run(Path(folder), record=True, **robot)
        print(
            f"960x540 RGB at 25 Hz and an IMU at 99 Hz: {recorded['core']:.1%} of a core, {recorded['said']}"
        )
        for topic, name in (("sink/image", "image"), ("sink/sample", "imu")):
            before, after = plain["p50"][topic] / 1000, recorded["p50"][topic] / 1000
            print(f"  latency of {name} to another node: p50 {before:.0f} us, while recording {after:.0f} us")
        flood = run(Path(folder), record=True, height=1024, width=1366, camera_hz=48)
        print(f"4.2 MB at 48 Hz (201 MB/s): {flood['core']:.1%} of a core, {flood['said']}")


def write_plainly(folder: Path, size: int) -> float:
    """Megabytes a second that the disk takes."""
    block = os.urandom(4 << 20)
    begin = time.monotonic()
    with (folder / "plain").open("wb", buffering=0) as file:
        for _ in range(size // len(block)):
            file.write(block)
        os.fsync(file.fileno())
    (folder / "plain").unlink()
    return size / 1e6 / (time.monotonic() - begin)


def run(folder: Path, *, record: bool, height: int, width: int, camera_hz: int) -> dict:
    for name, text in (("camera", CAMERA), ("imu", IMU), ("sink", SINK)):
        (folder / f"{name}.py").write_text(text)
    nodes = [
        {"id": "camera", "path": "camera.py", "args": f"{height} {width}", "outputs": ["image"]},
        {"id": "imu", "path": "imu.py", "outputs": ["sample"]},
        {"id": "sink", "path": "sink.py", "inputs": {"image": "camera/image", "sample": "imu/sample"}},
    ]
    nodes[0]["inputs"] = {"tick": f"nervure/timer/hz/{camera_hz}"}
    nodes[1]["inputs"] = {"tick": "nervure/timer/hz/99"}
    (folder / "robot.yml").write_text(json.dumps({"nodes": nodes}))
    name = f"measure-{os.getpid()}"
    command = shutil.which("nervure") or sys.exit("nervure is not on the PATH")
    arguments = [command, "run", "robot.yml", "--json", "--name", name, "--stop-after", f"{SECONDS + 4}s"]
    robot = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE, text=True)
    time.sleep(2)
    found: dict = {}
    if record:
        recording = folder / "run.mcap"
        recorder = subprocess.Popen(
            ["timeout", "-s", "INT", str(SECONDS), command, "record", "-d", name, "-o", recording],
            stderr=subprocess.PIPE,
            text=True,
        )
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        told = recorder.communicate()[1].splitlines()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found = {"core": used / SECONDS, "said": told[-1].split(": ", 1)[1]}
        recording.unlink()
    messages = [json.loads(line) for line in robot.communicate()[0].splitlines()]
    edges = messages[-1]["edges"]
    found["p50"] = {edge["input"]: edge["latency_p50_nanos"] for edge in edges}
    return found


if __name__ == "__main__":
    main()
