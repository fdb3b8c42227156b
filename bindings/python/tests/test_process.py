"""Signals, threads and forks in a Python process."""

import os
import signal
import time

import pytest
from conftest import Dataflow, lossless

# Writes its process ID, and then waits in the way that the test selects.
WAITING = """
    import asyncio, os, pathlib, signal, threading
    from nervure import Node, observe

    async def next_event(node):
        return await anext(node)

    node = Node()
    assert next(node).id == "begin"
    {before}
    pathlib.Path("pid.tmp").write_text(f"{{os.getpid()}}\\n")
    pathlib.Path("pid.tmp").rename("pid")
    try:
        {wait}
    except KeyboardInterrupt:
        pathlib.Path("interrupted").write_text("yes\\n")
        raise
"""
WAITS = {
    "next": "next(node)",
    "next with a timeout": "node.next(timeout=600)",
    "next while another thread waits": "threading.Thread(target=next, args=(node,)).start(); next(node)",
    "call": "node.call('ask', 1)",
    "call with a timeout": "node.call('ask', 1, timeout=600)",
    "asyncio": "asyncio.run(next_event(node))",
    "observer": "next(observe('waiting/value', dataflow=node.dataflow))",
    "send": "[node.send('value', number) for number in range(100)]",
    "a large send": "[node.send('value', bytes(1_000_000)) for number in range(100)]",
    "a send with a timeout": "[node.send('value', bytes(1_000_000), timeout=600) for number in range(100)]",
    "loan": "[node.loan('value', 1_000_000, 'u1').send() for number in range(100)]",
}
# The kernel delivers signals to this other thread, where Python sets its flag. No system call of the waiting
# thread is interrupted: it is as if the signal had arrived just before the call.
ELSEWHERE = (
    "threading.Thread(target=threading.Event().wait, daemon=True).start(); "
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])"
)


def check_ctrl_c(dataflow: Dataflow, wait: str, before: str = "pass") -> None:
    dataflow.node(
        "waiting",
        WAITING.format(wait=wait, before=before),
        inputs={"begin": "nervure/timer/secs/1000"},
        outputs=["value"],
        clients={"ask": "asleep/answer"},
    )
    dataflow.node(
        "asleep",
        """
        import time
        from nervure import Node

        node = Node()
        while not node.stopping:
            time.sleep(0.01)
        """,
        inputs={"value": lossless("waiting/value")},
        services=["answer"],
    )
    dataflow.start()
    pid = int(dataflow.wait_for("pid"))
    # Until the node waits.
    time.sleep(0.2)
    os.kill(pid, signal.SIGINT)
    assert dataflow.wait_for("interrupted") == "yes"
    dataflow.interrupt()
    assert "KeyboardInterrupt" in dataflow.finish(returncode=None).stderr


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_ctrl_c_ends_every_wait(dataflow: Dataflow, wait: str) -> None:
    check_ctrl_c(dataflow, wait)


# asyncio has its own handling of signals.
@pytest.mark.parametrize("kind", [kind for kind in WAITS if kind != "asyncio"])
def test_a_signal_that_interrupts_nothing_ends_every_wait(dataflow: Dataflow, kind: str) -> None:
    check_ctrl_c(dataflow, WAITS[kind], before=ELSEWHERE)


