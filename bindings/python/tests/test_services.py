"""Requests and answers between nodes: sync and async, one at a time and many in flight."""

import pytest
from conftest import Dataflow

SERVER = """
    import time
    import pytest
    from nervure import Node, ServiceError

    node = Node()
    for event in node:
        if event.type != "REQUEST":
            continue
        assert (event.service, event.node, event.id) == ("plan", "robot", None)
        assert repr(event) == '<Event REQUEST "plan" of node "robot">'
        goal = event.object
        if goal == "fail":
            event.fail("no way there")
        elif goal == "forget":
            del event
        elif goal == "hang" and node.incarnation == 0:
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
        elif goal == "late":
            time.sleep(0.3)
            event.reply("too late")
        elif goal == "copy":
            kept = event.copied()
            del event
            assert (kept.type, kept.service, kept.node, kept.text) == ("REQUEST", "plan", "robot", "copy")
            kept.reply("kept")
        elif goal == "strange":
            with pytest.raises(TypeError):
                event.reply({1, 2})
            event.reply("after all")
            with pytest.raises(ServiceError, match="was answered already"):
                event.reply("twice")
        else:
            event.reply({"path": [goal, goal * 2], "goal": goal}, metadata={"cost": 1.5})
    """

SYNC = """
    import pytest
    from nervure import NodeTimeout, Node, NotSendable, ServiceError, ServiceGone, UnknownClient, UnknownInput

    node = Node()
    assert node.inputs == () and node.outputs == ()
    for goal in range(50):
        answer = node.call("planner", goal)
        assert answer.object == {"path": [goal, goal * 2], "goal": goal} and answer.id == "planner"
        assert answer.metadata == {"cost": 1.5}
    with pytest.raises(UnknownClient, match='no client "plan"; its clients are: planner; did you mean'):
        node.call("plan", 1)
    with pytest.raises(UnknownInput, match='no input "planner~reply"; it has no inputs'):
        node.latest("planner~reply")
    with pytest.raises(ServiceError, match="service server/plan failed: no way there"):
        node.call("planner", "fail")
    with pytest.raises(ServiceError, match="it dropped the request unanswered"):
        node.call("planner", "forget", timeout=60)
    with pytest.raises(NodeTimeout, match="service server/plan has not answered within 50ms"):
        node.call("planner", "late", timeout=0.05)
    with pytest.raises(NotSendable):
        node.call("planner", {1, 2})
    assert node.call("planner", "strange").text == "after all"
    assert node.call("planner", "copy").text == "kept"
    with pytest.raises(ServiceGone, match="ended before it answered"):
        node.call("planner", "hang")
    while True:
        try:
            assert node.call("planner", 7).object["goal"] == 7
            break
        except ServiceGone:
            pass
    print("done")
    """

ASYNC = """
    import asyncio
    import pytest
    from nervure import NodeTimeout, Node, ServiceError, ServiceGone

    async def main():
        node = Node()
        ticks = 0

        async def count():
            nonlocal ticks
            async for event in node:
                ticks += event.id == "tick"

        counting = asyncio.create_task(count())
        for _ in range(10):
            answers = await asyncio.gather(*(node.call_async("planner", goal) for goal in range(12)))
            assert [answer.object["goal"] for answer in answers] == list(range(12))
        with pytest.raises(ServiceError, match="no way there"):
            await node.call_async("planner", "fail")
        with pytest.raises(NodeTimeout, match="has not answered within 0.05 s"):
            await node.call_async("planner", "late", timeout=0.05)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(node.call_async("planner", "late"), 0.05)
        outcomes = await asyncio.gather(
            *(node.call_async("planner", "hang") for _ in range(3)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [ServiceGone] * 3, outcomes
        before = ticks
        while ticks < before + 3:
            await asyncio.sleep(0.01)
        counting.cancel()
        print("done")

    asyncio.run(main())
    """


@pytest.mark.parametrize("code", [SYNC, ASYNC], ids=["sync", "async"])
def test_services_answer(dataflow: Dataflow, code: str) -> None:
    dataflow.node("server", SERVER, services=["plan"], restart_policy="on-failure", restart_delay=0.01)
    inputs = {"tick": "nervure/timer/hz/100"} if code is ASYNC else None
    dataflow.node("robot", code, inputs=inputs, clients={"planner": "server/plan"})
    result = dataflow.run()
    assert result.lines("robot") == ["done"], result


def test_a_call_keeps_the_events_that_arrive_meanwhile(dataflow: Dataflow) -> None:
    """Samples that arrive while a node waits for an answer are delivered afterwards, in order."""
    dataflow.node("server", SERVER, services=["plan"])
    dataflow.node(
        "source",
        """
        from nervure import Node

        node = Node()
        for number in range(200):
            node.send("value", number)
        """,
        outputs=["value"],
    )
    dataflow.node(
        "robot",
        """
        from nervure import Node

        node, values = Node(), []
        for event in node:
            if event.id == "value":
                values.append(event.object)
                assert node.call("planner", event.object).object["goal"] == event.object
        assert values == list(range(200)), values
        print("done")
        """,
        inputs={"value": {"source": "source/value", "queue_policy": "block", "queue_size": 4}},
        clients={"planner": "server/plan"},
    )
    assert dataflow.run().lines("robot") == ["done"]
