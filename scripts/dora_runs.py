"""Runs dataflows of dora's examples under `nervure run` and `dora run`, and compares the nodes' output."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

REPOSITORY = Path(__file__).resolve().parents[1]
# A run is killed this long after its own time.
EXTRA_SECONDS = 30
# Timers and scheduling change the number of lines of runs that are bounded by time.
COUNT_TOLERANCE = 0.25
DISCARDED = "Discarding event for input"


@dataclass(frozen=True)
class Run:
    """A dataflow that runs anywhere, and the compared part of its output."""

    path: str
    # (node, pattern): matches of the pattern in the lines of that node, in their order.
    shows: tuple[tuple[str, str], ...] = ()
    # "equal": the same finds in the same order. "count": about as many.
    how: Literal["equal", "count"] = "equal"
    clone: Literal["dora", "dora-hub"] = "dora"
    # None: it ends by itself.
    stop_after: int | None = None
    # Time limit.
    seconds: int = 20
    # Commands that `pip install` would create, with their file in the clone.
    commands: dict[str, str] = field(default_factory=dict)
    # The dataflow file, if the clone has none that runs without hardware.
    yaml: str | None = None
    # Programs of nodes that stand in for hardware, with their text.
    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    # A Python program that creates the nodes' input files.
    prepare: str = ""
    # Folders of the clone with modules that the programs import.
    python_path: tuple[str, ...] = ()
    # Further folders of the clone that the dataflow needs.
    beside: tuple[str, ...] = ()
    # Commands that build the programs with Nervure's libraries, or for `dora run` with dora's.
    build: tuple[str, ...] = ()
    # The reason why the number of lines varies.
    note: str = ""
    # Packages of dora's workspace to build, with the one change that the guide names.
    packages: tuple[str, ...] = ()

    @property
    def is_native(self) -> bool:
        return bool(self.build or self.packages)


def _hub_command(name: str) -> dict[str, str]:
    return {name: f"node-hub/{name}/{name.replace('-', '_')}/main.py"}


# Without a camera: the nodes of dora-hub that show or capture images know this setting.
_WITHOUT_HARDWARE = {"CI": "true"}
_CAMERA = """
nodes:
  - id: camera
    path: opencv-video-capture
    inputs: {tick: dora/timer/millis/50}
    outputs: [image]
    env: {IMAGE_WIDTH: 640, IMAGE_HEIGHT: 480}
"""

_PRINT_ALL = """
from dora import Node

for event in Node():
    if event["type"] == "INPUT":
        print(event["value"].to_pylist(), flush=True)
"""
# Requests the next position after each one.
_CLOCK = """
import pyarrow as pa
from dora import Node

node = Node()
node.send_output("tick", pa.array([1]))
for event in node:
    if event["type"] == "INPUT":
        node.send_output("tick", pa.array([1]))
"""
_TEACHER = """
import json
import numpy as np
import pyarrow as pa
from dora import Node

node = Node()
node.next()
image = np.full((8, 12, 3), 7, np.uint8)
node.send_output("image", pa.array(image.ravel()), {"encoding": "rgb8", "width": 12, "height": 8})
# Inputs of a node come in no order among each other: ask until the image has arrived.
for event in iter(lambda: node.next(timeout=0.2), None):
    if event["type"] == "INPUT":
        entry = json.loads(open("data/dora_demo.json").readline())
        print("recorded", event["value"].to_pylist(), entry["images"], flush=True)
        break
    node.send_output("ground_truth", pa.array(["a cup"]))
"""
_IMAGES = """
import numpy as np
import pyarrow as pa
from dora import Node

node, ticks = Node(), 0
for event in node:
    if event["type"] == "INPUT":
        image = {"width": 4, "height": 2, "channels": 3, "data": np.zeros(24, np.uint8)}
        node.send_output("image", pa.array([image]))
        ticks += 1
        if ticks == 20:
            print("ticks 20", flush=True)
"""
_CHAT_CLIENT = """
import json
import urllib.request
from dora import Node

