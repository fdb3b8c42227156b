"""Lookups of transforms that other nodes send, in dataflows of real processes."""

from __future__ import annotations

from conftest import Dataflow

TYPED = {"pose": {"type": "std/Transform@1"}}

# In front of the code of the nodes that send transforms.
SENDER = """
    import math
    from nervure import Node

    def pose(child, x=0.0, yaw=0.0):
        return {
            "child_frame_id": child,
            "translation": {"x": x, "y": 0.0, "z": 0.0},
            "rotation": {"x": 0.0, "y": 0.0, "z": math.sin(yaw / 2), "w": math.cos(yaw / 2)},
        }

    node = Node()
"""


def sender(dataflow: Dataflow, id: str, code: str, **keys: object) -> None:
    dataflow.node(id, SENDER + code, outputs=TYPED, **keys)


def test_a_node_looks_up_what_two_others_send(dataflow: Dataflow) -> None:
    dataflow.keys["static_transforms"] = [
        {"parent": "base", "child": "camera", "translation": [0.5, 0, 0], "rpy": [0, 0, 1.5707963267948966]}
    ]
    sender(
        dataflow,
        "localization",
        """
    node.send("pose", pose("odom", 10.0), stamp=100.0, frame="map")
    node.send("pose", pose("odom", 12.0), stamp=102.0, frame="map")
        """,
    )
    sender(
        dataflow,
        "odometry",
        """
    node.send("pose", pose("base", 1.0, 0.0), stamp=100.0, frame="odom")
    node.send("pose", pose("base", 2.0, math.pi / 2), stamp=101.0, frame="odom")
        """,
    )
    dataflow.node(
        "camera",
        """
        from nervure import Node

        node = Node()
        node.send("image", "picture", stamp=100.5)
        """,
        outputs=["image"],
    )
    dataflow.node(
        "consumer",
        """
        import numpy as np
        from nervure import Node, Transform

        node = Node()
        assert node.inputs == ("image",), node.inputs
        for event in node:
            if event.type != "INPUT":
                continue
            assert event.id == "image"
            found = [
                node.transforms.lookup("map", "camera", time, timeout=30)
                for time in (event, event.stamp_nanos, event.stamp)
            ]
            for transform in found:
                assert isinstance(transform, Transform)
                # 10.5 of localization, 1.5 of odometry, and the mount turned by an eighth.
                eighth = np.pi / 4
                expected = [12 + 0.5 * np.cos(eighth), 0.5 * np.sin(eighth), 0]
                assert np.allclose(transform.translation, expected), transform
                yaw = eighth + np.pi / 2
                assert np.allclose(transform.rotation, [0, 0, np.sin(yaw / 2), np.cos(yaw / 2)]), transform
                assert np.allclose(transform.matrix[:3, 3], expected) and transform.matrix.shape == (4, 4)
                ahead = transform.apply([[0, 0, 0], [1, 0, 0]])[1] - expected
                assert np.allclose(ahead, [np.cos(yaw), np.sin(yaw), 0])
                inverse = node.transforms.lookup("camera", "map", transform.stamp_nanos)
                assert np.allclose(inverse.matrix @ transform.matrix, np.eye(4))
            latest = node.transforms.lookup("map", "base")
            assert latest.stamp_nanos == 101_000_000_000 and np.allclose(latest.translation, [13, 0, 0])
            mounted = node.transforms.lookup("base", "camera")
            assert mounted.stamp_nanos is None and np.allclose(mounted.translation, [0.5, 0, 0])
            print("found")
        """,
        inputs={"image": "camera/image"},
        transforms=True,
    )
    result = dataflow.run()
    assert result.lines("consumer") == ["found"]
    assert "refused" not in result.stderr + result.stdout


def test_a_lookup_waits_and_leaves_other_events_in_order(dataflow: Dataflow) -> None:
    sender(
        dataflow,
        "odometry",
        """
    node.send("pose", pose("base", 1.0), stamp=1.0, frame="map")
    for event in node:
        if event.type == "INPUT":
            node.send("pose", pose("base", 3.0), stamp=3.0, frame="map")
        """,
        inputs={"go": "consumer/go"},
    )
    dataflow.node(
        "camera",
        """
        from nervure import Node

        node = Node()
        for number in range(8):
            node.send("image", number, stamp=2.0)
        """,
        outputs=["image"],
    )
    dataflow.node(
        "consumer",
        """
        from nervure import Node, TransformError

        node = Node()
        seen = []
        for event in node:
            if event.type == "INPUT":
                seen.append(event.object)
                if len(seen) == 1:
                    try:
                        node.transforms.lookup("map", "base", event, timeout=0.2)
                        raise AssertionError("nothing was sent for this time")
                    except TransformError as error:
                        assert error.kind in ("late", "unknown_frame") and "waited for" in str(error), error
                    node.send("go", "")
                transform = node.transforms.lookup("map", "base", event, timeout=30)
                assert transform.translation[0] == 2.0
        print(seen)
        """,
        inputs={"image": {"source": "camera/image", "queue_policy": "block"}},
        outputs=["go"],
        transforms=True,
    )
    result = dataflow.run()
    assert result.lines("consumer") == ["[0, 1, 2, 3, 4, 5, 6, 7]"]


