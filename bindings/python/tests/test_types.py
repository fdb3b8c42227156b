"""Samples are checked against the declared types of their outputs."""

import nervure
from conftest import Dataflow, lossless
from nervure.types import Vector3


def test_a_sample_that_does_not_fit_its_type_is_an_error_with_the_field(dataflow: Dataflow) -> None:
    dataflow.node(
        "sensor",
        """
        from dataclasses import dataclass

        import numpy as np
        import pytest
        from nervure import Node, NotSendable

        @dataclass
        class Vector:
            x: float = 0.0
            y: float = 0.0
            z: float = 9.81

        @dataclass
        class Imu:
            angular_velocity: Vector
            linear_acceleration: Vector
            orientation: None = None

        node = Node()
        node.send("imu", Imu(Vector(), Vector()))
        node.send("imu", {"linear_acceleration": Vector(), "angular_velocity": {"z": 1, "x": 0, "y": 2.5}})
        covariance = {"angular_velocity_covariance": np.zeros((3, 3))}
        node.send("imu", {"angular_velocity": Vector(), "linear_acceleration": Vector(), **covariance})
        node.send("image", np.zeros((4, 6, 3), np.uint8))
        node.send("free", {"any": "thing"})
        for output, value, message in [
            ("imu", Imu(Vector(), Vector(z="up")), "`linear_acceleration.z`: expected `float64`, found text"),
            ("imu", {"linear_acceleration": Vector()}, "`angular_velocity`: expected `std/Vector3`, "),
            ("imu", np.zeros(6), "std/Imu@1: expected one record: a dict, dataclass or struct, found a "),
            ("imu", [Imu(Vector(), Vector())], "found a list"),
            ("image", {"data": np.zeros((4, 6))}, "std/Image@1: expected a tensor: "),
            ("image", np.zeros((4, 6), np.complex64), "found a tensor of c8, 4 x 6"),
        ]:
            with pytest.raises(NotSendable) as refused:
                node.send(output, value)
            assert f"the output `{output}` sends std/" in str(refused.value)
            assert message in str(refused.value), str(refused.value)
        with pytest.raises(NotSendable), node.loan("image", (24,), np.uint8):
            pass
        scan = {"axes": np.zeros(3, "f4"), "buttons": np.zeros(2, "i8")}
        with pytest.raises(NotSendable, match=r"`buttons`.*array\\.astype..i4"):
            node.send("joy", scan)
        print("all refused")
        """,
        outputs={
            "imu": {"type": "std/Imu@1"},
            "image": {"type": "std/Image@1"},
            "joy": {"type": "std/Joy@1"},
            "free": {"type": "my/Thing@1"},
        },
    )
    dataflow.node(
        "sink",
        """
        from nervure import Node

        print(*[event.id for event in Node() if event.type == "INPUT"])
        """,
        inputs={name: lossless(f"sensor/{name}") for name in ("imu", "image", "free")},
    )
    result = dataflow.run()
    assert result.lines("sensor") == ["all refused"]
    assert sorted(result.lines("sink")[0].split()) == ["free", "image", "imu", "imu", "imu"]


