"""Programs outside a dataflow, which join it as a node or observe it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import nervure
import numpy as np
import pytest
from conftest import HANGS_AFTER_SECONDS, Dataflow

CAMERA = """
    import numpy as np
    from nervure import Node

    node = Node()
    number = 0
    for event in node:
        if event.id == "tick":
            node.send("image", np.full((4, 6), number, np.uint32), frame="camera")
            number += 1
"""


def start(dataflow: Dataflow) -> None:
    dataflow.node("camera", CAMERA, inputs={"tick": "nervure/timer/millis/5"}, outputs=["image"])
    dataflow.nodes.append(
        {"id": "plot", "path": "dynamic", "inputs": {"image": "camera/image"}, "outputs": ["mean"]}
    )
    dataflow.node(
        "sink",
        """
        from pathlib import Path
        from nervure import Node

        for event in Node():
            if event.type in ("NODE_FAILED", "NODE_RESTARTED"):
                print(event.type, event.node, flush=True)
            if event.id == "mean":
                Path("mean").write_text(f"{event.object}\\n")
        """,
        inputs={"mean": "plot/mean"},
    )
    (dataflow.folder / "up.py").write_text("")
    dataflow.node("up", "from pathlib import Path; Path('up').write_text('up\\n')")
    dataflow.start()
    dataflow.wait_for("up")


def outside(dataflow: Dataflow, code: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NERVURE_")}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), dataflow.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


PLOT = """
    import sys
    from nervure import Node

    node = Node("plot", dataflow=sys.argv[1])
    print(node.id, node.incarnation, flush=True)
    for event in node:
        if event.id == "image":
            node.send("mean", float(event.numpy().mean()))
            print("sent", flush=True)
    print("the end", flush=True)
