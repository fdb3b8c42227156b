"""Events for samples and turns that are late, hangs and failures; sync and async."""

import re

import pytest
from conftest import Dataflow, lossless

SILENT_AFTER_THREE = """
    import time
    from nervure import Node

    node = Node()
    for number in range(3):
        node.send("value", number)
    while not node.stopping:
        time.sleep(0.01)
"""


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_input_without_samples_becomes_stale(dataflow: Dataflow, kind: str) -> None:
    dataflow.node("source", SILENT_AFTER_THREE, outputs=["value"])
    loops = {
        "sync": "for event in node: take(event)",
        "async": "async def main():\n    async for event in node: take(event)\nasyncio.run(main())",
    }
    dataflow.node(
        "sink",
        f"""
import asyncio, os, signal
from nervure import Node

node, values, stale = Node(), [], []
def take(event):
    if event.id == "value":
        values.append(event.object)
    elif event.type == "STALE":
        assert event.id is None and event.inputs == ["value"] and event.value is None
        assert event.age >= 0.2 * event.count and event.overrun is None
        assert repr(event).startswith('<Event STALE "value": no sample for 0.')
        stale.append(event.count)
        if values and len(stale) >= 3:
            os.kill(os.getppid(), signal.SIGTERM)
{loops[kind]}
assert values == [0, 1, 2] and stale[-3:] == list(range(stale[-1] - 2, stale[-1] + 1)), stale
print("done")
""",
        inputs={"value": {"source": "source/value", "expect_every": "200ms"}},
    )
    assert dataflow.run().lines("sink") == ["done"]


def test_latest_keeps_an_input_from_becoming_stale(dataflow: Dataflow) -> None:
    """An input that is read by `latest` alone is not stale while samples arrive."""
    dataflow.node(
        "source",
        """
        import time
        from nervure import Node

        node = Node()
        while not node.stopping:
            node.send("value", 1)
            time.sleep(0.01)
        """,
        outputs=["value"],
    )
    dataflow.node(
        "control",
        """
        from nervure import Node

        node = Node()
        ticks = 0
        for event in node:
            if event.id == "tick":
                ticks += 1
                newest = node.latest("value")
                if ticks == 20:
                    break
            elif event.type == "STALE":
                # On a busy machine the source may pause, and the newest sample is then that old.
                assert event.age >= 1.0, event
        print("done")
        """,
        inputs={
            "tick": "nervure/timer/hz/10",
            "value": {"source": "source/value", "queue_policy": "latest", "expect_every": "1s"},
        },
    )
    assert "done" in dataflow.run("--stop-after", "20s").lines("control")


def test_a_late_loop_gets_an_event(dataflow: Dataflow) -> None:
    dataflow.node(
        "control",
        """
        import time
        from nervure import Node

        node, reported = Node(), []
        for event in node:
            if event.id == "tick":
                time.sleep(0.03)
            elif event.type == "DEADLINE_MISSED":
                assert event.id is None and event.inputs == ["tick"] and event.age is None
                assert event.overrun >= 0.025
                reported.append(event.count)
                if len(reported) == 3:
                    break
        assert reported == [1, 2, 3]
        print("done")
        """,
        inputs={"tick": "nervure/timer/hz/10"},
        loop={"input": "tick", "finish_within": "5ms"},
    )
    result = dataflow.run()
    assert result.lines("control") == ["done"]
    assert "the loop of `control/tick` was late 3 times, by " in result.stdout + result.stderr


# A loop in Python, and a C function that holds the interpreter's lock: a backtracking expression.
@pytest.mark.parametrize("hang", ["while True: pass", "re.match('(a+)+b', 'a' * 60)"])
def test_a_hanging_node_shows_its_stacks_and_is_restarted(dataflow: Dataflow, hang: str) -> None:
    dataflow.node(
        "planner",
        f"""
        import re
        from nervure import Node

        def think_too_hard():
            {hang}

        node = Node()
        for event in node:
            if node.incarnation == 0:
                think_too_hard()
            break
        print("done")
        """,
        inputs={"tick": "nervure/timer/hz/10"},
        health_check_timeout=0.3,
        restart_policy="on-failure",
        restart_delay=0.01,
    )
    result = dataflow.run()
    assert result.lines("planner")[-1] == "done", result
    reported = result.stdout + result.stderr
    assert "it hangs: no sign of life for" in reported, reported
    assert re.search(r'File ".*planner.py", line 6 in think_too_hard', reported), reported


