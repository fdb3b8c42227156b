"""Executes dataflows of dora's examples under `nervure run` and `dora run`, and compares what nodes print."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

REPOSITORY = Path(__file__).resolve().parents[1]
# A run that takes longer than this beyond its own time is killed.
EXTRA_SECONDS = 30
# Runs that are bounded by time print as often as timers and scheduling let them.
COUNT_TOLERANCE = 0.25


@dataclass(frozen=True)
class Run:
    """A dataflow that runs anywhere, and what of its output is compared."""

    path: str
    # (node, pattern): what the pattern finds in the lines of that node, in their order.
    shows: tuple[tuple[str, str], ...] = ()
    # "equal": the same finds in the same order. "count": about as many.
    how: Literal["equal", "count"] = "equal"
    clone: Literal["dora", "dora-hub"] = "dora"
    # None: it ends by itself.
    stop_after: int | None = None
    # How long it may take.
    seconds: int = 20
    # Commands that the file names, with their file in the clone: `pip install` would make them.
    commands: dict[str, str] = field(default_factory=dict)
    # The file, where the clone has none that runs without hardware.
    yaml: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    # Folders of the clone that it needs beside its own.
    beside: tuple[str, ...] = ()
    # Commands that build the programs with Nervure's libraries, before the run. Then it is not compared: for
    # dora the same programs would have to be built with all of dora.
    build: tuple[str, ...] = ()
    # Packages of dora's workspace to build so, with the one change that the guide names.
    packages: tuple[str, ...] = ()


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
        (("rust-sink", r"sink received message: .*"),),
        packages=tuple(f"rust-dataflow-example-{name}" for name in ("node", "status-node", "sink")),
    ),
    Run(
        "examples/c-dataflow/dataflow.yml",
        (
            ("c_node", r"finished successfully"),
            ("c_sink", r"received input `counter` with data: .*"),
            ("c_sink", r"finished successfully"),
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
]


@dataclass(frozen=True)
class Result:
    exit_code: int | None
    # For each of `Run.shows`.
    finds: list[list[str]]
    # The last lines that explain a failure.
    tail: list[str]


def python_beside(command: Path) -> Path:
    return command.parent / "python"


def compare(
    clones: dict[str, Path], nervure: Path, dora: Path | None, only: str = ""
) -> list[dict[str, Any]]:
    rows = []
    for run in RUNS:
        if only not in run.path:
            continue
        row: dict[str, Any] = {"clone": run.clone, "path": run.path, "changed": run.yaml is not None}
        ours = execute(run, clones[run.clone], nervure, Path(sys.executable), nervure_lines)
        is_compared = dora is not None and not run.build and not run.packages
        theirs = (
            execute(run, clones[run.clone], dora, python_beside(dora), dora_lines)
            if dora and is_compared
            else None
        )
        row["result"], row["why"] = judge(run, ours, theirs)
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
            return "different", f"{node} prints `{pattern}` {len(our)} times, under dora {len(their)} times"
        if bool(our) != bool(their):
            return "different", f"{node} prints `{pattern}` only under {'Nervure' if our else 'dora'}"
    return "same", ""


def execute(
    run: Run,
    clone: Path,
    command: Path,
    python: Path,
    lines: Callable[[str], Iterator[tuple[str, str]]],
) -> Result:
    with copied(run, clone, python) as (dataflow, commands):
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
            },
            seconds=(run.stop_after or run.seconds) + EXTRA_SECONDS,
        )
    printed = list(lines(text))
    finds: list[list[str]] = [
        [find.group() for printer, line in printed if printer == node for find in re.finditer(pattern, line)]
        for node, pattern in run.shows
    ]
    tail = [f"{node}: {line}"[:300] for node, line in printed[-6:]] or text.splitlines()[-3:]
    return Result(exit_code, finds, [line.replace(str(dataflow.parent), "FOLDER") for line in tail])


@contextmanager
def copied(run: Run, clone: Path, python: Path) -> Iterator[tuple[Path, Path]]:
    """A copy of the dataflow's folder, because runs write into it, and a folder with the commands."""
    with tempfile.TemporaryDirectory(prefix="dora-compat-") as temporary:
        folder = Path(temporary) / clone.name / Path(run.path).parent
        if run.packages:
            copy_workspace(clone, Path(temporary) / clone.name)
        else:
            shutil.copytree(clone / Path(run.path).parent, folder)
        for other in run.beside:
            shutil.copytree(clone / other, Path(temporary) / clone.name / other)
        commands = Path(temporary) / "commands"
        commands.mkdir()
        # `dora run` runs the `build` commands: what they install is there already.
        write_command(commands / "pip", "#!/bin/sh\n")
        for name, program in run.commands.items():
            run_it = f"import runpy\nrunpy.run_path({str(clone / program)!r}, run_name='__main__')\n"
            write_command(commands / name, f"#!{python}\n{run_it}")
        dataflow = folder / Path(run.path).name
        if run.yaml is not None:
            dataflow.write_text(run.yaml)
        yield dataflow, commands


def copy_workspace(clone: Path, copy: Path) -> None:
    """Copies dora's workspace, and names Nervure's crate in the place of dora's."""
    shutil.copytree(clone, copy, ignore=shutil.ignore_patterns(".git", "target"), symlinks=True)
    manifest = copy / "Cargo.toml"
    ours = f'dora-node-api = {{ path = "{REPOSITORY / "bindings/dora"}", default-features = false }}'
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
    subprocess.run(["cargo", "build", "--quiet", "--locked", *libraries], cwd=REPOSITORY, check=True)
    places = {
        "link": f"-L {REPOSITORY / 'target/debug'}",
        "system": "-lm -ldl -lpthread",
    }
    for command in run.build:
        subprocess.run(shlex.split(command.format_map(places)), cwd=folder, check=True)


def write_command(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def bounded(
    command: list[str], *, folder: Path, environment: dict[str, str], seconds: int
) -> tuple[int | None, str]:
    """The exit code (None if the time was up), and all that was printed."""
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


def dora_lines(text: str) -> Iterator[tuple[str, str]]:
    for message in json_lines(text):
        if message.get("node_id"):
            # What Python's `logging` writes is a JSON object in that line.
            logged = next(json_lines(message["message"]), {}).get("fields", {})
            yield message["node_id"], logged.get("message", message["message"])


def json_lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except ValueError:
                continue