def test_a_wait_restores_the_wakeup_descriptor(dataflow: Dataflow) -> None:
    dataflow.node(
        "waiting",
        """
        import pathlib, os, signal, socket
        from nervure import Node

        node = Node()
        assert next(node).id == "begin"
        handled = []
        signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        pathlib.Path("pid.tmp").write_text(f"{os.getpid()}\\n")
        pathlib.Path("pid.tmp").rename("pid")
        assert next(node).id == "go"
        assert handled == [signal.SIGUSR1]
        assert signal.set_wakeup_fd(-1) == writer.fileno()
        assert reader.recv(100) == bytes([signal.SIGUSR1])
        # A descriptor that is set during the wait stays.
        signal.set_wakeup_fd(writer.fileno())
        signal.signal(signal.SIGUSR1, lambda number, frame: signal.set_wakeup_fd(-1))
        pathlib.Path("again").write_text("yes\\n")
        assert next(node).id == "go"
        assert signal.set_wakeup_fd(-1) == -1
        print("done")
        """,
        inputs={"begin": "nervure/timer/secs/1000", "go": "going/go"},
    )
    dataflow.node(
        "going",
        """
        import pathlib, time
        from nervure import Node

        node = Node()
        for number in range(2):
            while not pathlib.Path(f"go{number}").exists():
                time.sleep(0.01)
            node.send("go", number)
        """,
        outputs=["go"],
    )
    dataflow.start()
    pid = int(dataflow.wait_for("pid"))
    for number in range(2):
        # Until the node has waited for a while.
        time.sleep(0.3)
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.1)
        (dataflow.folder / f"go{number}").touch()
        if number == 0:
            dataflow.wait_for("again")
    assert dataflow.finish().lines("waiting") == ["done"]


def test_ctrl_c_ends_the_wait_for_the_dataflow_to_be_ready(dataflow: Dataflow) -> None:
    dataflow.node(
        "waiting",
        """
        import os, pathlib
        from nervure import Node

        pathlib.Path("pid.tmp").write_text(f"{os.getpid()}\\n")
        pathlib.Path("pid.tmp").rename("pid")
        try:
            Node()
        except KeyboardInterrupt:
            pathlib.Path("interrupted").write_text("yes\\n")
            raise
        """,
        outputs=["value"],
    )
    dataflow.node(
        "never-ready",
        """
        import time
        from nervure import Node

        node = Node()
        while not node.stopping:
            time.sleep(0.01)
        """,
        inputs={"value": "waiting/value"},
        ready="manual",
    )
    dataflow.start()
    pid = int(dataflow.wait_for("pid"))
    time.sleep(0.3)
    os.kill(pid, signal.SIGINT)
    assert dataflow.wait_for("interrupted") == "yes"
    dataflow.interrupt()
    dataflow.finish(returncode=None)


def test_other_threads_run_while_one_waits(dataflow: Dataflow) -> None:
    dataflow.node(
        "threads",
        """
        import threading, time
        from nervure import Node

        node = Node()
        assert next(node).id == "begin"
        progress, done = 0, False

        def count():
            global progress
            while not done:
                progress += 1

        thread = threading.Thread(target=count)
        thread.start()
        before = progress
        assert node.next(timeout=0.3) is None
        assert progress - before > 1000, "waiting for events"
        while node.try_send("value", 1):
            pass
        before = progress
        try:
            node.send("value", 1, timeout=0.3)
        except TimeoutError:
            pass
        assert progress - before > 1000, "waiting for room"
        done = True
        thread.join()

        # Threads may send, and read the latest sample of an input, while another waits for events.
        def chat():
            for number in range(2000):
                node.send("back", number)
                node.latest("other")
        thread = threading.Thread(target=chat)
        thread.start()
        received = 0
        while received < 2000:
            event = node.next(timeout=30)
            assert event.object == received, (event, received)
            received += 1
        thread.join()
        print("done")
        """,
        inputs={
            "begin": "nervure/timer/secs/1000",
            "back": {"source": "threads/back", "queue_size": 3000},
            "other": "threads/other",
        },
        outputs=["value", "back", "other"],
    )
    dataflow.node(
        "asleep",
        """
        import time
        from nervure import Node

        node = Node()
        time.sleep(2)
        """,
        inputs={"value": lossless("threads/value")},
    )
    dataflow.start()
    assert dataflow.finish().lines("threads") == ["done"]


def test_many_threads_share_the_events(dataflow: Dataflow) -> None:
    dataflow.node(
        "source",
        """
        from nervure import Node

        node = Node()
        for number in range(3000):
            node.send("value", number)
        """,
        outputs=["value"],
    )
    dataflow.node(
        "threads",
        """
        import threading
        from nervure import Node

        node = Node()
        taken = [[], [], []]

        def take(mine):
            for event in node:
                if event.type == "INPUT":
                    mine.append(event.object)

        threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(sum(taken, [])) == list(range(3000))
        print("done")
        """,
        inputs={"value": lossless("source/value")},
    )
    assert dataflow.run().lines("threads") == ["done"]