body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
request = urllib.request.Request(
    "http://127.0.0.1:8000/v1/chat/completions", body, {"Content-Type": "application/json"}
)
for event in Node():
    try:
        answer = json.load(urllib.request.urlopen(request, timeout=5))
    except OSError:
        continue  # The server is not up yet.
    print("answer", answer["choices"][0]["message"]["content"], flush=True)
    break
"""

RUNS = [
    Run(
        "examples/python-dataflow/dataflow.yml",
        (
            ("receiver", r"Received message: \[\d+\]"),
            ("receiver", r"Received transformed: .*"),
            ("receiver", r"Receiver finished"),
        ),
    ),
    Run(
        "examples/python-echo/dataflow.yml",
        (("checker", r"\[PASS\]"), ("checker", r"\[FAIL\]")),
        how="count",
        stop_after=5,
    ),
    Run(
        "examples/python-log/dataflow.yaml",
        (
            ("receive_data_with_sleep", r"info \[\d+\]"),
            ("receive_data_with_sleep", r"THIS IS A WARNING"),
            ("receive_data_with_sleep", r"done!"),
        ),
        how="count",
        note="The receiver's first `to_numpy` loads NumPy. Where this takes longer than 100 ms, its queue of"
        " ten samples overflows, under both.",
    ),
    Run(
        "examples/python-logging/dataflow.yml",
        (
            ("sensor", r"raw sensor tick"),
            ("sensor", r"sensor reading: tick"),
            ("processor", r"processor stdout"),
            ("monitor", r"monitor caught error: simulated processing error at sample \d+"),
            ("monitor", r"monitor summary: readings=20"),
        ),
        how="count",
        stop_after=5,
    ),
    Run("examples/python-async/dataflow.yaml", (("receive_data_with_sleep", r"done!"),), stop_after=3),
    Run(
        "examples/python-drain/dataflow.yaml",
        (
            ("receive_data_with_sleep", r"['\"]type['\"]: ['\"]INPUT['\"]"),
            ("receive_data_with_sleep", r"Error receiving event"),
            ("receive_data_with_sleep", r"done!"),
        ),
        how="count",
    ),
    Run(
        "examples/python-multiple-arrays/dataflow.yml",
        (
            ("sender", r"Sent message with 3 arrays"),
            ("receiver", r"Shape1: .*?\), Shape2: .*?\), State: .*?\)"),
        ),
        how="count",
        stop_after=6,
    ),
    Run(
        "examples/python-concurrent-rw/dataflow.yml",
        (("node1", r"info \[\d+\]"), ("node2", r"info \[\d+\]")),
        how="count",
        stop_after=6,
    ),
    Run("examples/python-recv-async/dataflow.yml", (("async-receiver", r"recv-async: .*"),)),
    Run(
        "examples/python-zero-copy-send/dataflow.yml",
        (
            # The bytes are random.
            ("receiver", r"\[\d+\] large_output: \d+ bytes, min=0 max=255"),
            ("receiver", r"\[\d+\] rgb_image: .*"),
        ),
        how="count",
    ),
    Run("examples/python-zero-copy-send/contract_dataflow.yml", (("contract", r"(?i).*\b(?:pass|fail).*"),)),
    Run(
        "examples/streaming-example/dataflow.yml",
        (
            ("prompt-source", r"Sent prompt: .*"),
            ("sink", r"Complete \(\d+ tokens\)"),
        ),
        how="count",
        stop_after=9,
    ),
    Run(
        "examples/rust-dataflow/dataflow.yml",
        (("rust-sink", r"random value 0x[0-9a-f]+"),),
        packages=tuple(f"rust-dataflow-example-{name}" for name in ("node", "status-node", "sink")),
    ),
    Run(
        "examples/c-dataflow/dataflow.yml",
        (
            ("c_node", r"\[c node\] finished successfully"),
            ("c_sink", r"received input `counter` with data: .*"),
            ("c_sink", r"\[c sink\] finished successfully"),
        ),
        beside=("apis/c",),
        build=(
            "mkdir build",
            "cc node.c -o build/c_node {link} -ldora_node_api_c {system}",
            "cc sink.c -o build/c_sink {link} -ldora_node_api_c {system}",
            "cc -shared -fPIC operator.c -o build/liboperator.so {link} -ldora_operator_api_c",
        ),
    ),
    Run("examples/typed-dataflow/dataflow.yml", (("sink", r"\[sink\] (?:HIGH|LOW|OK)"),), how="count"),
    Run("examples/module-dataflow/dataflow.yml", (("receiver", r"Received \[filtered\]: \[\d+\]"),)),
    Run(
        "examples/log-aggregator/dataflow.yml",
        (
            # One line a log entry: as an entry, or as text if the value is an array.
            ("log-viewer", r"^\[(?:[A-Z]+ *\]\[sensor\] .*emperature|RAW\])"),
        ),
        how="count",
        stop_after=5,
    ),
    Run(
        "examples/dynamic-add-remove/dataflow.yml",
        (("sender", r"Sent \d+"), ("receiver", r"\[value\] Received \d+ messages \(latest: \[\d+\]\)")),
        how="count",
        stop_after=7,
    ),
    Run(
        "examples/dynamic-agent-tools/dataflow.yml",
        (("agent", r"Agent received tool response"), ("echo-tool", r"Echo: ")),
        how="count",
        stop_after=6,
    ),
    Run(
        "tests/queue_size_and_timeout_python/dataflow.yaml",
        (("receive_data_with_sleep", r"\] Sent: "),),
        how="count",
        seconds=30,
    ),
    Run(
        "tests/queue_size_latest_data_python/dataflow.yaml",
        (("receive_data_with_sleep", r"Duration: "),),
        how="count",
        seconds=30,
    ),
    Run("tests/fixtures/zenoh-debug-dataflow.yml", stop_after=2),
    Run(
        "examples/echo/dataflow.yml",
        clone="dora-hub",
        commands=_hub_command("pyarrow-sender") | _hub_command("dora-echo") | _hub_command("pyarrow-assert"),
    ),
    Run(
        "examples/pyarrow-test/dataflow.yml",
        clone="dora-hub",
        commands=_hub_command("pyarrow-sender") | _hub_command("pyarrow-assert"),
    ),
    Run(
        "examples/python-async/dataflow.yaml",
        (
            ("receive_data_with_sleep", r"['\"]type['\"]: ['\"]INPUT['\"]"),
            ("receive_data_with_sleep", r"done!"),
        ),
        how="count",
        clone="dora-hub",
    ),
    Run(
        "examples/camera/dataflow.yml",
        clone="dora-hub",
        commands=_hub_command("opencv-video-capture") | _hub_command("opencv-plot"),
        environment=_WITHOUT_HARDWARE,
        stop_after=4,
    ),
    Run(
        "examples/camera/through-echo.yml",
        clone="dora-hub",
        commands=_hub_command("opencv-video-capture")
        | _hub_command("dora-echo")
        | _hub_command("opencv-plot"),
        environment=_WITHOUT_HARDWARE,
        stop_after=4,
        yaml=_CAMERA
        + """
  - id: echo
    path: dora-echo
    inputs: {image: camera/image}
    outputs: [image]
  - id: plot
    path: opencv-plot
    inputs: {image: {source: echo/image, queue_size: 1}}
