"""Nodes in C and C++: each kind of value on the way from C over C++ to Python."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SOURCES = Path(__file__).parent / "c"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]

SINK = """\
import json
import numpy as np
from nervure import Node

node = Node()
with open("seen", "w") as seen:
    for event in node:
        if event.type == "INPUT":
            value = event.object
            if isinstance(value, np.ndarray):
                line = [str(value.dtype), value.shape, value[:2, :3].tolist(), event.metadata, event.frame]
                if event.frame:
                    assert event.stamp == 1.23456789
            elif hasattr(value, "to_pylist"):
                line = [str(value.type), value.to_pylist()]
            else:
                line = [type(value).__name__, list(value) if isinstance(value, bytes) else value]
            print(json.dumps(line, default=str), file=seen, flush=True)
"""


def compiled(installed: Path, source: str, folder: Path, *options: str) -> Path:
    """Compiles a program of `tests/c`."""
    compiler = ["cc", "-std=c11"] if source.endswith(".c") else ["c++", "-std=c++17"]
    return native(installed, folder / Path(source).stem, *compiler, str(SOURCES / source), *options)


def native(installed: Path, program: Path, *command: str) -> Path:
    """Builds a program with the flags of pkg-config."""
    found = {**os.environ, "PKG_CONFIG_PATH": str(installed / "lib" / "pkgconfig")}
    pkg_config = ["pkg-config", "--cflags", "--libs", "nervure"]
    flags = subprocess.run(pkg_config, env=found, capture_output=True, text=True, check=True).stdout.split()
    whole = [*command, *WARNINGS, "-o", str(program), *flags]
    built = subprocess.run(whole, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return program


def succeeded(nodes: list[dict[str, object]], folder: Path, **keys: object) -> str:
    """The output of a dataflow whose nodes must all succeed."""
    status, printed = outcome(nodes, folder, **keys)
    assert status == 0, printed
    return printed


def outcome(nodes: list[dict[str, object]], folder: Path, **keys: object) -> tuple[int, str]:
    """The exit code of a dataflow, and its output."""
    (folder / "dataflow.yml").write_text(json.dumps({"nodes": nodes, **keys}))
    nervure = Path(sys.executable).parent / "nervure"
    environment = {**os.environ, "NERVURE_LOG_DIR": str(folder / "logs")}
    command = [nervure, "run", "dataflow.yml"]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize("options", [[], ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]])
def test_values_from_c_over_cxx_to_python(installed: Path, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "sink.py").write_text(SINK)
    block = {"queue_policy": "block"}
    nodes = [
        {
            "id": "source",
            "path": str(compiled(installed, "source.c", tmp_path, *options)),
            "outputs": ["out"],
            "params": {"rate": 20, "list": ["one", "two"]},
        },
        {
            "id": "relay",
            "path": str(compiled(installed, "relay.cc", tmp_path, *options)),
            "inputs": {"in": {"source": "source/out", **block}},
            "outputs": ["out"],
        },
        {"id": "sink", "path": "sink.py", "inputs": {"in": {"source": "relay/out", **block}}},
    ]
    printed = succeeded(nodes, tmp_path)
    assert f"source of {tmp_path.name}" in printed
    assert printed.count("refused: ") == 14, printed
    assert 'node source has no output "outt"; its outputs are: out; did you mean "out"?' in printed
    assert "last element 6 at 1234567890" in printed
    assert "frame camera, side l" in printed
    assert "refused: the elements of the tensor: expected " in printed
    assert "kept 13, the first has 3 bytes" in printed
    seen = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert seen == [
        ["bytes", [0, 1, 2]],
        ["bytes", []],
        ["str", "grüß"],
        ["bool", True],
        ["int", -7],
        ["int", 2**64 - 1],
        ["float", 2.5],
        ["float32", [2, 3], [[1, 2, 3], [4, 5, 6]], {"side": "left", "sizes": [4, 5]}, "camera"],
        ["float32", [2, 2], [[1, 2], [4, 5]], {}, None],
        ["uint8", [480, 640], [[7, 7, 7], [7, 7, 7]], {}, None],
        ["int32", [1, None, 3]],
        ["int", 20],
        ["str", '["one","two"]'],
    ]


SENSORS = """\
from nervure import Node

node = Node()
for step in range(41):
    stamp = 100 + step * 0.005
    node.send("imu", step, stamp=stamp)
    if step % 10 == 0:
        node.send("image", step, stamp=stamp)
    if step % 10 == 2 and step != 22:
        node.send("cloud", step, stamp=stamp)
"""

FUSE = """\
from nervure import Node

