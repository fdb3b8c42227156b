"""The overlay of a frame: the lane, an attitude indicator, numbers. All images are BGR."""

from dataclasses import dataclass

import cv2
import numpy as np

WHITE = (255, 255, 255)
GREY = (190, 190, 190)
PANEL = (24, 20, 18)
LANE_FILL = (120, 200, 60)
LANE_LINE = (150, 255, 120)
SKY = (190, 130, 52)
GROUND = (44, 80, 118)
AMBER = (40, 190, 255)

# Coordinates are given to OpenCV in sixteenths of a pixel, so that lines move smoothly.
SHIFT = 4
LANE_WIDTH_METRES = 3.7  # of a motorway in the USA


@dataclass
class Figures:
    """The numbers beside one frame. Latencies are from capture to arrival at the node that draws."""

    frame: int
    frames: int
    image_millis: float
    lanes_millis: float
    attitude_millis: float | None


class Overlay:
    """Draws into frames of one size. The panels are in the sky, where they hide nothing of the road."""

    def __init__(self) -> None:
        self.font = cv2.FontFace("sans")
        # The first text loads the font, which takes as long as half a frame.
        self.text(np.zeros((1, 1, 3), np.uint8), "0", 0, 0, 12, WHITE)
        self.indicator = AttitudeIndicator(radius=68)

    def draw(
        self, frame: np.ndarray, lanes: np.ndarray, attitude: np.ndarray | None, figures: Figures
    ) -> None:
        """Draw everything into `frame`, height x width x BGR."""
        draw_lane(frame, lanes)
        self.draw_title(frame, figures)
        self.draw_attitude(frame, attitude, 16, 50)
        self.draw_figures(frame, lanes, figures, frame.shape[1] - 16 - 226, 50)

    def draw_title(self, frame: np.ndarray, figures: Figures) -> None:
        width = frame.shape[1]
        panel(frame, 0, 0, width, 36, radius=0)
        self.text(frame, "nervure", 16, 25, 20, WHITE, 600)
        self.text(frame, "composite: camera and IMU are from different drives", 106, 24, 14, GREY)
        self.text_right(frame, f"frame {figures.frame + 1:03} / {figures.frames}", width - 16, 24, 16, WHITE)

    def draw_attitude(self, frame: np.ndarray, attitude: np.ndarray | None, left: int, top: int) -> None:
        panel(frame, left, top, 292, 156)
        if attitude is None:
            self.text(frame, "no attitude", left + 106, top + 83, 15, GREY)
            return
        self.indicator.draw(frame, left + 79, top + 78, float(attitude[0]), float(attitude[1]))
        for row, (name, degrees) in enumerate(zip(("roll", "pitch", "yaw"), attitude, strict=True)):
            y = top + 48 + row * 38
            self.text(frame, name, left + 166, y, 14, GREY)
            self.text_right(frame, signed_degrees(degrees), left + 276, y, 20, WHITE)

    def draw_figures(
        self, frame: np.ndarray, lanes: np.ndarray, figures: Figures, left: int, top: int
    ) -> None:
        panel(frame, left, top, 226, 156)
        attitude_millis = figures.attitude_millis
        rows = (
            ("image", f"{figures.image_millis:.1f} ms"),
            ("lanes", f"{figures.lanes_millis:.1f} ms"),
            ("attitude", "none" if attitude_millis is None else f"{attitude_millis:.1f} ms"),
            ("off centre", offset_in_lane(lanes, frame.shape[1])),
        )
        self.text(frame, "from capture to this node", left + 16, top + 27, 13, GREY)
        for row, (name, value) in enumerate(rows):
            y = top + 56 + row * 26 + (7 if row == 3 else 0)
            self.text(frame, name, left + 16, y, 14, GREY)
            self.text_right(frame, value, left + 210, y, 17, WHITE)
        cv2.line(frame, (left + 16, top + 119), (left + 210, top + 119), (110, 110, 110), 1)

    def text(
        self,
        frame: np.ndarray,
        text: str,
        x: int,
        y: int,
        size: int,
        color: tuple[int, int, int],
        weight: int = 400,
    ) -> None:
        cv2.putText(frame, text, (x, y), color, self.font, size, weight)

    def text_right(
        self, frame: np.ndarray, text: str, x: int, y: int, size: int, color: tuple[int, int, int]
    ) -> None:
        cv2.putText(frame, text, (x, y), color, self.font, size, 500, cv2.PUT_TEXT_ALIGN_RIGHT)


