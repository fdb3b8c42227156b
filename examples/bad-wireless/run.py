"""Send the recorded drive, uncompressed, over a link that loses a fifth of its packets and has an outage.

Everything runs in network namespaces on this machine (it needs root, or the right to make namespaces). The
result is a plot of the link's behaviour, and the video as it arrived.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
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
REPOSITORY = EXAMPLE.parents[1]
VIDEO = REPOSITORY / "examples" / "drive" / "data" / "road_960x540_25fps.mp4"
RATE_HZ = 25.0
SECONDS = 28.0
HEADER = np.dtype([("number", "<u8"), ("due", "<u8"), ("arrived", "<u8"), ("length", "<u8")])
STEPS = [(0.0, 54.0), (8.0, 300.0), (22.0, 54.0)]
OUTAGE = (14.0, 17.0)


@dataclass
class Arrivals:
    """The frames that arrived, with times in seconds from the start of the emulated link."""

    number: np.ndarray
    due: np.ndarray
    arrived: np.ndarray
    frames: list[np.ndarray]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("out") / "bad-wireless", metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    command = ["cargo", "build", "--release", "--locked", "-p", "bad-wireless", "-p", "nervure-linkemu"]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    with tempfile.TemporaryDirectory(prefix="bad-wireless-") as folder:
        work = Path(folder)
        shape = decode(work / "video.yuv")
        if code := drive(work, shape, arguments.seed):
            return code
        *seconds, summary = read_lines(work / "emulator.json")
        arrivals = read_arrivals(work / "arrived.bin", shape, summary["start_monotonic_nanos"])
        link = read_lines(work / "link.json")
    if not arrivals.frames:
        print("error: no frame arrived", file=sys.stderr)
        return 1
    plot(arrivals, link, seconds, arguments.output / "plot.png")
    write_video(arrivals, arguments.output / "arrived.mp4")
    print_summary(arrivals)
    print(f"plot and video: {arguments.output}/plot.png, {arguments.output}/arrived.mp4")
    return 0


def decode(target: Path) -> tuple[int, int]:
    """Writes the drive as raw I420 frames, 778 KB each; returns the shape of a frame."""
    video = cv2.VideoCapture(str(VIDEO))
    shape = (0, 0)
    with target.open("wb") as file:
        while True:
            decoded, bgr = video.read()
            if not decoded:
                return shape
            frame = cv2.cvtColor(bgr, cv2.COLOR_BGR2YUV_I420)
            shape = frame.shape
            file.write(frame.tobytes())


def drive(work: Path, shape: tuple[int, int], seed: int) -> int:
    """Runs both ends with the bad link between them."""
    binaries = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "release"
    program = str(binaries / "bad-wireless")
    keys = {}
    for host in ("base", "robot"):
        made = subprocess.run(
            [program, "key", work / f"{host}.key"], check=True, capture_output=True, text=True
        )
        keys[host] = made.stdout.strip()
    address = "10.77.0.1:7447"
    receive = [program, "receive", work / "base.key", keys["robot"], address, work / "arrived.bin"]
    send = [program, "send", work / "robot.key", keys["base"], address, work / "video.yuv"]
    send += [shape[0] * shape[1], RATE_HZ, int(SECONDS * RATE_HZ)]
    into = ["sh", "-c", f'exec "$@" >{work / "link.json"}', "sh"]
    emulator = [binaries / "nervure-linkemu", "run", "--scenario", EXAMPLE / "scenario.toml", "--live"]
    emulator += ["--seed", seed, "--json", work / "emulator.json", "--"]
    words = [*emulator, *receive, "---", *into, *send]
    return subprocess.run([str(word) for word in words], check=False).returncode


def read_arrivals(path: Path, shape: tuple[int, int], start: int) -> Arrivals:
    heads, frames = [], []
    with path.open("rb") as file:
        while head := file.read(HEADER.itemsize):
            heads.append(np.frombuffer(head, HEADER)[0])
            frames.append(np.frombuffer(file.read(int(heads[-1]["length"])), np.uint8).reshape(shape))
    table = np.array(heads, HEADER)
    since = {name: (table[name] - np.uint64(start)).astype(float) * 1e-9 for name in ("due", "arrived")}
    return Arrivals(table["number"].astype(int), since["due"], since["arrived"], frames)


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def plot(arrivals: Arrivals, link: list[dict], seconds: list[dict], target: Path) -> None:
    """Plots rate, loss, latency and delivered frames over time."""
    figure, (rate, loss, latency, frames) = pyplot.subplots(4, 1, sharex=True, figsize=(10, 10))
    times = [line["seconds"] for line in link]
    edges = np.arange(0, SECONDS + 0.5, 0.5)
    middles = edges[:-1] + 0.25
    bits = len(arrivals.frames[0].tobytes()) * 8e-6
    counts, _ = np.histogram(arrivals.arrived, edges)

    steps = [*STEPS, (SECONDS, STEPS[-1][1])]
    rate.step(*zip(*steps, strict=True), where="post", color="0.6", label="channel")
    rate.step(
        [at for at, _ in steps],
        [0.8 * value for _, value in steps],
        where="post",
        color="0.6",
        linestyle="--",
        label="channel less 20 % loss",
    )
    rate.plot(middles, counts * bits / 0.5, color="C0", label="video delivered")
    rate.axhline(bits * RATE_HZ, color="C1", linewidth=0.8, label="video offered")
    rate.set_ylabel("Mbit/s")
    rate.legend(loc="upper right", fontsize="small")

    loss.axhline(20, color="0.6", label="channel")
    measured = [np.nan if line["silent"] else 100 * line["loss"] for line in link]
    loss.plot(times, measured, color="C0", label="as the link measures it, while packets arrive")
    loss.plot(
        *measured_loss(seconds),
        "o",
        color="C1",
        markersize=3,
        label="in each second, counted by the emulator",
    )
    loss.set_ylabel("loss, %")
    loss.set_ylim(-2, 102)
    loss.legend(loc="upper left", fontsize="small")

    latency.plot(arrivals.arrived, (arrivals.arrived - arrivals.due) * 1e3, ".", markersize=3)
    latency.set_ylabel("latency of frames, ms")
    latency.set_ylim(bottom=0)

    frames.bar(middles, counts / 0.5, width=0.45)
    frames.axhline(RATE_HZ, color="C1", linewidth=0.8)
    frames.set_ylabel("frames a second")
    frames.set_xlabel("seconds")
    for axes in (rate, loss, latency, frames):
        axes.axvspan(*OUTAGE, color="C3", alpha=0.15)
        axes.set_xlim(0, SECONDS)
    rate.set_title("Uncompressed video over bad wireless: 20 % loss, 54 and 300 Mbit/s, an outage of 3 s")
    figure.tight_layout()
    figure.savefig(target, dpi=110)


def measured_loss(seconds: list[dict]) -> tuple[list[float], list[float]]:
    """The loss of the robot's packets in each second, in percent, as the emulator counted it."""
    times, shares = [], []
    for before, now in itertools.pairwise(seconds):
        robot = [line["hosts"][1] for line in (before, now)]
        change = {
            name: robot[1][name]["packets"] - robot[0][name]["packets"]
            for name in ("delivered", "lost_random", "lost_outage")
        }
        lost, total = change["lost_random"] + change["lost_outage"], sum(change.values())
        if total > 20:
            times.append(now["seconds"] - 0.5)
            shares.append(100 * lost / total)
    return times, shares


def write_video(arrivals: Arrivals, target: Path) -> None:
    """Writes the video at the base: at each time the newest frame that had arrived, and its age."""
    height, width = arrivals.frames[0].shape[0] * 2 // 3, arrivals.frames[0].shape[1]
    writer = cv2.VideoWriter(str(target), cv2.VideoWriter_fourcc(*"mp4v"), RATE_HZ, (width, height))
    newest = -1
    for tick in range(int(SECONDS * RATE_HZ)):
        now = tick / RATE_HZ
        while newest + 1 < len(arrivals.frames) and arrivals.arrived[newest + 1] <= now:
            newest += 1
        if newest < 0:
            picture = np.zeros((height, width, 3), np.uint8)
            caption = f"{now:5.2f} s   nothing yet"
        else:
            picture = cv2.cvtColor(arrivals.frames[newest], cv2.COLOR_YUV2BGR_I420)
            age = now - arrivals.due[newest]
            caption = f"{now:5.2f} s   frame {arrivals.number[newest]}   {age * 1e3:4.0f} ms old"
        colour = (60, 60, 255) if newest < 0 or age > 0.5 else (255, 255, 255)
        cv2.rectangle(picture, (0, 0), (width, 44), (0, 0, 0), -1)
        cv2.putText(picture, caption, (14, 31), cv2.FONT_HERSHEY_SIMPLEX, 0.8, colour, 2)
        writer.write(picture)
    writer.release()


def print_summary(arrivals: Arrivals) -> None:
    def during(start: float, end: float) -> str:
        chosen = (arrivals.due >= start) & (arrivals.due < end)
        latency = (arrivals.arrived - arrivals.due)[chosen] * 1e3
        late = (
            f"latency {np.median(latency):.0f} ms median, {latency.max():.0f} ms at most"
            if len(latency)
            else "none"
        )
        return f"{chosen.sum() / (end - start):4.1f} of {RATE_HZ:.0f} frames a second, {late}"

    print(f"54 Mbit/s:           {during(1, 8)}")
    print(f"300 Mbit/s:          {during(9, OUTAGE[0])}")
    after = arrivals.arrived[arrivals.arrived >= OUTAGE[1]]
    if len(after):
        first = int(np.argmax(arrivals.arrived >= OUTAGE[1]))
        age = (arrivals.arrived[first] - arrivals.due[first]) * 1e3
        print(
            f"after the outage:    first frame {(after[0] - OUTAGE[1]) * 1e3:.0f} ms later, {age:.0f} ms old"
        )
    print(f"300 Mbit/s again:    {during(18, 22)}")
    print(f"54 Mbit/s again:     {during(23, SECONDS)}")


if __name__ == "__main__":
    sys.exit(main())