def test_a_typed_input_delivers_the_dataclass_of_its_type(dataflow: Dataflow) -> None:
    dataflow.node(
        "sensor",
        """
        import numpy as np
        from nervure import Node
        from nervure.types import Imu, JointState, Path, Point, Pose, Quaternion, Vector3

        node = Node()
        still = Vector3(0.0, 0.0, 0.0)
        covariance = np.eye(3)
        for output in ("typed", "free"):
            node.send(output, Imu(still, still))
            imu = Imu(still, still, orientation=Quaternion(), angular_velocity_covariance=covariance)
            node.send(output, imu)
        node.send("path", Path([Pose(Point(1.0, 2.0, 3.0), Quaternion())]))
        node.send("path", Path([]))
        node.send("joints", JointState(["left"], position=np.array([0.5])))
        node.send("image", np.zeros((4, 6, 3), np.uint8))
        """,
        outputs={
            "typed": {"type": "std/Imu@1"},
            "free": {"type": "my/Imu@1"},
            "path": {"type": "std/Path@1"},
            "joints": {"type": "std/JointState@1"},
            "image": {"type": "std/Image@1"},
        },
    )
    dataflow.node(
        "sink",
        """
        import numpy as np
        from nervure import Node
        from nervure.types import Imu, JointState, Path, Point, Pose, Quaternion, Vector3

        still = Vector3(0.0, 0.0, 0.0)
        node = Node()
        for event in node:
            if event.type != "INPUT":
                continue
            value = event.object
            if event.id == "typed":
                assert isinstance(value, Imu)
                assert value.angular_velocity == value.linear_acceleration == still
                if value.orientation is None:
                    assert value.angular_velocity_covariance is None
                else:
                    assert value.orientation == Quaternion()
                    covariance = value.angular_velocity_covariance
                    assert covariance.shape == (3, 3) and not covariance.flags.writeable
                    assert (covariance == np.eye(3)).all()
            elif event.id == "free":
                assert value["angular_velocity"] == {"x": 0.0, "y": 0.0, "z": 0.0}
                assert event.read(Imu).angular_velocity == still
            elif event.id == "path":
                assert value in (Path([Pose(Point(1.0, 2.0, 3.0), Quaternion())]), Path([]))
            elif event.id == "joints":
                assert isinstance(value, JointState) and value.velocity is None
            elif event.id == "image":
                assert isinstance(value, np.ndarray)
            print(event.id, type(value).__name__)
        """,
        inputs={name: lossless(f"sensor/{name}") for name in ("typed", "free", "path", "joints", "image")},
    )
    lines = dataflow.run().lines("sink")
    expected = (
        ["typed Imu"] * 2 + ["free dict"] * 2 + ["path Path"] * 2 + ["joints JointState", "image ndarray"]
    )
    assert sorted(lines) == sorted(expected)


def test_an_input_has_its_own_type_or_that_of_its_output(dataflow: Dataflow) -> None:
    dataflow.node(
        "sensor",
        """
        from nervure import Node

        node = Node()
        twist = {"linear": {"x": 0.4, "y": 0.0, "z": 0.0}, "angular": {"x": 0.0, "y": 0.0, "z": 0.0}}
        node.send("typed", twist)
        node.send("untyped", twist)
        node.send("untyped", {"linear": twist["linear"]})
        """,
        outputs={"typed": {"type": "std/Twist@1"}, "untyped": {}},
    )
    dataflow.node(
        "sink",
        """
        from nervure import Node, SampleError

        for event in Node():
            if event.type == "INPUT":
                try:
                    print(event.id, type(event.object).__name__)
                except SampleError as error:
                    print(event.id, error)
        """,
        inputs={
            "inherited": lossless("sensor/typed"),
            "own": lossless("sensor/untyped") | {"type": "std/Twist@1"},
            "none": lossless("sensor/untyped"),
        },
    )
    lines = dataflow.run().lines("sink")
    absent = "own `Twist.angular`: expected `Vector3`, found no such field"
    assert sorted(lines) == sorted(["inherited Twist", "own Twist", absent, "none dict", "none dict"])


def test_records_are_read_into_the_dataclasses_of_a_program(dataflow: Dataflow) -> None:
    dataflow.node(
        "source",
        """
        from nervure import Node

        node = Node()
        tip = {"name": "tip", "at": {"x": 1.0, "y": 2.0, "added": "later"}, "children": []}
        tree = {"name": "root", "at": {"x": 0.0, "y": 0.0, "added": ""}, "children": [tip], "more": {"a": 1}}
        node.send("out", tree)
        node.send("out", "text")
        node.send("out", [tip])
        """,
        outputs=["out"],
    )
    dataflow.node(
        "sink",
        """
        from __future__ import annotations

        from dataclasses import dataclass, field
        from typing import TYPE_CHECKING, Any

        import pytest
        from nervure import Node, SampleError

        if TYPE_CHECKING:
            import numpy.typing as npt

        @dataclass
        class Point:
            x: float
            y: float
            z: float = 9.0

        @dataclass
        class Tree:
            name: str
            at: Point | None
            children: list[Tree]
            weights: npt.NDArray[Any] | None = None
            more: Any = None
            twice: str = field(init=False)

            def __post_init__(self) -> None:
                self.twice = self.name * 2

        @dataclass
        class Number:
            at: int

        @dataclass
        class Name:
            name: Point

        @dataclass
        class Other:
            colour: str

        node = Node()
        event = node.next()
        tree = event.read(Tree)
        assert tree == Tree("root", Point(0.0, 0.0), [Tree("tip", Point(1.0, 2.0), [])], more={"a": 1}), tree
        assert tree.children[0].twice == "tiptip"
        for cls, message in [
            (Number, "`Number.at`: expected `int`, found a record"),
            (Name, "`Name.name`: expected `Point`, found LargeUtf8"),
            (Other, "`Other.colour`: expected `str`, found no such field"),
        ]:
            with pytest.raises(SampleError, match=message):
                event.read(cls)
        with pytest.raises(TypeError, match="expected a dataclass, got <class 'int'>"):
            event.read(int)
        expected = "expected one record: a dict, dataclass or struct, found "
        for found in ("text", "list"):
            with pytest.raises(SampleError, match=expected + found):
                node.next().read(Tree)
        print("all read")
        """,
        inputs={"in": lossless("source/out")},
    )
    assert dataflow.run().lines("sink") == ["all read"]


