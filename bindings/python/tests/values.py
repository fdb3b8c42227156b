"""Values of every kind that can be sent, each with a check for its receiver. Both ends import this module."""

from __future__ import annotations

import math
from array import array as machine_array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa

Check = Callable[[Any], None]


@dataclass
class Value:
    name: str
    value: Any
    check: Check


def values() -> list[Value]:
    return [*_plain(), *_tensors(), *_python(), *_nested(), *_arrow(), *_foreign()]


class OnlyDlpack:
    """A tensor of another library, which has DLPack alone."""

    def __init__(self, array: np.ndarray[Any, Any], device: tuple[int, int] | None = None) -> None:
        self._array, self._device = array, device

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device or self._array.__dlpack_device__()


class OnlyArray:
    """An object with ``__array__``, such as a data frame."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self._array


def same_array(expected: np.ndarray[Any, Any]) -> Check:
    def check(event: Any) -> None:
        found = event.numpy()
        assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
        assert found.shape == expected.shape, (found.shape, expected.shape)
        assert not found.flags.writeable
        # As bytes NaN equals NaN; as values padding is ignored.
        assert found.tobytes() == expected.tobytes() or np.array_equal(found, expected)
        assert isinstance(event.object, np.ndarray)

    return check


def _plain() -> Iterator[Value]:
    for data in [b"", b"\x00\xff", bytes(range(256)) * 300]:
        yield Value(f"bytes {len(data)}", data, _bytes(data))
    yield Value("bytearray", bytearray(b"abc"), _bytes(b"abc"))
    yield Value("memoryview", memoryview(b"abcdef")[2:5], _bytes(b"cde"))
    for text in ["", "hello", "žluťoučký 🐎\0", "x" * 100_000]:
        yield Value(f"text {len(text)}", text, _text(text))
    numbers = [True, False, 0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 0.0, -1.5, math.inf, 5e-324]
    for number in numbers:
        yield Value(f"number {number}", number, _number(number))
    yield Value("nan", math.nan, lambda event: _assert(math.isnan(event.object)))


def _tensors() -> Iterator[Value]:
    for code in "?bBhHiIlLqQefdgFDG":
        array = (
            np.arange(24).reshape(2, 3, 4) % 2 if code == "?" else np.arange(24).reshape(2, 3, 4)
        ).astype(code)
        yield Value(f"dtype {code}", array, same_array(array))
    structure = np.dtype([("position", "<f4", (3,)), ("label", "<U3"), ("inner", [("a", ">i2"), ("b", "?")])])
    others: list[tuple[str, Any]] = [
        ("big-endian", np.arange(5, dtype=">f4")),
        ("datetimes", np.arange("2026-01-01", "2026-01-08", dtype="M8[D]").astype("M8[ns]")),
        ("durations", np.array([1, -2, 3], "m8[ms]")),
        ("text", np.array([["a", "žluť"], ["", "xyz"]])),
        ("fixed bytes", np.array([b"a", b"bcd"])),
        ("void", np.array([b"abcd", b"efgh"], "V4")),
        ("structure", np.zeros(4, structure)),
        ("padded structure", np.ones(3, np.dtype([("a", "i1"), ("b", "f8")], align=True))),
        ("a point", np.array(3.5, "f4")),
        ("a NumPy scalar", np.float32(2.5)),
        ("a float64 scalar", np.float64(2.5)),
        ("a text scalar", np.str_("abc")),
        ("empty", np.zeros((3, 0, 5), "f4")),
        ("one element", np.array([[[7]]])),
        ("Fortran order", np.asfortranarray(np.arange(12.0).reshape(3, 4))),
        ("channels first", np.arange(24, dtype="u1").reshape(2, 4, 3).transpose(2, 0, 1)),
        ("cropped", np.arange(100).reshape(10, 10)[2:7, 3:5]),
        ("mirrored", np.arange(24, dtype="u1").reshape(2, 4, 3)[:, ::-1, ::-1]),
        ("every second", np.arange(20, dtype="i2")[::2]),
        ("broadcast", np.broadcast_to(np.arange(3.0), (4, 3))),
        ("diagonal", np.arange(16).reshape(4, 4).diagonal()),
        ("structure's field", np.zeros(4, structure)["position"]),
        ("bfloat16", np.arange(6).astype(ml_dtypes.bfloat16)),
        ("float8", np.arange(6).astype(ml_dtypes.float8_e4m3fn)),
        ("20 dimensions", np.arange(2**6).reshape([2] * 6 + [1] * 14)),
        ("large", np.arange(1_000_000, dtype="f8").reshape(1000, 1000)),
        ("huge", np.arange(2_000_000, dtype="c16")),
        ("unaligned", np.frombuffer(bytes(range(33)), "f8", offset=1)),
        ("unaligned strides", np.ndarray((3,), "i4", bytes(range(14)), strides=(5,))),
        ("read-only", _read_only(np.arange(5))),
    ]
    for name, array in others:
        yield Value(name, array, same_array(np.asarray(array)))
    fortran = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    yield Value("order is kept", fortran, lambda event: _assert(event.numpy().flags.f_contiguous))


def _python() -> Iterator[Value]:
    objects: list[Any] = [
        [],
        [1, 2, 3],
        [1.5, None],
        ["a", "b"],
        [[1], [], [2, 3]],
        [True, None, False],
        [b"x", b""],
        [{"x": 1}, {"x": 2}],
        {"a": 1, "b": "text", "c": [1.0, 2.0], "d": {"e": None, "f": True}},
        {"boxes": [{"xyxy": [1.0, 2.0, 3.0, 4.0], "label": "cat"}]},
        {},
    ]
    for value in objects:
        yield Value(f"{value}", value, _object(value))
    yield Value("tuple", (1, 2), _object([1, 2]))
    yield Value("integers and floats", [1, 2.5], _object([1.0, 2.5]))
    yield Value("large integers", [1, 2**64 - 1], _object([1, 2**64 - 1]))
    yield Value(
        "NumPy's scalars are numbers",
        {"a": np.float32(0.5), "b": [np.int8(1), 2.5], "c": np.bool_(True)},
        _object({"a": 0.5, "b": [1.0, 2.5], "c": True}),
    )
    yield Value(
        "bytes of other types",
        {"a": bytearray(b"x"), "b": memoryview(b"yz")},
        _object({"a": b"x", "b": b"yz"}),
    )
    yield Value("array of objects", {"a": np.array(["x", None], dtype=object)}, _object({"a": ["x", None]}))
    yield Value("Arrow array in a dict", {"a": pa.array([1, None])}, _object({"a": [1, None]}))
    ragged = [{"a": 1}, {"b": "x"}, None]
    yield Value("dicts of other keys", ragged, _object([{"a": 1, "b": None}, {"a": None, "b": "x"}, None]))


@dataclass
class Pose:
    position: np.ndarray[Any, Any]
    name: str


@dataclass
class Frame:
    image: np.ndarray[Any, Any]
    stamp: float
    poses: list[Pose]


def _nested() -> Iterator[Value]:
    image = np.arange(24, dtype="u1").reshape(2, 4, 3)
    # All arrays that can be sent alone, with their dtype, shape and order of axes.
    for value in _tensors():
        if isinstance(value.value, np.ndarray):
            yield Value(f"{value.name} in a dict", {"array": value.value}, _tree({"array": value.value}))
    big = np.arange(720 * 1280 * 3, dtype="u4").astype("u1").reshape(720, 1280, 3)
    trees: list[Any] = [
        {"img": big, "t": 1.0},
        {"img": big[::2, ::-1, ::-1], "t": 1.0},
        [np.arange(3), None, np.arange(4), np.zeros(0, int)],
        [image, image.transpose(1, 0, 2), np.asfortranarray(image)],
        {"a": {"b": {"c": [{"d": image}, {"e": 1}, None]}}},
        [{"mask": image > 3, "box": np.arange(4.0)}, {"mask": image > 5}],
        [[np.arange(2.0)], [], [np.arange(3.0), np.arange(1.0)]],
        {"point": np.array(2.5), "day": np.datetime64("2026-01-01"), "complex": np.complex64(1j)},
    ]
    for number, tree in enumerate(trees):
        yield Value(f"tree {number}", tree, _tree(tree))
    frame = Frame(image, 1.5, [Pose(np.arange(3.0), "a"), Pose(np.ones(3), "b")])
    poses = [{"position": np.arange(3.0), "name": "a"}, {"position": np.ones(3), "name": "b"}]
    as_dict = {"image": image, "stamp": 1.5, "poses": poses}
    yield Value("dataclass", frame, _tree(as_dict))
    yield Value("dataclass in a dict", {"frame": frame, "n": 1}, _tree({"frame": as_dict, "n": 1}))
    foreign = {"dlpack": OnlyDlpack(image), "array": OnlyArray(image), "machine": machine_array("h", [1, -2])}
    arrays = {"dlpack": image, "array": image, "machine": np.array([1, -2], "i2")}
    yield Value("arrays of other libraries in a dict", foreign, _tree(arrays))


def _arrow() -> Iterator[Value]:
    texts = pa.array(["a", None, "žluť", "x" * 50])
    arrays: list[tuple[str, Any]] = [
        ("integers", pa.array([1, 2, 3], pa.int16())),
        ("integers with nulls", pa.array([1, None, 3])),
        ("sliced", pa.array(range(100)).slice(37, 20)),
        ("sliced with nulls", pa.array([None if i % 3 else i for i in range(100)]).slice(13, 50)),
        ("booleans", pa.array([True, None, False] * 10).slice(5, 11)),
        ("texts", texts),
        ("texts, sliced", texts.slice(1, 2)),
        ("large texts", texts.cast(pa.large_string())),
        ("text views", texts.cast(pa.string_view())),
        ("binary", pa.array([b"a", b"", None], pa.binary())),
        ("fixed binary", pa.array([b"abc", b"def"], pa.binary(3))),
        ("dictionary", pa.array(["a", "b", "a", None]).dictionary_encode()),
        ("lists", pa.array([[1, 2], None, [], [3]])),
        ("large lists", pa.array([[1, 2], [3]], pa.large_list(pa.int8()))),
        ("fixed lists", pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)).slice(1)),
        ("structs", pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}])),
        (
            "lists of structs",
            pa.array([[{"a": [1, 2], "b": "x"}], None, [{"a": None, "b": "y"}, None]]).slice(1),
        ),
        ("lists of lists", pa.array([[[1], []], [None, [2, 3]]], pa.list_(pa.large_list(pa.uint16())))),
        ("list views", pa.array([[1, 2], None, [3]], pa.list_view(pa.int16()))),
        ("map", pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32()))),
        ("timestamps", pa.array([0, 1, None], pa.timestamp("us", "Europe/Prague"))),
        ("decimals", pa.array([Decimal("1.23"), None], pa.decimal128(10, 2))),
        ("runs", pa.RunEndEncodedArray.from_arrays(pa.array([3, 5], pa.int32()), pa.array(["a", "b"]))),
        ("nulls", pa.nulls(5)),
        ("empty", pa.array([], pa.float64())),
        ("empty texts", pa.array([], pa.string())),
        (
            "dense union",
            pa.UnionArray.from_dense(
                pa.array([0, 1, 0], pa.int8()),
                pa.array([0, 0, 1], pa.int32()),
                [pa.array([1, 2]), pa.array(["x"])],
            ),
        ),
        (
            "sparse union",
            pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]),
        ),
    ]
    for name, array in arrays:
        yield Value(f"Arrow {name}", array, _equal(array))
    batch = pa.RecordBatch.from_pydict({"x": [1, 2, 3], "name": ["a", None, "c"]})
    batch = batch.replace_schema_metadata({"unit": "m"})
    yield Value("record batch", batch, _equal(batch))
    yield Value("record batch, sliced", batch.slice(1, 1), _equal(batch.slice(1, 1)))
    table = pa.concat_tables([pa.Table.from_batches([batch]), pa.Table.from_batches([batch])])
    yield Value("table", table, _equal(table.combine_chunks().to_batches()[0]))
    empty = table.slice(0, 0)
    yield Value("empty table", empty, _equal(pa.RecordBatch.from_pylist([], schema=table.schema)))
    yield Value("chunked", pa.chunked_array([[1, 2], [3]]), _equal(pa.array([1, 2, 3])))


def _foreign() -> Iterator[Value]:
    image = np.arange(24, dtype="f4").reshape(2, 3, 4)
    yield Value("DLPack", OnlyDlpack(image), same_array(image))
    yield Value("__array__", OnlyArray(image), same_array(image))
    yield Value("memoryview of floats", memoryview(image), same_array(image))
    yield Value("array.array", machine_array("h", [1, -2, 3]), same_array(np.array([1, -2, 3], "i2")))


def _bytes(expected: bytes) -> Check:
    def check(event: Any) -> None:
        assert event.object == expected and type(event.object) is bytes
        assert event.bytes == expected
        assert event.numpy().dtype == np.uint8 and event.numpy().tobytes() == expected
        assert event.value.equals(pa.array(list(expected), pa.uint8()))

    return check


def _text(expected: str) -> Check:
    def check(event: Any) -> None:
        assert event.object == expected and event.text == expected
        assert event.bytes == expected.encode()
        assert event.numpy().shape == ()
        assert event.value.to_pylist() == [expected]

    return check


def _number(expected: float) -> Check:
    def check(event: Any) -> None:
        assert event.object == expected and type(event.object) is type(expected)
        assert event.numpy().item() == expected
        assert event.value.to_pylist() == [expected]

    return check


def _object(expected: Any) -> Check:
    def check(event: Any) -> None:
        assert event.object == expected, event.object
        assert type(event.object) is type(expected)
        assert event.value.to_pylist() == (expected if isinstance(expected, list) else [expected])

    return check


def _tree(expected: Any) -> Check:
    def check(event: Any) -> None:
        same(event.object, expected)
        event.value.validate(full=True)

    return check


def same(found: Any, expected: Any) -> None:
    """Compares trees of dicts, lists and arrays. Fields that a dict in a list lacks are None."""
    if isinstance(expected, dict):
        assert type(found) is dict and set(expected) <= set(found), found
        for key, value in found.items():
            same(value, expected.get(key))
    elif isinstance(expected, list):
        assert type(found) is list and len(found) == len(expected), found
        for value, wanted in zip(found, expected, strict=True):
            same(value, wanted)
    elif isinstance(expected, (np.ndarray, np.generic)):
        array = np.asarray(expected)
        assert isinstance(found, np.ndarray) and not found.flags.writeable
        assert found.dtype == array.dtype, (found.dtype, array.dtype)
        assert found.shape == array.shape, (found.shape, array.shape)
        assert found.tobytes() == array.tobytes() or np.array_equal(found, array)
    else:
        assert type(found) is type(expected) and found == expected, (found, expected)


def _equal(expected: Any) -> Check:
    def check(event: Any) -> None:
        for found in (event.value, event.object):
            found.validate(full=True)
            # Compared by values: Arrow would compare how the views are split into buffers.
            if expected.__class__.__name__ == "StringViewArray":
                assert found.type == expected.type and found.to_pylist() == expected.to_pylist()
            else:
                assert found.equals(expected), (found, expected)
        if isinstance(expected, pa.RecordBatch):
            assert found.schema.equals(expected.schema, check_metadata=True)

    return check


def _assert(condition: bool) -> None:
    assert condition


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.setflags(write=False)
    return array
