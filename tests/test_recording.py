"""Third-party readers, without Nervure, find each value of a recording unchanged."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from nervure import types

mcap_reader = pytest.importorskip("mcap.reader", reason="pip install -r requirements-test.txt")
decoder = pytest.importorskip("mcap_protobuf.decoder", reason="pip install -r requirements-test.txt")

RNG = np.random.default_rng(7)
STAMP_NANOS = 1_700_000_000_123_456_789

STRUCT = pa.struct([("name", pa.string()), ("score", pa.float32()), ("box", pa.list_(pa.int16(), 4))])
ARRAYS = {
    "int64": pa.array([1, None, 3]),
    "bool": pa.array([True, None, False] * 7),
    "string": pa.array(["a", None, "", "äöü" * 30]),
    "large_string": pa.array(["x" * 100, None], pa.large_string()),
    "binary": pa.array([b"\0\1", None, b""]),
    "string_view": pa.array(["short", None, "a text that is longer than twelve bytes"], pa.string_view()),
    "list": pa.array([[1, 2], None, [], [3]]),
    "nested": pa.array([[[1.5], None], [], [[2.5, 3.5]]]),
    "fixed_list": pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.float64(), 3)),
    "struct": pa.array([{"name": "car", "score": 0.5, "box": [1, 2, 3, 4]}, None], STRUCT),
    "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int32())),
    "dense_union": pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()),
        pa.array([0, 0, 1], pa.int32()),
        [pa.array([5, 6], pa.int32()), pa.array(["u"])],
    ),
    "sparse_union": pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([5, 6]), pa.array(["u", "v"])]
    ),
    "timestamp": pa.array([0, None, 5], pa.timestamp("us", "Europe/Berlin")),
    "duration": pa.array([1, 2], pa.duration("ms")),
    "time32": pa.array([1, 2], pa.time32("s")),
    "time64": pa.array([1, 2], pa.time64("ns")),
    "date32": pa.array([1, None], pa.date32()),
    "date64": pa.array([86_400_000], pa.date64()),
    "interval": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "decimal": pa.array([None, 1], pa.decimal128(10, 2)),
    "decimal256": pa.array([7], pa.decimal256(60, 3)),
    "half": pa.array(np.array([1.5, 2.5], np.float16)),
    "fixed_binary": pa.array([b"abc", None], pa.binary(3)),
    "null": pa.nulls(4),
    "run_end": pa.RunEndEncodedArray.from_arrays([2, 5], ["a", "b"]),
    "list_view": pa.array([[1], [2, 3]], pa.list_view(pa.int8())),
}
BATCH = pa.record_batch(
    {"id": pa.array([1, 2, 3]), "label": pa.array(["a", None, "c"]), "box": pa.array([[1.0], [], None])},
    metadata={"frame": "map"},
)
DICTIONARY = pa.array(["a", "b", "a", None]).dictionary_encode()

POSE = types.Pose(types.Point(1.0, 2.0, 3.0), types.Quaternion(0.0, 0.0, 0.6, 0.8))
RECORDS = {
    "pose": POSE,
    "path": types.Path([POSE, POSE]),
    "transform": types.Transform(
        "camera", types.Vector3(0.5, 0.0, 1.0), types.Quaternion(0.0, 0.0, 0.0, 1.0)
    ),
    "odometry": types.Odometry(
        "base_link",
        types.PoseWithCovariance(POSE, covariance=np.arange(36.0).reshape(6, 6)),
        types.TwistWithCovariance(types.Twist(types.Vector3(0.5, 0.0, 0.0), types.Vector3(0.0, 0.0, 0.25))),
    ),
    "camera-info": types.CameraInfo(
        480, 640, "plumb_bob", np.zeros(5), np.eye(3), np.eye(3), np.arange(12.0).reshape(3, 4)
    ),
    "scan": types.LaserScan(
        -1.0, 1.0, 0.5, range_min=0.1, range_max=30.0, ranges=np.array([1.0, np.inf, 2.5], np.float32)
    ),
    "fix": types.NavSatFix(52.5, 13.4, 34.0, position_covariance_type=2),
    "map": types.OccupancyGrid(
        types.MapMetaData(0.05, 3, 2, POSE), np.array([[0, 100, -1], [1, 2, 3]], np.int8)
    ),
    "joints": types.JointState(["hip", "knee"], position=np.array([0.5, 1.5])),
    "log": types.Log(types.Log.ERROR, "arm", "stuck"),
    "boxes": types.Detections2D(
        [
            types.Detection2D(
                [types.ObjectHypothesisWithPose(types.ObjectHypothesis("cup", 0.75))],
                types.BoundingBox2D(types.Pose2D(types.Point2D(10.0, 20.0), theta=np.pi / 2), 4.0, 2.0),
            )
        ]
    ),
    "imu-record": types.Imu(
        angular_velocity=types.Vector3(1.0, 2.0, 3.0), linear_acceleration=types.Vector3(0.0, 0.0, 9.81)
    ),
    "twist": types.Twist(types.Vector3(0.5, 0.0, 0.0), types.Vector3(0.0, 0.0, 0.25)),
}
POINTS = np.zeros(4, [("x", "f4"), ("y", "f4"), ("z", "f4"), ("ring", "u2")])

VALUES = {
    "rgb": RNG.integers(0, 256, (54, 96, 3), np.uint8),
    "mono": RNG.integers(0, 256, (20, 30), np.uint8),
    "bgr": RNG.integers(0, 256, (16, 16, 3), np.uint8),
    "jpeg": b"\xff\xd8\xff\xe0" + bytes(range(200)),
    "imu": RNG.normal(size=9).astype(np.float32),
    "matrix": RNG.normal(size=(3, 4)),
    "transposed": RNG.normal(size=(3, 4)).T,
    "counts": np.array([[-1, 2], [3, -4]], np.int32),
    "big": np.array([2**63, 1], np.uint64),
    "depth": RNG.integers(0, 60_000, (8, 9), np.uint16),
    "cloud": RNG.normal(size=(50, 5)).astype(np.float32),
    "typed-depth": RNG.integers(0, 60_000, (8, 9), np.uint16),
    "text": "Grüße",
    "number": 2.5,
    "integer": -7,
    "huge": 2**63,
    "truth": True,
    "bytes": b"\0\1\2",
    **{f"arrow-{name}": array for name, array in ARRAYS.items()},
    "batch": BATCH,
    "dictionary": DICTIONARY,
    "points": POINTS,
    "dict": {"speed": 1.5, "label": "a", "wheels": [{"rpm": 10}, {"rpm": 20}], "none": None},
    **RECORDS,
}

TYPES = {
    "cloud": "std/PointCloud@1",
    "typed-depth": "std/Image@1",
    "points": "std/PointCloud@1",
    **{name: record.__nervure_type__ for name, record in RECORDS.items()},
}

SENDER = """
from test_recording import STAMP_NANOS, VALUES
from nervure import Node

