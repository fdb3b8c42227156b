"""The values of `bindings/python/tests/values.py`, described for nodes in other languages:
`vectors.py FOLDER` writes `FOLDER/vectors` and `FOLDER/vectors.bin`.

A line of `vectors` is `NUMBER KIND ARGUMENTS | NAME`, with the number of the value:

- `bytes RANGE`, `text RANGE`
- `bool 0|1`, `integer NUMBER`, `unsigned NUMBER`, `float BITS`
- `tensor DTYPE DIMENSIONS LENGTH.. STRIDE.. RANGE`, with the code of `nervure_dtype`, and strides in bytes
- `custom ITEM_SIZE DIMENSIONS LENGTH..`: elements of a type that only NumPy has
- `arrow ARRAY`, with an array as in Arrow's C data interface: `FORMAT NAME FLAGS LENGTH NULLS OFFSET`, the
  number of buffers and a range for each, the number of children and each child, and 0 or 1 and the dictionary

Formats and names are ranges, too. A range is `START:SIZE` in `vectors.bin`, or `-` for a null pointer. Ranges
start at odd numbers, so that no data are aligned, and a NUL follows each.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2] / "bindings" / "python" / "tests"))

from values import Value, values

# The codes of `nervure_dtype`, by NumPy's names.
DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "bfloat16", "f4", "f8", "c8", "c16"]


def main() -> None:
    folder = Path(sys.argv[1])
    blob = Blob()
    lines = []
    for number, value in numbered():
        words = described(value.value, blob)
        lines.append(f"{number} {' '.join(map(str, words))} | {value.name}\n")
    (folder / "vectors").write_text("".join(lines))
    (folder / "vectors.bin").write_bytes(blob.bytes)


def numbered() -> list[tuple[int, Value]]:
    """The values that can be described, with their numbers."""
    return [(number, value) for number, value in enumerate(values()) if is_described(value.value)]


def is_described(value: Any) -> bool:
    return isinstance(value, (bytes, str, bool, int, float, np.ndarray, pa.Array)) and not isinstance(
        value, np.generic
    )


class Blob:
    """The contents of `vectors.bin`, to which ranges refer."""

    def __init__(self) -> None:
        self.bytes = bytearray()

    def put(self, data: bytes | memoryview | None) -> str:
        if data is None:
            return "-"
        self.bytes += b"\0" * (1 + len(self.bytes) % 2)
        start = len(self.bytes)
        self.bytes += data
        self.bytes += b"\0"
        return f"{start}:{len(data)}"


def described(value: Any, blob: Blob) -> list[Any]:
    match value:
        case bytes():
            return ["bytes", blob.put(value)]
        case str():
            return ["text", blob.put(value.encode())]
        case bool():
            return ["bool", int(value)]
        case int():
            return ["integer" if value < 2**63 else "unsigned", value]
        case float():
            return ["float", *struct.unpack("<Q", struct.pack("<d", value))]
        case np.ndarray():
            return described_tensor(value, blob)
        case _:
            return ["arrow", *described_array(value, blob)]


def described_tensor(array: np.ndarray[Any, Any], blob: Blob) -> list[Any]:
    names = [DTYPES.index(name) for name in (array.dtype.name, array.dtype.str[1:]) if name in DTYPES]
    if not names or array.dtype.byteorder == ">":
        return ["custom", array.itemsize, array.ndim, *array.shape]
    if any(stride < 0 for stride in array.strides) or array.size == 0:
        array = np.ascontiguousarray(array).reshape(array.shape)
    gaps = zip(array.shape, array.strides, strict=True)
    span = array.itemsize + sum((length - 1) * stride for length, stride in gaps) if array.size else 0
    data = ctypes.string_at(array.ctypes.data, span)
    return ["tensor", names[0], array.ndim, *array.shape, *array.strides, blob.put(data)]


class ArrowSchema(ctypes.Structure):
    pass


class ArrowArray(ctypes.Structure):
    pass


ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowSchema))),
    ("dictionary", ctypes.POINTER(ArrowSchema)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


def described_array(value: pa.Array, blob: Blob) -> list[Any]:
    array, schema = ArrowArray(), ArrowSchema()
    value._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
    parts = [value, value.dictionary] if isinstance(value, pa.DictionaryArray) else [value]
    # The interface has no sizes of buffers.
    known = [buffer for part in parts for buffer in part.buffers() if buffer is not None]
    sizes = {buffer.address: buffer.size for buffer in known}
    words = list(walked(array, schema, sizes, blob))
    for exported, kind in ((array, ArrowArray), (schema, ArrowSchema)):
        ctypes.CFUNCTYPE(None, ctypes.POINTER(kind))(exported.release)(ctypes.byref(exported))
    return words


def walked(array: ArrowArray, schema: ArrowSchema, sizes: dict[int, int], blob: Blob) -> list[Any]:
    words: list[Any] = [blob.put(schema.format), blob.put(schema.name or b""), schema.flags]
    words += [array.length, array.null_count, array.offset, array.n_buffers]
    for index in range(array.n_buffers):
        address = array.buffers[index]
        # The last buffer of views has the sizes of their data buffers.
        is_sizes = schema.format in (b"vu", b"vz") and index == array.n_buffers - 1
        size = 8 * (array.n_buffers - 3) if is_sizes else sizes.get(address or 0, 0)
        words.append(blob.put(None if address is None else ctypes.string_at(address, size)))
    words.append(array.n_children)
    for index in range(array.n_children):
        words += walked(array.children[index].contents, schema.children[index].contents, sizes, blob)
    words.append(int(bool(array.dictionary)))
    if array.dictionary:
        words += walked(array.dictionary.contents, schema.dictionary.contents, sizes, blob)
    return words


if __name__ == "__main__":
    main()
