"""Bags of ROS 2, as `rosbag2` writes them, played: made here with the MCAP project's writer and `rosbags`."""

import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mcap_writer = pytest.importorskip("mcap.writer", reason="pip install -r requirements-test.txt")
ros2_writer = pytest.importorskip("mcap_ros2.writer", reason="pip install -r requirements-test.txt")
rosbag2 = pytest.importorskip("rosbags.rosbag2", reason="pip install -r requirements-test.txt")
typesys = pytest.importorskip("rosbags.typesys", reason="pip install -r requirements-test.txt")

STAMP = {"sec": 1_700_000_000, "nanosec": 123_456_789}
STAMP_NANOS = 1_700_000_000_123_456_789
HEADER = {"stamp": STAMP, "frame_id": "base_link"}
LINE = "\n" + "=" * 80 + "\n"
TIME = f"{LINE}MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
HEADER_TEXT = f"{LINE}MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n{TIME}"
VECTOR = f"{LINE}MSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n"
POINT = f"{LINE}MSG: geometry_msgs/Point\nfloat64 x\nfloat64 y\nfloat64 z\n"
QUATERNION = f"{LINE}MSG: geometry_msgs/Quaternion\nfloat64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1\n"
POSE = f"{LINE}MSG: geometry_msgs/Pose\nPoint position\nQuaternion orientation\n"
TWIST = f"{LINE}MSG: geometry_msgs/Twist\nVector3 linear\nVector3 angular\n"
TRANSFORM = f"{LINE}MSG: geometry_msgs/Transform\nVector3 translation\nQuaternion rotation\n"
IMAGE = (
    "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\n"
    f"uint8[] data{HEADER_TEXT}"
)
CLOUD = (
    "std_msgs/Header header\nuint32 height\nuint32 width\nPointField[] fields\nbool is_bigendian\n"
    f"uint32 point_step\nuint32 row_step\nuint8[] data\nbool is_dense{HEADER_TEXT}{LINE}"
    "MSG: sensor_msgs/PointField\nuint8 INT8=1\nuint8 FLOAT32 = 7\nstring name\nuint32 offset\n"
    "uint8 datatype\nuint32 count\n"
)
DEFINITIONS = {
    "sensor_msgs/msg/Image": IMAGE,
    "sensor_msgs/msg/CompressedImage": f"std_msgs/Header header\nstring format\nuint8[] data{HEADER_TEXT}",
    "sensor_msgs/msg/PointCloud2": CLOUD,
    "sensor_msgs/msg/Imu": (
        "std_msgs/Header header\ngeometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n"
        "geometry_msgs/Vector3 angular_velocity\nfloat64[9] angular_velocity_covariance\n"
        "geometry_msgs/Vector3 linear_acceleration\nfloat64[9] linear_acceleration_covariance"
        f"{HEADER_TEXT}{QUATERNION}{VECTOR}"
    ),
    "sensor_msgs/msg/LaserScan": (
        "std_msgs/Header header # of the first ray\nfloat32 angle_min\nfloat32 angle_max\n"
        "float32 angle_increment\nfloat32 time_increment\nfloat32 scan_time\nfloat32 range_min\n"
        f"float32 range_max\nfloat32[] ranges\nfloat32[] intensities{HEADER_TEXT}"
    ),
    "std_msgs/msg/String": "string data",
    "std_msgs/msg/Float64": "float64 data",
    "std_msgs/msg/Bool": "bool data",
    "std_msgs/msg/Empty": "",
    "geometry_msgs/msg/Twist": f"Vector3 linear\nVector3 angular{VECTOR}",
    "geometry_msgs/msg/PoseStamped": (
        f"std_msgs/Header header\nPose pose{HEADER_TEXT}{POSE}{POINT}{QUATERNION}"
    ),
    "nav_msgs/msg/Odometry": (
        "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/PoseWithCovariance pose\n"
        f"geometry_msgs/TwistWithCovariance twist{HEADER_TEXT}{LINE}MSG: geometry_msgs/PoseWithCovariance\n"
        f"Pose pose\nfloat64[36] covariance\n{LINE}MSG: geometry_msgs/TwistWithCovariance\nTwist twist\n"
        f"float64[36] covariance\n{POSE}{POINT}{QUATERNION}{TWIST}{VECTOR}"
    ),
    "tf2_msgs/msg/TFMessage": (
        f"geometry_msgs/TransformStamped[] transforms{LINE}MSG: geometry_msgs/TransformStamped\n"
        "std_msgs/Header header\nstring child_frame_id\nTransform transform\n"
        f"{HEADER_TEXT}{TRANSFORM}{VECTOR}{QUATERNION}"
    ),
    "my_msgs/msg/Mixed": (
        "uint8 MOST=3\nstring[] names\nbool[<=4] flags\nint16[2] pair\nuint64 big\nPart[] parts\nchar letter"
        f"{LINE}MSG: my_msgs/Part\nint8 a\nfloat32[] values\nstring label\n"
    ),
}

