"""Values of every kind, sent between two processes."""

import nervure
import numpy as np
import pytest
from conftest import Dataflow, lossless
from nervure._numpy import custom_array


def test_every_kind_of_value_arrives_as_it_was_sent(dataflow: Dataflow) -> None:
    dataflow.node(
        "sender",
        """
        import values
        from nervure import Node

        node = Node()
        for value in values.values():
            try:
                node.send("value", value.value)
            except Exception as error:
                raise AssertionError(f"cannot send {value.name}") from error
        """,
        outputs=["value"],
    )
    dataflow.node(
        "receiver",
        """
        import values
        from nervure import Node

        expected = values.values()
        wrong = []
        for event in Node():
            if event.type == "INPUT":
                value = expected.pop(0)
                try:
                    value.check(event)
                except Exception as error:
                    wrong.append(value.name)
                    print(f"{value.name}: {type(error).__name__}: {error}", flush=True)
        assert not wrong, wrong
        assert not expected, f"{len(expected)} did not arrive"
        print("all arrived")
        """,
        inputs={"value": lossless("sender/value")},
    )
    assert dataflow.run().lines("receiver") == ["all arrived"]


def test_a_value_that_cannot_be_sent_is_an_error_with_the_reason(dataflow: Dataflow) -> None:
    dataflow.node(
        "sender",
        """
        import numpy as np
        import pytest
        import values
        from nervure import NervureError, Node, NotSendable, TooLarge

        node = Node()
        cyclic = []
        cyclic.append(cyclic)
        refused = [
            (None, "NoneType.*did the function that made it return nothing"),
            ({1, 2}, "type set.*send a list of its elements"),
            (object(), "type object"),
            (lambda: 0, "function"),
            (2**64, "does not fit 64 bits"),
            (1j, "type complex"),
            (np.array([object()]), "dtype=object"),
            (np.zeros(2, [("a", "O")]), "cannot be shared"),
            ([1, "a"], r"value\\[1\\]: .*str stands beside int"),
            ([object()], r"value\\[0\\]: a value of type object cannot be sent in a list"),
            ({"a": [{}, {"b": {1}}]}, r'value\\["a"\\]\\[1\\]\\["b"\\]: .*type set .*send a list of its'),
            ({"a": values.Pose({1}, "")}, r'value\\["a"\\]\\.position: a value of type set'),
            ({"a": {1: 2}}, r'value\\["a"\\]: keys of a dict that is sent are str, got int'),
            ({"a": [np.zeros(2), np.zeros(2, "f4")]}, r'value\\["a"\\]\\[1\\]: .*f4 .*stands beside .*f8'),
            ([np.zeros(2), np.zeros((2, 2))], r"value\\[1\\]: .*2 dimension.* stands beside .*1 dimension"),
            ([np.zeros(2), [0.0]], r"value\\[1\\]: .*list stands beside an array"),
            ({"a": np.zeros(2, [("a", "O")])}, r'value\\["a"\\]: .*cannot be shared'),
            ({"a": values.OnlyDlpack(np.zeros(3), device=(2, 0))}, r'value\\["a"\\]: .*device memory'),
            (cyclic, "contains itself"),
            ([2**64], "64 bits"),
            (values.OnlyDlpack(np.zeros(3), device=(2, 0)), "device memory"),
            ("\\ud800", "surrogates"),
            ({"file": "\\udce4.pcd"}, r'value\\["file"\\]: .*surrogates'),
            (["\\ud800"], r"value\\[0\\]: .*surrogates"),
            ({"\\ud800": 1}, "surrogates"),
        ]
        for value, reason in refused:
            with pytest.raises(NotSendable, match=reason):
                node.send("value", value)
        for options in [
            {"frame": "\\ud800"},
            {"metadata": {"file": "\\ud800"}},
            {"metadata": {"\\ud800": 1}},
            {"metadata": {"files": ["\\ud800"]}},
        ]:
            with pytest.raises(NotSendable, match="surrogates"):
                node.send("value", 1, **options)
            with pytest.raises(NotSendable, match="surrogates"):
                node.loan("value", 1, "u1", **options)
        with pytest.raises(TypeError):
            node.send("value", None)
        with pytest.raises(NotSendable, match=r"type nervure.Event .*event.object, with like=event"):
            node.send("value", next(node))
        for shape in [(-1, 2), "ab", None, (2.5, 1)]:
            with pytest.raises(TypeError, match="expected an int or a tuple of ints, each 0 or more"):
                node.loan("value", shape, "u1")
        with pytest.raises(TooLarge, match="larger than the node's whole budget"):
            node.send("value", np.zeros(2 << 20, "u1"))
        print("all refused")
        """,
        inputs={"tick": "nervure/timer/secs/1000"},
        outputs=["value"],
        shared_memory="1MB",
    )
    dataflow.node(
        "receiver",
        """
        from nervure import Node

        assert [event.type for event in Node()] == ["INPUT_CLOSED", "STOP"]
        """,
        inputs={"value": "sender/value"},
    )
    assert dataflow.run().lines("sender") == ["all refused"]


