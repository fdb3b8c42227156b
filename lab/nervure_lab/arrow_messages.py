"""The messages of ``messages.py`` in Arrow, for peers that send Arrow arrays: an array of one struct. The
octets of the header, and those of a point cloud, are not copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nervure_lab.messages import (
    BYTES,
    FLOAT32,
    FRAME,
    OCTETS,
    POINT_BYTES,
    POINT_FIELDS,
    STRUCT,
    STRUCT_DIGITS,
    STRUCT_NAMES,
)
from nervure_lab.peer import Stamp, Wiring


class ArrowMessage:
    """The array of a type, over memory whose first bytes are the header."""

    def __init__(self, message: str, size: int) -> None:
        self.memory = bytearray(size)
        self.array = _struct(self.memory, size) if message == STRUCT else _point_cloud(self.memory)


def outgoing(wiring: Wiring, array_of: Callable[[bytearray], Any]) -> Callable[[bytearray, Stamp], Any]:
    """Returns a function that stamps a message and returns the array to send, of bytes by ``array_of``."""
    if wiring.message == BYTES:

        def stamped(source: bytearray, stamp: Stamp) -> Any:
            stamp(source)
            return array_of(source)

        return stamped
    message = ArrowMessage(wiring.message, wiring.payload_bytes)

    def stamped_message(_source: bytearray, stamp: Stamp) -> Any:
        stamp(message.memory)
        return message.array

    return stamped_message


def header_of(message: str, array: Any) -> memoryview:
    """Returns the header, or more, of a received array."""
    if message != STRUCT:
        octets = array.field("data").flatten()
        return memoryview(octets.buffers()[1])[octets.offset :]
    while array.type.field(0).name != "struct0":
        first, second, array = array.field(0), array.field(1), array.field(0)
    octets = [part.field(number) for part in (first, second) for number in range(OCTETS)]
    return memoryview(bytes(octet[0].as_py() for octet in octets))


def _struct(memory: bytearray, size: int) -> Any:
    """A child array for each octet: Arrow stores columns, and a struct is a row of them."""
    import pyarrow

    octets = pyarrow.py_buffer(memory)
    time, number = pyarrow.array([0.0]), pyarrow.array([0], pyarrow.uint64())

    def of(offset: int, size: int) -> Any:
        if size == 1:
            return pyarrow.Array.from_buffers(pyarrow.uint8(), 1, [None, octets.slice(offset, 1)])
        part = size // OCTETS
        prefix = STRUCT_NAMES.get(part, "Struct").lower()
        parts = [of(offset + index * part, part) for index in range(OCTETS)]
        names = [prefix + digit for digit in STRUCT_DIGITS]
        return pyarrow.StructArray.from_arrays([*parts, time, number], [*names, "time", "id"])

    return of(0, size)


def _point_cloud(memory: bytearray) -> Any:
    import pyarrow

    size = len(memory)
    points = pyarrow.Array.from_buffers(pyarrow.uint8(), size, [None, pyarrow.py_buffer(memory)])
    stamp = {"sec": pyarrow.array([0], pyarrow.int32()), "nanosec": pyarrow.array([0], pyarrow.uint32())}
    header = {"stamp": _of(stamp), "frame_id": pyarrow.array([FRAME])}
    count = len(POINT_FIELDS)
    fields = {
        "name": pyarrow.array(POINT_FIELDS),
        "offset": pyarrow.array(range(0, POINT_BYTES, 4), pyarrow.uint32()),
        "datatype": pyarrow.array([FLOAT32] * count, pyarrow.uint8()),
        "count": pyarrow.array([1] * count, pyarrow.uint32()),
    }
    members = {
        "header": _of(header),
        "height": pyarrow.array([1], pyarrow.uint32()),
        "width": pyarrow.array([size // POINT_BYTES], pyarrow.uint32()),
        "fields": pyarrow.FixedSizeListArray.from_arrays(_of(fields), count),
        "is_bigendian": pyarrow.array([False]),
        "point_step": pyarrow.array([POINT_BYTES], pyarrow.uint32()),
        "row_step": pyarrow.array([size], pyarrow.uint32()),
        "data": pyarrow.FixedSizeListArray.from_arrays(points, size),
        "is_dense": pyarrow.array([True]),
        "time": pyarrow.array([0.0]),
        "id": pyarrow.array([0], pyarrow.uint64()),
    }
    return _of(members)


def _of(members: dict[str, Any]) -> Any:
    import pyarrow

    return pyarrow.StructArray.from_arrays(list(members.values()), list(members))
