"""Every example runs by the commands of its README, with the results of its README."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import BUILD, CAN_BUILD_CPP

EXAMPLES = Path(__file__).parents[1] / "examples"


class Run(NamedTuple):
    exit_code: int
    printed: dict[str, list[str]]
    """Lines of each node's standard output."""
    edges: dict[str, dict]
    """The summary of every edge, by its consumer's input."""
    stderr: str


def nervure(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command of this environment, whose Python the nodes get, whether or not it is activated."""
    folder = Path(sys.prefix) / "bin"
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    command = shutil.which("nervure", path=path)
    assert command, "the nervure command is not installed: `make test` does it"
    environment = os.environ | {"PATH": path, "VIRTUAL_ENV": sys.prefix}
    return subprocess.run([command, *arguments], capture_output=True, text=True, env=environment, check=False)


def run(dataflow: Path, *arguments: str) -> Run:
    ended = nervure("run", dataflow, "--json", *arguments)
    messages = [json.loads(line) for line in ended.stdout.splitlines()]
    printed: dict[str, list[str]] = {}
    for message in messages:
        if message["message"] == "log" and message["stream"] == "stdout":
            printed.setdefault(message["node"], []).append(message["text"])
    edges = {
        edge["input"]: edge
        for message in messages
        if message["message"] == "summary"
        for edge in message["edges"]
    }
    return Run(ended.returncode, printed, edges, ended.stderr)


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy, so that nothing is written into the checkout."""
    return shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.mark.timeout(120)
def test_drive_annotates_every_frame(examples: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="pip install -r examples/drive/requirements.txt")
    ended = run(examples / "drive" / "dataflow.yml")
    assert ended.exit_code == 0, ended

    assert "221 of 221 frames published" in ended.printed["camera"]
    assert "221 of 221 frames annotated, none lost, in order" in ended.printed["annotate"]
    for consumer in ("lanes/image", "annotate/image", "annotate/lanes"):
        edge = ended.edges[consumer]
        assert (edge["sent"], edge["received"], edge["lost"]) == (221, 221, 0), edge
    with (examples / "drive" / "data" / "imu_9axis_99hz.csv").open() as recording:
        seconds = [float(line.split(",")[0]) for line in list(recording)[1:]]
    assert ended.edges["fusion/sample"]["sent"] == sum(79 <= second < 79 + 9 for second in seconds)

    out = examples.parent / "out" / "drive"
    assert [
        f"video: {out / 'annotated.mp4'}",
        f"contact sheet: {out / 'contact-sheet.png'}",
    ] == ended.printed["annotate"][-2:]
    sheet = cv2.imread(str(out / "contact-sheet.png"))
    assert sheet.shape == (4 * 270, 3 * 480, 3)
    assert sheet.std() > 20, "the sheet is blank"
    assert frames_of_video(cv2, out / "annotated.mp4") == [(540, 960, 3)] * 221


@pytest.mark.timeout(120)
def test_drive_may_be_stopped_before_its_end(examples: Path) -> None:
    pytest.importorskip("cv2", reason="pip install -r examples/drive/requirements.txt")
    # The recording lasts 9 s. On a busy machine it takes seconds until its first frame is annotated.
    ended = run(examples / "drive" / "dataflow.yml", "--stop-after", "7s")
    assert ended.exit_code == 0 and "exited with code" not in ended.stderr, ended
    assert any("none lost, in order, stopped before the end" in line for line in ended.printed["annotate"]), (
        ended
    )


def test_drive_finds_the_lane_in_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    cv2 = pytest.importorskip("cv2", reason="pip install -r examples/drive/requirements.txt")
    monkeypatch.syspath_prepend(EXAMPLES / "drive")
    from lanes import LaneFinder

    video = cv2.VideoCapture(str(EXAMPLES / "drive" / "data" / "road_960x540_25fps.mp4"))
    finder = LaneFinder()
    frames = 0
    while (decoded := video.read())[0]:
        left, right = finder.find(cv2.cvtColor(decoded[1], cv2.COLOR_BGR2RGB))
        # Bounds measured in the pictures: the car keeps to its lane.
        assert 120 < left[0][0] < 220 and 780 < right[0][0] < 900, (frames, left, right)
        assert 405 < left[1][0] < 445 and 525 < right[1][0] < 570, (frames, left, right)
        frames += 1
    assert frames == 221


def frames_of_video(cv2, path: Path) -> list[tuple[int, int, int]]:
    video = cv2.VideoCapture(str(path))
    shapes = []
    while (decoded := video.read())[0]:
        shapes.append(decoded[1].shape)
    return shapes


def use_the_build_of_the_tests(dataflow: Path) -> None:
    """The Rust nodes in cargo's profile `release` would be a build of their own."""
    repository = EXAMPLES.parent
    build = f"cargo build --manifest-path {repository}/Cargo.toml --locked {BUILD}"
    text, count = re.subn(r"cargo build --release -p \S+", build, dataflow.read_text())
    assert count == 1, text
    dataflow.write_text(text.replace("../../target/release", f"{repository}/target/debug"))


@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("cargo") is None, reason="the Rust listener is built by cargo")
def test_hello_arrives_in_both_languages(examples: Path) -> None:
    dataflow = examples / "hello" / "dataflow.yml"
    use_the_build_of_the_tests(dataflow)
    built = nervure("build", dataflow)
    assert built.returncode == 0, built.stderr
    ended = run(dataflow)
    assert ended.exit_code == 0, ended
    greetings = ["good morning", "hello", "hello again", "what a day", "good night"]
    assert ended.printed["python-listener"] == [f"Python heard: {greeting}" for greeting in greetings]
    assert ended.printed["rust-listener"] == [f"Rust heard: {greeting}" for greeting in greetings]