for event in Node():
    if event.type == "SYNC":
        assert event.id is None and event.object is None and event.stamp == event.samples["image"].stamp
        samples = event.copied().samples
        imu = " ".join(str(one.object) for one in samples["imu"])
        print(samples["image"].object, "+", samples["cloud"].object, "+", imu)
    else:
        assert event.type in ("INPUT_CLOSED", "STOP") and event.samples is None, event
"""


@pytest.mark.parametrize("options", [[], ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]])
def test_samples_that_belong_together(installed: Path, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "sensors.py").write_text(SENSORS)
    (tmp_path / "fuse.py").write_text(FUSE)
    fused = {
        "inputs": {
            name: {"source": f"sensors/{name}", "queue_policy": "block", "queue_size": 50}
            for name in ("image", "cloud", "imu")
        },
        "sync": {"inputs": ["image", "cloud"], "collect": ["imu"], "tolerance": "20ms"},
    }
    programs = {
        "c": str(compiled(installed, "fuse.c", tmp_path, *options)),
        "xx": str(compiled(installed, "fuse.cc", tmp_path, *options)),
        "python": "fuse.py",
    }
    nodes = [{"id": "sensors", "path": "sensors.py", "outputs": ["image", "cloud", "imu"]}]
    nodes += [{"id": language, "path": program, **fused} for language, program in programs.items()]
    printed = succeeded(nodes, tmp_path)
    expected = [
        "0 + 2 + 0",
        "10 + 12 + " + " ".join(map(str, range(1, 11))),
        "30 + 32 + " + " ".join(map(str, range(11, 31))),
    ]
    for language in programs:
        lines = [line.split("|", 1)[1].strip() for line in printed.splitlines() if line.startswith(language)]
        assert lines == expected, printed
        assert f"2 of 5 samples of `{language}/image` found no partner for `sync`" in printed, printed


ODOMETRY = """\
from nervure import Node

node = Node()
for second in (1, 2):
    translation = {"x": second * 10.0, "y": 0.0, "z": 0.0}
    rotation = {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}
    pose = {"child_frame_id": "base", "translation": translation, "rotation": rotation}
    node.send("pose", pose, stamp_nanos=second * 10**9, frame="map")
"""

CAMERA = """\
from nervure import Node

node = Node()
for number in range(2):
    node.send("image", number, stamp_nanos=1_250_000_000 + number * 500_000_000)
"""


def test_transforms_are_looked_up(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "odometry.py").write_text(ODOMETRY)
    (tmp_path / "camera.py").write_text(CAMERA)
    programs = {source: str(compiled(installed, source, tmp_path)) for source in ("locate.c",)}
    (tmp_path / "cc").mkdir()
    programs["locate.cc"] = str(compiled(installed, "locate.cc", tmp_path / "cc"))
    nodes: list[dict[str, object]] = [
        {"id": "odometry", "path": "odometry.py", "outputs": {"pose": {"type": "std/Transform@1"}}},
        {"id": "camera", "path": "camera.py", "outputs": ["image"]},
    ]
    nodes += [
        {
            "id": source,
            "path": program,
            "transforms": True,
            "inputs": {"image": {"source": "camera/image", "queue_policy": "block"}},
        }
        for source, program in programs.items()
    ]
    mount = {"parent": "base", "child": "camera", "translation": [0, 0, 1.5]}
    printed = succeeded(nodes, tmp_path, static_transforms=[mount])
    for source in programs:
        own = [line for line in printed.splitlines() if line.split(" ")[0] == source]
        lines = [line.split("|", 1)[1].strip() for line in own]
        assert lines == [
            "12.5 0.0 1.5, w 1.0",
            "17.5 0.0 1.5, w 1.0",
            "nervure_transform_lookup: `map` -> `camara`: there is no frame `camara`; did you mean `camera`?",
        ], printed


@pytest.mark.parametrize("source", ["misfit.c", "misfit.cc"])
def test_samples_that_do_not_fit_their_type_are_refused(installed: Path, tmp_path: Path, source: str) -> None:
    types = {"image": {"type": "std/Image@1"}, "imu": {"type": "std/Imu@1"}}
    nodes = [{"id": "source", "path": str(compiled(installed, source, tmp_path)), "outputs": types}]
    printed = succeeded(nodes, tmp_path)
    refused = [line.split("refused: ")[1] for line in printed.splitlines() if "refused: " in line]
    image = "the output `image` sends std/Image@1: expected a tensor: "
    assert "the output `imu` sends std/Imu@1: expected one record: " in refused[0], printed
    assert [image in line for line in refused[1:]] == [True, True], printed
    assert [line.split("found ")[1] for line in refused] == ["a tensor", "a tensor of u1, 2", "text"]


ASKER = """\
import asyncio
from nervure import Node