""",
    ),
    Run(
        "examples/parquet-recorder/recorded.yml",
        (
            ("recorder", r"\[Recorder\] (?:Online|Flushing).*"),
            # Its metadata has the time, which `json` refuses.
            ("recorder", r"\[Recorder\] Serialize error: .*"),
        ),
        clone="dora-hub",
        commands=_hub_command("opencv-video-capture") | _hub_command("dora-parquet-recorder"),
        how="count",
        environment=_WITHOUT_HARDWARE,
        stop_after=12,
        yaml=_CAMERA
        + """
  - id: recorder
    path: dora-parquet-recorder
    inputs: {cam_feed: camera/image}
    outputs: [status]
    env: {LOG_DIR: logs, BATCH_SIZE: 30}
""",
    ),
    Run(
        "examples/lebai/replayed.yml",
        (("print", r".*joints.*"),),
        clone="dora-hub",
        commands=_hub_command("replay-client"),
        yaml="""
nodes:
  - id: clock
    path: clock.py
    inputs: {position: replay/position}
    outputs: [tick]
  - id: replay
    path: replay-client
    inputs: {pull_position: clock/tick}
    outputs: [position, end]
    env: {DATASET_PATH: ., EPISODE: 1}
  - id: print
    path: print.py
    inputs: {position: replay/position}
