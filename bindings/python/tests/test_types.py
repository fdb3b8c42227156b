"""Samples are checked against the declared types of their outputs."""

from conftest import Dataflow, lossless
from nervure.types import Imu, JointState, Twist


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


def test_dataclasses_of_the_standard_types_fit_their_outputs(dataflow: Dataflow) -> None:
    dataflow.node(
        "sensor",
        """
        import numpy as np
        from nervure import Node
        from nervure.types import Imu, JointState, Quaternion, Twist, Vector3

        node = Node()
        still = Vector3(0.0, 0.0, 0.0)
        node.send("imu", Imu(still, still))
        covariance = np.zeros((3, 3))
        imu = Imu(still, still, orientation=Quaternion(), angular_velocity_covariance=covariance)
        node.send("imu", imu)
        node.send("twist", Twist(linear=Vector3(0.4, 0.0, 0.0), angular=still))
        node.send("joints", JointState(["left"], position=np.array([0.5])))
        """,
        outputs={
            "imu": {"type": Imu.__nervure_type__},
            "twist": {"type": Twist.__nervure_type__},
            "joints": {"type": JointState.__nervure_type__},
        },
    )
    dataflow.node(
        "sink",
        """
        from nervure import Node

        for event in Node():
            if event.id == "imu":
                print("imu", event.object["orientation"])
            elif event.type == "INPUT":
                print(event.id, event.object)
        """,
        inputs={name: lossless(f"sensor/{name}") for name in ("imu", "twist", "joints")},
    )
    lines = dataflow.run().lines("sink")
    assert [line for line in lines if line.startswith("imu")] == [
        "imu None",
        "imu {'x': 0.0, 'y': 0.0, 'z': 0.0, 'w': 1.0}",
    ]
    still = "{'x': 0.0, 'y': 0.0, 'z': 0.0}"
    assert f"twist {{'linear': {{'x': 0.4, 'y': 0.0, 'z': 0.0}}, 'angular': {still}}}" in lines
    joints = "{'name': ['left'], 'position': array([0.5]), 'velocity': None, 'effort': None}"
    assert f"joints {joints}" in lines
