"""Python operators of dora: nodes with `operator` or `operators`."""

import textwrap
from typing import Any

import pytest
from conftest import Dataflow, Result

# Sends 1, 2 and 3 with metadata.
SENDER = """
    import pyarrow as pa
    from nervure import Node

    node = Node()
    for number in (1, 2, 3):
        node.send("number", pa.array([number]), metadata={"unit": "m"})
"""
# Prints its inputs until they end.
RECEIVER = """
    from nervure import Node

    for event in Node():
        if event.type == "INPUT":
            print(event.id, event.value.to_pylist(), dict(event.metadata))
"""
LOSSLESS = {"queue_policy": "backpressure"}


def add_operator(dataflow: Dataflow, code: str, id: str = "double", **keys: Any) -> dict[str, Any]:
    """Writes an operator with the body `code` of `on_event`, and returns its declaration."""
    head = "import pyarrow as pa\nfrom dora import DoraStatus\n\n\nclass Operator:\n"
    (dataflow.folder / f"{id}.py").write_text(head + textwrap.indent(textwrap.dedent(code), "    "))
    return {"id": id, "python": f"{id}.py", **keys}


def run_with(dataflow: Dataflow, code: str, *, returncode: int = 0) -> Result:
    """Runs an operator between a sender and a receiver."""
    dataflow.node("sender", SENDER, outputs=["number"])
    operator = add_operator(
        dataflow,
        code,
        inputs={"number": {"source": "sender/number", **LOSSLESS}},
        outputs=["doubled"],
    )
    dataflow.nodes.append({"id": "work", "operators": [operator]})
    doubled = {"source": "work/double/doubled", **LOSSLESS}
    dataflow.node("receiver", RECEIVER, inputs={"doubled": doubled})
    return dataflow.run(returncode=returncode)


def test_an_operator_receives_events_and_sends(dataflow: Dataflow) -> None:
    result = run_with(
        dataflow,
        """
        def __init__(self):
            self.count = 0

        def on_event(self, event, send_output):
            self.count += 1
            print(self.count, event["type"], event["id"], "value" in event)
            if event["type"] == "INPUT":
                doubled = pa.array([2 * event["value"][0].as_py()])
                send_output("doubled", doubled, event["metadata"])
                send_output(output="doubled", data=b"raw")
                send_output("unknown", b"is ignored")
            return DoraStatus.CONTINUE

        def __del__(self):
            print("dropped")
        """,
    )
    assert result.lines("receiver") == [
        line
        for number in (2, 4, 6)
        for line in (f"doubled [{number}] {{'unit': 'm'}}", "doubled [114, 97, 119] {}")
    ]
    printed = [line for line in result.lines("work") if "unknown" not in line]
    assert printed == [
        "1 INPUT number True",
        "2 INPUT number True",
        "3 INPUT number True",
        "4 INPUT_CLOSED number False",
        "dropped",
    ]


def test_stop_ends_one_operator(dataflow: Dataflow) -> None:
    result = run_with(
        dataflow,
        """
        def on_event(self, event, send_output):
            send_output("doubled", event["value"])
            return DoraStatus.STOP
        """,
    )
    assert result.lines("receiver") == ["doubled [1] {}"]


FAILURES = {
    "an exception": (
        "raise ValueError('no room')",
        ["in on_event", "operator `double` failed in `on_event` for INPUT of `number`: ValueError: no room"],
    ),
    "no status": ("return None", ["`on_event` of operator `double` returned None for INPUT of `number`"]),
    "STOP_ALL": ("return DoraStatus.STOP_ALL", ["operator `double` returned DoraStatus.STOP_ALL"]),
    "a wrong type": ("send_output('doubled', 5)", ["operator `double` failed in `on_event`"]),
}


