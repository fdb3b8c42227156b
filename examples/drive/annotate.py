"""Join frame, lanes and attitude by capture time, draw them, and write a video and a contact sheet."""

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from nervure import Event, Node
from overlay import Figures, Overlay

SHEET_COLUMNS, SHEET_ROWS = 3, 4
THUMBNAIL = (480, 270)
VIDEO_RATE_HZ = 25

# An attitude further in time from a frame than this does not belong to it.
ATTITUDE_WITHIN_SECONDS = 0.05


class Arrival(NamedTuple):
    event: Event
    latency_millis: float


class Attitude(NamedTuple):
    stamp: float
    angles: np.ndarray
    latency_millis: float


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="folder for the video and the contact sheet")
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    cv2.setNumThreads(1)
    film = Film(out)
    overlay = Overlay()

    node = Node()
    for image, lanes, attitude in joined(node):
        metadata = image.event.metadata
        figures = Figures(
            frame=metadata["frame"],
            frames=metadata["frames"],
            image_millis=image.latency_millis,
            lanes_millis=lanes.latency_millis,
            attitude_millis=attitude and attitude.latency_millis,
        )
        frame = cv2.cvtColor(image.event.numpy(), cv2.COLOR_RGB2BGR)
        overlay.draw(frame, lanes.event.numpy(), attitude and attitude.angles, figures)
        film.add(frame, figures)
    sys.exit(0 if film.finish(stopped=node.stopping) else 1)


def joined(node: Node) -> Iterator[tuple[Arrival, Arrival, Attitude | None]]:
    """Each frame with the lanes that were found in it, and the attitude nearest to it in time."""
    attitudes: deque[Attitude] = deque(maxlen=1000)
    unmatched: dict[int, dict[str, Arrival]] = {}
    for event in node:
        if event.type != "INPUT":
            continue
        arrival = Arrival(event, event.age * 1000)
        if event.id == "attitude":
            attitudes.append(Attitude(event.stamp, event.numpy().copy(), arrival.latency_millis))
            continue
        # `lanes` keeps the stamp of its frame, so the two meet under one key.
        pair = unmatched.setdefault(event.stamp_nanos, {})
        pair[event.id] = arrival
        if len(pair) == 2:
            del unmatched[event.stamp_nanos]
            yield pair["image"], pair["lanes"], nearest(attitudes, event.stamp)


def nearest(attitudes: deque[Attitude], stamp: float) -> Attitude | None:
    best = min(attitudes, key=lambda attitude: abs(attitude.stamp - stamp), default=None)
    return best if best and abs(best.stamp - stamp) < ATTITUDE_WITHIN_SECONDS else None


class Film:
    """Writes the annotated frames, and counts them."""

    def __init__(self, out: Path) -> None:
        self.video_path = out / "annotated.mp4"
        self.sheet_path = out / "contact-sheet.png"
        self.video: cv2.VideoWriter | None = None
        self.figures: list[Figures] = []
        self.thumbnails: list[np.ndarray] = []

    def add(self, frame: np.ndarray, figures: Figures) -> None:
        if self.video is None:
            self.video = self.open_video(frame)
        self.video.write(frame)
        self.figures.append(figures)
        if figures.frame * SHEET_COLUMNS * SHEET_ROWS >= (len(self.thumbnails) + 0.5) * figures.frames:
            self.thumbnails.append(cv2.resize(frame, THUMBNAIL, interpolation=cv2.INTER_AREA))

    def open_video(self, frame: np.ndarray) -> cv2.VideoWriter:
        height, width = frame.shape[:2]
        # MPEG-4 part 2, which players support and browsers do not: OpenCV's wheel has no H.264 encoder, and
        # its VP8 is slower than real time.
        video = cv2.VideoWriter(
            str(self.video_path),
            cv2.CAP_FFMPEG,
            cv2.VideoWriter_fourcc(*"mp4v"),
            VIDEO_RATE_HZ,
            (width, height),
        )
        if not video.isOpened():
            sys.exit(f"annotate: cannot write {self.video_path}")
        return video

    def finish(self, stopped: bool) -> bool:
        """Close the files and print the counts; false if a frame is missing or out of order. A drive that
        was stopped ends early.
        """
        if self.video is None:
            print("no frame arrived", file=sys.stderr)
            return stopped
        self.video.release()
        blank = np.zeros((THUMBNAIL[1], THUMBNAIL[0], 3), np.uint8)
        tiles = self.thumbnails + [blank] * (SHEET_COLUMNS * SHEET_ROWS - len(self.thumbnails))
        rows = [np.hstack(tiles[row * SHEET_COLUMNS :][:SHEET_COLUMNS]) for row in range(SHEET_ROWS)]
        cv2.imwrite(str(self.sheet_path), np.vstack(rows))

        numbers = [figures.frame for figures in self.figures]
        expected = self.figures[0].frames
        complete = numbers == list(range(len(numbers) if stopped else expected))
        account = "none lost, in order" if complete else "INCOMPLETE"
        if complete and len(numbers) < expected:
            account += ", stopped before the end"
        print(f"{len(numbers)} of {expected} frames annotated, {account}")
        for name in ("image", "lanes", "attitude"):
            millis = [getattr(figures, f"{name}_millis") for figures in self.figures]
            millis = [value for value in millis if value is not None]
            if millis:
                p50, p99 = np.percentile(millis, [50, 99])
                print(f"{name}: in {len(millis)} frames, capture to here p50 {p50:.2f} ms, p99 {p99:.2f} ms")
        print(f"video: {self.video_path}")
        print(f"contact sheet: {self.sheet_path}")
        return complete


if __name__ == "__main__":
    main()
