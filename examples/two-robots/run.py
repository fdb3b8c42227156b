"""Run the dataflow of two robots and a base on this machine, over a link that loses a fifth of its packets.

Each machine is a set of namespaces of its own (needs root, or the right to make namespaces). The result is a
table of what arrived, and a picture.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import cv2
import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

EXAMPLE = Path(__file__).resolve().parent
RECORDINGS = EXAMPLE.parent / "drive" / "data"
LINK = ["--rate", "300mbit", "--delay", "1ms", "--queue", "100ms", "--loss", "20%"]
HOSTS = {"base": "operator.sh", "one": "robot.sh", "two": "robot.sh"}
TITLES = {"image": "video", "imu": "IMU", "cmd_vel": "cmd_vel"}
PICTURES = 3
"""In a row of the contact sheet."""


@dataclass
class Topic:
    """Outcome of a topic: the counts of `nervure stop`, and the arrivals that its consumer has recorded."""

    name: str
    machine: str
    kind: str
    accepted: int
    delivered: int
    lost: dict[str, int]
    times: np.ndarray
    """Time of each arrival, in seconds since 1970."""
    ages: np.ndarray
    """Age of each sample at its arrival, in milliseconds."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the robots drive")
    parser.add_argument("--output", type=Path, default=Path("out") / "two-robots", metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=1, help="of the packets that are lost")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="two-robots-") as folder:
        results = Path(folder)
        if code := drive(results, arguments.seconds, arguments.seed):
            return code
        topics = read_topics(results)
        if silent := [topic.name for topic in topics if not len(topic.ages)]:
            print(f"error: nothing arrived of {', '.join(silent)}", file=sys.stderr)
            return 1
        video_from = min(topic.times[0] for topic in topics if topic.kind == "image")
        print_table(topics, video_from)
        arguments.output.mkdir(parents=True, exist_ok=True)
        picture = arguments.output / "two-robots.png"
        draw(topics, results, video_from, picture)
        print(f"\npicture: {picture}")
    return 0


def drive(results: Path, seconds: float, seed: int) -> int:
    """Runs the three machines. Nothing of them is left, even if this process is killed."""
    tools = Path(sys.prefix) / "bin"
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    for program in ("nervure", "nervure-linkemu"):
        if not shutil.which(program, path=path):
            print(f"error: `{program}` is not installed: run `make two-robots`", file=sys.stderr)
            return 1
    # The cameras begin later, so that the commands are also seen without the video.
    script = {"base": [str(seconds), str(seconds / 4)]}
    words = [*LINK, "--hosts", ",".join(HOSTS), "--seed", str(seed), "--until", "base", "--"]
    for number, (host, name) in enumerate(HOSTS.items()):
        own = [f"NERVURE_STATE={results / host}", f"NERVURE_LOG_DIR={results / host / 'logs'}"]
        words += ["---"] * bool(number) + ["env", *own, "sh", name, *script.get(host, [])]
    environment = os.environ | {
        "PATH": path,
        "VIRTUAL_ENV": sys.prefix,
        "RECORDINGS": str(RECORDINGS),
        "RESULTS": str(results),
    }
    command = ["nervure-linkemu", "run", *words]
    ended = subprocess.run(command, cwd=EXAMPLE, env=environment, check=False)
    if ended.returncode:
        for log in sorted(results.glob("*.log")):
            print(f"--- {log.stem}\n{log.read_text()}", file=sys.stderr)
    return ended.returncode


