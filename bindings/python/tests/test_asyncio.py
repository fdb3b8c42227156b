"""Events and sends under asyncio."""

from conftest import Dataflow, lossless


def test_events_and_sends_leave_the_event_loop_free(dataflow: Dataflow) -> None:
    dataflow.node(
        "source",
        """
        from nervure import Node

        node = Node()
        for number in range(200):
            node.send("count", number)
        """,
        outputs=["count"],
    )
    dataflow.node(
        "relay",
        """
        import asyncio
        from nervure import Node

        node = Node()
        turns = 0

        async def other():
            global turns
            while True:
                await asyncio.sleep(0.001)
                turns += 1

        async def main():
            task = asyncio.create_task(other())
            kinds = []
            ticks = 0
            async for event in node:
                if event.id == "tick":
                    ticks += 1
                elif event.type == "INPUT":
                    await node.send_async("count", event.object, like=event, metadata={"n": event.object})
                else:
                    kinds.append(event.type)
            assert kinds[-1] == "STOP", kinds
            assert turns > 20 and ticks > 3, (turns, ticks)
            task.cancel()
            # There are no events after STOP.
            async for event in node:
                raise AssertionError(event)

        asyncio.run(main())
        print("done")
        """,
        inputs={"count": lossless("source/count"), "tick": "nervure/timer/millis/10"},
        outputs=["count"],
    )
    dataflow.node(
        "slow",
        """
        import pathlib, time
        from nervure import Node

        numbers = []
        for event in Node():
            if event.type == "INPUT":
                time.sleep(0.002)
                assert event.metadata == {"n": event.object}
                numbers.append(event.object)
                if len(numbers) == 200:
                    pathlib.Path("all.tmp").write_text("all\\n")
                    pathlib.Path("all.tmp").rename("all")
        assert numbers == list(range(200))
        print("done")
        """,
        inputs={"count": lossless("relay/count")},
    )
    dataflow.start()
    # The relay has a timer, so it does not end by itself when its input closes.
    assert dataflow.wait_for("all") == "all"
    dataflow.interrupt()
    result = dataflow.finish()
    assert result.lines("relay") == ["done"], result
    assert result.lines("slow") == ["done"], result


def test_a_wait_can_be_cancelled_and_repeated(dataflow: Dataflow) -> None:
    dataflow.node(
        "node",
        """
        import asyncio
        import pathlib
        import pytest
        from nervure import NervureError, Node

        node = Node()

        async def next_event():
            return await anext(node)

        async def main():
            assert (await next_event()).id == "begin"
            for _ in range(5):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(next_event(), 0.02)
            # A thread that also waited would take events from the event loop.
            waiting = asyncio.create_task(next_event())
            await asyncio.sleep(0.02)
            with pytest.raises(NervureError, match="receive in one place"):
                node.next(timeout=0.1)
            with pytest.raises(NervureError, match="receive in one place"):
                await next_event()
            node.send("out", "hello")
            event = await asyncio.wait_for(waiting, 30)
            assert event.object == "hello"

            # A send that waits for room can be cancelled, and is then not sent.
            assert node.try_send("blocked", 0)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(node.send_async("blocked", 1), 0.02)
            assert not node.try_send("blocked", 2)

        # `asyncio.run` ends after the blocked thread.
        asyncio.run(main())
        pathlib.Path("cancelled").touch()
        # And again, in another event loop, and without one.
        node.send("out", "again")
        assert asyncio.run(next_event()).object == "again"
        node.send("out", "once more")
        assert node.next(timeout=30).object == "once more"
        print("done")
        """,
        inputs={"begin": "nervure/timer/secs/1000", "back": "node/out"},
        outputs=["out", "blocked"],
    )
    dataflow.node(
        "asleep",
        """
        import pathlib, time
        from nervure import Node

        node = Node()
        while not (pathlib.Path("cancelled").exists() or node.stopping):
            time.sleep(0.01)
        numbers = [event.object for event in node if event.type == "INPUT"]
        assert numbers == [0], numbers
        print("done")
        """,
        inputs={"value": {"source": "node/blocked", "queue_policy": "block", "queue_size": 1}},
    )
    result = dataflow.run()
    assert result.lines("node") == ["done"]
    assert result.lines("asleep") == ["done"]