def test_nodes_that_wait_in_asyncio_do_not_hang_and_a_blocked_loop_does(dataflow: Dataflow) -> None:
    code = """
        import asyncio, time
        from nervure import Node

        async def main():
            node = Node()
            async for event in node:
                if event.id == "tick" and BLOCKED and node.incarnation == 0:
                    # A task other than the one that waits for events.
                    asyncio.get_running_loop().call_soon(time.sleep, 1000)
                elif event.id == "tick" and node.incarnation == 1:
                    break
            print("done")

        asyncio.run(main())
        """
    keys = {"health_check_timeout": 0.3, "restart_policy": "on-failure", "restart_delay": 0.01}
    blocked = code.replace("BLOCKED", "True")
    dataflow.node("blocked", blocked, inputs={"tick": "nervure/timer/hz/5"}, **keys)
    idle = code.replace("BLOCKED", "False")
    dataflow.node("idle", idle, inputs={"value": "blocked/value"}, **keys)
    dataflow.nodes[0]["outputs"] = ["value"]
    result = dataflow.run()
    assert result.lines("blocked")[-1] == "done" and result.lines("idle") == ["done"], result
    assert "blocked: it hangs" in result.stderr and "idle: it hangs" not in result.stderr, result


VALUES: list[object] = [
    None,
    True,
    -3,
    2.5,
    "stop",
    [0.0, 1.5],
    [[1, 2], []],
    ["a", None],
    {"linear": [0.0, 0.0], "brake": True, "note": None, "deep": {"text": "x"}},
]


@pytest.mark.parametrize("kind", ["sync", "async", "latest"])
def test_a_killed_node_leaves_its_last_values(dataflow: Dataflow, kind: str) -> None:
    outputs = [f"v{number}" for number in range(len(VALUES))]
    values = [{"output": output, "value": value} for output, value in zip(outputs, VALUES, strict=True)]
    dataflow.node(
        "planner",
        """
        import os, signal, time
        from nervure import Node

        node = Node()
        for output in node.outputs:
            node.send(output, "alive")
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        outputs=outputs,
        on_failure=values,
    )
    receive = {
        "sync": "for event in node: take(event)",
        "async": "async def main():\n    async for event in node: take(event)\nasyncio.run(main())",
        # The newest sample after the event of the failure.
        "latest": (
            "while (event := node.next()).type != 'NODE_FAILED': take(event)\n"
            "while len(got) < 2 * len(VALUES):\n"
            "    for name in node.inputs:\n"
            "        newest = node.latest(name)\n"
            "        if newest and 'on_failure' in newest.metadata and (name, 'last') not in seen:\n"
            "            take(newest)"
        ),
    }
    dataflow.node(
        "motor",
        f"""
import asyncio
from nervure import Node

VALUES = {VALUES!r}
node, got, seen = Node(), [], set()
def take(event):
    if event.type != "INPUT":
        return
    if "on_failure" not in event.metadata:
        assert event.object == "alive" and event.sequence == 0
        assert event.id not in seen, "what the node sent comes first"
        seen.add(event.id)
        got.append(event.id)
        return
    expected = VALUES[int(event.id[1:])]
    assert event.object == expected and type(event.object) is type(expected), (event.object, expected)
    assert "killed by SIGKILL" in event.metadata["on_failure"]
    assert event.sequence is None and event.incarnation == 0 and event.age < 60
    assert len(event.value) == (len(expected) if isinstance(expected, list) else 1)
    seen.add((event.id, "last"))
    got.append(event.id)
{receive[kind]}
assert sorted(got) == sorted(node.inputs * 2), got
print("done")
""",
        inputs={output: lossless(f"planner/{output}") for output in outputs},
    )
    result = dataflow.run(returncode=None)
    assert result.lines("motor") == ["done"], result


def test_an_exception_is_a_failure(dataflow: Dataflow) -> None:
    """The interpreter drops the node, which says Goodbye, before the process ends with its error."""
    dataflow.node(
        "planner",
        """
        from nervure import Node

        node = Node()
        node.send("cmd", 1.0)
        raise ValueError("no plan")
        """,
        outputs=["cmd"],
        on_failure={"output": "cmd", "value": 0.0},
    )
    dataflow.node(
        "motor",
        """
        from nervure import Node

        events = [(event.type, event.object) for event in Node()]
        assert [value for kind, value in events if kind == "INPUT"] == [1.0, 0.0], events
        assert [kind for kind, _ in events][-2:] == ["INPUT_CLOSED", "STOP"]
        print("done")
        """,
        inputs={"cmd": lossless("planner/cmd")},
    )
    result = dataflow.run(returncode=None)
    assert result.lines("motor") == ["done"], result