node = Node()
for name, value in VALUES.items():
    metadata = {"encoding": "bgr8"} if name == "bgr" else {"about": name}
    node.send(name, value, stamp_nanos=STAMP_NANOS, frame="base_link", metadata=metadata)
"""

RECEIVER = """
import pickle, sys
import numpy as np
from test_recording import RECORDS, VALUES
from nervure import Node

received = {}
for event in Node():
    if event.type == "INPUT":
        is_tensor = isinstance(VALUES[event.id], np.ndarray)
        value = event.numpy().copy(order="K") if is_tensor else event.value
        if event.id in RECORDS:
            value = event.object
        received[event.id] = (value, event.stamp_nanos, event.frame, dict(event.metadata))
with open(sys.argv[1], "wb") as file:
    pickle.dump(received, file)
"""


def nervure(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    folder = Path(sys.prefix) / "bin"
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    command = shutil.which("nervure", path=path)
    assert command, "the nervure command is not installed: `make test` does it"
    environment = os.environ | {
        "PATH": path,
        "VIRTUAL_ENV": sys.prefix,
        "PYTHONPATH": str(Path(__file__).parent),
    }
    return subprocess.run([command, *arguments], capture_output=True, text=True, env=environment, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recording of a node that has sent one of each value."""
    folder = tmp_path_factory.mktemp("recording")
    (folder / "sender.py").write_text(SENDER)
    (folder / "receiver.py").write_text(RECEIVER)
    inputs = {name: {"source": f"sender/{name}", "queue_policy": "block"} for name in VALUES}
    outputs = {name: {"type": TYPES[name]} if name in TYPES else {} for name in VALUES}
    nodes = [
        {"id": "sender", "path": "sender.py", "outputs": outputs},
        {"id": "receiver", "path": "receiver.py", "args": "received", "inputs": inputs},
        {"id": "recorder", "path": "nervure", "args": "record -o run.mcap", "inputs": inputs},
    ]
    (folder / "dataflow.yml").write_text(json.dumps({"nodes": nodes}))
    ended = nervure("run", folder / "dataflow.yml")
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture(scope="module")
def messages(folder: Path) -> dict[str, tuple]:
    """Schema, channel, message and decoded value, by topic."""
    with (folder / "run.mcap").open("rb") as file:
        reader = mcap_reader.make_reader(file)
        found = {
            channel.topic: (schema, channel, message) for schema, channel, message in reader.iter_messages()
        }
    decoders = decoder.DecoderFactory()
    decoded = {}
    for topic, (schema, channel, message) in found.items():
        value = None
        if channel.message_encoding == "protobuf":
            value = decoders.decoder_for("protobuf", schema)(message.data)
        decoded[topic.removeprefix("sender/")] = (schema, channel, message, value)
    return decoded


