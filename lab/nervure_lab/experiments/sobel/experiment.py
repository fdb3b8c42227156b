"""The Sobel operation on camera images: the time from capture to result, after ROS 2 for RoboCup, Figures 3
and 4.

A camera sends images of 640x480 at 30 Hz to a node that computes their gradient, each in a process of its own
or both in one; alone, and in the graph of a robot with 7 nodes and 7 topics. Beside them the same copy and
the same library call in one loop, without messages: the difference is the cost of the nodes. Peers of the lab
take part alone.
"""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.contract import Unavailable
from nervure_lab.experiments.own import RESAMPLINGS, Build, OwnExperiment, PlannedFigures
from nervure_lab.statistics import median, percentile
from nervure_lab.toolchain import Toolchain

if TYPE_CHECKING:
    from nervure_lab.drawing import Figure

NODES = Path(__file__).with_name("nodes.py")
RATE_HZ = 30
WARMUP_FRAMES = 30
BLOCK_FRAMES = 50
START_SECONDS = 2.0
LIBRARY = "library"
SENSORS = ("joints", "accelerometer", "gyroscope")


@dataclass(frozen=True)
class SobelCase:
    place: str
    """`library`, `processes` or `composed`."""
    in_graph: bool
    frames: int
    """Without the warm-up."""


class PythonBuild(Build):
    """The command and module of the checkout's environment, which also needs OpenCV."""

    def __init__(self) -> None:
        super().__init__(needs_python=True)

    def prepare(self, toolchain: Toolchain) -> None:
        super().prepare(toolchain)
        tried = subprocess.run([self.python, "-c", "import cv2"], capture_output=True, check=False)
        if tried.returncode:
            raise Unavailable("there is no OpenCV in .venv; `make demo` installs it")

    def versions(self) -> dict[str, str]:
        program = "import cv2; print(cv2.__version__)"
        found = subprocess.run([self.python, "-c", program], capture_output=True, text=True, check=True)
        return {**super().versions(), "opencv": found.stdout.strip()}


