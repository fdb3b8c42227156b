"""Nodes in Python that share a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import Dataflow, Result, lossless, nervure_command

SOURCE = """
    import os
    from nervure import Node

    node = Node()
    print("process", os.getpid())
    number = 0
    for event in node:
        if event.id == "tick":
            node.send("out", number)
            number += 1
"""
TICK = {"tick": "nervure/timer/millis/2"}

# Its input is lossless: a number is missing only if the source has started again.
SINK = """
    from nervure import Node

    node = Node()
    expected = None
    for event in node:
        if event.type == "INPUT":
            number = event.value.as_py() if hasattr(event.value, "as_py") else event.object
            assert expected in (None, number) or number == 0, f"expected {expected}, got {number}"
            expected = number + 1
            if expected % 50 == 0:
                print("has", expected, flush=True)
        elif event.type in ("NODE_FAILED", "NODE_RESTARTED"):
            print(event.type, event.node, event.reason, flush=True)
"""


class Composed(Dataflow):
    """A dataflow whose nodes share the process `eyes`, with a lossless edge from `source` to `sink`."""

    def composed(self, id: str, code: str, **keys: Any) -> None:
        self.node(id, code, process="eyes", **keys)

    def with_flow(self, **keys: Any) -> None:
        self.composed("source", SOURCE, inputs=TICK, outputs=["out"], **keys)
        self.composed("sink", SINK, inputs={"in": lossless("source/out")}, **keys)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"XDG_STATE_HOME": str(self.folder / "state")}
        return subprocess.run(
            [nervure_command(), *arguments, "-d", self.name],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
        )

    def status(self) -> dict[str, dict[str, Any]]:
        done = self.command("status", "--json")
        assert done.returncode == 0, done.stderr
        return {node["id"]: node for node in json.loads(done.stdout)["nodes"]}

    def log(self, name: str) -> list[str]:
        """The lines in a log file that came from a stream."""
        (file,) = self.folder.rglob(f"{name}.jsonl")
        records = (json.loads(line) for line in file.read_text().splitlines())
        return [record["text"] for record in records if record["stream"] != "keeper"]


@pytest.fixture
def eyes(tmp_path: Path) -> Any:
    flow = Composed(tmp_path)
    yield flow
    flow.kill()


def processes(result: Result) -> set[str]:
    return {line for line in re.findall(r"process (\d+)", result.stdout)}


def test_nodes_of_a_process_have_globals_arguments_and_logs_of_their_own(eyes: Composed) -> None:
    code = """
        from __future__ import annotations
        import dataclasses, os, pickle, sys, threading, typing
        from nervure import Node

        @dataclasses.dataclass
        class Own:
            name: str
            again: Own | None = None

        node = Node()
        print("process", os.getpid())
        assert __name__ == "__main__"
        assert "expected" not in globals(), "the globals are those of another script"
        print("arguments", sys.argv[1:], len(sys.argv))
        print("file", os.path.basename(sys.argv[0]), os.path.basename(__file__))
        print("error", file=sys.stderr)
        assert pickle.loads(pickle.dumps(Own(node.id))).name == node.id
        assert typing.get_type_hints(Own)["name"] is str
        threading.Thread(target=lambda: print("from a thread of", node.id)).start()
        expected = node.id
        os.write(1, b"past Python\\n")
    """
    for id in ("left", "right"):
        eyes.composed(id, code, inputs=TICK, args=["--of", id])
    result = eyes.run()
    assert len(processes(result)) == 1
    for id in ("left", "right"):
        lines = eyes.log(id)
        assert f"arguments ['--of', '{id}'] 3" in lines
        assert f"file {id}.py {id}.py" in lines
        assert f"from a thread of {id}" in lines
        assert "error" in lines
    assert eyes.log("eyes") == ["past Python"] * 2


@pytest.mark.parametrize(
    ("ends", "code", "reason"),
    [
        ("raise ValueError('as requested')", 1, "ValueError: as requested"),
        ("import sys; sys.exit(7)", 7, "exited with code 7"),
        ("import sys; sys.exit('for people')", 1, "for people"),
        ("import no_such_module", 1, "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_an_exception_and_an_exit_end_their_node_alone(
    eyes: Composed, ends: str, code: int, reason: str
) -> None:
    eyes.with_flow()
    other = f"from nervure import Node\nfor event in Node():\n    if event.type == 'INPUT':\n        {ends}\n"
    eyes.composed("other", other, inputs={"in": "source/out"}, outputs=["out"])
    eyes.nodes[1]["inputs"]["failed"] = "other/out"
    eyes.start("--json")
    assert eyes.process and eyes.process.stdout
    has = failed = 0
    for line in eyes.process.stdout:
        message = json.loads(line)
        text = message.get("text", "")
        if message["message"] == "node_ended":
            assert message["id"] == "other", message
            assert (message["code"], message["failed"]) == (code, True), message
            assert reason in message["reason"], message
            failed += 1
        has += text.startswith("has") and failed
        if has == 2:
            break
    assert failed == 1
    eyes.interrupt()
    result = eyes.finish(returncode=3)
    ends = [json.loads(line) for line in result.stdout.splitlines() if '"node_ended"' in line]
    assert {end["id"]: end["failed"] for end in ends} == {"source": False, "sink": False}
    assert any(line.startswith("NODE_FAILED other") for line in eyes.log("sink"))
    if "ModuleNotFound" not in reason:
        return
    assert not any("_host" in line for line in eyes.log("other")), "the traceback is the script's own"


def test_a_node_that_failed_starts_again_in_the_same_process(eyes: Composed) -> None:
    eyes.with_flow()
    again = """
        import os
        from nervure import Node
        node = Node()
        print("process", os.getpid(), "start", node.incarnation, flush=True)
        for event in node:
            if event.type == "INPUT" and node.incarnation < 2:
                raise RuntimeError("again")
            if event.type == "INPUT":
                (__import__("pathlib").Path("done")).write_text("yes\\n")
    """
    eyes.composed(
        "other", again, inputs={"in": "source/out"}, restart_policy="on-failure", restart_delay="10ms"
    )
    eyes.start()
    eyes.wait_for("done")
    eyes.interrupt()
    result = eyes.finish()
    assert len(processes(result)) == 1
    assert sum(" start " in line for line in eyes.log("other")) == 3


@pytest.mark.parametrize("ends", ["os._exit(5)", "os.kill(os.getpid(), 9)", "ctypes.string_at(0)"])
def test_the_end_of_the_process_ends_all_nodes_and_their_policies_start_them_again(
    eyes: Composed, ends: str
) -> None:
    policy = {"restart_policy": "on-failure", "restart_delay": "10ms"}
    eyes.with_flow(**policy)
    other = f"""
        import ctypes, os
        from nervure import Node
        node = Node()
        for event in node:
            if event.type == "INPUT" and node.incarnation == 0 and event.object > 20:
                {ends}
            if event.type == "INPUT" and node.incarnation == 1 and event.object > 60:
                (__import__("pathlib").Path("done")).write_text("yes\\n")
    """
    eyes.composed("other", other, inputs={"in": "source/out"}, **policy)
    eyes.start()
    eyes.wait_for("done")
    nodes = eyes.status()
    assert len({node["pid"] for node in nodes.values()}) == 1
    eyes.interrupt()
    result = eyes.finish()
    assert len(processes(result)) == 2
    assert result.stderr.count("its process `eyes`") >= 3, result.stderr


def test_a_thread_belongs_to_the_node_that_starts_it_or_names_one(eyes: Composed) -> None:
    code = """
        import _thread, threading, time
        from nervure import ConnectError, Node

        found = []
        started = threading.Event()

        def connect():
            node = Node()
            found.append(node.id)
            print("thread of", node.id)
            try:
                Node()
            except ConnectError as error:
                print("twice:", error)
            started.set()

        def foreign():
            try:
                Node()
            except ConnectError as error:
                found.append(str(error))
                print("foreign:", error)
            started.set()

        {start}
        started.wait()
    """
    eyes.composed("own", code.replace("{start}", "threading.Thread(target=connect).start()"), inputs=TICK)
    eyes.composed("raw", code.replace("{start}", "_thread.start_new_thread(foreign, ())"), inputs=TICK)
    named = code.replace("{start}", "_thread.start_new_thread(connect, ())").replace(
        "Node()", 'Node("named")', 1
    )
    eyes.composed("named", named, inputs=TICK)
    eyes.run(returncode=None)
    assert "thread of own" in eyes.log("own")
    assert any("is connected already" in line for line in eyes.log("own"))
    assert any("belongs to no node of its process" in line for line in eyes.log("eyes"))
    assert "thread of named" in eyes.log("named")


def test_a_function_runs_alone_and_composed(eyes: Composed) -> None:
    module = """
        import os, sys
        runs = []

        def detect(node):
            runs.append(node.id)
            print("process", os.getpid(), "runs", runs, sys.argv)
            for event in node:
                if event.id == "tick":
                    return 0

        def fail(node):
            return "it has failed"
    """
    (eyes.folder / "perception").mkdir()
    (eyes.folder / "perception" / "__init__.py").write_text("")
    (eyes.folder / "perception" / "boxes.py").write_text(textwrap.dedent(module))
    for id, keys in [("left", {"process": "eyes"}), ("right", {"process": "eyes"}), ("alone", {})]:
        node = {"id": id, "path": "perception.boxes:detect", "args": [id], "inputs": TICK, **keys}
        eyes.nodes.append(node)
    for id, keys in [("fails", {"process": "eyes"}), ("fails-alone", {})]:
        eyes.nodes.append({"id": id, "path": "perception.boxes:fail", "inputs": TICK, **keys})
    result = eyes.run(returncode=3)
    assert len(processes(result)) == 2
    for id in ("left", "right", "alone"):
        (line,) = result.lines(id)
        assert line.endswith(f"runs ['{id}'] ['perception.boxes:detect', '{id}']"), line
    for id in ("fails", "fails-alone"):
        assert "it has failed" in eyes.log(id)


def test_a_node_that_does_not_stop_is_found_in_the_stacks_and_ends_with_its_process(eyes: Composed) -> None:
    eyes.with_flow()
    hung = """
        import time
        from nervure import Node
        node = Node()
        def stuck():
            time.sleep(1000)
        for event in node:
            if event.type == "INPUT" and event.object > 20:
                stuck()
    """
    eyes.composed("other", hung, inputs={"in": "source/out"}, health_check_timeout="300ms")
    result = eyes.run(returncode=3)
    stacks = eyes.log("eyes")
    assert any("in the thread of node other" in line for line in stacks), stacks
    assert any("in stuck" in line for line in stacks)
    assert "`other` had to be killed" in result.stderr


def test_a_neighbour_that_computes_delays_and_loses_nothing(eyes: Composed) -> None:
    eyes.with_flow()
    busy = """
        from nervure import Node
        node = Node()
        total = 0
        while not node.stopping:
            for number in range(10_000):
                total += number
    """
    eyes.composed("busy", busy, inputs={"in": {"source": "source/out", "queue_size": 1}})
    eyes.start("--json")
    assert eyes.process and eyes.process.stdout
    has = 0
    for line in eyes.process.stdout:
        has += json.loads(line).get("text", "").startswith("has")
        if has == 3:
            break
    eyes.interrupt()
    eyes.finish()


def test_a_process_is_of_one_kind(eyes: Composed) -> None:
    (eyes.folder / "libeye.so").write_text("")
    eyes.composed("script", SOURCE, inputs=TICK, outputs=["out"])
    eyes.nodes.append(
        {"id": "library", "path": "libeye.so", "process": "eyes", "inputs": {"in": "script/out"}}
    )
    result = eyes.run(returncode=2)
    assert (
        "the process `eyes` would be of two kinds: `script` is Python, `library` is a component"
        in result.stderr
    )
    assert re.search(r"dataflow\.yml:1:\d+", result.stderr)


def test_programs_for_dora_share_a_process(eyes: Composed) -> None:
    source = """
        import pyarrow as pa
        from dora import Node
        node = Node()
        for event in node:
            if event["type"] == "INPUT":
                node.send_output("out", pa.array([1, 2]))
    """
    sink = """
        from dora import Node
        node = Node()
        for event in node:
            if event["type"] == "INPUT":
                print("got", event["value"].to_pylist(), event["id"])
                break
    """
    pytest.importorskip("pyarrow")
    eyes.composed("source", source, inputs=TICK, outputs=["out"])
    eyes.composed("sink", sink, inputs={"numbers": "source/out"})
    eyes.start()
    assert eyes.process and eyes.process.stdout
    for line in eyes.process.stdout:
        if "got [1, 2] numbers" in line:
            break
    eyes.interrupt()
    eyes.finish()