node = Node()

async def main():
    answers = await asyncio.gather(*(node.call_async("plan", goal) for goal in (1, 2)))
    print([answer.object for answer in answers])

asyncio.run(main())
"""


def test_requests_between_languages(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "python.py").write_text(ASKER)
    plan = {"plan": "planner/plan"}
    nodes = [
        {"id": "planner", "path": str(compiled(installed, "planner.c", tmp_path)), "services": ["plan"]},
        {"id": "asker", "path": str(compiled(installed, "asker.cc", tmp_path)), "clients": plan},
        {"id": "python", "path": "python.py", "clients": plan},
    ]
    printed = succeeded(nodes, tmp_path)
    assert "asker asks plan for 6" in printed
    assert "plan 60" in printed
    assert "-7: nervure_call: service planner/plan failed: there is no way back" in printed
    assert '-2: nervure_call: node asker has no client "way"; its clients are: plan' in printed
    assert "[10, 20]" in printed


def test_components_in_one_process_end_alone(installed: Path, tmp_path: Path) -> None:
    """A call of exit in C and an exception in C++ end their nodes; the others of the process go on."""
    library = ["-shared", "-fPIC"]
    source = compiled(installed, "composed.c", tmp_path, *library).rename(tmp_path / "libsource.so")
    adder = compiled(installed, "composed.cc", tmp_path, *library).rename(tmp_path / "libadder.so")
    inputs = {"in": {"source": "source/out", "queue_policy": "block"}}

    def composed(node: str, path: Path, **keys: object) -> dict[str, object]:
        return {"id": node, "path": str(path), "process": "robot", **keys}

    nodes = [
        composed(
            "source",
            source,
            inputs={"tick": "nervure/timer/hz/200"},
            outputs=["out"],
            params={"exits": True},
        ),
        composed("adder", adder, inputs=inputs, params={"throws": False}),
        composed("thrower", adder, inputs=inputs, params={"throws": True}),
    ]
    status, printed = outcome(nodes, tmp_path)
    assert status == 3, printed
    assert "exited with code 7: it called `exit`" in printed
    assert "calls exit" in printed
    assert "exited with code 1: the sum is 6" in printed
    assert "sum 190" in printed


@pytest.mark.parametrize("disturbance", ["none", "allocation", "call"])
def test_the_data_path_allocates_nothing_and_makes_no_system_call(
    installed: Path, tmp_path: Path, disturbance: str
) -> None:
    """Counted after the start; a disturbance of the data path must be found."""
    program = str(compiled(installed, "steady.cc", tmp_path))

    def node(
        role: str, inputs: dict[str, object], outputs: dict[str, object], disturbance: str
    ) -> dict[str, object]:
        ports = {"inputs": inputs, "outputs": outputs}
        return {"id": role, "path": program, "args": role, **ports, "params": {"disturbance": disturbance}}

    asked = {"tick": "nervure/timer/hz/500", "back": {"source": "echo/out", "expect_every": "10s"}}
    answered = {"numbers": "pulse/numbers", "text": "pulse/text", "imu": "pulse/imu"}
    typed: dict[str, object] = {"numbers": {}, "text": {}, "imu": {"type": "std/Imu@1"}}
    nodes = [node("pulse", asked, typed, disturbance), node("echo", answered, {"out": {}}, "none")]
    status, printed = outcome(nodes, tmp_path)
    if disturbance == "none":
        assert status == 0 and printed.count("0 calls of the allocator in 700 rounds") == 2, printed
    else:
        found = {"allocation": "1400 calls of the allocator", "call": "the data path made system call"}
        assert found[disturbance] in printed and status != 0, printed


def test_a_program_that_is_no_node_says_how_it_is_started(installed: Path, tmp_path: Path) -> None:
    program = compiled(installed, "source.c", tmp_path)
    run = subprocess.run([program], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("nervure_connect: this program is a Nervure node and was started on its own")


@pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")
def test_cmake_finds_the_package(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(nodes LANGUAGES C CXX)\nset(CMAKE_CXX_STANDARD 17)\n"
        "find_package(Nervure 0.1 REQUIRED)\n"
        f"add_executable(source {SOURCES / 'source.c'})\nadd_executable(relay {SOURCES / 'relay.cc'})\n"
        "target_link_libraries(source PRIVATE Nervure::nervure)\n"
        "target_link_libraries(relay PRIVATE Nervure::nervure)\n"
    )
    configure = ["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={installed}"]
    for command in (configure, ["cmake", "--build", "build"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "build" / "source").exists()