def test_an_error_names_the_transform_that_is_late(dataflow: Dataflow) -> None:
    sender(
        dataflow,
        "odometry",
        """
    for stamp in (1.0, 2.0):
        node.send("pose", pose("base_link"), stamp=stamp, frame="odom")
    node.send("pose", pose("gps"), stamp=1.0, frame="earth")
        """,
    )
    dataflow.node(
        "consumer",
        """
        from nervure import NervureError, Node, TransformError

        node = Node()
        node.transforms.lookup("earth", "gps", timeout=30)
        for target, source, time, kind, message in [
            ("odom", "base_link", 2.034, "late",
             "`odom` -> `base_link`: newest transform of `odom -> base_link` is 34 ms older than"),
            ("odom", "base_link", 500_000_000, "early",
             "oldest transform of `odom -> base_link` is 500 ms newer"),
            ("odom", "gps", None, "unconnected", "they are in the trees of `odom` and `earth`"),
            ("odom", "baselink", None, "unknown_frame", "no frame `baselink`; did you mean `base_link`?"),
        ]:
            try:
                node.transforms.lookup(target, source, time)
                raise AssertionError(message)
            except TransformError as error:
                assert isinstance(error, NervureError) and isinstance(error, LookupError)
                assert (error.kind, message in str(error)) == (kind, True), (error.kind, str(error))
        for time, expected in [("now", TypeError), (float("nan"), ValueError)]:
            try:
                node.transforms.lookup("odom", "base_link", time)
                raise AssertionError(time)
            except expected as error:
                assert "time is" in str(error)
        print("named")
        """,
        transforms=True,
    )
    dataflow.node(
        "without",
        """
        from nervure import Node, TransformError

        node = Node()
        try:
            node.transforms.lookup("a", "b", timeout=30)
        except TransformError as error:
            print(error.kind, "transforms: true" in str(error))
        """,
        outputs=["nothing"],
    )
    result = dataflow.run()
    assert result.lines("consumer") == ["named"]
    assert result.lines("without") == ["not_declared True"]


def test_transforms_that_are_not_valid_are_refused_and_counted(dataflow: Dataflow) -> None:
    dataflow.keys["static_transforms"] = [{"parent": "base", "child": "camera"}]
    sender(
        dataflow,
        "hostile",
        """
    node.send("pose", pose("base"), stamp=1.0, frame="map")
    zero = pose("other")
    zero["rotation"] = dict.fromkeys("xyzw", 0.0)
    for value, frame in [
        (pose("other", math.nan), "map"),
        (pose("other", -math.inf), "map"),
        (zero, "map"),
        (pose("map"), "base"),
        (pose("base"), "odom"),
        (pose("camera"), "base"),
        (pose("x" * 1_000_000), "map"),
        (pose("other"), None),
        (pose(""), "map"),
    ]:
        node.send("pose", value, stamp=1.0, frame=frame)
    node.send("pose", pose("end"), stamp=1.0, frame="map")
        """,
    )
    dataflow.node(
        "consumer",
        """
        from nervure import Node, TransformError

        node = Node()
        node.transforms.lookup("map", "end", 1.0, timeout=30)
        assert node.transforms.lookup("map", "camera", 1.0).translation.tolist() == [0, 0, 0]
        for frame in ("other", "odom"):
            try:
                node.transforms.lookup("map", frame)
                raise AssertionError(frame)
            except TransformError as error:
                assert error.kind == "unknown_frame"
        print("unharmed")
        """,
        transforms=True,
    )
    result = dataflow.run()
    assert result.lines("consumer") == ["unharmed"]
    # The summary has the count, and the node a warning a second at most.
    counted = "9 of 11 transforms of `consumer/transforms~hostile/pose` were refused"
    assert counted in result.stdout + result.stderr, result
    reason = "a transform is refused: `map -> other` has a number that is not finite"
    assert reason in result.stderr, result


def test_a_restarted_node_has_the_static_transforms_at_once(dataflow: Dataflow) -> None:
    dataflow.keys["static_transforms"] = [{"parent": "base", "child": "camera", "translation": [1, 2, 3]}]
    dataflow.node(
        "late",
        """
        import os
        from nervure import Node

        node = Node()
        print(node.incarnation, node.transforms.lookup("base", "camera").translation.tolist(), flush=True)
        if node.incarnation == 0:
            os._exit(1)
        """,
        outputs=["nothing"],
        transforms=True,
        restart_policy="on-failure",
        restart_delay="10ms",
    )
    result = dataflow.run()
    assert result.lines("late") == ["0 [1.0, 2.0, 3.0]", "1 [1.0, 2.0, 3.0]"]


def test_a_lookup_that_waits_ends_when_the_dataflow_stops(dataflow: Dataflow) -> None:
    dataflow.node(
        "consumer",
        """
        from pathlib import Path

        from nervure import Node

        node = Node()
        Path("waits").write_text("yes\\n")
        node.transforms.lookup("map", "base", timeout=None)
        """,
        transforms=True,
    )
    sender(
        dataflow,
        "odometry",
        """
    for event in node:
        pass
        """,
        inputs={"tick": "nervure/timer/hz/10"},
    )
    dataflow.start()
    dataflow.wait_for("waits")
    dataflow.interrupt()
    dataflow.finish()