""",
        files={"clock.py": _CLOCK, "print.py": _PRINT_ALL},
        prepare="""
import pandas as pd
rows = {"episode_index": [0, 1, 1], "action": [[0.5], [1.5], [2.5]], "joints": [["a"], ["b"], ["c"]]}
pd.DataFrame(rows).to_parquet("dataset.parquet")
""",
    ),
    Run(
        "examples/vlm/recorded.yml",
        (("teacher", r"recorded .*"),),
        clone="dora-hub",
        commands=_hub_command("llama-factory-recorder"),
        environment={"LLAMA_FACTORY_ROOT_PATH": "."},
        yaml="""
nodes:
  - id: teacher
    path: teacher.py
    inputs: {tick: dora/timer/secs/1000, text: recorder/text}
    outputs: [image, ground_truth]
  - id: recorder
    path: recorder.py
    inputs: {image: teacher/image, ground_truth: teacher/ground_truth}
    outputs: [text]
""",
        # The program of the package has no call of `main`, which its command has.
        files={
            "teacher.py": _TEACHER,
            "recorder.py": "from llama_factory_recorder.main import main\nmain()\n",
        },
        python_path=("node-hub/llama-factory-recorder",),
        prepare="import os\nos.mkdir('data')\n",
    ),
    Run(
        "examples/aloha/dashboard.yml",
        (("images", r"ticks 20"),),
        clone="dora-hub",
        commands=_hub_command("lerobot-dashboard"),
        environment={"SDL_VIDEODRIVER": "dummy"},
        yaml="""
nodes:
  - id: images
    path: images.py
    inputs: {tick: dashboard/tick}
    outputs: [image]
  - id: dashboard
    path: lerobot-dashboard
    inputs: {tick: dora/timer/millis/50, image_left: images/image, image_right: images/image}
    outputs: [tick, episode, failed, end]
""",
        files={"images.py": _IMAGES},
        stop_after=6,
    ),
    Run(
        "examples/openai-server/echoed.yml",
        (("client", r"answer .*"),),
        clone="dora-hub",
        commands=_hub_command("dora-openai-server") | _hub_command("dora-echo"),
        yaml="""
nodes:
  - id: server
    path: dora-openai-server
    inputs: {v1_chat_completions: echo/v1_chat_completions}
    outputs: [v1_chat_completions]
  - id: echo
    path: dora-echo
    inputs: {v1_chat_completions: server/v1_chat_completions}
    outputs: [v1_chat_completions]
  - id: client
    path: client.py
    inputs: {tick: dora/timer/millis/200}
