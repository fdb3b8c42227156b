"""The types of messages that a case can name, after those of performance_test. Standard library alone.

- `bytes`: a payload without a type.
- `struct`: `Struct256` and `Struct4k`. A `Struct16` has 16 octets, and each larger one 16 of the size below,
  every one with a time and a number of its own; so a serialised `Struct4k` has 8464 bytes.
- `point-cloud`: as `sensor_msgs/PointCloud2`, with 8 fields of a point and a fixed array of octets.

The size counts all octets of a `struct`, and the array of a `point-cloud`. The lab's header is in the first
32 of them, for which `Struct16` has no room.
"""

from __future__ import annotations

from typing import Literal

Message = Literal["bytes", "struct", "point-cloud"]
BYTES: Message = "bytes"
STRUCT: Message = "struct"
POINT_CLOUD: Message = "point-cloud"
TITLES: dict[Message, str] = {BYTES: "", STRUCT: "Struct", POINT_CLOUD: "PointCloud"}
"""For names of cells, before the size."""

STRUCT_DIGITS = "0123456789abcdef"
"""In the names of the members: `struct0` to `structf`, `struct160` to `struct16f`."""
OCTETS = len(STRUCT_DIGITS)
STRUCT_NAMES = {OCTETS: "Struct16", OCTETS**2: "Struct256", OCTETS**3: "Struct4k"}
"""By size, the smaller ones first."""
POINT_FIELDS = ("x", "y", "z", "intensity", "ring", "time", "u", "v")
FLOAT32 = 7
"""`sensor_msgs/PointField`: the type of every field."""
POINT_BYTES = 4 * len(POINT_FIELDS)
FRAME = "lidar"


def expect_size(message: Message, size: int) -> None:
    """Raises ``ValueError`` for a size that the type does not have."""
    if message == STRUCT and size not in (OCTETS**2, OCTETS**3):
        raise ValueError(f"expected a struct of {OCTETS**2} or {OCTETS**3} bytes, got {size}")
    if message == POINT_CLOUD and (size % POINT_BYTES or size < POINT_BYTES):
        raise ValueError(f"expected a point cloud of a multiple of {POINT_BYTES} bytes, got {size}")
