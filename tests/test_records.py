"""Records between Python, Rust, C and C++: each language reads and writes the structs of the others."""

import json
from pathlib import Path

import pytest

from test_c import compiled, outcome, succeeded

SANITIZED = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
BLOCK = {"queue_policy": "block"}
TYPES = {
    "battery": "std/BatteryState@1",
    "detections": "std/Detections2D@1",
    "diagnostics": "std/Diagnostics@1",
    "imu": "std/Imu@1",
    "joints": "std/JointState@1",
    "scan": "std/LaserScan@1",
    "map": "std/OccupancyGrid@1",
    "odometry": "std/Odometry@1",
    "path": "std/Path@1",
    "twist": "std/Twist@1",
}

VALUES = """\
import numpy as np
from nervure.types import *

def pose(x):
    return Pose(Point(x, 2.0, 3.0), Quaternion(0.0, 0.0, 0.6, 0.8))

def detection(name, results):
    return Detection2D(results, BoundingBox2D(Pose2D(Point2D(1.0, 2.0), theta=0.5), 3.0, 4.0), id=name)

CAR = ObjectHypothesisWithPose(ObjectHypothesis("car", 0.75))
BUS = ObjectHypothesisWithPose(
    ObjectHypothesis("bus", 0.25), pose=PoseWithCovariance(pose(1.0), covariance=np.arange(36.0)))
TWIST = Twist(Vector3(1.0, -2.5, 0.0), Vector3(0.0, 0.0, 1e-3))
SENT = {
    "battery": [BatteryState(12.5, percentage=0.5, present=True, power_supply_status=3,
                             cell_voltage=np.array([4.0, 4.25], np.float32), location="grüß"),
                BatteryState(0.0)],
    "detections": [Detections2D([detection("a", [CAR, BUS]), detection(None, []), detection("c", [BUS])]),
                   Detections2D([])],
    "diagnostics": [Diagnostics([DiagnosticStatus(1, "motor", "hot", values=[KeyValue("t", "90")]),
                                 DiagnosticStatus(0, "arm", "", hardware_id="7")])],
    "imu": [Imu(Vector3(1.0, 2.0, 3.0), Vector3(0.0, 0.0, 9.75), orientation=Quaternion(),
                orientation_covariance=np.arange(9.0)),
            Imu(Vector3(4.0, 5.0, 6.0), Vector3(0.0, 0.0, 9.75))],
    "joints": [JointState(["shoulder", "elbow"], position=np.array([0.5, 0.25])), JointState([])],
    "scan": [LaserScan(-1.0, 1.0, 0.5, 0.0, 9.0, np.array([1.5, np.inf, 2.5], np.float32))],
    "map": [OccupancyGrid(MapMetaData(0.5, 2, 2, pose(0.0)), np.array([0, -1, 100, 7], np.int8))],
    "odometry": [Odometry("base", PoseWithCovariance(pose(4.0), covariance=np.arange(36.0)),
                          TwistWithCovariance(TWIST))],
    "path": [Path([pose(float(x)) for x in range(100)]), Path([])],
    "twist": [TWIST, Twist(Vector3(1, 2, 3), Vector3(4, 5, 6))],
}
"""

SOURCE = """\
from nervure import Node
from values import SENT

node = Node()
for name, values in SENT.items():
    for value in values:
        node.send(name, value, frame="base_link", stamp=1.25)
"""

SINK = """\
from dataclasses import fields, is_dataclass
import numpy as np
from nervure import Node
from values import SENT

def same(found, expected):
    if is_dataclass(expected):
        names = [field.name for field in fields(expected)]
        assert type(found) is type(expected), (found, expected)
        return all(same(getattr(found, name), getattr(expected, name)) for name in names)
    if isinstance(expected, np.ndarray):
        return found.dtype == expected.dtype and np.array_equal(found, expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == expected

seen = {name: 0 for name in SENT}
for event in Node():
    if event.type == "INPUT":
        expected = SENT[event.id][seen[event.id]]
        assert same(event.object, expected), (event.id, event.object, expected)
        assert (event.frame, event.stamp) == ("base_link", 1.25)
        seen[event.id] += 1
print("same", sum(seen.values()), all(seen[name] == len(values) for name, values in SENT.items()))
"""


@pytest.mark.parametrize("options", [[], SANITIZED])
def test_structs_from_python_over_cxx_to_python(installed: Path, tmp_path: Path, options: list[str]) -> None:
    for name, text in [("values", VALUES), ("source", SOURCE), ("sink", SINK)]:
        (tmp_path / f"{name}.py").write_text(text)
    types = {name: {"type": type_name} for name, type_name in TYPES.items()}
    program = str(compiled(installed, "echo.cc", tmp_path, *options))

    def inputs(of: str) -> dict[str, object]:
        return {name: {"source": f"{of}/{name}", "queue_size": 10, **BLOCK} for name in TYPES}

    nodes = [
        {"id": "source", "path": "source.py", "outputs": types},
        {"id": "echo", "path": program, "inputs": inputs("source"), "outputs": types},
        {"id": "sink", "path": "sink.py", "inputs": inputs("echo")},
    ]
    assert "same 16 True" in succeeded(nodes, tmp_path)