""",
        files={"client.py": _CHAT_CLIENT},
        stop_after=8,
    ),
]


# The nodes of dora-hub that no run above executes, by their requirement.
NOT_EXECUTED = {
    "weights of a model, mostly with torch": """
        dora-cotracker dora-distil-whisper dora-funasr dora-internvl dora-kokoro-tts dora-llama-cpp-python
        dora-mediapipe dora-mistral-rs dora-outtetts dora-parler dora-policy-inference dora-qwen
        dora-qwen-omni dora-qwen2-5-vl dora-sam2 dora-transformers dora-vad dora-vggt dora-yolo""",
    "a robot, or its bus": """
        dora-kit-car dora-piper dora-reachy1 dora-reachy2 dora-rustypot dora-ugv lebai-client""",
    "a camera, microphone, headset or gamepad": """
        dora-gradio dora-ios-lidar dora-microphone dora-pyaudio dora-pyorbbecksdk dora-pyrealsense
        dora-teleop-xr gamepad""",
    "a display with OpenGL, a keyboard or a terminal": """
        dora-keyboard dora-rerun mujoco-client terminal-input""",
    "models of robots from the network": """
        dora-mujoco dora-mujoco-husky dora-pytorch-kinematics""",
    "another service": """
        dora-mcp-host dora-openai-websocket openai-proxy-server""",
    "libraries that are not installed here (FFmpeg, dav1d, NASM, LeRobot)": """
        dora-dataset-record dora-dav1d dora-rav1e video-encoder""",
    "sources from GitHub, which the workspace of the nodes in Rust fetches": """
        dora-mcp-server dora-object-to-pose dora-record terminal-print""",
}


def hub_nodes(clone: Path) -> dict[str, list[str]]:
    """The nodes of dora-hub: the executed ones (``""``), and the others by their requirement."""
    nodes = {folder.name for folder in (clone / "node-hub").iterdir() if folder.is_dir()}
    executed = {name for run in RUNS for name in (*run.commands, *run.packages)}
    groups = {"": sorted(nodes & executed)}
    groups |= {why: sorted(nodes & set(names.split())) for why, names in NOT_EXECUTED.items()}
    unknown = nodes.difference(*groups.values())
    return groups | ({"unknown to this script": sorted(unknown)} if unknown else {})


@dataclass(frozen=True)
class Result:
    exit_code: int | None
    # For each of `Run.shows`.
    finds: list[list[str]]
    # Samples that each node lost at its inputs, as counted by Nervure or dora.
    lost: Counter[str]
    # The last lines that explain a failure.
    tail: list[str]


def python_beside(command: Path) -> Path:
    return command.parent / "python"


def compare(
    clones: dict[str, Path], nervure: Path, dora: Path | None, programs: Path | None, only: str = ""
) -> list[dict[str, Any]]:
    rows = []
    for run in RUNS:
        if not re.search(only, run.path):
            continue
        row: dict[str, Any] = {"clone": run.clone, "path": run.path, "changed": run.yaml is not None}
        ours = execute(run, clones[run.clone], nervure, Path(sys.executable), nervure_lines)
        theirs = None
        if dora and (programs or not run.is_native):
            theirs = execute(run, clones[run.clone], dora, python_beside(dora), dora_lines, programs)
        row["result"], row["why"] = judge(run, ours, theirs)
        row["note"] = run.note
        row["shown"] = [
            {"node": node, "pattern": pattern, "nervure": len(ours.finds[index])}
            | ({"dora": len(theirs.finds[index])} if theirs else {})
            for index, (node, pattern) in enumerate(run.shows)
        ]
        row["exit_codes"] = {"nervure": ours.exit_code} | ({"dora": theirs.exit_code} if theirs else {})
        if row["result"] != "same":
            row["last_lines"] = ours.tail
        print(f"{row['result']}: {run.clone}: {run.path} {row['why']}", file=sys.stderr)
        rows.append(row)
    return rows


def judge(run: Run, ours: Result, theirs: Result | None) -> tuple[str, str]:
    """The result, and why it is not the same."""
    if ours.exit_code is None:
        return "different", f"it ran for more than {run.seconds + EXTRA_SECONDS} s under Nervure"
    if theirs is None:
        ended = ours.exit_code == 0 and all(ours.finds)
        return ("runs", "") if ended else ("fails", f"exit code {ours.exit_code}")
    if theirs.exit_code is None:
        return "different", f"it ran for more than {run.seconds + EXTRA_SECONDS} s under dora"
    if ours.exit_code and theirs.exit_code:
        return "fails", f"exit code {ours.exit_code}, under dora {theirs.exit_code}"
    if bool(ours.exit_code) != bool(theirs.exit_code):
        return "different", f"exit code {ours.exit_code}, under dora {theirs.exit_code}"
    for (node, pattern), our, their in zip(run.shows, ours.finds, theirs.finds, strict=True):
        if run.how == "equal" and our != their:
            return "different", f"{node} prints other lines for `{pattern}`"
        # One of a few may be on either side of the stop.
        if abs(len(our) - len(their)) > max(1, COUNT_TOLERANCE * len(their)):
            why = f"{node} prints `{pattern}` {len(our)} times, under dora {len(their)} times"
            if ours.lost[node] or theirs.lost[node]:
                lost = f"{ours.lost[node]}, under dora {theirs.lost[node]}"
                why += f"; samples that found its queue full: {lost}, by their own accounts"
            return "different", why
        if bool(our) != bool(their):
            return "different", f"{node} prints `{pattern}` only under {'Nervure' if our else 'dora'}"
    return "same", ""


def execute(
    run: Run,
    clone: Path,
    command: Path,
    python: Path,
    lines: Callable[[str], Iterator[tuple[str, str]]],
    programs: Path | None = None,
) -> Result:
    with copied(run, clone, python, programs) as (dataflow, commands):
        if programs:
            build_with_dora(run, dataflow.parent, programs)
        else:
            build(run, dataflow.parent)
        arguments = ["run", dataflow.name]
        if command.name == "dora":
            arguments += ["--log-format", "json"]
            stop = [] if run.stop_after is None else ["--stop-after", str(run.stop_after)]
        else:
            arguments += ["--json", "--no-logs"]
            stop = [] if run.stop_after is None else ["--stop-after", f"{run.stop_after}s"]
        exit_code, text = bounded(
            [str(command), *arguments, *stop],
            folder=dataflow.parent,
            environment={
                **os.environ,
                "PATH": f"{commands}{os.pathsep}{python.parent}{os.pathsep}{os.environ['PATH']}",
                "VIRTUAL_ENV": str(python.parent.parent),
                "NO_COLOR": "1",
                **run.environment,
                **python_path(run, clone),
            },
            seconds=(run.stop_after or run.seconds) + EXTRA_SECONDS,
        )
    printed = list(lines(text))
    finds: list[list[str]] = [
        [find.group() for printer, line in printed if printer == node for find in re.finditer(pattern, line)]
        for node, pattern in run.shows
    ]
    lost = lost_by_nervure(text) if command.name == "nervure" else lost_by_dora(printed)
    tail = [f"{node}: {line}"[:300] for node, line in printed[-6:]] or text.splitlines()[-3:]
    return Result(exit_code, finds, lost, [line.replace(str(dataflow.parent), "FOLDER") for line in tail])


def python_path(run: Run, clone: Path) -> dict[str, str]:
    folders = os.pathsep.join(str(clone / folder) for folder in run.python_path)
    return {"PYTHONPATH": folders} if folders else {}


@contextmanager
def copied(run: Run, clone: Path, python: Path, programs: Path | None) -> Iterator[tuple[Path, Path]]:
    """A copy of the dataflow's folder, because runs write into it, and a folder with the commands."""
    with tempfile.TemporaryDirectory(prefix="dora-compat-") as temporary:
        folder = Path(temporary) / clone.name / Path(run.path).parent
        if run.packages and not programs:
            copy_workspace(clone, Path(temporary) / clone.name)
        else:
            shutil.copytree(clone / Path(run.path).parent, folder)
        for other in run.beside:
            shutil.copytree(clone / other, Path(temporary) / clone.name / other)
        commands = Path(temporary) / "commands"
        commands.mkdir()
        # `dora run` runs the `build` commands, whose packages are installed already.
        write_command(commands / "pip", "#!/bin/sh\n")
        for name, program in run.commands.items():
            run_it = f"import runpy\nrunpy.run_path({str(clone / program)!r}, run_name='__main__')\n"
            write_command(commands / name, f"#!{python}\n{run_it}")
        dataflow = folder / Path(run.path).name
        if run.yaml is not None:
            dataflow.write_text(run.yaml)
        for name, text in run.files.items():
            (folder / name).write_text(text)
        if run.prepare:
            subprocess.run([python, "-c", run.prepare], cwd=folder, check=True)
        yield dataflow, commands


