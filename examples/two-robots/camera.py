"""The recorded road drive as a robot's camera: 960x540 at 25 Hz as raw I420, over and over."""

import os
from pathlib import Path

import cv2
from nervure import Node

VIDEO = Path(os.environ["RECORDINGS"]) / "road_960x540_25fps.mp4"


def main() -> None:
    cv2.setNumThreads(1)
    video = open_video()
    node = Node()
    start = node.now() + node.param("after")
    for event in node:
        if event.id != "tick" or node.now() < start:
            continue
        stamp = node.now()
        decoded, bgr = video.read()
        if not decoded:
            video = open_video()
            _, bgr = video.read()
        height, width = bgr.shape[:2]
        with node.loan("image", (height * 3 // 2, width), "u1", stamp=stamp) as sample:
            cv2.cvtColor(bgr, cv2.COLOR_BGR2YUV_I420, dst=sample.array)


def open_video() -> cv2.VideoCapture:
    video = cv2.VideoCapture(str(VIDEO), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    if not video.isOpened():
        raise SystemExit(f"camera: cannot open {VIDEO}")
    return video


if __name__ == "__main__":
    main()