def test_a_forked_child_cannot_use_the_node_and_does_no_harm(dataflow: Dataflow) -> None:
    dataflow.node(
        "sender",
        """
        import numpy as np
        from nervure import Node

        node = Node()
        for number in range(100):
            node.send("image", np.full(100_000, number, "u1"))
        """,
        outputs=["image"],
    )
    dataflow.node(
        "parent",
        """
        import gc, multiprocessing, os, sys
        import numpy as np
        import pytest
        from nervure import Node, NodeForked

        node = Node()
        events = [next(node) for _ in range(4)]
        array = events[0].numpy()
        loan = node.loan("out", 1000, "u1")

        def child(queue):
            try:
                for use in (
                    lambda: next(node), lambda: node.next(timeout=1), lambda: node.send("out", 1),
                    lambda: node.try_send("out", 1), lambda: node.loan("out", 1, "u1"),
                    lambda: node.latest("image"), loan.send, node._poll,
                ):
                    with pytest.raises(NodeForked, match="'spawn' method"):
                        use()
                # Parts that are not tied to a process still work.
                assert node.id == "parent" and events[1].id == "image" and (array == 0).all()
                # Dropping inherited objects releases nothing of the parent.
                events.clear()
                globals().update(array=None, node=None, loan=None)
                gc.collect()
                queue.put("harmless")
            except BaseException as error:
                queue.put(repr(error))
                raise

        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        assert queue.get(timeout=60) == "harmless"
        process.join()
        assert process.exitcode == 0

        # The parent goes on, and still owns its blocks.
        rest = [event.numpy()[0] for event in node if event.type == "INPUT"]
        assert rest[-1] == 99 and (array == 0).all()
        assert [(event.numpy() == event.sequence).all() for event in events] == [True] * 4
        loan.discard()
        print("done")
        """,
        inputs={"image": lossless("sender/image")},
        outputs=["out"],
    )
    dataflow.node(
        "receiver",
        """
        from nervure import Node

        assert [event.type for event in Node()] == ["INPUT_CLOSED", "STOP"]
        """,
        inputs={"out": lossless("parent/out")},
    )
    assert dataflow.run().lines("parent") == ["done"]


def test_except_exception_does_not_catch_the_end_of_a_dataflow(dataflow: Dataflow) -> None:
    """Senders that catch every `Exception` wait, in three ways, for a consumer that takes no samples."""
    body = """
        import asyncio
        import threading
        from pathlib import Path
        from nervure import NervureError, Node, Stopped

        assert not issubclass(Stopped, (Exception, NervureError)) and issubclass(Stopped, SystemExit)
        node = Node()
        node.send("value", 0)
        Path("sends-NAME").write_text("now\\n")

        def forever():
            while True:
                try:
                    node.send("value", 1)
                except Exception as error:
                    print(f"swallowed {error!r}")

        async def forever_async():
            while True:
                try:
                    await node.send_async("value", 1)
                except Exception as error:
                    print(f"swallowed {error!r}")

        async def main():
            await asyncio.gather(forever_async(), asyncio.sleep(1000))

        try:
            START
        finally:
            print("end")
            Path("ended-NAME").touch()
    """
    senders = {
        "plain": "forever()",
        "tasks": "asyncio.run(main())",
        "thread": "thread = threading.Thread(target=forever); thread.start(); thread.join()",
    }
    for name, start in senders.items():
        dataflow.node(name, body.replace("START", start).replace("NAME", name), outputs=["value"])
    dataflow.node(
        "consumer",
        """
        import time
        from pathlib import Path
        from nervure import Node

        node = Node()
        # Without a consumer, sends would succeed.
        while len(list(Path().glob("ended-*"))) < 3:
            time.sleep(0.01)
        """,
        inputs={name: lossless(f"{name}/value") for name in senders},
    )
    dataflow.start()
    for name in senders:
        dataflow.wait_for(f"sends-{name}")
    dataflow.interrupt()
    result = dataflow.finish()
    for name in senders:
        assert result.lines(name) == ["end"], result
