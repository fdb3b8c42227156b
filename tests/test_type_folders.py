"""Types that folders beside a dataflow file define: checked in each language, and compared between files."""

import subprocess
import sys
from pathlib import Path

import pytest
from test_c import compiled, outcome, succeeded

BLOCK = {"queue_policy": "block"}
NERVURE = Path(sys.executable).parent / "nervure"

SOURCE = """\
from nervure import Node, NotSendable

node = Node()
elbow = {"name": "elbow", "angle": 1.5}
hand = {"x": 0.5, "y": 0.0, "z": 0.25}
for value in (
    {"joints": [elbow], "hand": hand, "gear": 2},
    {"joints": [{"name": "elbow", "angle": "far"}], "hand": hand, "gear": 2},
    {"joints": [elbow], "gear": 2},
    {"joints": [elbow], "hand": hand, "gear": 2, "nots": "worn"},
    {"joints": [elbow], "hand": hand, "gear": 2, "note": "worn"},
):
    try:
        node.send("state", value)
    except NotSendable as error:
        print("refused:", error)
"""

SINK = """\
import json
from nervure import Node

for event in Node():
    if event.id == "state" and event.type == "INPUT":
        print("got", json.dumps(event.object, sort_keys=True, default=lambda value: value.tolist()))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with definitions in `msgs`, and a sink."""
    package = tmp_path / "msgs" / "arm"
    package.mkdir(parents=True)
    (package / "Joint.msg").write_text("string name\nfloat64 angle  # [rad]\n")
    (package / "State.msg").write_text("Joint[] joints\nstd/Point hand\nuint8 gear 2\nstring note\n")
    (package / "State.toml").write_text("version = 3\n[fields.note]\noptional = true\n")
    (tmp_path / "sink.py").write_text(SINK)
    return tmp_path


def nodes(source: str) -> list[dict[str, object]]:
    """A source of states, and a sink that declares their type too."""
    state = {"type": "arm/State@3"}
    return [
        {"id": "source", "path": source, "outputs": {"state": state}},
        {"id": "sink", "path": "sink.py", "inputs": {"state": {"source": "source/state", **state, **BLOCK}}},
    ]


def refused(printed: str) -> list[str]:
    return [line.split("refused: ")[1] for line in printed.splitlines() if "refused: " in line]


def received(printed: str) -> list[str]:
    return [line.split("got ")[1] for line in printed.splitlines() if "got " in line]


def test_samples_of_own_types_are_checked(folder: Path) -> None:
    (folder / "source.py").write_text(SOURCE)
    printed = succeeded(nodes("source.py"), folder, types=["msgs"])
    state = "the output `state` sends arm/State@3"
    assert refused(printed) == [
        f"{state}, field `joints[].angle`: expected `float64`, found text",
        f"{state}, field `hand`: expected `std/Point`, found no such field",
        f"{state}: expected its fields: joints, hand, gear, note, found `nots` (did you mean `note`?)",
    ], printed
    sent = '{"gear": 2, "hand": {"x": 0.5, "y": 0.0, "z": 0.25}, "joints": [{"angle": 1.5, "name": "elbow"}]'
    assert received(printed) == [f"{sent}}}", f'{sent}, "note": "worn"}}'], printed


def test_own_types_are_checked_in_c(installed: Path, folder: Path) -> None:
    program = compiled(installed, "own_type.c", folder)
    printed = succeeded(nodes(str(program)), folder, types=["msgs"])
    # The gear is the default of the definition.
    sent = '{"gear": 2, "hand": {"x": 0.5, "y": 0.0, "z": 0.0}, "joints": [{"angle": 1.5, "name": "elbow"}]'
    assert [line.startswith(sent) for line in received(printed)] == [True], printed
    joint = "nervure_builder_set: arm/State@3, field `joints[0]"
    sends = "nervure_send: the output `state` sends arm/State@3"
    assert refused(printed) == [
        f"{joint}.angle`: expected `float64`, found text",
        f"{joint}.angel`: expected one of name, angle, found `angel` (did you mean `angle`?)",
        f"{sends}: expected one record: a dict, dataclass or struct, found text",
    ], printed


def test_generated_structs_of_own_types_fit(installed: Path, folder: Path) -> None:
    generate = [NERVURE, "types", "generate", "--language", "c++", "msgs", "--output", "arm_types.hpp"]
    subprocess.run(generate, cwd=folder, check=True)
    program = compiled(installed, "own_type.cc", folder, "-I", str(folder))
    printed = succeeded(nodes(str(program)), folder, types=["msgs"])
    sent = '{"gear": 4, "hand": {"x": 0.5, "y": 0.0, "z": 0.0}, "joints": [{"angle": 1.5, "name": "elbow"}]'
    assert [line.startswith(sent) for line in received(printed)] == [True], printed


def test_a_module_with_another_definition_is_refused_before_the_first_sample(folder: Path) -> None:
    (folder / "source.py").write_text(SOURCE)
    other = folder / "watch" / "msgs" / "arm"
    other.mkdir(parents=True)
    (other / "Joint.msg").write_text("string name\nfloat32 angle\n")
    (other / "State.msg").write_text("Joint[] joints\nstd/Point hand\nuint8 gear 2\n")
    (other / "State.toml").write_text("version = 3\n")
    (folder / "watch" / "watch.yml").write_text(
        "types: [msgs]\n"
        "module: {name: watch, inputs: [state]}\n"
        "nodes:\n"
        "  - {id: sink, path: ../sink.py, inputs: {state: {source: _mod/state, type: arm/State@3}}}\n"
    )
    watch = {"id": "watch", "module": "watch/watch.yml", "inputs": {"state": "source/state"}}
    status, printed = outcome([nodes("source.py")[0], watch], folder, types=["msgs"])
    assert status == 2, printed
    assert not refused(printed) and not received(printed), printed
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    for expected in (
        "FIELD watch/msgs/arm/State.msg msgs/arm/State.msg",
        "hand std/Point std/Point",
        "joints.angle float32 float64 differs",
    ):
        assert any(line.endswith(expected) for line in lines), printed
    # An optional field more is no other definition.
    (other / "Joint.msg").write_text("string name\nfloat64 angle\n")
    status, printed = outcome([nodes("source.py")[0], watch], folder, types=["msgs"])
    assert status == 0, printed
    assert len(received(printed)) == 2, printed