RNG = np.random.default_rng(3)
PIXELS = RNG.integers(0, 256, (6, 8, 3), np.uint8)
DEPTH = RNG.integers(0, 60_000, (4, 5), np.uint16)
XYZI = RNG.normal(size=(7, 4)).astype(np.float32)
PADDED = np.zeros(5, {"names": ["x", "y", "z", "ring"], "formats": ["<f4", "<f4", "<f4", "<u2"],
                      "offsets": [0, 4, 8, 16], "itemsize": 24})  # fmt: skip
for name in PADDED.dtype.names:
    PADDED[name] = RNG.integers(0, 100, 5)


def xyz(x: float, y: float, z: float) -> dict[str, float]:
    return {"x": x, "y": y, "z": z}


def xyzw(x: float, y: float, z: float, w: float) -> dict[str, float]:
    return {"x": x, "y": y, "z": z, "w": w}


def image(pixels: np.ndarray, encoding: str, *, padding: int = 0, is_bigendian: int = 0) -> dict[str, Any]:
    rows = pixels.reshape(pixels.shape[0], -1)
    data = b"".join(row.tobytes() + b"\xaa" * padding for row in rows)
    return {
        "header": HEADER,
        "height": pixels.shape[0],
        "width": pixels.shape[1],
        "encoding": encoding,
        "is_bigendian": is_bigendian,
        "step": rows[0].nbytes + padding,
        "data": data,
    }


def cloud(points: np.ndarray, fields: list[tuple[str, int, int]], step: int, **more: Any) -> dict[str, Any]:
    described = [
        {"name": name, "offset": offset, "datatype": kind, "count": 1} for name, offset, kind in fields
    ]
    return {
        "header": HEADER,
        "height": 1,
        "width": len(points),
        "fields": described,
        "is_bigendian": False,
        "point_step": step,
        "row_step": step * len(points),
        "data": points.tobytes(),
        "is_dense": True,
        **more,
    }


