"""Find the two lines of the car's own lane: edges, straight segments, one smoothed line per side."""

from functools import cache

import cv2
import numpy as np
from nervure import Node

# The road in this camera's image, in fractions of the height or width: lines are searched below the horizon,
# and reported between the near and the far row.
HORIZON = 0.60
NEAR = 0.995
FAR = 0.64
HALF_WIDTH_AT_HORIZON = 0.06

# A lane line leans towards the middle of the image. Segments with dx/dy outside these bounds are ignored.
LEAN = (0.5, 2.6)
OUTLIER_PIXELS = 10
SMOOTHING = 0.3
FORGET_AFTER_FRAMES = 25


def main() -> None:
    cv2.setNumThreads(1)
    finder = LaneFinder()
    node = Node()
    for event in node:
        if event.type == "INPUT":
            node.send("lanes", finder.find(event.numpy()), like=event)


class LaneFinder:
    """Keeps both lines over time, because a dashed line is not in every frame."""

    def __init__(self) -> None:
        self.sides = (SmoothedLine(), SmoothedLine())

    def find(self, rgb: np.ndarray) -> np.ndarray:
        """The left and the right line as float32 `[side][near, far][x, y]` in pixels; NaN if unknown."""
        height, width = rgb.shape[:2]
        near_y, far_y = NEAR * height, FAR * height
        segments = road_segments(rgb)
        lanes = np.full((2, 2, 2), np.nan, np.float32)
        for side, line in enumerate(self.sides):
            line.update(fit_side(segments, side, width / 2, near_y, far_y))
            if line.ends is not None:
                lanes[side] = [(line.ends[0], near_y), (line.ends[1], far_y)]
        return lanes


class SmoothedLine:
    """One line as its x at the near and at the far row, averaged exponentially."""

    def __init__(self) -> None:
        self.ends: np.ndarray | None = None
        self.frames_unseen = 0

    def update(self, seen: np.ndarray | None) -> None:
        if seen is None:
            self.frames_unseen += 1
            if self.frames_unseen > FORGET_AFTER_FRAMES:
                self.ends = None
            return
        self.frames_unseen = 0
        self.ends = seen if self.ends is None else self.ends + SMOOTHING * (seen - self.ends)


def road_segments(rgb: np.ndarray) -> np.ndarray:
    """Straight edges on the road, as rows of x1, y1, x2, y2."""
    height, width = rgb.shape[:2]
    top = int(HORIZON * height)
    road = cv2.cvtColor(rgb[top:], cv2.COLOR_RGB2GRAY)
    edges = cv2.Canny(cv2.GaussianBlur(road, (5, 5), 0), 60, 160)
    edges &= road_mask(height - top, width)
    found = cv2.HoughLinesP(edges, 1, np.pi / 180, threshold=20, minLineLength=18, maxLineGap=12)
    if found is None:
        return np.empty((0, 4))
    return found.reshape(-1, 4) + np.array([0, top, 0, top], float)


@cache
def road_mask(height: int, width: int) -> np.ndarray:
    mask = np.zeros((height, width), np.uint8)
    half = HALF_WIDTH_AT_HORIZON * width
    corners = [(0.03 * width, height), (width / 2 - half, 0), (width / 2 + half, 0), (0.97 * width, height)]
    return cv2.fillConvexPoly(mask, np.array(corners, np.int32), 255)


def fit_side(
    segments: np.ndarray, side: int, middle: float, near_y: float, far_y: float
) -> np.ndarray | None:
    """x at `near_y` and `far_y` of the line through one side's segments, weighted by their length."""
    x1, y1, x2, y2 = segments.T
    lean = (x2 - x1) / np.where(y2 == y1, 1e-6, y2 - y1)
    centre = (x1 + x2) / 2
    towards_middle, on_side = (-lean, centre < middle) if side == 0 else (lean, centre > middle)
    kept = segments[on_side & (towards_middle > LEAN[0]) & (towards_middle < LEAN[1])]
    if len(kept) == 0:
        return None
    x, y = np.concatenate([kept[:, 0:2], kept[:, 2:4]]).T
    weight = np.sqrt(np.tile(np.hypot(*(kept[:, 0:2] - kept[:, 2:4]).T), 2))
    line = np.polyfit(y, x, 1, w=weight)
    # A reflector or a car's edge must not bend the line: fit again without outliers.
    agrees = np.abs(np.polyval(line, y) - x) < OUTLIER_PIXELS
    if agrees.sum() >= 4:
        line = np.polyfit(y[agrees], x[agrees], 1, w=weight[agrees])
    return np.polyval(line, [near_y, far_y])


if __name__ == "__main__":
    main()