class AttitudeIndicator:
    """An artificial horizon with pitch marks every 5 degrees, a roll pointer and a fixed aircraft symbol."""

    PIXELS_PER_DEGREE = 2.2

    def __init__(self, radius: int) -> None:
        self.radius = radius
        size = 2 * radius + 1
        disc = np.zeros((size, size), np.uint8)
        cv2.circle(disc, (radius, radius), radius - 1, 255, -1, cv2.LINE_AA)
        self.inside = cv2.merge([disc] * 3).astype(np.float32) / 255

    def draw(self, frame: np.ndarray, x: int, y: int, roll: float, pitch: float) -> None:
        """Centre the instrument at `x`, `y`. Roll is positive right side down, pitch nose up, in degrees."""
        radius = self.radius
        area = frame[y - radius : y + radius + 1, x - radius : x + radius + 1]
        face = self.face(roll, pitch)
        area[:] = area + (face - area.astype(np.float32)) * self.inside
        cv2.circle(frame, (x, y), radius, (230, 230, 230), 2, cv2.LINE_AA)

    def face(self, roll: float, pitch: float) -> np.ndarray:
        radius = self.radius
        face = np.full((2 * radius + 1, 2 * radius + 1, 3), SKY, np.uint8)
        # The horizon turns against the vehicle: `right` points along it, `down` into the ground.
        angle = -np.radians(roll)
        right = np.array([np.cos(angle), np.sin(angle)])
        down = np.array([-right[1], right[0]])
        centre = np.array([radius, radius], float)
        horizon = centre + down * pitch * self.PIXELS_PER_DEGREE

        far = 4 * radius
        ground = [
            horizon - right * far,
            horizon + right * far,
            horizon + right * far + down * far,
            horizon - right * far + down * far,
        ]
        cv2.fillConvexPoly(face, fixed_point(ground), GROUND, cv2.LINE_AA, SHIFT)
        line(face, horizon - right * far, horizon + right * far, WHITE, 2)
        for degrees in range(-90, 91, 5):
            mark = horizon - down * degrees * self.PIXELS_PER_DEGREE
            if degrees and np.hypot(*(mark - centre)) < 0.62 * radius:
                half = right * (18 if degrees % 10 == 0 else 9)
                line(face, mark - half, mark + half, WHITE, 1)
        draw_roll_scale(face, centre, radius, down)
        draw_aircraft(face, centre)
        return face


def draw_roll_scale(face: np.ndarray, centre: np.ndarray, radius: int, down: np.ndarray) -> None:
    for degrees in (-60, -45, -30, -20, -10, 0, 10, 20, 30, 45, 60):
        angle = np.radians(degrees)
        outward = np.array([np.sin(angle), -np.cos(angle)])
        length = 9 if degrees % 30 == 0 else 5
        line(face, centre + outward * (radius - 1), centre + outward * (radius - 1 - length), WHITE, 1)
    tip = centre - down * (radius - 11)
    side = np.array([-down[1], down[0]])
    pointer = [tip, tip + down * 9 + side * 5, tip + down * 9 - side * 5]
    cv2.fillConvexPoly(face, fixed_point(pointer), AMBER, cv2.LINE_AA, SHIFT)


def draw_aircraft(face: np.ndarray, centre: np.ndarray) -> None:
    for sign in (-1, 1):
        wing = [
            (sign * 40, -2),
            (sign * 15, -2),
            (sign * 15, 9),
            (sign * 19, 9),
            (sign * 19, 2),
            (sign * 40, 2),
        ]
        cv2.fillPoly(face, [fixed_point(centre + wing)], AMBER, cv2.LINE_AA, SHIFT)
    cv2.circle(face, (int(centre[0]), int(centre[1])), 3, AMBER, -1, cv2.LINE_AA)


def draw_lane(frame: np.ndarray, lanes: np.ndarray) -> None:
    """The car's lane as a translucent surface between its two lines; `lanes` as the lanes node sends them."""
    if np.isfinite(lanes).all():
        (left_near, left_far), (right_near, right_far) = lanes
        top, bottom = int(lanes[..., 1].min()) - 2, int(lanes[..., 1].max()) + 2
        road = frame[top:bottom]
        surface = road.copy()
        outline = np.array([left_near, left_far, right_far, right_near]) - (0, top)
        cv2.fillConvexPoly(surface, fixed_point(outline), LANE_FILL, cv2.LINE_AA, SHIFT)
        cv2.addWeighted(surface, 0.32, road, 0.68, 0, dst=road)
    for near, far in lanes:
        if np.isfinite(near).all():
            # Narrower towards the horizon, as a painted line is.
            outline = np.add([near, far, far, near], [(-5, 0), (-1, 0), (1, 0), (5, 0)])
            cv2.fillConvexPoly(frame, fixed_point(outline), LANE_LINE, cv2.LINE_AA, SHIFT)


def offset_in_lane(lanes: np.ndarray, width: int) -> str:
    """Distance of the camera from the middle of the lane, if the lane has the standard width."""
    left, right = lanes[0, 0, 0], lanes[1, 0, 0]
    if not np.isfinite(left + right):
        return "unknown"
    metres = (width / 2 - (left + right) / 2) / (right - left) * LANE_WIDTH_METRES
    return f"{abs(metres):.2f} m {'right' if metres > 0 else 'left'}"


def signed_degrees(degrees: float) -> str:
    return f"{round(float(degrees), 1) + 0.0:+.1f}°".replace("-", "\N{MINUS SIGN}")


def panel(frame: np.ndarray, x: int, y: int, width: int, height: int, radius: int = 10) -> None:
    """Darken a rectangle with round corners."""
    area = frame[y : y + height, x : x + width]
    dark = area.copy()
    cv2.rectangle(dark, (radius, 0), (width - radius - 1, height), PANEL, -1)
    cv2.rectangle(dark, (0, radius), (width, height - radius - 1), PANEL, -1)
    for corner in (
        (radius, radius),
        (width - radius - 1, radius),
        (radius, height - radius - 1),
        (width - radius - 1, height - radius - 1),
    ):
        cv2.circle(dark, corner, radius, PANEL, -1, cv2.LINE_AA)
    cv2.addWeighted(dark, 0.66, area, 0.34, 0, dst=area)


def line(
    picture: np.ndarray, start: np.ndarray, end: np.ndarray, color: tuple[int, int, int], thickness: int
) -> None:
    start, end = fixed_point([start, end])
    cv2.line(picture, start, end, color, thickness, cv2.LINE_AA, SHIFT)


def fixed_point(points: object) -> np.ndarray:
    return np.round(np.asarray(points, float) * (1 << SHIFT)).astype(np.int32)
