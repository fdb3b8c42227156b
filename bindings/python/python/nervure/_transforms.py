"""Transforms between coordinate frames. Imported when first needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nervure import Event, Node
from nervure._native import lookup_transform

_Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Transform:
    """The pose of a source frame in a target frame."""

    translation: _Array
    """Position of the source's origin in the target frame, in metres: x, y, z."""
    rotation: _Array
    """Orientation of the source in the target frame, as a unit quaternion: x, y, z, w."""
    stamp_nanos: int | None
    """The time that it holds at, in nanoseconds since 1970-01-01 UTC; None for any time: every transform
    between the frames is static."""

    @property
    def matrix(self) -> _Array:
        """The homogeneous matrix, 4 x 4. It takes coordinates in the source frame to those in the target
        frame."""
        x, y, z, w = self.rotation
        matrix = np.eye(4)
        matrix[:3, :3] = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
        matrix[:3, 3] = self.translation
        return matrix

    def apply(self, points: npt.ArrayLike) -> _Array:
        """The coordinates in the target frame of points in the source frame: x, y, z along the last axis."""
        matrix = self.matrix
        result: _Array = np.asarray(points, np.float64) @ matrix[:3, :3].T + matrix[:3, 3]
        return result


class Transforms:
    """The transforms of the dataflow: those of `static_transforms`, and of every output of the type
    `std/Transform@1`."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def lookup(
        self,
        target: str,
        source: str,
        time: Event | float | None = None,
        *,
        timeout: float | None = 0.0,
    ) -> Transform:
        """The pose of the frame `source` in the frame `target`, by the rules of ROS 2's tf2: interpolated
        between samples, and never extrapolated.

        Args:
            target: The frame in which the pose is given.
            source: The frame whose pose it is.
            time: An event, for its stamp; nanoseconds since 1970-01-01 UTC as int; or seconds as float.
                None: the newest time that all transforms between the frames cover.
            timeout: Longest time in seconds to wait for a transform that has not come; None for no limit.
                Samples of other inputs stay in their queues meanwhile.

        Raises:
            TransformError: There is no such transform. Its ``kind`` is the reason.
            Stopped: The dataflow stopped while this waited.
        """
        translation, rotation, stamp = lookup_transform(self._node, target, source, time, timeout)
        return Transform(np.array(translation), np.array(rotation), stamp)
