"""A recorded road drive as a live camera: 960x540 RGB, at the recording's own frame times."""

import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from nervure import Node
from replay import at_recorded_times

VIDEO = Path(__file__).parent / "data" / "road_960x540_25fps.mp4"


def main() -> None:
    cv2.setNumThreads(1)
    video = cv2.VideoCapture(str(VIDEO), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    if not video.isOpened():
        sys.exit(f"camera: cannot open {VIDEO}")
    total = int(video.get(cv2.CAP_PROP_FRAME_COUNT))

    node = Node()
    published = 0
    for stamp, bgr in at_recorded_times(node, frames(video)):
        with node.loan(
            "image", bgr.shape, "u1", stamp=stamp, metadata={"frame": published, "frames": total}
        ) as sample:
            # The conversion to RGB writes into shared memory: there is no other copy of the RGB frame.
            cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB, dst=sample.array)
        published += 1
    print(f"{published} of {total} frames published")


def frames(video: cv2.VideoCapture) -> Iterator[tuple[float, np.ndarray]]:
    """Each frame (BGR) with its time in the recording in seconds."""
    while True:
        decoded, bgr = video.read()
        if not decoded:
            return
        yield video.get(cv2.CAP_PROP_POS_MSEC) / 1000, bgr


if __name__ == "__main__":
    main()