def copy_workspace(clone: Path, copy: Path) -> None:
    """Copies dora's workspace, and names Nervure's crate in the place of dora's."""
    shutil.copytree(clone, copy, ignore=shutil.ignore_patterns(".git", "target"), symlinks=True)
    manifest = copy / "Cargo.toml"
    ours = f'dora-node-api = {{ path = "{REPOSITORY / "compat/dora/node"}", default-features = false }}'
    text, count = re.subn(r"(?m)^dora-node-api = .*$", ours, manifest.read_text())
    if count != 1:
        raise SystemExit(f"error: {clone / 'Cargo.toml'} has {count} lines for dora-node-api, expected 1")
    manifest.write_text(text)
    # Kept, because the dependencies take minutes.
    target = REPOSITORY / "target/dora-examples"
    target.mkdir(parents=True, exist_ok=True)
    (copy / "target").symlink_to(target)


def build(run: Run, folder: Path) -> None:
    """Builds the programs of a dataflow by the steps of the guide."""
    if run.packages:
        packages = [word for package in run.packages for word in ("-p", package)]
        without_debug = {**os.environ, "CARGO_PROFILE_DEV_DEBUG": "0"}
        subprocess.run(["cargo", "build", "--quiet", *packages], cwd=folder, env=without_debug, check=True)
    if not run.build:
        return
    libraries = ["-p", "dora-node-api-c", "-p", "dora-operator-api-c"]
    build = ["cargo", "build", "--quiet", "--locked", *libraries]
    subprocess.run(build, cwd=REPOSITORY / "compat/dora", check=True)
    places = {
        "link": f"-L {REPOSITORY / 'target/debug'}",
        "system": "-lm -ldl -lpthread",
    }
    compile_all(run, folder, places)


