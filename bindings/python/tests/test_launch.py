"""Dataflows that a test or a notebook starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import nervure
import pytest
from conftest import HANGS_AFTER_SECONDS

CAMERA = """
    import os
    import numpy as np
    from nervure import Node

    node = Node()
    image = np.full((2, 3), node.params["level"], np.uint8)
    for event in node:
        if event.id == "tick":
            node.send("image", image, metadata={"name": os.environ["NAME"]})
"""
SINK = """
    from nervure import Node

    for event in Node():
        pass
"""
FAILING = """
    import sys
    from nervure import Node

    node = Node()
    next(node)
    sys.exit("the lens is dirty")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for id, code in [("camera", CAMERA), ("sink", SINK), ("failing", FAILING)]:
        (tmp_path / f"{id}.py").write_text(textwrap.dedent(code))
    return tmp_path


def write(folder: Path, nodes: list[object]) -> tuple[Path, str]:
    """A file, and the name of its dataflow, which no other test has."""
    name = f"launch-{os.getpid()}-{folder.name.replace('_', '-')}"[:60]
    file = folder / "flow.yml"
    # JSON is a subset of YAML.
    file.write_text(json.dumps({"name": name, "nodes": nodes}))
    return file, name


def pictures(folder: Path) -> tuple[Path, str]:
    camera = {
        "id": "camera",
        "path": "camera.py",
        "params": {"level": 1},
        "env": {"NAME": "${NAME:-none}"},
        "inputs": {"tick": "nervure/timer/millis/5"},
        "outputs": ["image"],
    }
    sink = {"id": "sink", "path": "sink.py", "inputs": {"image": "camera/image"}}
    return write(folder, [camera, sink])


def test_a_dataflow_is_started_observed_and_stopped(folder: Path) -> None:
    file, name = pictures(folder)
    with nervure.launch(file, params={"camera.level": 7}, env={"NAME": "left"}) as flow:
        assert flow.dataflow == name
        image = next(nervure.observe("camera/image", dataflow=flow.dataflow))
        assert (image.numpy() == 7).all() and image.metadata["name"] == "left"
        with pytest.raises(TimeoutError, match="has not ended within 0"):
            flow.wait(timeout=0)
        outcome = flow.stop(timeout=HANGS_AFTER_SECONDS)
    assert outcome.exit_code == 0 and outcome.summary
    [edge] = outcome.summary["edges"]
    assert edge["sent"] == edge["received"] + edge["lost"] + edge["not_taken"] and edge["sent"] > 0
    assert flow.wait() == outcome


def test_two_dataflows_of_a_file_have_different_names(folder: Path) -> None:
    file, name = pictures(folder)
    with nervure.launch(file, env={"NAME": "one"}):
        with pytest.raises(nervure.LaunchError, match=f"`{name}` already runs"):
            nervure.launch(file, env={"NAME": "two"})
        with nervure.launch(file, env={"NAME": "two"}, name=f"{name}-2") as second:
            image = next(nervure.observe("camera/image", dataflow=second.dataflow))
            assert image.metadata["name"] == "two"


def test_a_failed_node_is_an_error_at_the_end_of_the_block(folder: Path) -> None:
    failing = {"id": "failing", "path": "failing.py", "inputs": {"tick": "nervure/timer/millis/5"}}
    file, _ = write(folder, [failing])
    reason = r"node `failing` failed(.|\n)*the lens is dirty"
    with pytest.raises(nervure.LaunchError, match=reason), nervure.launch(file) as flow:
        flow._reader.join(HANGS_AFTER_SECONDS)
    outcome = nervure.launch(file).wait(HANGS_AFTER_SECONDS)
    assert outcome.exit_code == 3 and outcome.summary
    assert [node["id"] for node in outcome.summary["failed"]] == ["failing"]
    with pytest.raises(ZeroDivisionError), nervure.launch(file):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": {"camera.levle": 1}}, r"no parameter `levle`(.|\n)*hint: .*level"),
        ({"params": {"camera.level": "high"}}, "camera.level=high"),
        ({"name": "a b"}, "--name a b"),
        ({"env": {"1": "2"}}, "NAME=VALUE"),
    ],
)
def test_a_wrong_setting_is_an_error_with_its_hint(
    folder: Path, change: dict[str, object], message: str
) -> None:
    file, _ = pictures(folder)
    with pytest.raises(nervure.LaunchError, match=message):
        nervure.launch(file, **change)  # type: ignore[arg-type]


def test_a_wrong_file_is_an_error_with_its_line(folder: Path) -> None:
    file = folder / "wrong.yml"
    file.write_text("nodes:\n  - id: camera\n    path: absent.py\n")
    with pytest.raises(nervure.LaunchError, match=r"wrong.yml:3: the file `absent.py` does not exist"):
        nervure.launch(file)


def test_a_node_that_does_not_become_ready_is_an_error_and_the_dataflow_ends(folder: Path) -> None:
    node = {"id": "sink", "path": "sink.py", "ready": "manual", "inputs": {"tick": "nervure/timer/secs/1"}}
    file, _ = write(folder, [node])
    # The second one would be refused while the first one runs.
    for _ in range(2):
        with pytest.raises(TimeoutError, match=r"flow.yml were not ready within 0.5 s"):
            nervure.launch(file, timeout=0.5)


def test_a_dataflow_ends_with_the_process_that_started_it(folder: Path) -> None:
    file, name = pictures(folder)
    program = f"""
        import nervure, os, signal

        flow = nervure.launch({str(file)!r}, env={{"NAME": "x"}})
        print(flow.dataflow, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    starter = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANGS_AFTER_SECONDS,
    )
    assert starter.stdout.strip() == name
    try:
        for _ in nervure.observe("camera/image", dataflow=name):
            pass
    except nervure.ConnectError:
        # It has ended already.
        pass
