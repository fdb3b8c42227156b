"""Parameters: read at the start, changed in the running dataflow, kept over a restart."""

import subprocess
from typing import Any

import pytest
from conftest import Dataflow, nervure_command

PARAMS: dict[str, Any] = {
    "fps": {"value": 30, "min": 1, "max": 60},
    "gain": {"value": 1, "type": "float"},
    "mode": "fast",
    "flip": False,
    "crop": [0, 0, 640, 480],
}


def set_param(dataflow: Dataflow, name: str, value: str) -> subprocess.CompletedProcess[str]:
    keeper = dataflow.wait_for("keeper")
    command = [nervure_command(), "param", "set", "camera", name, value, "-d", keeper]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_parameters_are_read_and_changes_are_events(dataflow: Dataflow, kind: str) -> None:
    loops = {
        "sync": "for event in node:\n    if take(event): break",
        "async": (
            "async def main():\n    async for event in node:\n        if take(event): break\n"
            "asyncio.run(main())"
        ),
    }
    dataflow.node(
        "camera",
        f"""
import asyncio, os, pathlib
import pytest
from nervure import NervureError, Node, UnknownParam

node = Node()
if node.incarnation == 1:
    assert node.params["fps"] == 60 and node.param("crop") == [1, 2], node.params
    print("done")
    raise SystemExit(0)
assert list(node.params.items()) == [
    ("fps", 30), ("gain", 1.0), ("mode", "fast"), ("flip", False), ("crop", [0, 0, 640, 480])
]
assert type(node.param("gain")) is float and type(node.param("fps")) is int and node.param("flip") is False
with pytest.raises(UnknownParam, match='camera has no parameter "fsp"; .* did you mean "fps"?') as raised:
    node.param("fsp")
assert isinstance(raised.value, LookupError) and isinstance(raised.value, NervureError)
pathlib.Path("keeper").write_text(f"{{os.getppid()}}\\n")
reported = []
def take(event):
    assert event.type == "PARAM" and event.id is None and event.metadata == {{}}
    assert node.param(event.param) == event.object == event.value
    assert repr(event).startswith(f'<Event PARAM "{{event.param}}": ')
    reported.append((event.param, event.object))
    return len(reported) == 4
{loops[kind]}
assert reported == [("fps", 60), ("mode", "0.5"), ("flip", True), ("crop", [1, 2])], reported
raise SystemExit(1)
""",
        outputs=["image"],
        params=PARAMS,
        restart_policy="on-failure",
        restart_delay=0.01,
    )
    dataflow.start()
    assert set_param(dataflow, "fps", "60").returncode == 0
    refused = set_param(dataflow, "fps", "61")
    assert refused.returncode == 2 and "parameter `fps` is from 1 to 60, got 61" in refused.stderr
    for name, value in [("mode", "0.5"), ("flip", "true"), ("crop", "[1, 2]")]:
        result = set_param(dataflow, name, value)
        assert result.returncode == 0, result.stderr
    assert dataflow.finish().lines("camera") == ["done"]


def test_a_node_without_parameters_reports_that(dataflow: Dataflow) -> None:
    dataflow.node(
        "plain",
        """
        import pytest
        from nervure import Node, UnknownParam

        node = Node()
        assert node.params == {}
        with pytest.raises(UnknownParam, match="it has no parameters: declare it in the dataflow file"):
            node.param("fps")
        print("done")
        """,
        outputs=["value"],
    )
    assert dataflow.run().lines("plain") == ["done"]