class Sobel(OwnExperiment):
    name = "sobel"
    summary = "an image from capture to the end of a Sobel operation, composed or not, alone or on a robot"

    def adapters(self) -> list[Build]:
        from nervure_lab.experiments.sobel.peers import peers

        return [PythonBuild(), *peers()]

    def plan(self, quick: bool) -> list[PlannedFigures]:
        repeats, frames = (2, 240) if quick else (5, 2000)
        places = [(LIBRARY, False), *((place, graph) for graph in (False, True) for place in PLACES)]
        return [
            SobelPlanned(_name(place, graph), SobelCase(place, graph, frames), repeats, self.name)
            for place, graph in places
        ]

    def expected_seconds(self, case: SobelCase) -> float:
        return START_SECONDS + (case.frames + WARMUP_FRAMES) / RATE_HZ

    def measure(self, build: Build, case: SobelCase, directory: Path) -> dict[str, Any]:
        from nervure_lab.experiments.sobel.peers import PeerBuild

        if isinstance(build, PeerBuild):
            return build.measure(case.frames, WARMUP_FRAMES, RATE_HZ)
        frames = case.frames + WARMUP_FRAMES
        if case.place == LIBRARY:
            words = [str(build.python), str(NODES), LIBRARY, str(frames)]
            ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
            lines = [line.split() for line in ended.stdout.splitlines()]
        else:
            nodes = dataflow(frames, in_graph=case.in_graph, composed=case.place == "composed")
            lines = build.logs_of(directory, nodes, "sobel")
        begun, taken = ([int(line[column]) for line in lines[WARMUP_FRAMES:]] for column in (0, 1))
        return {"begun_nanos": begun, "taken_nanos": taken, "lost": frames - len(lines)}

    def lines(self, runs: list[dict[str, Any]]) -> list[str]:
        """A table in the unit of the source, in the order of the plan."""
        names = dict.fromkeys(_label(run) for run in runs)
        repeats = {name: [run["figures"] for run in runs if _label(run) == name] for name in names}
        bare = [taken for figures in repeats.get(LIBRARY, []) for taken in figures["taken_nanos"]]
        lines = [
            "| case | images | lost | median ms (95 % interval) | p99 ms | p99.9 ms | maximum ms "
            "| until it begins, median ms | the same of the slowest 1 % | median above library ms |",
            "| :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for name, figures in repeats.items():
            taken = [nanos / 1e6 for run in figures for nanos in run["taken_nanos"]]
            if not taken:
                lines.append(f"| {name} | 0 | {sum(run['lost'] for run in figures)} | | | | | | | |")
                continue
            begun = [nanos / 1e6 for run in figures for nanos in run["begun_nanos"]]
            low, high = _interval([run["taken_nanos"] for run in figures])
            tail = percentile(taken, 99)
            of_slowest = median([begin for begin, end in zip(begun, taken, strict=True) if end >= tail])
            above = f"{median(taken) - median(bare) / 1e6:.2f}" if bare and name != LIBRARY else ""
            lines.append(
                f"| {name} | {len(taken)} | {sum(run['lost'] for run in figures)} | {median(taken):.2f} "
                f"({low:.2f} to {high:.2f}) | {tail:.2f} | {percentile(taken, 99.9):.2f} | {max(taken):.2f} "
                f"| {median(begun):.2f} | {of_slowest:.2f} | {above} |"
            )
        failures = {
            name: run["failure"] for name, figures in repeats.items() for run in figures if "failure" in run
        }
        return lines + [line for name, reason in failures.items() for line in ("", f"{name}: {reason}")]

    def pictures(self, runs: list[dict[str, Any]]) -> list[Figure]:
        """One without and one with the graph; the library stands in both."""
        import numpy as np

        from nervure_lab.experiments.sobel.figures import Case, draw

        found = []
        for name, what in (
            ("alone", "camera and operation alone"),
            ("robot", "in a robot's graph of 7 nodes and 7 topics"),
        ):
            cases = []
            for case in dict.fromkeys(_label(run) for run in runs):
                if case == LIBRARY or case.endswith(name):
                    taken = [run["figures"]["taken_nanos"] for run in runs if _label(run) == case]
                    micros = [np.array(nanos) / 1e3 for nanos in taken if nanos]
                    cases += [Case(case, micros)] if micros else []
            if any(case.name != LIBRARY for case in cases):
                found.append(
                    draw(f"sobel-{name}", f"Time from capture to the end of a Sobel operation, {what}", cases)
                )
        return found


PLACES = ("processes", "composed")


class SobelPlanned(PlannedFigures):
    """Peers take part alone, each in the place of its configuration."""

    def repeats_of(self, adapter: str) -> int:
        from nervure_lab.experiments.sobel.peers import peers

        places = {peer.name: f"{peer.place}-alone" for peer in peers()}
        return self.repeats if places.get(adapter, self.name) == self.name else 0


def _label(run: dict[str, Any]) -> str:
    """The name of a case, with the peer before it."""
    peer, name = run["adapter"], run["name"]
    return str(name) if peer == Build.name else f"{peer} {name}"


def _name(place: str, in_graph: bool) -> str:
    return place if place == LIBRARY else f"{place}-{'robot' if in_graph else 'alone'}"


def dataflow(frames: int, *, in_graph: bool, composed: bool) -> list[dict[str, Any]]:
    """The nodes; of the robot 7 with 7 topics: the image, three of the servos and sensors, and three computed
    from these.
    """
    nodes = [
        _node("camera", frames, {"tick": f"nervure/timer/hz/{RATE_HZ}"}, ["image"]),
        _node("sobel", frames, {"image": "camera/image"}, []),
    ]
    if in_graph:
        raw = {name: f"servos/{name}" for name in SENSORS}
        nodes += [
            _node("servos", frames, {"tick": "nervure/timer/hz/100"}, list(SENSORS)),
            _node("fusion", frames, {name: raw[name] for name in SENSORS[1:]}, ["orientation"]),
            _node("transforms", frames, {"joints": raw["joints"]}, ["transforms"]),
            _node(
                "motion",
                frames,
                {"joints": raw["joints"], "orientation": "fusion/orientation"},
                ["commands"],
            ),
            _node(
                "monitor",
                frames,
                {"transforms": "transforms/transforms", "commands": "motion/commands"},
                [],
            ),
        ]
    return [node | ({"process": "robot"} if composed else {}) for node in nodes]


def _node(role: str, frames: int, inputs: dict[str, str], outputs: list[str]) -> dict[str, Any]:
    node: dict[str, Any] = {"id": role, "path": str(NODES), "args": f"{role} {frames}", "inputs": inputs}
    return node | ({"outputs": outputs} if outputs else {})


def _interval(repeats: list[list[int]]) -> tuple[float, float]:
    """Of the median in milliseconds: a bootstrap over blocks of images."""
    blocks = [
        taken[first : first + BLOCK_FRAMES]
        for taken in repeats
        for first in range(0, len(taken), BLOCK_FRAMES)
    ]
    generator = random.Random(0)
    medians = sorted(
        median([nanos for block in generator.choices(blocks, k=len(blocks)) for nanos in block]) / 1e6
        for _ in range(RESAMPLINGS // 10 if len(blocks) > 100 else RESAMPLINGS)
    )
    return medians[int(0.025 * len(medians))], medians[int(0.975 * len(medians))]


EXPERIMENT = Sobel()