def test_an_observer_receives_the_dataclass_of_the_topic(dataflow: Dataflow) -> None:
    dataflow.node(
        "sensor",
        """
        from nervure import Node

        for _ in (node := Node()):
            vector = {"x": 0.5, "y": 0.0, "z": 0.0}
            node.send("twist", {"linear": vector, "angular": vector})
        """,
        inputs={"tick": "nervure/timer/millis/10"},
        outputs={"twist": {"type": "std/Twist@1"}},
    )
    dataflow.node("up", "from pathlib import Path; Path('up').write_text('up\\n')")
    dataflow.start()
    dataflow.wait_for("up")
    for sample in nervure.observe("sensor/twist", dataflow=dataflow.name):
        assert sample.object.linear == Vector3(0.5, 0.0, 0.0)
        break


def test_a_type_that_is_one_value_is_sent_as_that_value(dataflow: Dataflow) -> None:
    dataflow.node(
        "sensor",
        """
        import numpy as np
        import pytest
        from nervure import Node, NotSendable
        from nervure.types import CompressedImage, Image, PointCloud, Text

        node = Node()
        node.send("image", Image(np.full((2, 3, 3), 7, np.uint8), encoding="bgr8"), metadata={"exposure": 5})
        node.send("image", Image(np.full((2, 3, 3), 7, np.uint8)))
        image = Image(np.zeros((2, 3, 3), np.uint8), encoding="rgb8")
        node.send("image", image, metadata={"encoding": "bgr8"})
        node.send("cloud", PointCloud(np.zeros((5, 4), np.float32)))
        node.send("jpeg", CompressedImage(b"abc", format="jpeg"))
        node.send("text", Text("hello"))
        node.send("free", Text("hello"))
        with pytest.raises(NotSendable, match="std/Image@1: expected a tensor: .*, found text"):
            node.send("image", Text("no image"))
        with pytest.raises(NotSendable, match="found a tensor of c8"):
            node.send("image", Image(np.zeros((2, 3), np.complex64)))
        """,
        outputs={
            "image": {"type": "std/Image@1"},
            "cloud": {"type": "std/PointCloud@1"},
            "jpeg": {"type": "std/CompressedImage@1"},
            "text": {"type": "std/Text@1"},
            "free": {},
        },
    )
    dataflow.node(
        "sink",
        """
        from nervure import Node

        for event in Node():
            if event.type == "INPUT":
                value = event.object
                print(event.id, getattr(value, "shape", value), dict(event.metadata))
        """,
        inputs={name: lossless(f"sensor/{name}") for name in ("image", "cloud", "jpeg", "text", "free")},
    )
    result = dataflow.run()
    assert sorted(result.lines("sink")) == sorted(
        [
            "image (2, 3, 3) {'encoding': 'bgr8', 'exposure': 5}",
            "image (2, 3, 3) {}",
            "image (2, 3, 3) {'encoding': 'bgr8'}",
            "cloud (5, 4) {}",
            "jpeg b'abc' {'format': 'jpeg'}",
            "text hello {}",
            "free hello {}",
        ]
    )
