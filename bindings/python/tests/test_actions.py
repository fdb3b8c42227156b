"""Actions: goals, feedback, results and cancellation."""

from __future__ import annotations

from conftest import Dataflow

SERVER = """
    from nervure import Node, ServiceError
    goals = {}
    for event in Node():
        if event.type == "GOAL":
            goals[event.goal] = event.copied()
            assert event.service == "count" and event.node == "client"
            if event.object["to"] == 0:
                event.fail("it is nothing")
        elif event.type == "CANCEL":
            goal = goals.pop(event.goal)
            assert event.object is None
            print(event.goal, event.reason)
            event.canceled()
            try:
                goal.update(1)
            except ServiceError as error:
                print(error)
        elif event.type == "INPUT_CLOSED":
            break
        elif event.id == "tick":
            for number, goal in list(goals.items()):
                end = goal.object["to"]
                if 0 < end <= 3:
                    for at in range(1, end + 1):
                        goal.update({"at": at})
                    goal.reply({"sum": sum(range(end + 1))})
                    del goals[number]
                elif end == 0:
                    del goals[number]
"""


def run(dataflow: Dataflow, client: str) -> tuple[list[str], list[str]]:
    inputs = {"tick": "nervure/timer/millis/5", "done": "client/done"}
    dataflow.node("server", SERVER, inputs=inputs, actions=["count"])
    dataflow.node("client", client, outputs=["done"], clients={"count": "server/count"})
    result = dataflow.run()
    assert result.returncode == 0, result.stdout + result.stderr
    return result.lines("client"), result.lines("server")


def test_a_goal_has_feedback_a_result_and_states(dataflow: Dataflow) -> None:
    client, _ = run(
        dataflow,
        """
        from nervure import GoalState, Node, ServiceError, UnknownClient
        node = Node()
        goal = node.act("count", {"to": 3})
        assert goal.state in (GoalState.UNKNOWN, GoalState.ACCEPTED, GoalState.EXECUTING)
        print([feedback.object["at"] for feedback in goal])
        print(goal.result().object, goal.result().object, goal.state.name, goal.state.value)
        goal.cancel()  # It has ended.
        failed = node.act("count", {"to": 0})
        try:
            failed.result()
        except ServiceError as error:
            print(error, failed.state.name)
        try:
            node.act("cuont", 1)
        except UnknownClient as error:
            print(error)
        """,
    )
    assert client == [
        "[1, 2, 3]",
        "{'sum': 6} {'sum': 6} SUCCEEDED 4",
        "service server/count failed: it is nothing ABORTED",
        'node client has no client "cuont"; its clients are: count; did you mean "count"?',
    ]


def test_goals_are_cancelled_by_the_client_and_by_their_limit(dataflow: Dataflow) -> None:
    client, server = run(
        dataflow,
        """
        from nervure import GoalCanceled, GoalState, Node, NodeTimeout
        node = Node()
        goal = node.act("count", {"to": 9})
        goal.cancel()
        try:
            goal.result()
        except GoalCanceled as error:
            print(error, goal.state.name)
        try:
            node.act("count", {"to": 9}, timeout=0.05).result()
        except NodeTimeout as error:
            print(error)
        print(node.act("count", {"to": 1}).result().object)
        """,
    )
    assert client == [
        "the goal of server/count was cancelled CANCELED",
        "action server/count has not ended within 0.05 s",
        "{'sum': 1}",
    ]
    assert server[0] == "1 its client has cancelled it"
    assert server[1] == "the request of client to count was answered already"
    assert server[2].startswith("2 its ")


def test_goals_in_asyncio(dataflow: Dataflow) -> None:
    client, _ = run(
        dataflow,
        """
        import asyncio
        from nervure import Node, NodeTimeout
        node = Node()

        async def count(to):
            goal = node.act("count", {"to": to})
            seen = [feedback.object["at"] async for feedback in goal]
            return seen, (await goal).object["sum"]

        async def main():
            print(await asyncio.gather(count(1), count(2), count(3)))
            try:
                await node.act("count", {"to": 9}, timeout=0.05)
            except NodeTimeout as error:
                print(error)

        asyncio.run(main())
        """,
    )
    assert client == [
        "[([1], 1), ([1, 2], 3), ([1, 2, 3], 6)]",
        "action server/count has not ended within 0.05 s",
    ]