@pytest.mark.parametrize(("body", "expected"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failure_ends_the_node(dataflow: Dataflow, body: str, expected: list[str]) -> None:
    result = run_with(dataflow, f"def on_event(self, event, send_output): {body}", returncode=3)
    said = result.stdout + result.stderr
    for text in expected:
        assert text in said
    assert "runpy" not in said, "the traceback begins in the operator's own code"


def test_an_operator_that_cannot_be_loaded_ends_the_node(dataflow: Dataflow) -> None:
    result = run_with(dataflow, "def __init__(self): import no_such_module", returncode=3)
    assert "operator `double` failed in the start: ModuleNotFoundError" in result.stdout + result.stderr


def test_a_single_operator_has_the_outputs_of_its_node(dataflow: Dataflow) -> None:
    dataflow.node("sender", SENDER, outputs=["number"])
    (dataflow.folder / "scale.py").write_text("FACTOR = 2\n")
    operator = add_operator(
        dataflow,
        """
        def on_event(self, event, send_output):
            from scale import FACTOR

            if event["type"] == "INPUT":
                send_output("doubled", pa.array([FACTOR * event["value"][0].as_py()]))
            return DoraStatus.CONTINUE
        """,
        inputs={"number": {"source": "sender/number", **LOSSLESS}},
        outputs=["doubled"],
    )
    del operator["id"]
    dataflow.nodes.append({"id": "work", "operator": operator})
    dataflow.node("receiver", RECEIVER, inputs={"doubled": {"source": "work/doubled", **LOSSLESS}})
    assert dataflow.run().lines("receiver") == ["doubled [2] {}", "doubled [4] {}", "doubled [6] {}"]


def test_operators_of_one_node_end_one_by_one(dataflow: Dataflow) -> None:
    dataflow.node("sender", SENDER, outputs=["number"])
    code = """
        def on_event(self, event, send_output):
            print(__name__, event["type"], event["id"])
            return DoraStatus.{status}
        """
    inputs = {"number": {"source": "sender/number", **LOSSLESS}}
    dataflow.nodes.append(
        {
            "id": "work",
            "operators": [
                add_operator(dataflow, code.format(status="STOP"), "short", inputs=inputs),
                add_operator(dataflow, code.format(status="CONTINUE"), "long", inputs=inputs),
            ],
        }
    )
    printed = dataflow.run().lines("work")
    assert [line for line in printed if line.startswith("short")] == ["short INPUT number"]
    assert [line for line in printed if line.startswith("long")] == [
        *["long INPUT number"] * 3,
        "long INPUT_CLOSED number",
    ]


def test_the_outputs_of_an_operator_that_has_ended_are_closed_while_others_run(dataflow: Dataflow) -> None:
    ends = """
        def on_event(self, event, send_output):
            send_output("out", bytes(900_000))
            return DoraStatus.STOP
        """
    goes_on = """
        def on_event(self, event, send_output):
            if event["type"] == "INPUT":
                send_output("out", b"still here")
            return DoraStatus.CONTINUE
        """
    dataflow.nodes.append(
        {
            "id": "work",
            "operators": [
                add_operator(
                    dataflow, ends, "first", inputs={"tick": "dora/timer/secs/1000"}, outputs=["out"]
                ),
                add_operator(dataflow, goes_on, "second", inputs={"go": "receiver/go"}, outputs=["out"]),
            ],
        }
    )
    dataflow.node(
        "receiver",
        """
        from dora import Node

        node = Node()
        for event in node:
            print(event["type"], event["id"], len(event.get("value", [])))
            if event["type"] == "INPUT_CLOSED" and event["id"] == "first":
                node.send_output("go", b"")
            elif event["type"] == "INPUT" and event["id"] == "second":
                break
        """,
        inputs={"first": "work/first/out", "second": "work/second/out"},
        outputs=["go"],
    )
    assert dataflow.run().lines("receiver") == [
        "INPUT first 900000",
        "INPUT_CLOSED first 0",
        "INPUT second 10",
    ]


RELOADED = """
    def __init__(self):
        self.count = 0

    def on_event(self, event, send_output):
        self.count += 1
        print("{version}", event["type"], self.count)
        with open("{version}.tmp", "w") as file:
            file.write("here\\n")
        __import__("os").rename("{version}.tmp", "{version}")
        return DoraStatus.{status}
"""


def test_a_changed_operator_is_reloaded_with_its_attributes(dataflow: Dataflow) -> None:
    operator = add_operator(
        dataflow,
        RELOADED.format(version="first", status="CONTINUE"),
        inputs={"tick": "dora/timer/secs/1000"},
    )
    dataflow.nodes.append({"id": "work", "operators": [operator]})
    dataflow.start("--hot-reload")
    dataflow.wait_for("first")
    replace(dataflow, "print('mistaken', file=open('mistaken', 'w'))\nclass Operator: mistake")
    dataflow.wait_for("mistaken")
    replace(dataflow, None, RELOADED.format(version="second", status="STOP"))
    result = dataflow.finish()
    assert "operator `double` was not reloaded, and runs on unchanged: NameError" in result.stderr
    assert [line for line in result.lines("work") if line.startswith(("first", "second"))] == [
        "first INPUT 1",
        "second RELOAD 2",
    ]


def replace(dataflow: Dataflow, text: str | None, code: str = "") -> None:
    """Replaces the operator's file as editors do."""
    new = dataflow.folder / "new.py"
    if text is None:
        add_operator(dataflow, code, "new")
    else:
        new.write_text(text)
    new.replace(dataflow.folder / "double.py")
