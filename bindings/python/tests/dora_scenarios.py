"""Small dataflows of dora programs, and the reports of their nodes: under Nervure, and under dora itself.

``python dora_scenarios.py /path/to/dora`` runs them all under that dora, or those whose names follow, and
records the reports in ``dora_recorded.json``. Each node appends its reports to a file of its own, one JSON
value a line, so that the comparison does not depend on the logs of either.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "dora_recorded.json"
# Far longer than any scenario takes.
HANGS_AFTER_SECONDS = 60

PRELUDE = """
import datetime, json, os
import pyarrow as pa
from dora import Node

def report(*values):
    with open(os.environ["REPORTS"], "a") as file:
        file.write(json.dumps(values, default=str) + "\\n")

def outcome(call):
    # Messages are not compared: only whether there is an exception, and of which kind.
    try:
        return call()
    except Exception as error:
        return "raises " + type(error).__name__

def kinds(event):
    return sorted((key, type(value).__name__) for key, value in event.items())

def without_places(event):
    # dora's errors go on with the place in its sources.
    return {key: value.partition("\\n")[0] for key, value in event.items()}

def described(metadata):
    now = datetime.datetime.now(datetime.timezone.utc)
    stamp = metadata["timestamp"]
    if isinstance(stamp, datetime.datetime) and abs(now - stamp) < datetime.timedelta(minutes=1):
        metadata = {**metadata, "timestamp": "now"}
    return sorted((key, type(value).__name__, value) for key, value in metadata.items())
"""


@dataclass
class Scenario:
    """A dataflow whose nodes are Python programs."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    # The dataflow is interrupted, as by Ctrl-C, when each of these nodes has reported something.
    stops_after: tuple[str, ...] = ()
    # Keys of the file beside `nodes`.
    keys: dict[str, Any] = field(default_factory=dict)

    def node(self, id: str, code: str, **keys: Any) -> Scenario:
        self.nodes.append({"id": id, "code": PRELUDE + textwrap.dedent(code), **keys})
        return self

    def write(self, folder: Path) -> Path:
        """Writes the programs and the dataflow file."""
        nodes = []
        for node in self.nodes:
            keys = {key: value for key, value in node.items() if key != "code"}
            path = folder / f"{node['id']}.py"
            path.write_text(node["code"])
            env = {"REPORTS": str(folder / f"{node['id']}.reports")}
            nodes.append({"path": path.name, "env": env, **keys})
        file = folder / "dataflow.yml"
        # JSON is a subset of YAML.
        file.write_text(json.dumps({**self.keys, "nodes": nodes}, indent=1))
        return file

    def interrupt_when_due(
        self, folder: Path, is_running: Callable[[], bool], interrupt: Callable[[], None]
    ) -> None:
        """Interrupts a dataflow that was started, if the scenario wants it."""
        if not self.stops_after:
            return
        deadline = time.monotonic() + HANGS_AFTER_SECONDS
        while is_running():
            reports = self.reports(folder)
            if all(reports[node] for node in self.stops_after):
                return interrupt()
            assert time.monotonic() < deadline, reports
            time.sleep(0.01)

    def reports(self, folder: Path) -> dict[str, list[Any]]:
        """The reports of each node."""
        reports = {}
        for node in self.nodes:
            path = folder / f"{node['id']}.reports"
            reports[node["id"]] = (
                [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            )
        return reports


TICK = {"tick": "dora/timer/secs/1000"}
SCENARIOS: dict[str, Scenario] = {}

SCENARIOS["ticks and timeouts"] = Scenario().node(
    "node",
    """
    node = Node()
    tick = node.next()
    report(kinds(tick), tick["kind"], tick["type"], tick["id"], len(tick["value"]), sorted(tick["metadata"]))
    report(str(tick["metadata"]["timestamp"].tzinfo))
    report(without_places(node.next(timeout=0.05)))
    report(without_places(node.next(0)))
    for timeout in (-1, float("nan"), float("inf")):
        report(outcome(lambda: node.next(timeout=timeout)))
    report(node.try_recv(), node.drain(), node.is_empty())
    """,
    inputs=TICK,
)

SCENARIOS["what a node knows"] = Scenario().node(
    "node",
    """
    import uuid

    node = Node("another")
    report(uuid.UUID(node.dataflow_id()).version is not None, node.is_restart(), node.restart_count())
    report(node.node_config())
    descriptor = node.dataflow_descriptor()
    report([[entry["id"], entry["path"], entry["inputs"]] for entry in descriptor["nodes"]])
    report(abs((node.timestamp() - datetime.datetime.now(datetime.timezone.utc)).total_seconds()) < 60)
    report(iter(node) is node)
    report([name for name in dir(node) if name.startswith("log")])
    for call in (node.log_error, node.log_warn, node.log_info, node.log_debug, node.log_trace):
        report(call("a message"))
    report(node.log("info", "a message", "target", {"key": "value"}), node.log("unknown", "a message"))
    report(outcome(lambda: node.merge_external_events(None)).startswith("raises"))
    """,
    inputs=TICK,
    outputs=["out"],
)

# The sender waits for an answer to each value: dora may drop values that wait when a node ends.
SENDER = """
node = Node()
assert node.next()["id"] == "tick"

def send(*given, **named):
    error = outcome(lambda: node.send_output("out", *given, **named))
    report(error)
    while error is None:
        event = node.next()
        if event["type"] == "INPUT" and event["id"] == "back":
            break
"""
RECEIVER = """
node = Node()
for event in node:
    if event["type"] != "INPUT":
        continue
    {what}
    node.send_output("back", b"")
"""


def exchange(sender: str, what: str) -> Scenario:
    """A sender, and a receiver that reports each event."""
    return (
        Scenario()
        .node(
            "sender",
            SENDER + textwrap.dedent(sender),
            inputs={**TICK, "back": "receiver/back"},
            outputs=["out"],
        )
        .node("receiver", RECEIVER.format(what=what), inputs={"in": "sender/out"}, outputs=["back"])
    )


SCENARIOS["values"] = exchange(
    """
    import numpy as np

    for value in [
        pa.array([1, 2, 3]),
        pa.array([1, None], pa.int8()),
        pa.array([0.5, 1.5], pa.float32()),
        pa.array([True, False, None]),
        pa.array(["text", None, ""]),
        pa.array(["text"], pa.large_string()),
        pa.array([b"bytes"]),
        pa.array([[1, 2], [], None]),
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
        pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
        pa.array([{"a": [{"b": 1.5}]}]),
        pa.array([]),
        pa.nulls(3),
        pa.array([], pa.float64()),
        pa.array(range(10))[3:6],
        pa.array([True, False, True, True])[1:],
        pa.array(["a", "b", "c"])[1:],
        pa.array([0, 1], pa.timestamp("us", "UTC")),
        pa.array([0, 1], pa.date32()),
        pa.array(np.arange(3, dtype="u1")),
        pa.array([np.uint64(2**63)]),
        pa.record_batch({"a": [1, 2]}),
        b"bytes",
        b"",
        np.bytes_(b"bytes"),
    ]:
        send(value)
    for value in ["text", 1, 1.5, None, [1], {"a": 1}, bytearray(b"a"), memoryview(b"a"), np.arange(3)]:
        send(value)
    for value in [pa.scalar(1), pa.chunked_array([[1], [2]]), pa.table({"a": [1]})]:
        send(value)
    """,
    'report(kinds(event), event["id"], str(event["value"].type), event["value"].to_pylist())',
)

SCENARIOS["metadata"] = exchange(
    """
    import numpy as np

    utc = datetime.timezone.utc
    time = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, utc)
    one = pa.array([1])
    send(one)
    send(one, None)
    send(one, {})
    send(one, metadata={"bool": True, "int": -(2**63), "float": 1.5, "str": "text", "empty": ""})
    send(one, {"ints": [1, 2], "floats": [1.0, 2], "texts": ["a", "b"], "none": [], "tuple": (1, 2)})
    send(one, {"time": time, "local": time.astimezone(datetime.timezone(datetime.timedelta(hours=2)))})
    send(one, {"timestamp": time})
    send(one, {"timestamp": 5})
    send(one, {"none": None, "dict": {"a": 1}, "bytes": b"a", "bools": [True], "nested": [[1]]})
    send(one, {"int64": np.int64(5), "float64": np.float64(1.5), "float32": np.float32(1.5)})
    send(one, {1: 2})
    send(one, {"mixed": [1, 2.5]})
    send(one, {"mixed": ["a", 1]})
    send(one, {"big": 2**63})
    send(one, [1])
    """,
    'report(described(event["metadata"]))',
)

SCENARIOS["metadata that is passed on"] = (
    Scenario()
    .node(
        "source",
        """
        node = Node()
        node.next()
        time = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, datetime.timezone.utc)
        node.send_output("out", pa.array([1]), {"timestamp": time, "taken": time, "width": 3})
        node.next(timeout=30)
        """,
        inputs={**TICK, "done": "sink/done"},
        outputs=["out"],
    )
    .node(
        "relay",
        """
        for event in (node := Node()):
            if event["type"] == "INPUT":
                node.send_output("out", event["value"], event["metadata"])
        """,
        inputs={"in": "source/out"},
        outputs=["out"],
    )
    .node(
        "sink",
        """
        node = Node()
        event = node.next()
        report(event["metadata"])
        node.send_output("done", b"")
        """,
        inputs={"in": "relay/out"},
        outputs=["done"],
    )
)

SCENARIOS["outputs that are not declared"] = Scenario().node(
    "node",
    """
    node = Node()
    for _ in range(2):
        report(node.send_output("other", pa.array([1])))
    report(node.send_output("other", b"bytes"))
    report(outcome(lambda: node.send_output("other", 1)))
    report(outcome(lambda: node.send_output_raw("other", 4)))
    report(outcome(lambda: node.send_output("out")))
    """,
    inputs=TICK,
    outputs=["out"],
)

SCENARIOS["the end of inputs"] = (
    Scenario()
    .node("first", "Node().next()", inputs=TICK, outputs=["out"])
    .node("second", "Node().next()", inputs={"go": "receiver/go"}, outputs=["out"])
    .node(
        "receiver",
        """
        node = Node()
        for event in node:
            report(kinds(event), event["type"], event["id"])
            if event["type"] == "INPUT_CLOSED" and event["id"] == "a":
                node.send_output("go", b"")
        report(node.next(), node.next(timeout=1), node.try_recv(), node.is_empty())
        report(outcome(node.drain), list(node))
        report(node.send_output("go", b""))
        """,
        inputs={"a": "first/out", "b": "second/out"},
        outputs=["go"],
    )
)

FAILING = """
node = Node()
node.send_output("out", pa.array([node.restart_count()]))
node.next()
if not node.is_restart():
    os._exit(1)
"""

SCENARIOS["a node that fails"] = (
    Scenario()
    .node("sender", FAILING, inputs={"back": "receiver/back"}, outputs=["out"])
    .node(
        "receiver",
        """
        node = Node()
        for event in node:
            report(kinds(event), event["type"], event["id"])
            if event["type"] == "NODE_FAILED":
                report(event["value"])
            elif event["type"] == "INPUT":
                node.send_output("back", b"")
        """,
        inputs={"in": "sender/out"},
        outputs=["back"],
    )
)

SCENARIOS["a node that is started again"] = (
    Scenario()
    .node(
        "sender",
        FAILING,
        inputs={"back": "receiver/back"},
        outputs=["out"],
        restart_policy="on-failure",
        max_restarts=2,
    )
    .node(
        "receiver",
        """
        node = Node()
        for event in node:
            report(kinds(event), event["type"], event["id"])
            if event["type"] == "INPUT":
                report(event["value"].to_pylist())
                node.send_output("back", b"")
        """,
        inputs={"in": "sender/out"},
        outputs=["back"],
    )
)

SCENARIOS["a node whose restarts are spent"] = (
    Scenario()
    .node(
        "sender",
        """
        node = Node()
        node.send_output("out", pa.array([node.restart_count()]))
        node.next()
        os._exit(1)
        """,
        inputs={"back": "receiver/back"},
        outputs=["out"],
        restart_policy="on-failure",
        max_restarts=1,
    )
    .node(
        "receiver",
        """
        node = Node()
        for event in node:
            report(event["type"], event["id"])
            if event["type"] == "INPUT":
                node.send_output("back", b"")
            elif event["type"] == "NODE_FAILED":
                # Nervure's reason goes on with the restarts.
                report(event["value"]["error"].partition(";")[0], event["value"]["affected_input_ids"])
        """,
        inputs={"in": "sender/out"},
        outputs=["back"],
    )
)

# The timeout is far longer than the delays of a loaded machine's scheduler.
SCENARIOS["an input that is silent for too long"] = (
    Scenario(keys={"health_check_interval": 0.1})
    .node(
        "sender",
        """
        node = Node()
        node.next()
        # Before its first sample an input is not silent.
        node.next(timeout=2.5)
        for number in range(3):
            node.send_output("out", pa.array([number]))
            while node.next()["id"] != "closed":
                pass
        """,
        inputs={**TICK, "closed": "receiver/closed"},
        outputs=["out"],
    )
    .node(
        "receiver",
        """
        node = Node()
        batch = []
        for event in node:
            batch.append([event["type"], event["id"], kinds(event), str(event.get("value"))])
            if event["type"] in ("INPUT_CLOSED", "STOP"):
                # Under dora, INPUT and INPUT_RECOVERED may come in any order.
                report(*sorted(batch))
                batch.clear()
                node.send_output("closed", b"")
        report(*sorted(batch))
        """,
        inputs={"in": {"source": "sender/out", "input_timeout": 1.5}},
        outputs=["closed"],
    )
)

SCENARIOS["samples that are queued when the dataflow stops"] = (
    # When the witness has all samples, they are in the receiver's queue too.
    Scenario(stops_after=("witness", "receiver"))
    .node(
        "witness",
        """
        node = Node()
        report([node.next()["value"][0].as_py() for _ in range(8)])
        """,
        inputs={"in": {"source": "sender/out", "queue_size": 100}},
    )
    .node(
        "sender",
        """
        node = Node()
        node.next()
        # dora loses some of more than 16.
        for number in range(8):
            node.send_output("out", pa.array([number]))
        with open("sender.pid", "w") as file:
            print(os.getpid(), file=file)
        for event in node:
            pass
        """,
        inputs={**TICK},
        outputs=["out"],
    )
    .node(
        "receiver",
        """
        import time

        node = Node()
        report(node.next()["value"].to_pylist())
        # The sender ends when it is stopped, so its end comes after the order to stop.
        while not os.path.exists("sender.pid") or not (pid := open("sender.pid").read()).endswith("\\n"):
            time.sleep(0.01)
        while os.path.exists(f"/proc/{int(pid)}"):
            time.sleep(0.01)
        events = list(node)
        report([[event["type"], event["id"]] for event in events[:2]], len(events))
        report([event["value"][0].as_py() for event in events[1:]])
        report(node.next(), node.try_recv(), list(node), outcome(node.drain))
        """,
        inputs={"in": {"source": "sender/out", "queue_size": 100}},
    )
)

SCENARIOS["an order to stop"] = Scenario(stops_after=("node",)).node(
    "node",
    """
    node = Node()
    node.next()
    report("waits")
    report(node.next())
    report(node.next())
    """,
    inputs=TICK,
)

SCENARIOS["buffers to fill in place"] = (
    Scenario()
    .node(
        "sender",
        """
        import numpy as np

        node = Node()
        node.next()
        with node.send_output_raw("out", 4, {"width": 4}) as buffer:
            np.frombuffer(buffer, np.uint8)[:] = [1, 2, 3, 4]
        node.next()
        sample = node.send_output_raw("out", 4)
        view = sample.as_memoryview()
        view[:] = b"abcd"
        report(outcome(sample.send))
        view.release()
        report(outcome(sample.send))
        report(outcome(sample.send), outcome(sample.as_buffer), outcome(sample.as_memoryview))
        node.next()
        sample = node.send_output_raw("out", 8)
        report(sample.as_buffer() is sample.as_buffer())
        try:
            with sample as buffer:
                np.asarray(buffer)[:] = 7
                raise KeyError
        except KeyError:
            pass
        report(outcome(sample.send))
        node.next()
        sample = node.send_output_raw("out", 4)
        kept = np.asarray(sample.as_buffer())
        report(outcome(sample.send))
        kept[:] = 9
        del kept
        report(outcome(sample.send))
        node.next()
        with node.send_output_raw("out", 0):
            pass
        node.next()
        sample = node.send_output_raw("out", 4)
        buffer = sample.as_buffer()
        report(memoryview(buffer).nbytes, memoryview(buffer).format, memoryview(buffer).readonly)
        del sample
        report(outcome(lambda: memoryview(buffer)))
        """,
        inputs={**TICK, "back": "receiver/back"},
        outputs=["out"],
    )
    .node(
        "receiver",
        RECEIVER.format(
            what='report(str(event["value"].type), event["value"].to_pylist(), sorted(event["metadata"]))'
        ),
        inputs={"in": "sender/out"},
        outputs=["back"],
    )
)

SCENARIOS["requests and responses"] = (
    Scenario()
    .node(
        "client",
        """
        import uuid

        node = Node()
        node.next()
        first = node.send_service_request("request", pa.array([1]), {"kept": 1})
        response = node.next()
        metadata = response["metadata"]
        report(uuid.UUID(first).version, metadata["request_id"] == first, metadata["kept"])
        second = node.send_service_request("request", b"bytes", {"request_id": "mine"})
        report(second != first, node.next()["metadata"]["request_id"] == second)
        report(outcome(lambda: node.send_service_request("request", 1)))
        """,
        inputs={**TICK, "response": "server/response"},
        outputs=["request"],
    )
    .node(
        "server",
        """
        node = Node()
        for event in node:
            if event["type"] == "INPUT":
                report(event["value"].to_pylist())
                node.send_service_response("response", event["value"], event["metadata"])
        """,
        inputs={"request": "client/request"},
        outputs=["response"],
    )
)

SCENARIOS["asyncio"] = (
    Scenario()
    .node(
        "sender",
        """
        node = Node()
        node.next()
        for number in range(5):
            node.send_output("out", pa.array([number]))
            node.next()
        """,
        inputs={**TICK, "back": "receiver/back"},
        outputs=["out"],
    )
    .node(
        "receiver",
        """
        import asyncio

        async def main():
            node = Node()
            while (event := await node.recv_async()) is not None:
                report(event["type"], event["id"])
                if event["type"] == "INPUT":
                    if len(event["value"]) and event["value"][0].as_py() == 2:
                        report(without_places(await node.recv_async(timeout=0.05)))
                    node.send_output("back", event["value"])
            report(await node.recv_async(), await node.recv_async(timeout=1))

        asyncio.run(main())
        """,
        inputs={"in": "sender/out"},
        outputs=["back"],
    )
)

SCENARIOS["samples that are kept"] = (
    Scenario()
    .node(
        "sender",
        """
        import numpy as np

        node = Node()
        node.next()
        for number in range(100):
            node.send_output("out", pa.array(np.full(900_000, number, "u1")))
            node.next()
        """,
        inputs={**TICK, "back": "receiver/back"},
        outputs=["out"],
    )
    .node(
        "receiver",
        """
        node, kept = Node(), []
        for event in node:
            if event["type"] == "INPUT":
                kept.append(event)
                node.send_output("back", b"")
        report([event["value"][899_999].as_py() for event in kept])
        """,
        inputs={"in": "sender/out"},
        outputs=["back"],
    )
)


def run_dora(command: str, scenario: Scenario, folder: Path) -> dict[str, list[Any]]:
    """Runs a scenario under dora, and returns the reports of its nodes."""
    file = scenario.write(folder)
    # dora starts the `python` of the PATH.
    path = f"{Path(command).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    environment.pop("PYTHONPATH", None)
    process = subprocess.Popen(
        [command, "run", str(file)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        scenario.interrupt_when_due(
            folder, lambda: process.poll() is None, lambda: process.send_signal(signal.SIGINT)
        )
        process.wait(HANGS_AFTER_SECONDS)
    finally:
        process.kill()
        process.wait()
    return scenario.reports(folder)


def record(command: str, names: list[str]) -> None:
    """Records the reports of scenarios under dora: of all, unless names are given."""
    import tempfile

    version = subprocess.run(
        [command, "--version"], capture_output=True, text=True, check=True
    ).stdout.split()
    recorded = json.loads(RECORDED.read_text())["reports"] if names else {}
    results = {name: recorded[name] for name in SCENARIOS if name in recorded}
    for name in names or SCENARIOS:
        scenario = SCENARIOS[name]
        with tempfile.TemporaryDirectory() as folder:
            results[name] = run_dora(command, scenario, Path(folder))
        print(name, {node: len(reports) for node, reports in results[name].items()})
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    text = json.dumps({"dora": version[-1], "recorded": day, "reports": results}, indent=1, sort_keys=True)
    RECORDED.write_text(text + "\n")


if __name__ == "__main__":
    record(sys.argv[1], sys.argv[2:])