POSE_VALUE = {"position": xyz(1, 2, 3), "orientation": xyzw(0, 0, 0.5, 0.5)}
POSE_STAMPED = {"header": HEADER, "pose": POSE_VALUE}
TWIST_VALUE = {"linear": xyz(1, 0, 0), "angular": xyz(0, 0, -0.5)}
XYZ_FIELDS = [("x", 0, 7), ("y", 4, 7), ("z", 8, 7)]
IMU = {
    "header": HEADER,
    "orientation": xyzw(0, 0, 0, 1),
    "orientation_covariance": [float(n) for n in range(9)],
    "angular_velocity": xyz(0.1, 0.2, 0.3),
    "angular_velocity_covariance": [0.0] * 9,
    "linear_acceleration": xyz(0, 0, 9.81),
    "linear_acceleration_covariance": [-1.0] * 9,
}
SCAN = {
    "header": HEADER,
    "angle_min": -1.5,
    "angle_max": 1.5,
    "angle_increment": 0.5,
    "time_increment": 0.0,
    "scan_time": 0.25,
    "range_min": 0.125,
    "range_max": 30.0,
    "ranges": [1.0, 2.5, float("inf")],
    "intensities": [],
}
ODOMETRY = {
    "header": HEADER,
    "child_frame_id": "wheels",
    "pose": {"pose": POSE_VALUE, "covariance": [0.5] * 36},
    "twist": {"twist": TWIST_VALUE, "covariance": [0.25] * 36},
}
TRANSFORMS = {
    "transforms": [
        {
            "header": HEADER,
            "child_frame_id": f"part{number}",
            "transform": {"translation": xyz(number, 0, 0), "rotation": xyzw(0, 0, 0, 1)},
        }
        for number in range(2)
    ]
}
MIXED = {
    "names": ["a", "", "ümlaut"],
    "flags": [True, False],
    "pair": [-1, 300],
    "big": 2**64 - 1,
    "parts": [{"a": -3, "values": [1.5, 2.5], "label": "x"}, {"a": 4, "values": [], "label": ""}],
    "letter": 65,
}
# By topic: type, message, and its converted form, an array with metadata or a value.
MESSAGES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "image": ("sensor_msgs/msg/Image", image(PIXELS, "bgr8"), PIXELS),
    "padded-image": ("sensor_msgs/msg/Image", image(PIXELS, "rgb8", padding=7), PIXELS),
    "depth": ("sensor_msgs/msg/Image", image(DEPTH, "16UC1"), DEPTH),
    "big-endian-depth": (
        "sensor_msgs/msg/Image",
        image(DEPTH.astype(">u2"), "mono16", padding=3, is_bigendian=1),
        DEPTH,
    ),
    "jpeg": (
        "sensor_msgs/msg/CompressedImage",
        {"header": HEADER, "format": "jpeg", "data": b"\xff\xd8\xff\x00"},
        b"\xff\xd8\xff\x00",
    ),
    "cloud": (
        "sensor_msgs/msg/PointCloud2",
        cloud(XYZI, [*XYZ_FIELDS, ("intensity", 12, 7)], 16),
        XYZI,
    ),
    "structured-cloud": (
        "sensor_msgs/msg/PointCloud2",
        cloud(PADDED, [*XYZ_FIELDS, ("ring", 16, 4)], 24),
        PADDED,
    ),
    "organised-cloud": (
        "sensor_msgs/msg/PointCloud2",
        cloud(XYZI[:6], XYZ_FIELDS, 16, height=2, width=3, row_step=48),
        XYZI[:6, :3].reshape(2, 3, 3),
    ),
    "imu": ("sensor_msgs/msg/Imu", IMU, IMU),
    "scan": ("sensor_msgs/msg/LaserScan", SCAN, SCAN),
    "text": ("std_msgs/msg/String", {"data": "Grüße"}, "Grüße"),
    "number": ("std_msgs/msg/Float64", {"data": 2.5}, 2.5),
    "truth": ("std_msgs/msg/Bool", {"data": True}, True),
    "twist": ("geometry_msgs/msg/Twist", TWIST_VALUE, TWIST_VALUE),
    "pose": ("geometry_msgs/msg/PoseStamped", POSE_STAMPED, POSE_STAMPED),
    "odometry": ("nav_msgs/msg/Odometry", ODOMETRY, ODOMETRY),
    "tf": ("tf2_msgs/msg/TFMessage", TRANSFORMS, TRANSFORMS),
    "mixed": ("my_msgs/msg/Mixed", MIXED, MIXED),
}  # fmt: skip

SINK = """
import pickle, sys
from nervure import Node

received = {}
for event in Node():
    if event.type == "INPUT":
        value = event.object
        if hasattr(value, "to_pylist"):
            [value] = value.to_pylist()
        elif hasattr(value, "dtype"):
            value = value.copy()
        received[event.id] = (value, event.stamp_nanos, event.frame, dict(event.metadata))
with open(sys.argv[1], "wb") as file:
    pickle.dump(received, file)
"""