"""


def test_a_node_joins_is_killed_and_joins_again(dataflow: Dataflow) -> None:
    start(dataflow)
    plot = outside(dataflow, PLOT)
    assert plot.stdout and plot.stdout.readline() == "plot 0\n" and plot.stdout.readline() == "sent\n"
    dataflow.wait_for("mean")
    plot.send_signal(signal.SIGKILL)
    plot.communicate()
    # The keeper may not have noticed its end yet.
    while True:
        plot = outside(dataflow, PLOT)
        assert plot.stdout and plot.stderr
        if (line := plot.stdout.readline()) == "plot 1\n":
            break
        assert not line and "is taken" in plot.stderr.read()
        plot.communicate()
    assert plot.stdout.readline() == "sent\n"
    dataflow.interrupt()
    result = dataflow.finish()
    assert plot.communicate()[0].splitlines()[-1] == "the end"
    assert result.lines("sink") == ["NODE_FAILED plot", "NODE_RESTARTED plot"]


def test_a_notebook_joins_leaves_and_joins_again(dataflow: Dataflow) -> None:
    start(dataflow)
    for incarnation in range(3):
        node = nervure.Node("plot", dataflow=dataflow.name)
        assert (node.id, node.incarnation) == ("plot", incarnation)
        event = node.next(timeout=30)
        assert event and event.id == "image"
        del node, event


def test_a_refused_program_gets_the_reason(dataflow: Dataflow) -> None:
    start(dataflow)
    with pytest.raises(nervure.ConnectError, match=r"there is no node `plott` \(hint: did you mean `plot`"):
        nervure.Node("plott", dataflow=dataflow.name)
    with pytest.raises(nervure.ConnectError, match="nervure attach camera -- COMMAND"):
        nervure.Node("camera", dataflow=dataflow.name)
    with pytest.raises(nervure.ConnectError, match="no dataflow `no-such` runs"):
        nervure.Node("plot", dataflow="no-such")
    with pytest.raises(TypeError, match="nodes that join by their id"):
        nervure.Node(dataflow=dataflow.name)
    node = nervure.Node("plot", dataflow=dataflow.name)
    with pytest.raises(nervure.ConnectError, match=r"is node `plot` already \(hint: .*`del node`"):
        nervure.Node("plot", dataflow=dataflow.name)
    del node


def test_a_program_may_be_started_both_ways(dataflow: Dataflow) -> None:
    dataflow.node(
        "plot",
        """
        from nervure import ConnectError, Node

        node = Node("plot")
        print(node.id)
        """,
        inputs={"tick": "nervure/timer/secs/1"},
    )
    dataflow.node(
        "other",
        """
        from nervure import ConnectError, Node

        try:
            Node("plot")
        except ConnectError as error:
            print(error)
        """,
        inputs={"tick": "nervure/timer/secs/1"},
    )
    result = dataflow.run()
    assert result.lines("plot") == ["plot"]
    assert result.lines("other") == ['this program was started as node "other", and asks to be node "plot"']


def test_samples_are_observed_and_kept(dataflow: Dataflow) -> None:
    start(dataflow)
    observer = nervure.observe("camera/image", dataflow=dataflow.name)
    assert observer.id.startswith("python@") and observer.topics == ("camera/image",)
    assert (observer.dataflow, observer.dropped) == (dataflow.name, 0)
    # Far more samples than an observer may hold of the camera's memory.
    samples = [sample for sample, _ in zip(observer, range(60), strict=False)]
    numbers = [sample.sequence for sample in samples]
    del observer
    # Samples that the camera sent before it had a consumer have no number.
    unheard = samples[0].numpy()[0, 0] - numbers[0]
    for sample, number in zip(samples, numbers, strict=True):
        assert sample.id == "camera/image" and sample.frame == "camera"
        assert np.array_equal(sample.numpy(), np.full((4, 6), number + unheard, np.uint32))
    late = nervure.observe("camera/image", dataflow=dataflow.name)
    assert late.next(timeout=30) is not None
    dataflow.interrupt()
    dataflow.finish()
    assert all(sample.id == "camera/image" for sample in late), "it ends"


def test_missed_samples_are_counted(dataflow: Dataflow) -> None:
    start(dataflow)
    observer = nervure.observe("camera/image", dataflow=dataflow.name, depth=1)
    first = next(observer).sequence
    assert first is not None
    received = 1
    while observer.dropped == 0:
        # No sample is taken while others arrive; the last sequence number shows how many there were.
        other = nervure.observe("camera/image", dataflow=dataflow.name)
        for _ in range(5):
            next(other)
        last = next(observer).sequence
        assert last is not None
        received += 1
    assert observer.dropped == last - first + 1 - received


def test_no_producer_has_to_wake_an_observer(dataflow: Dataflow) -> None:
    start(dataflow)
    observer = nervure.observe("plot/mean", dataflow=dataflow.name)
    # In an event loop: there is a time for the next poll instead of a descriptor to wait for.
    armed = observer._arm()
    observer._disarm()
    assert armed is not None and armed[0] is None and armed[1] is not None and 0 < armed[1] <= 0.01
    # In a thread: it sleeps for a time, and not on the futex that a producer would wake.
    clock_nanosleep = {"x86_64": "230", "aarch64": "115"}[os.uname().machine]
    thread = threading.Thread(target=observer.next)
    thread.start()
    call = Path(f"/proc/self/task/{thread.native_id}/syscall")
    deadline = time.monotonic() + HANGS_AFTER_SECONDS
    while call.read_text().split()[0] != clock_nanosleep:
        assert time.monotonic() < deadline, call.read_text()
    dataflow.interrupt()
    thread.join()
    dataflow.finish()


def test_samples_are_observed_in_an_event_loop(dataflow: Dataflow) -> None:
    start(dataflow)

    async def main() -> None:
        seen = 0
        async for sample in nervure.observe("camera/image", dataflow=dataflow.name):
            assert sample.numpy().shape == (4, 6)
            seen += 1
            if seen == 5:
                dataflow.interrupt()
        assert seen >= 5

    asyncio.run(main())
    dataflow.finish()


def test_an_unknown_topic_is_an_error_with_a_hint(dataflow: Dataflow, tmp_path: Path) -> None:
    start(dataflow)
    with pytest.raises(nervure.ConnectError, match=r"there is no topic `camera/imag` \(hint: did you mean"):
        nervure.observe("camera/imag", dataflow=dataflow.name)
    with pytest.raises(nervure.ConnectError, match="no topic was named"):
        nervure.observe(dataflow=dataflow.name)
    with pytest.raises(nervure.ConnectError, match="no dataflow `no-such` runs"):
        nervure.observe("camera/image", dataflow="no-such")