def test_values_arrive_without_pyarrow(dataflow: Dataflow) -> None:
    dataflow.node(
        "sender",
        """
        import sys

        sys.modules["pyarrow"] = None
        import numpy as np
        from nervure import Node

        node = Node()
        for value in ({"img": np.ones((2, 3), "u1"), "t": 1.0}, [1, 2], [np.ones(2)], ["a"]):
            node.send("value", value)
        """,
        outputs=["value"],
    )
    dataflow.node(
        "receiver",
        """
        import sys

        sys.modules["pyarrow"] = None
        import numpy as np
        import pytest
        from nervure import Node, SampleError

        node = Node()
        event = next(node)
        assert event.object["img"].shape == (2, 3) and event.object["t"] == 1.0
        with pytest.raises(SampleError, match="the value is a dict, not an array: use event.object"):
            event.numpy()
        with pytest.raises(ModuleNotFoundError, match="event.value is a pyarrow array.*pip install pyarrow"):
            event.value
        event = next(node)
        assert event.numpy().tolist() == event.object == [1, 2] and not event.numpy().flags.writeable
        event = next(node)
        with pytest.raises(SampleError, match="the value is a list of arrays, not an array: use"):
            event.numpy()
        event = next(node)
        assert event.object == ["a"]
        with pytest.raises(ModuleNotFoundError, match=r"event.numpy\\(\\) of .* needs pyarrow"):
            event.numpy()
        print("done")
        """,
        inputs={"value": lossless("sender/value")},
    )
    assert dataflow.run().lines("receiver") == ["done"]


def test_only_a_missing_pyarrow_gets_the_hint_to_install_it(dataflow: Dataflow) -> None:
    dataflow.node("importer", "import no_such_module")
    dataflow.node(
        "reader",
        """
        import sys

        sys.modules["pyarrow"] = None
        from nervure import Node

        for event in Node():
            event.value
        """,
        inputs={"value": lossless("sender/value")},
    )
    dataflow.node("sender", 'from nervure import Node; Node().send("value", {"a": 1})', outputs=["value"])
    output = dataflow.run("--stop-after", "20s", returncode=None)
    said = [line for line in (output.stdout + output.stderr).splitlines() if "another environment" in line]
    assert len(said) == 1 and "importer: it ran on" in said[0], said


def test_names_of_types_from_another_process_are_not_trusted() -> None:
    memory = np.zeros(64, "u1")
    hostile = [
        ("|O", 8),
        ("[('a', '|O')]", 8),
        ("T", 16),
        ("[('a', '<f4')]", 8),
        ("<f4", 8),
        ("__import__('os').system('true')", 4),
        ("os", 4),
        ("[" * 16_000, 4),
        ("(" * 16_000, 4),
        ("{'a': 1}", 4),
        ("(99999999999,)i4", 4),
        ("V99999999999", 4),
        ("", 1),
    ]
    for name, item_bytes in hostile:
        with pytest.raises(nervure.SampleError):
            custom_array(memory, name, item_bytes, (1,), (item_bytes,))
    for shape, strides in [((17,), (4,)), ((2,), (64,)), ((1 << 62, 2), (4, 4)), ((-1,), (4,))]:
        with pytest.raises((ValueError, TypeError)):
            custom_array(memory, ">f4", 4, shape, strides)


def test_metadata_and_stamps_arrive(dataflow: Dataflow) -> None:
    dataflow.node(
        "sender",
        """
        import numpy as np
        import pytest
        from nervure import Node

        node = Node()
        metadata = {
            "flag": True, "count": -3, "share": 0.5, "name": "žluť", "raw": b"\\0\\1", "numpy": np.int32(7),
            "list": [1, 2], "floats": [1, 2.5], "texts": ("a", "b"), "empty": [],
            "numpy float": np.float32(0.5),
        }
        node.send("value", 1, stamp=1234.5, metadata=metadata, frame="camera/left")
        node.send("value", 2, stamp_nanos=1_700_000_000_123_456_789)
        node.send("value", 3)
        for wrong in ({1: 2}, {"a": object()}, {"a": [1, "b"]}, {"a": {}}, {"a": None}):
            with pytest.raises(TypeError, match="metadata"):
                node.send("value", 0, metadata=wrong)
        with pytest.raises(ValueError, match="64 bits"):
            node.send("value", 0, metadata={"a": 2**63})
        with pytest.raises(ValueError, match="metadata takes"):
            node.send("value", 0, metadata={"a": "x" * 70_000})
        with pytest.raises(ValueError, match="stamp_nanos"):
            node.send("value", 0, stamp=1.7e18)
        with pytest.raises(ValueError, match="not both"):
            node.send("value", 0, stamp=1.0, stamp_nanos=1)
        print("sent")
        """,
        outputs=["value"],
    )
    dataflow.node(
        "relay",
        """
        from nervure import Node

        node = Node()
        for event in node:
            if event.type == "INPUT":
                node.send("value", event.object + 10, like=event)
        """,
        inputs={"value": lossless("sender/value")},
        outputs=["value"],
    )
    dataflow.node(
        "receiver",
        """
        import time
        from nervure import Node

        node = Node()
        direct, relayed = [], []
        for event in node:
            if event.type == "INPUT":
                (direct if event.id == "direct" else relayed).append(event)
        assert [event.object for event in direct] == [1, 2, 3]
        assert [event.object for event in relayed] == [11, 12, 13]
        assert direct[0].metadata == {
            "flag": True, "count": -3, "share": 0.5, "name": "žluť", "raw": b"\\0\\1", "numpy": 7,
            "list": [1, 2], "floats": [1.0, 2.5], "texts": ["a", "b"], "empty": [], "numpy float": 0.5,
        }
        assert direct[0].metadata["flag"] is True
        assert direct[0].stamp == 1234.5 and direct[0].frame == "camera/left"
        assert direct[1].stamp_nanos == 1_700_000_000_123_456_789 and direct[1].frame is None
        assert direct[1].metadata == {}
        assert abs(direct[2].stamp - time.time()) < 60
        for before, after in zip(direct, relayed, strict=True):
            assert (before.stamp_nanos, before.frame) == (after.stamp_nanos, after.frame)
        assert [event.sequence for event in direct] == [0, 1, 2]
        assert all(0 <= event.latency < 60 and event.age >= 0 for event in direct + relayed)
        assert direct[0].incarnation == 0
        print("received")
        """,
        inputs={"direct": lossless("sender/value"), "relayed": lossless("relay/value")},
    )
    result = dataflow.run()
    assert result.lines("sender") == ["sent"]
    assert result.lines("receiver") == ["received"]


def test_any_array_arrives_unchanged(dataflow: Dataflow) -> None:
    """Properties over generated arrays; the node sends to itself."""
    dataflow.node(
        "loop",
        """
        import numpy as np
        import values
        from hypothesis import HealthCheck, given, settings
        from hypothesis import strategies as st
        from hypothesis.extra import numpy as nps
        from nervure import Node

        node = Node()
        assert next(node).id == "begin"

        def through(value):
            node.send("out", value)
            event = node.next(timeout=30)
            while event.id != "back":
                event = node.next(timeout=30)
            return event

        settings.register_profile(
            "node", deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
        )
        settings.load_profile("node")
        shapes = nps.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=7)
        dtypes = st.one_of(nps.scalar_dtypes(), nps.nested_dtypes())

        @given(st.data(), nps.arrays(dtypes, shapes))
        def array(data, whole):
            part = whole[data.draw(nps.basic_indices(whole.shape, allow_ellipsis=True))]
            part = np.asarray(part)
            if part.ndim > 1:
                part = part.transpose(data.draw(st.permutations(range(part.ndim))))
            found = through(part).numpy()
            assert found.dtype == part.dtype and found.shape == part.shape
            assert found.tobytes() == part.tobytes()
            assert not found.flags.writeable

        @given(st.data(), nps.arrays(dtypes, shapes))
        def inside(data, whole):
            part = np.asarray(whole[data.draw(nps.basic_indices(whole.shape, allow_ellipsis=True))])
            if part.ndim > 1:
                part = part.transpose(data.draw(st.permutations(range(part.ndim))))
            tree = {"part": part, "rows": [{"both": whole}, None, {"n": 1}], "list": [part, part.copy("C")]}
            values.same(through(tree).object, tree)

        integers, floats = st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
        json = st.recursive(
            st.none() | st.booleans() | integers | floats | st.text(),
            lambda inner: st.dictionaries(st.text(), inner, max_size=4),
            max_leaves=10,
        )

        @given(st.dictionaries(st.text(), json, max_size=5))
        def dictionary(value):
            assert through(value).object == value

        metadata_value = st.one_of(
            st.booleans(), integers, floats, st.text(), st.binary(),
            st.lists(integers), st.lists(floats, min_size=1), st.lists(st.text(), min_size=1),
        )

        @given(st.dictionaries(st.text(), metadata_value, max_size=8))
        def metadata(value):
            node.send("out", 0, metadata=value)
            assert node.next(timeout=30).metadata == value

        array()
        inside()
        dictionary()
        metadata()
        print("hold")
        """,
        inputs={"begin": "nervure/timer/secs/1000", "back": {"source": "loop/out", "queue_size": 100}},
        outputs=["out"],
    )
    dataflow.start()
    result = dataflow.finish()
    assert result.lines("loop") == ["hold"]