def nervure(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    folder = Path(sys.prefix) / "bin"
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    command = shutil.which("nervure", path=path)
    assert command, "the nervure command is not installed: `make test` does it"
    environment = os.environ | {"PATH": path, "VIRTUAL_ENV": sys.prefix}
    return subprocess.run([command, *arguments], capture_output=True, text=True, env=environment, check=False)


def write_bag(path: Path, compression: Any, topics: list[str]) -> None:
    with path.open("wb") as file:
        writer = ros2_writer.Writer(file, compression=compression, chunk_size=2000)
        schemas = {}
        for number, topic in enumerate(topics):
            kind, message, _ = MESSAGES[topic]
            if kind not in schemas:
                schemas[kind] = writer.register_msgdef(kind, DEFINITIONS[kind])
            time = STAMP_NANOS + number * 1_000_000
            writer.write_message(f"/ros/{topic}", schemas[kind], message, log_time=time, publish_time=time)
        writer.finish()


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return (
            isinstance(found, np.ndarray)
            and found.shape == expected.shape
            and (found.dtype == expected.dtype.newbyteorder("<") or found.dtype.names == expected.dtype.names)
            and all(np.array_equal(found[name], expected[name]) for name in expected.dtype.names or [...])
        )
    return found == expected


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZSTD"])
def test_common_messages_are_played_as_values(tmp_path: Path, compression: str) -> None:
    bag = tmp_path / "bag.mcap"
    write_bag(bag, getattr(mcap_writer.CompressionType, compression), list(MESSAGES))
    (tmp_path / "sink.py").write_text(SINK)
    nodes = [
        {"id": "ros", "path": "sink.py", "outputs": list(MESSAGES)},
        {
            "id": "sink",
            "path": "sink.py",
            "args": "received",
            "inputs": {topic: f"ros/{topic}" for topic in MESSAGES},
        },
    ]
    (tmp_path / "dataflow.yml").write_text(json.dumps({"nodes": nodes}))
    ended = nervure("replay", bag, tmp_path / "dataflow.yml", "--rate", "max")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    received = pickle.loads((tmp_path / "received").read_bytes())
    assert sorted(received) == sorted(MESSAGES), ended.stdout + ended.stderr
    for number, (topic, (kind, message, expected)) in enumerate(MESSAGES.items()):
        value, stamp, frame, metadata = received[topic]
        assert same(value, expected), f"{topic}: {value!r} is not {expected!r}"
        has_header = "header" in message
        assert stamp == (STAMP_NANOS if has_header else STAMP_NANOS + number * 1_000_000), topic
        assert frame == ("base_link" if has_header else None), topic
        if kind == "sensor_msgs/msg/Image":
            assert metadata["encoding"] == message["encoding"]
        if kind == "sensor_msgs/msg/PointCloud2":
            assert metadata["fields"] == [field["name"] for field in message["fields"]]


@pytest.mark.parametrize("storage", ["SQLITE3", "MCAP"])
@pytest.mark.parametrize("compression", ["NONE", "FILE", "MESSAGE"])
def test_folders_are_played_as_ros_writes_them(tmp_path: Path, storage: str, compression: str) -> None:
    types = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    text = types.types["std_msgs/msg/String"]
    plugin = getattr(rosbag2.StoragePlugin, storage)
    writer = rosbag2.Writer(tmp_path / "bag", version=8, storage_plugin=plugin)
    if compression != "NONE":
        mode = getattr(rosbag2.CompressionMode, compression)
        writer.set_compression(mode, rosbag2.CompressionFormat.ZSTD)
    with writer:
        connection = writer.add_connection("/talker/words", text.__msgtype__, typestore=types)
        for number in range(200):
            message = types.serialize_cdr(text(data=f"word {number}"), text.__msgtype__)
            writer.write(connection, STAMP_NANOS + number, bytes(message))
    info = json.loads(nervure("info", tmp_path / "bag", "--json").stdout)
    assert [(topic["samples"], topic["played_as"]) for topic in info["topics"]] == [(200, ["text"])]
    (tmp_path / "sink.py").write_text(SINK)
    nodes = [
        {"id": "talker", "path": "sink.py", "outputs": ["words"]},
        {"id": "sink", "path": "sink.py", "args": "received", "inputs": {"in": "talker/words"}},
    ]
    (tmp_path / "dataflow.yml").write_text(json.dumps({"nodes": nodes}))
    ended = nervure("replay", tmp_path / "bag", tmp_path / "dataflow.yml", "--rate", "max")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "200 samples played" in ended.stdout + ended.stderr
    assert pickle.loads((tmp_path / "received").read_bytes())["in"][0] == "word 199"


def test_info_says_what_each_topic_becomes(tmp_path: Path) -> None:
    bag = tmp_path / "bag.mcap"
    topics = ["image", "jpeg", "cloud", "imu", "text", "number"]
    write_bag(bag, mcap_writer.CompressionType.ZSTD, topics)
    info = json.loads(nervure("info", bag, "--json").stdout)
    becomes = {topic["topic"]: topic["played_as"] for topic in info["topics"]}
    assert becomes == {
        "/ros/image": ["tensor (image)"],
        "/ros/jpeg": ["bytes (image)"],
        "/ros/cloud": ["tensor (points)"],
        "/ros/imu": ["Arrow struct"],
        "/ros/text": ["text"],
        "/ros/number": ["number"],
    }
    assert "PLAYED AS" in nervure("info", bag).stdout


@pytest.fixture
def strange_bag(tmp_path: Path) -> Path:
    """A bag with a text, and three topics that cannot be played."""
    bag = tmp_path / "strange.mcap"
    with bag.open("wb") as file:
        writer = mcap_writer.Writer(file, compression=mcap_writer.CompressionType.ZSTD)
        writer.start()
        channels = [
            ("/robot/front/text", "cdr", "ros2msg", "std_msgs/msg/String", b"string data"),
            ("/wide", "cdr", "ros2msg", "my_msgs/msg/Wide", b"wstring text"),
            ("/idl", "cdr", "ros2idl", "my_msgs/msg/Idl", b"union my_msgs {};"),
            ("/settings", "flatbuffer", "flatbuffer", "Settings", b"{}"),
        ]
        for topic, encoding, schema_encoding, name, definition in channels:
            schema = writer.register_schema(name, schema_encoding, definition)
            channel = writer.register_channel(topic, encoding, schema)
            text = b"\0\1\0\0\3\0\0\0hi\0"
            for time in (STAMP_NANOS, STAMP_NANOS + 1):
                writer.add_message(channel, time, text, time)
        writer.finish()
    return bag


def test_what_cannot_be_played_is_named_once_with_the_reason(tmp_path: Path, strange_bag: Path) -> None:
    reasons = [
        "/wide is not played: its messages (my_msgs/msg/Wide) cannot be decoded: "
        "my_msgs/msg/Wide:1:1: found `wstring`, expected `string`: `wstring` is encoded in several ways",
        "/idl is not played: its messages (my_msgs/msg/Idl) cannot be decoded: "
        "its IDL, line 1: found `union`, expected `module`, `struct`, `typedef`, `enum` or `const`",
        "/settings is not played: its channel holds flatbuffer messages (Settings), not samples",
    ]
    ended = nervure("replay", strange_bag, "--rate", "max")
    assert ended.returncode == 3, ended.stderr
    for reason in reasons:
        assert ended.stderr.count(f"replay  | WARNING: {reason}") == 1, ended.stderr
    assert "2 samples played" in ended.stderr and "2 of /wide not played" in ended.stderr


def test_topics_can_be_renamed_to_what_the_dataflow_calls_them(tmp_path: Path, strange_bag: Path) -> None:
    (tmp_path / "sink.py").write_text(SINK)
    nodes = [
        {"id": "talker", "path": "sink.py", "outputs": ["words"]},
        {"id": "sink", "path": "sink.py", "args": "received", "inputs": {"in": "talker/words"}},
    ]
    dataflow = tmp_path / "dataflow.yml"
    dataflow.write_text(json.dumps({"nodes": nodes}))
    rename = ["--rename", "/robot/front/text=talker/words", "--rate", "max"]
    ended = nervure("replay", strange_bag, dataflow, *rename)
    assert ended.returncode == 0, ended.stderr
    assert pickle.loads((tmp_path / "received").read_bytes())["in"][0] == "hi"
    refused = nervure("replay", strange_bag, dataflow, "--rename", "/robot/text=talker/words")
    assert refused.returncode == 2
    assert "the recording has no topic `/robot/text`" in refused.stderr
    assert "/robot/front/text" in refused.stderr.split("hint: ")[1]
    refused = nervure("replay", strange_bag, dataflow)
    assert refused.returncode == 2
    topics = "/idl, /robot/front/text, /settings, /wide"
    assert f"the recording has {topics}; the sources send talker/words" in refused.stderr
    assert "`--rename TOPIC=talker/words`" in refused.stderr
    refused = nervure("replay", strange_bag, dataflow, "--rename", "/robot/front/text=talker/word")
    assert "/robot/front/text (played as talker/word)" in refused.stderr


def write_numbers(path: Path, times: list[int], definition: bytes = b"float64 data", first: int = 0) -> None:
    """A bag of `std_msgs/Float64` with these times in nanoseconds."""
    with path.open("wb") as file:
        writer = mcap_writer.Writer(file)
        writer.start()
        schema = writer.register_schema("std_msgs/msg/Float64", "ros2msg", definition)
        channel = writer.register_channel("/clock/number", "cdr", schema)
        for number, time in enumerate(times, first):
            writer.add_message(channel, time, b"\0\1\0\0" + struct.pack("<d", number), time, number)
        writer.finish()


def test_a_replay_of_nothing_does_not_end_with_0(tmp_path: Path) -> None:
    bag = tmp_path / "bag.mcap"
    write_numbers(bag, [])
    ended = nervure("replay", bag, "--rate", "max")
    assert ended.returncode == 3, ended.stderr
    write_numbers(bag, [STAMP_NANOS] * 3, b"float32 data", first=1)
    ended = nervure("replay", bag, "--rate", "max")
    assert ended.returncode == 3, ended.stderr
    said = "0 samples played; 3 of /clock/number not played: 4 bytes are left after the last field"
    assert said in ended.stdout + ended.stderr


def test_steps_of_the_clock_are_named(tmp_path: Path) -> None:
    bag = tmp_path / "back.mcap"
    hour = 3600 * 10**9
    write_numbers(bag, [STAMP_NANOS + n * 10**7 - (n >= 20) * hour for n in range(40)])
    ended = nervure("replay", bag)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert said.count("the clock was set back by 60.0 minutes while recording") == 1, said
    # On a busy machine a replay may be late, but not by the step.
    behind = re.findall(r"(\d+) ms behind the recording", said)
    assert all(int(millis) < hour / 10**6 / 2 for millis in behind), said
    bag = tmp_path / "boot.mcap"
    write_numbers(bag, [n * 10**7 for n in range(5)] + [STAMP_NANOS])
    ended = nervure("replay", bag, "--stop-after", "3s")
    said = ended.stdout + ended.stderr
    assert "nothing was recorded for 19675.9 days" in said, said
    assert "the clock was probably set while recording" in said


COLLECT = """
import sys
from nervure import Node

with open(sys.argv[1], "w") as file:
    for event in Node():
        if event.type == "INPUT":
            print(event.id, event.object, file=file)
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--start", "2s", "--duration", "1s"], range(20, 31)),
        (["--start", "2023-11-14T22:13:29Z"], range(90, 100)),
        (["--until", "500ms"], range(6)),
        (["--start", "9800ms", "--until", "2040-01-01T00:00:00Z"], range(98, 100)),
        (["--throttle", "clock/*=2.5"], range(0, 100, 4)),
        (["--rename", "/clock/*=other/*", "--rename", "/clock/number=clock/number"], range(100)),
    ],
)
def test_a_part_of_a_recording_is_played(tmp_path: Path, options: list[str], expected: range) -> None:
    bag = tmp_path / "bag.mcap"
    write_numbers(bag, [1_700_000_000 * 10**9 + n * 10**8 for n in range(100)])
    (tmp_path / "sink.py").write_text(COLLECT)
    nodes = [
        {"id": "clock", "path": "sink.py", "outputs": ["number"]},
        {"id": "sink", "path": "sink.py", "args": "received", "inputs": {"in": "clock/number"}},
    ]
    dataflow = tmp_path / "dataflow.yml"
    dataflow.write_text(json.dumps({"nodes": nodes}))
    ended = nervure("replay", bag, dataflow, "--rate", "max", *options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = (tmp_path / "received").read_text().splitlines()
    assert [float(line.split()[1]) for line in lines] == [float(number) for number in expected]


def test_topics_are_selected_by_patterns(tmp_path: Path, strange_bag: Path) -> None:
    for options, code in [
        (["--topic", "robot/*"], 0),
        (["--topic", "/robot/*"], 0),
        (["--exclude", "wide", "--exclude", "/idl", "--exclude", "set*"], 0),
        (["--exclude", "/wide"], 3),
    ]:
        ended = nervure("replay", strange_bag, "--rate", "max", *options)
        assert ended.returncode == code, ended.stdout + ended.stderr
        assert "2 samples played" in ended.stdout + ended.stderr
    refused = nervure("replay", strange_bag, "--topic", "/robot/front/txt")
    assert refused.returncode == 2
    assert "`--topic`: the recording has no topic `/robot/front/txt`" in refused.stderr
    assert "/robot/front/text" in refused.stderr
    refused = nervure("replay", strange_bag, "--exclude", "*")
    assert "`--exclude` leaves no topic" in refused.stderr
    refused = nervure("replay", strange_bag, "--start", "5s", "--until", "4s")
    assert "`--start` is after `--until`" in refused.stderr
    assert refused.returncode == 2
    ended = nervure("replay", strange_bag, "--topic", "robot/*", "--start", "5s", "--rate", "max")
    assert ended.returncode == 3, ended.stdout + ended.stderr
