"""Third-party readers, without Nervure, find each value of a recording unchanged."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

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
}

TYPES = {"cloud": "std/PointCloud@1", "typed-depth": "std/Image@1"}

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
from test_recording import VALUES
from nervure import Node

received = {}
for event in Node():
    if event.type == "INPUT":
        is_tensor = isinstance(VALUES[event.id], np.ndarray)
        value = event.numpy().copy(order="K") if is_tensor else event.value
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
    return type(value) is type(other) and value == other