@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("cargo") is None, reason="the logger is built by cargo")
@pytest.mark.skipif(not CAN_BUILD_CPP, reason="apt install g++ pkg-config")
def test_control_keeps_the_pendulum_upright(examples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKG_CONFIG_PATH", str(Path(sys.prefix) / "lib" / "pkgconfig"))
    dataflow = examples / "control" / "dataflow.yml"
    use_the_build_of_the_tests(dataflow)
    built = nervure("build", dataflow)
    assert built.returncode == 0, built.stderr

    alone = dataflow.read_text()
    for text, controller in ((alone, "controller"), (alone.replace("# process:", "process:"), "robot")):
        dataflow.write_text(text)
        ended = run(dataflow, "--stop-after", "2s")
        assert ended.exit_code == 0, ended
        assert any("the pendulum fell 0 times" in line for line in ended.printed["plant"]), ended
        assert any(line.startswith("late in ") for line in ended.printed[controller]), ended
        assert ended.edges["plant/command"]["received"] > 100, ended


@pytest.mark.timeout(120)
def test_lossless_loses_nothing(examples: Path) -> None:
    ended = run(examples / "lossless" / "dataflow.yml")
    assert ended.exit_code == 0, ended
    assert ended.printed["consumer"] == ["400 of 400 arrived, in order"]
    edge = ended.edges["consumer/number"]
    assert (edge["sent"], edge["received"], edge["lost"]) == (400, 400, 0), edge
    assert edge["blocked_nanos"] > 0, "the producer never waited, so nothing was tested"


@pytest.mark.timeout(120)
def test_big_messages_arrive_whole(examples: Path) -> None:
    ended = run(examples / "big" / "dataflow.yml")
    assert ended.exit_code == 0, ended
    assert ended.printed["consumer"][0] == "20 of 20 messages of 100 MB arrived, 0 damaged"
    assert ended.edges["consumer/big"]["received"] == 20


@pytest.mark.timeout(120)
def test_two_robots_see_and_are_driven(examples: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="pip install -r examples/two-robots/requirements.txt")
    pytest.importorskip("matplotlib", reason="pip install -r examples/two-robots/requirements.txt")
    folder = examples / "two-robots"
    # On a busy machine samples are late: they would expire, and commands would not fit their queue.
    flow = folder / "dataflow.yml"
    patient = re.sub(r"lifespan: \d+ms", "lifespan: 30s", flow.read_text())
    flow.write_text(patient.replace("queue_size: 5,", "queue_size: 500,"))
    arguments = ["--seconds", "4", "--output", str(examples / "out")]
    ended = subprocess.run(
        [sys.executable, str(folder / "run.py"), *arguments], capture_output=True, text=True, check=False
    )
    if "cannot make" in ended.stderr:
        pytest.skip(f"needs the rights to make network namespaces: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended
    table = [line.split() for line in ended.stdout.splitlines()]
    delivered = {row[0]: float(row[4]) for row in table if len(row) > 5 and row[5] == "%"}
    assert len(delivered) == 6, ended.stdout
    # The machine that runs the tests may be too slow for the video.
    images = [part for topic, part in delivered.items() if "/image" in topic]
    others = [part for topic, part in delivered.items() if "/image" not in topic]
    assert min(images) > 10 and min(others) > 50, ended.stdout
    assert delivered["driver-one/cmd_vel"] > 95 and delivered["driver-two/cmd_vel"] > 95, ended.stdout
    assert "cmd_vel beside the video" in ended.stdout
    picture = cv2.imread(str(examples / "out" / "two-robots.png"))
    assert picture.shape[0] > 1000 and picture.std() > 20
    assert not any(str(folder) in command for command in command_lines()), "a process is left"


def command_lines() -> list[str]:
    """The command lines of all processes."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_bytes().decode(errors="replace"))
    return found