def read_topics(results: Path) -> list[Topic]:
    rows = {}
    for file in results.glob("*.npz"):
        with np.load(file) as arrivals:
            rows |= {(file.stem, name): arrivals[name].reshape(-1, 2) for name in arrivals.files}
    topics = []
    for stream in json.loads((results / "stop.json").read_text())["streams"]:
        node, output = stream["topic"].split("/")
        kind, robot = node.split("-")
        match kind:
            case "camera":
                kind, place = "image", ("monitor", f"image-{robot}")
            case "imu":
                place = ("monitor", f"imu-{robot}")
            case _:
                kind, place = output, (f"wheels-{robot}", output)
        arrived = rows.get(place, np.empty((0, 2)))
        topics.append(
            Topic(
                stream["topic"],
                stream["machine"],
                kind,
                stream["accepted"],
                stream["delivered"],
                stream["lost"],
                arrived[:, 0],
                arrived[:, 1] * 1e3,
            )
        )
    order = list(TITLES)
    return sorted(topics, key=lambda topic: (order.index(topic.kind), topic.name))


def print_table(topics: list[Topic], video_from: float) -> None:
    print(f"\n{'TOPIC':32} {'SENT':>6} {'DELIVERED':>10} {'MEDIAN':>9} {'P99':>9}  LOST")
    for topic in topics:
        # Those that were dropped in the queue before the link were not accepted by it.
        sent = topic.accepted + topic.lost.get("queue", 0) + topic.lost.get("not sent", 0)
        share = 100 * topic.delivered / sent
        lost = ", ".join(f"{count} {cause}" for cause, count in topic.lost.items()) or "none"
        row = f"{topic.name} -> {topic.machine}"
        print(f"{row:32} {sent:6} {share:8.1f} % {latency(topic.ages)}  {lost}")
    commands = [topic for topic in topics if topic.kind == "cmd_vel"]
    for words, choose in (("without video", np.less), ("beside the video", np.greater_equal)):
        ages = np.concatenate([topic.ages[choose(topic.times, video_from)] for topic in commands])
        if len(ages):
            print(f"{'cmd_vel ' + words:32} {'':6} {'':10} {latency(ages)}")


def latency(ages: np.ndarray) -> str:
    return f"{np.median(ages):6.1f} ms {np.percentile(ages, 99):6.1f} ms"


def draw(topics: list[Topic], results: Path, video_from: float, target: Path) -> None:
    """Draws some pictures of each robot as they arrived, and the latency of all samples over time."""
    figure = pyplot.figure(figsize=(11, 11), layout="constrained")
    rows = figure.add_gridspec(5, PICTURES, height_ratios=[3, 3, 2, 2, 2])
    start = min(topic.times[0] for topic in topics)
    for row, topic in enumerate(topic for topic in topics if topic.kind == "image"):
        robot = topic.name.partition("/")[0].partition("-")[2]
        files = sorted(results.glob(f"image-{robot}-*.png"))
        chosen = np.linspace(0, len(files) - 1, min(PICTURES, len(files))).round().astype(int)
        for column, index in enumerate(chosen):
            axes = figure.add_subplot(rows[row, column])
            axes.imshow(cv2.cvtColor(cv2.imread(str(files[index])), cv2.COLOR_BGR2RGB))
            number = int(files[index].stem.rpartition("-")[2])
            when = topic.times[number] - start
            axes.set_title(f"robot {robot}, {when:.1f} s: {topic.ages[number]:.0f} ms old", fontsize=9)
            axes.set_axis_off()
    shared = None
    for row, (kind, title) in enumerate(TITLES.items()):
        axes = figure.add_subplot(rows[2 + row, :], sharex=shared)
        shared = shared or axes
        for topic in topics:
            if topic.kind == kind:
                label = f"{topic.name} to {topic.machine}"
                axes.plot(topic.times - start, topic.ages, ".", markersize=2.5, label=label)
        axes.axvline(video_from - start, color="0.6", linewidth=0.8)
        axes.set_ylabel(f"{title}, ms")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper right", fontsize=8, markerscale=3)
    shared.set_xlim(left=0)
    axes.set_xlabel("seconds; the line is where the video begins")
    figure.suptitle("Age of samples on arrival: 300 Mbit/s from each machine, 20 % loss, 2 ms round trip")
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
