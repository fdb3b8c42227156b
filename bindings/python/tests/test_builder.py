"""``dora.builder``: dataflow files made in Python."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import nervure
import pytest


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `dora.builder`."""
    monkeypatch.syspath_prepend(Path(nervure.__file__).parent / "_dora_path")
    return importlib.import_module("dora.builder")


def build(builder: Any) -> Any:
    """A dataflow with everything that the builder can express."""
    flow = builder.DataflowBuilder("mobile-base")
    lidar = flow.add_node("lidar", path="lidar.py", env={"PORT": "/dev/ttyUSB0", "BAUD": 115200})
    lidar.add_input("tick", "dora/timer/millis/50")
    scan = lidar.add_output("scan")
    lidar.add_output("scan")
    lidar.add_output("diagnostics")
    mapper = flow.add_node("mapper").path("mapper").args("--resolution 0.05").build("cargo build --release")
    mapper.git("https://example.org/mapper.git", branch="main", rev=None)
    mapper.env({"RUST_LOG": "info"})
    mapper.add_input("scan", scan, queue_size=1)
    mapper.add_input("odometry", "wheels/odometry", queue_policy="backpressure")
    mapper.add_input("goal", "operator/goal", queue_size=5, queue_policy="drop_oldest")
    tracker = flow.add_node("tracker")
    python = builder.Operator(
        "filter",
        name="Kalman",
        description="tracks people",
        build="pip install filterpy",
        python="filter.py",
        send_stdout_as="log",
    )
    tracker.add_operator(python).add_operator(builder.Operator("native", shared_library="build/native"))
    flow.add_node("late").git("https://example.org/late.git", tag="v1", rev="")
    return flow


# The dataflow that the builder of dora-rs 1.1 writes for the same calls.
RECORDED: dict[str, Any] = {
    "nodes": [
        {
            "id": "lidar",
            "path": "lidar.py",
            "env": {"PORT": "/dev/ttyUSB0", "BAUD": 115200},
            "inputs": {"tick": "dora/timer/millis/50"},
            "outputs": ["scan", "diagnostics"],
        },
        {
            "id": "mapper",
            "path": "mapper",
            "args": "--resolution 0.05",
            "build": "cargo build --release",
            "git": "https://example.org/mapper.git",
            "branch": "main",
            "env": {"RUST_LOG": "info"},
            "inputs": {
                "scan": {"source": "lidar/scan", "queue_size": 1},
                "odometry": {"source": "wheels/odometry", "queue_policy": "backpressure"},
                "goal": {"source": "operator/goal", "queue_size": 5, "queue_policy": "drop_oldest"},
            },
        },
        {
            "id": "tracker",
            "operators": [
                {
                    "id": "filter",
                    "name": "Kalman",
                    "description": "tracks people",
                    "build": "pip install filterpy",
                    "python": "filter.py",
                    "send_stdout_as": "log",
                },
                {"id": "native", "shared-library": "build/native"},
            ],
        },
        {"id": "late", "git": "https://example.org/late.git", "tag": "v1"},
    ]
}


def test_the_file_is_that_of_dora(builder: Any, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    text = build(builder).to_yaml()
    assert yaml.safe_load(text) == RECORDED
    with build(builder) as flow:
        assert flow.to_yaml(str(tmp_path / "flow.yml")) is None
    assert (tmp_path / "flow.yml").read_text() == text


def test_without_pyyaml_the_file_is_json(builder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert json.loads(build(builder).to_yaml() or "") == RECORDED


def test_wrong_options_are_errors(builder: Any) -> None:
    node = builder.DataflowBuilder().add_node("node")
    with pytest.raises(ValueError, match="queue_size is 0, expected at least 1"):
        node.add_input("input", "other/output", queue_size=0)
    with pytest.raises(
        ValueError, match="queue_policy is 'newest', expected 'drop_oldest' or 'backpressure'"
    ):
        node.add_input("input", "other/output", queue_policy="newest")
    assert node.to_dict() == {"id": "node"}