def test_every_value_is_there(messages: dict[str, tuple]) -> None:
    assert set(messages) == set(VALUES)


@pytest.mark.parametrize(("name", "encoding"), [("rgb", "rgb8"), ("mono", "mono8"), ("bgr", "bgr8")])
def test_images_are_images(messages: dict[str, tuple], name: str, encoding: str) -> None:
    schema, _, message, image = messages[name]
    assert schema.name == "foxglove.RawImage"
    pixels = VALUES[name]
    assert (image.height, image.width, image.encoding) == (*pixels.shape[:2], encoding)
    assert image.step == pixels[0].nbytes
    assert image.data == pixels.tobytes()
    assert image.frame_id == "base_link"
    assert image.timestamp.seconds * 10**9 + image.timestamp.nanos == STAMP_NANOS
    assert message.data.count(pixels.tobytes()) == 1, "the payload is there once"


def test_a_jpeg_is_a_compressed_image(messages: dict[str, tuple]) -> None:
    schema, _, _, image = messages["jpeg"]
    assert (schema.name, image.format, image.data) == ("foxglove.CompressedImage", "jpeg", VALUES["jpeg"])


def test_a_point_cloud_is_one_where_its_type_says_so(messages: dict[str, tuple]) -> None:
    schema, channel, _, cloud = messages["cloud"]
    assert (schema.name, channel.metadata["nervure.type"]) == ("foxglove.PointCloud", "std/PointCloud@1")
    fields = [(field.name, field.offset, field.type) for field in cloud.fields]
    float32 = 7
    names = ["x", "y", "z", "intensity", "column4"]
    assert fields == [(name, 4 * number, float32) for number, name in enumerate(names)]
    assert (cloud.point_stride, cloud.frame_id, cloud.pose.orientation.w) == (20, "base_link", 1.0)
    assert cloud.data == VALUES["cloud"].tobytes()


def test_a_depth_image_is_one_where_its_type_says_so(messages: dict[str, tuple]) -> None:
    schema, _, _, image = messages["typed-depth"]
    assert (schema.name, image.encoding, image.step) == ("foxglove.RawImage", "mono16", 18)
    assert image.data == VALUES["typed-depth"].tobytes()


@pytest.mark.parametrize("name", ["imu", "matrix", "counts", "big"])
def test_numbers_are_numbers(messages: dict[str, tuple], name: str) -> None:
    value = messages[name][3]
    expected = VALUES[name]
    assert list(value.shape) == list(expected.shape)
    assert np.array_equal(np.array(value.data, expected.dtype).reshape(expected.shape), expected)


@pytest.mark.parametrize("name", ["depth", "transposed"])
def test_other_tensors_say_how_they_lie(messages: dict[str, tuple], name: str) -> None:
    value = messages[name][3]
    array = np.lib.stride_tricks.as_strided(
        np.frombuffer(value.data, value.dtype), tuple(value.shape), tuple(value.strides)
    )
    assert np.array_equal(array, VALUES[name])


def test_single_values(messages: dict[str, tuple]) -> None:
    for name in ("number", "integer", "huge", "truth"):
        assert messages[name][3].value == VALUES[name], name
    schema, _, _, log = messages["text"]
    assert (schema.name, log.message, log.name) == ("foxglove.Log", "Grüße", "sender/text")
    assert messages["bytes"][3].data == b"\0\1\2"