def build_with_dora(run: Run, folder: Path, programs: Path) -> None:
    """As `build`, with programs and libraries that a folder has from dora's own crates."""
    if run.packages:
        target = folder.parents[1] / "target" / "debug"
        target.mkdir(parents=True)
        for package in run.packages:
            shutil.copy(programs / package, target)
        # The `build` lines of the file must not build again.
        write_command(folder.parents[2] / "commands" / "cargo", "#!/bin/sh\n")
    compile_all(run, folder, {"link": f"-L {programs}", "system": "-lm -lrt -ldl -lz -lpthread"})


def compile_all(run: Run, folder: Path, places: dict[str, str]) -> None:
    for command in run.build:
        subprocess.run(shlex.split(command.format_map(places)), cwd=folder, check=True)


def write_command(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def bounded(
    command: list[str], *, folder: Path, environment: dict[str, str], seconds: int
) -> tuple[int | None, str]:
    """The exit code (None after a timeout), and the output."""
    with tempfile.TemporaryFile("w+", errors="replace") as printed:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        exit_code: int | None
        try:
            exit_code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            exit_code = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        return exit_code, printed.read()


def nervure_lines(text: str) -> Iterator[tuple[str, str]]:
    for message in json_lines(text):
        if message.get("message") == "log" and message.get("stream") != "keeper":
            yield message["node"], message["text"]


def lost_by_nervure(text: str) -> Counter[str]:
    lost: Counter[str] = Counter()
    for message in json_lines(text):
        if message.get("message") == "summary":
            for edge in message["edges"]:
                lost[edge["input"].partition("/")[0]] += edge["lost"]
    return lost


def lost_by_dora(printed: list[tuple[str, str]]) -> Counter[str]:
    return Counter(node for node, line in printed if DISCARDED in line)


def dora_lines(text: str) -> Iterator[tuple[str, str]]:
    for message in json_lines(text):
        if message.get("node_id"):
            # Python's `logging` writes a JSON object into that line.
            logged = next(json_lines(message["message"]), {}).get("fields", {})
            yield message["node_id"], logged.get("message", message["message"])


def json_lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue
