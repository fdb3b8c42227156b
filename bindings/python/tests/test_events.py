"""Events of a node, and errors of its calls."""

from conftest import Dataflow, lossless

COUNTING = """
    from nervure import Node

    node = Node()
    for number in range(20):
        node.send("count", number)
"""


def test_events_as_users_of_dora_know_them(dataflow: Dataflow) -> None:
    dataflow.node("source", COUNTING, outputs=["count"])
    dataflow.node(
        "sink",
        """
        import pytest
        from nervure import Node, SampleError

        node = Node()
        assert (node.id, node.inputs, node.outputs) == ("sink", ("count",), ())
        assert node.dataflow and node.incarnation == 0 and not node.stopping and not node.paused
        events = list(node)
        assert [event["type"] for event in events] == ["INPUT"] * 20 + ["INPUT_CLOSED", "STOP"]
        first, closed, stop = events[0], events[-2], events[-1]
        assert first["id"] == first.id == "count" and first["value"].to_pylist() == [0]
        assert first["metadata"] == {} and first.missed is None and first.inputs == []
        with pytest.raises(KeyError, match="an event has type, id, value"):
            first["colour"]
        assert closed.id is None and closed.inputs == ["count"] and closed["id"] == "count"
        assert closed.value is None and closed.metadata == {} and closed.age is None
        assert stop.id is None and stop.reason == "all inputs are closed" and stop.object is None
        for call in (stop.numpy, lambda: stop.text, lambda: stop.bytes):
            with pytest.raises(SampleError, match="type STOP carries no value"):
                call()
        with pytest.raises(SampleError, match="expected text, the sample is a scalar"):
            first.text
        assert list(node) == [] and node.next() is None, "nothing follows STOP"
        assert [repr(event) for event in (first, closed, stop)] == [
            '<Event INPUT "count": Integer(0)>', '<Event INPUT_CLOSED "count">',
            "<Event STOP: all inputs are closed>",
        ]
        print("done")
        """,
        inputs={"count": lossless("source/count")},
    )
    assert dataflow.run().lines("sink") == ["done"]


def test_timers_tick_on_the_dataflows_clock(dataflow: Dataflow) -> None:
    dataflow.node(
        "clock",
        """
        import time
        import pytest
        from nervure import Node, SampleError

        node = Node()
        ticks = [node.next(timeout=60) for _ in range(3)]
        assert [(event.type, event.id) for event in ticks] == [("INPUT", "tick")] * 3
        assert ticks[2].stamp_nanos - ticks[1].stamp_nanos == 50_000_000 * (1 + ticks[2].missed)
        assert ticks[0].value is None and ticks[0].object is None and ticks[0].age >= 0
        with pytest.raises(SampleError, match="tick of timer \\"tick\\" carries no value"):
            ticks[0].numpy()
        time.sleep(0.22)
        assert next(node).missed >= 3, "ticks that were missed are merged"
        assert abs(node.now() - time.time()) < 60 and abs(node.now_nanos() / 1e9 - node.now()) < 1
        print("done")
        """,
        inputs={"tick": "nervure/timer/millis/50"},
    )
    assert dataflow.run().lines("clock") == ["done"]


def test_a_wait_ends_at_its_timeout(dataflow: Dataflow) -> None:
    dataflow.node(
        "waiting",
        """
        import time
        import pytest
        from nervure import Node

        node = Node()
        assert node.next(timeout=10).missed == 0
        for timeout in (0, 0.05):
            began = time.monotonic()
            assert node.next(timeout=timeout) is None
            assert time.monotonic() - began >= timeout
        with pytest.raises(ValueError, match="timeout is -1 s, expected 0 or more"):
            node.next(timeout=-1)
        with pytest.raises(ValueError, match="timeout"):
            node.next(timeout=float("nan"))
        with pytest.raises(TypeError):
            node.next(1.0)
        print("done")
        """,
        inputs={"tick": "nervure/timer/secs/1000"},
    )
    assert dataflow.run().lines("waiting") == ["done"]


def test_latest_returns_the_newest_sample(dataflow: Dataflow) -> None:
    dataflow.node("source", COUNTING, outputs=["count"])
    dataflow.node(
        "sink",
        """
        import pytest
        from nervure import Node, UnknownInput

        node = Node()
        with pytest.raises(UnknownInput, match='no input "cuont"; its inputs are: count; did you mean'):
            node.latest("cuont")
        with pytest.raises(LookupError):
            node.latest("")
        newest = None
        while newest is None or newest.object < 19:
            newest = node.latest("count")
        assert (newest.type, newest.id, newest.sequence) == ("INPUT", "count", 19)
        assert node.latest("count").object == 19, "it stays"
        assert [event.type for event in node] == ["INPUT_CLOSED", "STOP"]
        print("done")
        """,
        inputs={"count": lossless("source/count")},
    )
    assert dataflow.run().lines("sink") == ["done"]


def test_an_unknown_output_is_an_error_that_lists_the_outputs(dataflow: Dataflow) -> None:
    dataflow.node(
        "source",
        """
        import pytest
        from nervure import NervureError, Node, UnknownOutput

        node = Node()
        with pytest.raises(UnknownOutput) as raised:
            node.send("imgae", 1)
        assert str(raised.value) == (
            'node source has no output "imgae"; its outputs are: image, imu; did you mean "image"?'
        )
        for call in (lambda: node.try_send("x", 1), lambda: node.loan("x", 1, "u1")):
            with pytest.raises(LookupError, match="its outputs are: image, imu$"):
                call()
        assert issubclass(UnknownOutput, NervureError)
        with pytest.raises(TypeError):
            node.send("image", 1, 2.0)
        with pytest.raises(TypeError):
            node.send("image", 1, like=3)
        print("done")
        """,
        outputs=["image", "imu"],
    )
    assert dataflow.run().lines("source") == ["done"]


def test_a_pause_is_an_event_and_holds_nodes_without_inputs(dataflow: Dataflow) -> None:
    dataflow.node(
        "source",
        """
        import time
        from nervure import Node

        node = Node()
        while node.try_send("count", 1):
            time.sleep(0.001)
        assert node.paused
        node.send("count", 2)
        assert not node.paused
        print("done")
        """,
        outputs=["count"],
    )
    dataflow.node(
        "sink",
        """
        import subprocess
        from nervure import Node

        def order(command):
            subprocess.run(["nervure", command, "-d", node.dataflow], check=True)

        node = Node()
        next(node)
        order("pause")
        kinds = []
        for event in node:
            if event.type in ("PAUSE", "RESUME"):
                kinds.append(repr(event))
            if event.type == "PAUSE":
                order("resume")
        print(*kinds)
        """,
        inputs={"count": "source/count"},
    )
    result = dataflow.run()
    assert result.lines("source") == ["done"]
    assert result.lines("sink")[-1] == "<Event PAUSE> <Event RESUME>"


def test_a_neighbours_failure_is_an_event(dataflow: Dataflow) -> None:
    dataflow.node(
        "weak",
        """
        from nervure import Node

        node = Node()
        node.send("value", node.incarnation)
        if node.incarnation == 0:
            raise SystemExit(7)
        """,
        outputs=["value"],
        restart_policy="on-failure",
        restart_delay=0.01,
    )
    dataflow.node(
        "neighbour",
        """
        from nervure import Node

        events = list(Node())
        changes = [(event.type, event.node, event.inputs) for event in events if event.node]
        assert changes == [("NODE_FAILED", "weak", ["value"]), ("NODE_RESTARTED", "weak", ["value"])], changes
        assert "exited with code 7" in next(event.reason for event in events if event.type == "NODE_FAILED")
        samples = [
            (event.object, event.incarnation, event.sequence) for event in events if event.type == "INPUT"
        ]
        assert samples == [(0, 0, 0), (1, 1, 0)]
        print("done")
        """,
        inputs={"value": lossless("weak/value")},
    )
    result = dataflow.run(returncode=None)
    assert result.lines("neighbour") == ["done"], result


def test_a_program_without_a_dataflow_fails_with_a_hint() -> None:
    import subprocess
    import sys

    program = (
        "from nervure import ConnectError, Node\ntry: Node()\nexcept ConnectError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "nervure run" in result.stdout


def test_a_process_has_one_node(dataflow: Dataflow) -> None:
    dataflow.node(
        "twice",
        """
        import pytest
        from nervure import ConnectError, Node

        node = Node()
        with pytest.raises(ConnectError, match="A process has one node"):
            Node()
        print("done")
        """,
        outputs=["value"],
    )
    assert dataflow.run().lines("twice") == ["done"]


def test_a_send_waits_fails_or_times_out_by_its_arguments(dataflow: Dataflow) -> None:
    """Between a fast sender and a receiver that waits for a signal of the test."""
    dataflow.node(
        "sender",
        """
        import pathlib, time
        import pytest
        from nervure import Node, NodeTimeout

        node = Node()
        sent = 0
        while node.try_send("value", sent):
            sent += 1
        assert sent == 4, "the queue's depth"
        began = time.monotonic()
        with pytest.raises(NodeTimeout, match="queue of consumer receiver/value stayed full") as raised:
            node.send("value", sent, timeout=0.1)
        assert time.monotonic() - began >= 0.1
        assert isinstance(raised.value, TimeoutError)
        with pytest.raises(NodeTimeout):
            node.send("value", b"x" * 1_000_000, timeout=0)
        pathlib.Path("full").write_text("yes\\n")
        for number in range(4, 50):
            node.send("value", number)
        print("done")
        """,
        outputs=["value"],
    )
    dataflow.node(
        "receiver",
        """
        import pathlib, time
        from nervure import Node

        node = Node()
        while not pathlib.Path("full").exists():
            time.sleep(0.01)
        values = [event.object for event in node if event.type == "INPUT"]
        assert values == list(range(50)), values
        print("done")
        """,
        inputs={"value": lossless("sender/value")},
    )
    result = dataflow.run()
    assert result.lines("sender") == ["done"]
    assert result.lines("receiver") == ["done"]