@pytest.mark.parametrize("name", [*(f"arrow-{name}" for name in ARRAYS), "batch"])
def test_arrow_is_arrow(messages: dict[str, tuple], name: str) -> None:
    schema, channel, message, _ = messages[name]
    assert (schema.encoding, channel.message_encoding) == ("arrow", "arrow")
    arrow_schema = pa.ipc.read_schema(pa.py_buffer(schema.data))
    batch = pa.ipc.read_record_batch(pa.py_buffer(message.data), arrow_schema)
    batch.validate(full=True)
    if name == "batch":
        assert batch.equals(BATCH, check_metadata=True)
    else:
        assert batch.num_columns == 1
        assert batch.column(0).equals(VALUES[name])
        assert batch.column(0).null_count == VALUES[name].null_count
    # Schema and batch, one after the other, are a stream of Arrow IPC.
    stream = pa.ipc.open_stream(pa.py_buffer(schema.data + message.data + b"\xff\xff\xff\xff\0\0\0\0"))
    assert stream.read_next_batch().equals(batch)


FOXGLOVE = {
    "pose": "PoseInFrame",
    "path": "PosesInFrame",
    "transform": "FrameTransform",
    "odometry": "Odometry",
    "camera-info": "CameraCalibration",
    "scan": "LaserScan",
    "fix": "LocationFix",
    "map": "Grid",
    "joints": "JointStates",
    "log": "Log",
    "boxes": "ImageAnnotations",
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_the_message_of_its_type(messages: dict[str, tuple], name: str) -> None:
    schema, channel, _, message = messages[name]
    own = TYPES[name].removesuffix("@1").replace("/", ".")
    assert schema.name == (f"foxglove.{FOXGLOVE[name]}" if name in FOXGLOVE else own)
    assert channel.message_encoding == "protobuf"
    assert message.timestamp.seconds * 10**9 + message.timestamp.nanos == STAMP_NANOS
    if name not in ("joints", "log", "boxes", "transform"):
        assert message.frame_id == "base_link"


def test_the_values_of_records_are_those_of_their_messages(messages: dict[str, tuple]) -> None:
    pose = messages["pose"][3].pose
    assert (pose.position.y, pose.orientation.z, pose.orientation.w) == (2.0, 0.6, 0.8)
    assert [pose.position.z for pose in messages["path"][3].poses] == [3.0, 3.0]
    transform = messages["transform"][3]
    assert (transform.parent_frame_id, transform.child_frame_id) == ("base_link", "camera")
    assert transform.translation.z == 1.0
    odometry = messages["odometry"][3]
    assert (odometry.body_frame_id, odometry.linear_velocity.x, odometry.angular_velocity.z) == (
        "base_link",
        0.5,
        0.25,
    )
    assert list(odometry.pose_covariance) == list(range(36))
    calibration = messages["camera-info"][3]
    assert (calibration.width, calibration.height) == (640, 480)
    assert list(calibration.K) == list(np.eye(3).flat)
    assert list(calibration.P) == list(range(12))
    scan = messages["scan"][3]
    assert (scan.start_angle, scan.end_angle, list(scan.ranges)) == (-1.0, 1.0, [1.0, float("inf"), 2.5])
    fix = messages["fix"][3]
    assert (fix.latitude, fix.longitude, fix.position_covariance_type) == (52.5, 13.4, 2)
    grid = messages["map"][3]
    assert (grid.column_count, grid.row_stride, grid.cell_stride, grid.cell_size.x) == (3, 3, 1, 0.05)
    assert np.array_equal(np.frombuffer(grid.data, np.int8).reshape(2, 3), RECORDS["map"].data)
    joints = [
        (joint.name, joint.position, joint.HasField("effort")) for joint in messages["joints"][3].joints
    ]
    assert joints == [("hip", 0.5, False), ("knee", 1.5, False)]
    log = messages["log"][3]
    assert (log.level, log.name, log.message) == (4, "arm", "stuck")
    boxes = messages["boxes"][3]
    corners = [(round(point.x, 6), round(point.y, 6)) for point in boxes.points[0].points]
    assert corners == [(11, 18), (11, 22), (9, 22), (9, 18)]
    assert (boxes.points[0].type, boxes.texts[0].text) == (2, "cup")


def test_numbers_of_other_records_are_fields(messages: dict[str, tuple]) -> None:
    imu = messages["imu-record"][3]
    assert (imu.angular_velocity.y, imu.linear_acceleration.z) == (2.0, 9.81)
    assert "orientation" not in imu.DESCRIPTOR.fields_by_name
    assert messages["twist"][3].angular.z == 0.25
    schema, _, _, record = messages["dict"]
    assert schema.name == "nervure.Record"
    assert (record.speed, record.label, [wheel.rpm for wheel in record.wheels]) == (1.5, "a", [10, 20])


def test_points_of_a_structured_type_have_its_names(messages: dict[str, tuple]) -> None:
    schema, _, _, cloud = messages["points"]
    fields = [(field.name, field.offset, field.type) for field in cloud.fields]
    assert (schema.name, cloud.point_stride) == ("foxglove.PointCloud", 14)
    assert fields == [("x", 0, 7), ("y", 4, 7), ("z", 8, 7), ("ring", 12, 3)]


def test_what_no_record_batch_holds_is_kept_for_nervure(messages: dict[str, tuple]) -> None:
    _, channel, _, _ = messages["dictionary"]
    assert channel.message_encoding == "nervure"


def test_a_replay_gives_the_same_values(folder: Path) -> None:
    import pickle

    first = pickle.loads((folder / "received").read_bytes())
    assert set(first) == set(VALUES)
    for attempt in range(2):
        (folder / "received").unlink()
        ended = nervure("replay", folder / "run.mcap", folder / "dataflow.yml", "--rate", "max")
        # The recorder reports that it does not overwrite the recording; all other nodes act as before.
        next_file = f"run-{attempt + 2:04}.mcap"
        message = f"run.mcap exists already: the recording continues in {next_file}"
        assert message in ended.stderr, ended.stderr
        again = pickle.loads((folder / "received").read_bytes())
        assert set(again) == set(first)
        for name, (value, *rest) in first.items():
            value_again, *rest_again = again[name]
            assert rest == rest_again, (attempt, name)
            assert is_same(value, value_again), (attempt, name)


@pytest.mark.timeout(180)
def test_the_demo_replayed_twice_gives_the_same(tmp_path: Path) -> None:
    pytest.importorskip("cv2", reason="pip install -r examples/drive/requirements.txt")
    pytest.importorskip("imufusion", reason="pip install -r examples/drive/requirements.txt")
    drive = tmp_path / "examples" / "drive"
    source = Path(__file__).parents[1] / "examples" / "drive"
    shutil.copytree(source, drive, ignore=shutil.ignore_patterns("__pycache__"))
    recorder = """
  - id: recorder
    path: nervure
    args: record -o recorded.mcap
    inputs:
"""
    topics = {"camera/image", "lanes/lanes", "imu/sample", "fusion/attitude"}
    inputs = "".join(f"      {t.replace('/', '-')}: {{source: {t}, queue_policy: block}}\n" for t in topics)
    (drive / "recorded.yml").write_text((drive / "dataflow.yml").read_text() + recorder + inputs)
    ended = nervure("run", drive / "recorded.yml")
    assert ended.returncode == 0, ended.stderr
    (drive / "recorded.mcap").rename(drive / "drive.mcap")

    def results() -> dict[str, list[tuple]]:
        """Every sample of each topic: its capture time and its data in a viewer."""
        found: dict[str, list[tuple]] = {}
        with (drive / "recorded.mcap").open("rb") as file:
            factories = [decoder.DecoderFactory()]
            reader = mcap_reader.make_reader(file, decoder_factories=factories)
            for _, channel, _, value in reader.iter_decoded_messages():
                data = value.data if channel.topic == "camera/image" else np.array(value.data).tobytes()
                stamp = (value.timestamp.seconds, value.timestamp.nanos)
                found.setdefault(channel.topic, []).append((stamp, data))
        (drive / "recorded.mcap").unlink()
        return found

    replays = []
    for _ in range(2):
        ended = nervure("replay", drive / "drive.mcap", drive / "recorded.yml", "--rate", "max")
        assert ended.returncode == 0, ended.stderr
        replays.append(results())
    (drive / "drive.mcap").rename(drive / "recorded.mcap")
    recorded = results()
    assert (len(recorded["camera/image"]), len(recorded["lanes/lanes"])) == (221, 221)
    # The queue of `fusion` may drop samples of the live IMU; a replay drops none.
    for topic in topics - {"fusion/attitude"}:
        assert replays[0][topic] == recorded[topic], f"{topic} is what was recorded"
    assert len(replays[0]["fusion/attitude"]) == len(recorded["imu/sample"])
    assert replays[0] == replays[1]


def is_same(value: object, other: object) -> bool:
    if isinstance(value, np.ndarray):
        is_alike = (value.dtype, value.shape, value.strides) == (other.dtype, other.shape, other.strides)
        return is_alike and np.array_equal(value, other)
    if isinstance(value, pa.Array):
        return value.type == other.type and value.equals(other)
    if dataclasses.is_dataclass(value):
        # Arrays in it have no single truth value.
        return repr(value) == repr(other)
    return type(value) is type(other) and value == other
