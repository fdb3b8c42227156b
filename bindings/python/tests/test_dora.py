"""Programs written for dora: they import ``dora``, and run unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import nervure
import pytest
from conftest import Dataflow

DORA_PATH = Path(nervure.__file__).parent / "_dora_path"


def test_values_go_from_one_program_to_the_other(dataflow: Dataflow) -> None:
    dataflow.node(
        "sender",
        """
        import pyarrow as pa
        from dora import Node

        node = Node()
        tick = node.next()
        assert tick["type"] == "INPUT" and tick["id"] == "tick", tick
        assert tick["value"].type == pa.null() and len(tick["value"]) == 0
        node.send_output("out", pa.array([1, 2, 3]), {"width": 3})
        node.send_output("out", b"bytes")
        """,
        inputs={"tick": "dora/timer/millis/50"},
        outputs=["out"],
    )
    dataflow.node(
        "receiver",
        """
        from dora import Node

        for event in Node():
            match event:
                case {"type": "INPUT", "id": "numbers", "value": value, "metadata": metadata}:
                    print(value.to_pylist(), metadata.get("width"), metadata["timestamp"].tzinfo)
                case {"type": kind, "id": id}:
                    print(kind, id)
        """,
        inputs={"numbers": "sender/out"},
    )
    assert dataflow.run().lines("receiver") == [
        "[1, 2, 3] 3 UTC",
        "[98, 121, 116, 101, 115] None UTC",
        "INPUT_CLOSED numbers",
        "STOP ALL_INPUTS_CLOSED",
    ]


def test_the_given_python_path_is_kept(dataflow: Dataflow) -> None:
    dataflow.node(
        "node",
        """
        import sys, conftest, dora
        print(sys.path[1].endswith("_dora_path"), dora.__version__)
        """,
        inputs={"tick": "dora/timer/millis/50"},
    )
    assert dataflow.run().lines("node") == ["True 1.1.0"]


def test_a_program_of_another_environment_finds_nervure(dataflow: Dataflow, tmp_path: Path) -> None:
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)
    dataflow.node(
        "node",
        """
        import sys
        from importlib.util import find_spec
        from dora import Node

        node = Node()
        assert "numpy" not in sys.modules and find_spec("numpy") is None
        print(sys.prefix, node.restart_count(), find_spec("nervure") is not None)
        """,
        inputs={"tick": "dora/timer/millis/50"},
        env={"VIRTUAL_ENV": str(tmp_path / "other")},
    )
    assert dataflow.run().lines("node") == [f"{tmp_path / 'other'} 0 True"]


def test_a_second_node_of_a_process_is_the_same(dataflow: Dataflow) -> None:
    dataflow.node(
        "node",
        """
        from dora import Node

        first, second = Node(), Node("node")
        print(first.dataflow_id() == second.dataflow_id(), second.next()["id"])
        """,
        inputs={"tick": "dora/timer/secs/1000"},
    )
    assert dataflow.run().lines("node") == ["True tick"]


def test_logging_writes_lines_with_their_level(dataflow: Dataflow) -> None:
    dataflow.node(
        "node",
        """
        import logging
        from dora import Node

        node = Node()
        logging.warning("battery at %d %%", 7)
        logging.getLogger("usb").debug("hidden by `nervure run`")
        node.log("error", "camera is gone", "usb", {"port": "3", "bus": "1"})
        node.send_output("other", b"")
        node.send_output("other", b"")
        """,
        inputs={"tick": "dora/timer/secs/1000"},
    )
    result = dataflow.run("--log-level", "warn")
    assert result.lines("node") == [
        "WARNING root: battery at 7 %",
        "ERROR usb: camera is gone bus=1 port=3",
        "WARN dora: Ignoring output `other` not in node's output list.",
    ]


def test_samples_that_wait_come_before_the_end(dataflow: Dataflow) -> None:
    dataflow.node(
        "sender",
        """
        import pyarrow as pa
        from dora import Node

        node = Node()
        node.next()
        for number in range(10):
            node.send_output("out", pa.array([number]))
        """,
        inputs={"tick": "dora/timer/secs/1000"},
        outputs=["out"],
    )
    dataflow.node(
        "receiver",
        """
        from dora import Node

        node = Node()
        numbers = [event["value"][0].as_py() for event in node if event["type"] == "INPUT"]
        print(numbers)
        """,
        inputs={"in": "sender/out"},
    )
    assert dataflow.run().lines("receiver") == [str(list(range(10)))]


def test_the_import_loads_no_large_modules() -> None:
    program = """
import sys
before = set(sys.modules)
import dora
added = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(added - set(sys.stdlib_module_names)))
"""
    assert python(program).split() == ["dora", "nervure"]
    assert "asyncio" not in python("import sys, dora; print(*sys.modules)").split()


def test_ros_2_can_be_imported_but_not_used() -> None:
    program = "from dora import Ros2Context, Ros2QosPolicies; Ros2Context()"
    with pytest.raises(AssertionError, match="Ros2Context needs dora's bridge to ROS 2"):
        python(program)


def test_a_program_without_a_dataflow_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"RuntimeError: .*nervure run"):
        python("from dora import Node; Node()")


def python(program: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NERVURE_")}
    environment["PYTHONPATH"] = str(DORA_PATH)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout
