"""Records between Python, Rust, C and C++: each language reads and writes the structs of the others."""

from pathlib import Path

import pytest
from test_c import compiled, succeeded

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


OTHERS = """\
from nervure import Node

node = Node()
node.send("number", 7)
node.send("list", [{"x": 1.0, "y": 2.0, "z": 3.0}, {"x": 4, "y": 5, "z": 6}])
"""

FROM_C = """\
z 3
covariance 0.5
refused: nervure_record_number: the record's `angular_velocity_covariance[0]`: the list is null
refused: nervure_record_number: the record's `angular_velocity.q`: \
there is no field `q`; the fields are: x, y, z
refused: nervure_record_number: the record's `angular_velocty.x`: there is no field `angular_velocty`; \
the fields are: orientation, orientation_covariance, angular_velocity, angular_velocity_covariance, \
linear_acceleration, linear_acceleration_covariance; did you mean `angular_velocity`?
refused: nervure_record_number: the record's `angular_velocity`: expected `float64`, found a record
refused: nervure_record_integer: the record's `angular_velocity.z`: \
expected `int64`, found a floating-point number
refused: nervure_record_integer: the path `angular_velocity..z` is wrong at byte 16: \
expected fields and indices, as in `poses[3].position.x`
name grüß
count 1 18446744073709551615
valid 1
refused: nervure_record_number: the record's `score`: it is null
points 2 1.5 bc
refused: nervure_record_number: the record's `points[2].x`: there is no item 2 of 2
refused: nervure_record_number: the record's `points.x`: expected a record with `x`, found a list
ranges 3 0.75
image 2 x 2 x 3 11
transposed 3
refused: nervure_record_tensor: the record's `tags`: expected a value, found a list: read its items
refused: nervure_record_text: the record's `is_valid`: expected text, found a truth value
refused: nervure_builder_set: std/Detections2D@1, field `detections[3].id`: \
expected an index of at most 2, which appends an item, found 3
refused: nervure_builder_set: std/Detections2D@1, field `detections[2].results[1].hypothesis.class_id`: \
expected an index of at most 0, which appends an item, found 1
refused: nervure_builder_set: std/Detections2D@1, field `detection[0].id`: \
expected one of detections, found `detection` (did you mean `detections`?)
refused: nervure_builder_set: std/Detections2D@1, field `detections[0].bbox.size_x`: \
expected `float64`, found text
refused: nervure_builder_set: std/Detections2D@1, field `detections.x`: \
expected `std/Detection2D[]`, found a field `x`
refused: nervure_builder_set: std/Odometry@1, field `twist.covariance[36]`: \
expected an index below 36 (`float64[36]`), found 36
refused: nervure_send: the output `odometry` sends std/Odometry@1, field `pose.covariance`: \
expected 36 items (`float64[36]`), found 35
refused: nervure_builder_set: the record, field `robots.name`: expected a record with `name`, found a list
refused: nervure_builder_new: a sample of std/Image@1 is no record, but its `data`: send that
"""

FROM_CXX = """\
frame 18446744073709551615 00 2 1.5 bc 0.75 3 10
refused: nervure_sample_read: Wrong, field `points[].x`: expected `uint8`, found a floating-point number
refused: nervure_sample_read: std/Twist@1, field `linear`: expected `std/Vector3@1`, found no such field
record second 2 0.5 12 11 00
refused: nervure_record_read: the record's `count`: expected `int32`, found 18446744073709551615
refused: nervure_record_read: the record's `points[0].x`: expected `string`, found a floating-point number
refused: nervure_record_read: the record's `score`: it is null
refused: nervure_record_read: the record's `ranges`: expected 2 items (`float64[2]`), found 3
refused: the elements of the tensor: expected f32, got u8
detections 2 - 1 3 second 0 0
detections 0
odometry 1.5 1 35 7
twist 0.5 -1
robots bert 0 2
refused: nervure_sample_read: expected one record: a dict, dataclass or struct, found a scalar
refused: nervure_record_open: expected one record: a dict, dataclass or struct, found a scalar
refused: nervure_sample_read: expected one record: a dict, dataclass or struct, found a list of 2
list 5
"""


def test_records_from_rust_over_c_to_cxx(installed: Path, tmp_path: Path) -> None:
    rust = Path(__file__).parents[1] / "target" / "debug" / "examples" / "records"
    assert rust.exists(), "no Rust node: `make test` builds it"
    (tmp_path / "others.py").write_text(OTHERS)
    sent = {
        "detections": {"type": "std/Detections2D@1"},
        "odometry": {"type": "std/Odometry@1"},
        "twist": {"type": "std/Twist@1"},
        "image": {"type": "std/Image@1"},
        "untyped": {},
    }
    received = {name: f"c/{name}" for name in sent if name != "image"}
    received |= {"frame": "rust/frame", "number": "others/number", "list": "others/list"}

    def inputs(sources: dict[str, str]) -> dict[str, object]:
        return {name: {"source": source, **BLOCK} for name, source in sources.items()}

    read = {"imu": "rust/imu", "frame": "rust/frame"}
    for language in ("c", "cxx"):
        (tmp_path / language).mkdir()
    programs = {
        language: str(compiled(installed, source, tmp_path / language, *SANITIZED))
        for language, source in [("c", "records.c"), ("cxx", "records.cc")]
    }
    nodes = [
        {"id": "rust", "path": str(rust), "outputs": {"imu": {"type": "std/Imu@1"}, "frame": {}}},
        {"id": "others", "path": "others.py", "outputs": ["number", "list"]},
        {"id": "c", "path": programs["c"], "inputs": inputs(read), "outputs": sent},
        {"id": "cxx", "path": programs["cxx"], "inputs": inputs(received)},
    ]
    printed = succeeded(nodes, tmp_path)
    for node, expected in (("c", FROM_C), ("cxx", FROM_CXX)):
        lines = [line for line in printed.splitlines() if line.startswith(f"{node} ")]
        lines = [line.split("|", 1)[1].strip() for line in lines]
        # Samples of several inputs arrive in any order.
        assert sorted(lines) == sorted(expected.splitlines()), printed
