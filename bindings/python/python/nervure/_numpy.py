"""Conversions of arrays and dtypes that are simpler in Python than in Rust. Imported when first needed."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

import numpy as np

from nervure import Event
from nervure.errors import NotSendable, SampleError

_SENDABLE_KINDS = "biufcMmSUV"


def to_array(value: Any) -> np.ndarray[Any, Any]:
    """Converts an object with DLPack, the buffer protocol or ``__array__`` to an array."""
    kind = _kind(value)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, kind)
    if not _is_array(value):
        try:
            value = memoryview(value)
        except TypeError:
            raise NotSendable(
                f"a value of type {kind} cannot be sent: expected a NumPy array, bytes, str, bool, int, "
                "float, a list, dict or dataclass of those, an Arrow array, table or record batch, or an "
                f"object with the buffer protocol or __dlpack__{_hint(value)}"
            ) from None
    array = np.asarray(value)
    if array.dtype.kind == "O":
        raise NotSendable(
            f"a value of type {kind} cannot be sent: NumPy makes Python objects of it (dtype=object)"
        )
    return array


def inside(value: Any) -> Any:
    """Converts an object inside a list or dict to an array, or to a list if its elements are objects."""
    kind = _kind(value)
    if hasattr(value, "to_pylist"):
        return value.to_pylist()
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array_struct__"):
        return _from_dlpack(value, kind)
    try:
        if hasattr(value, "columns"):
            raise TypeError
        array = np.asarray(value if _is_array(value) else memoryview(value))
    except TypeError:
        raise NotSendable(
            f"a value of type {kind} cannot be sent in a list, dict or dataclass: expected bool, int, float, "
            "str, bytes, None, a NumPy array, an object with the buffer protocol or __dlpack__, or a list, "
            f"dict or dataclass of those{_hint(value)}"
        ) from None
    return array.tolist() if array.dtype.kind == "O" else array


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "__array_interface__")


def _hint(value: Any) -> str:
    if value is None:
        return " (hint: did the function that made it return nothing?)"
    if isinstance(value, Event):
        return " (hint: pass the event's value on: event.numpy() or event.object, with like=event)"
    if isinstance(value, (set, frozenset)):
        return " (hint: send a list of its elements)"
    if hasattr(value, "columns"):
        return " (hint: send the table as a value of its own)"
    if isinstance(value, complex):
        return " (hint: send it as a NumPy array: numpy.array(value))"
    if hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        return " (hint: make its class a dataclass, or send vars(value))"
    return ""


def dtype_name(dtype: np.dtype[Any]) -> tuple[str, int]:
    """The name that a dtype is sent under, and the size of an element in bytes."""
    return _dtype_name(dtype), dtype.itemsize


def custom_array(
    memory: np.ndarray[Any, Any], name: str, item_bytes: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """An array of a dtype that was sent by name, over the bytes of ``memory``. NumPy checks that it stays
    within them.
    """
    dtype = _dtype_of_name(name)
    if dtype.itemsize != item_bytes:
        raise SampleError(
            f"an element of type {name} has {item_bytes} bytes at the sender, and {dtype.itemsize} here"
        )
    if item_bytes == 0:
        return np.empty(shape, dtype)
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, 0, strides)
    return array


def _from_dlpack(value: Any, kind: str) -> np.ndarray[Any, Any]:
    # A tensor that takes part in automatic differentiation refuses to be exported. Its values are wanted.
    if getattr(value, "requires_grad", False):
        value = value.detach()
    cpu = 1
    device = value.__dlpack_device__()[0]
    if device != cpu:
        raise NotSendable(
            f"the {kind} is in device memory (DLPack device type {int(device)}): move it to the CPU first, "
            "e.g. tensor.cpu()"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise NotSendable(f"the {kind} cannot be sent: {error}") from error


@lru_cache
def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.kind not in _SENDABLE_KINDS or dtype.hasobject:
        raise NotSendable(
            f"arrays of dtype {dtype} cannot be shared between processes: expected numbers, bool, datetimes, "
            "fixed-width text or bytes, or a structure of those"
        )
    if dtype.type.__module__.startswith("ml_dtypes"):
        return dtype.name
    if dtype.names is None and dtype.subdtype is None:
        return dtype.str
    description = np.lib.format.dtype_to_descr(dtype)
    if np.lib.format.descr_to_dtype(description) != dtype:
        raise NotSendable(f"the structure {dtype} cannot be described to the receiver: its fields overlap")
    return repr(description)


@lru_cache
def _dtype_of_name(name: str) -> np.dtype[Any]:
    try:
        if name.isidentifier():
            import ml_dtypes

            dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        elif name.startswith(("[", "(", "{")):
            dtype = np.lib.format.descr_to_dtype(ast.literal_eval(name))
        else:
            dtype = np.dtype(name)
    except ImportError:
        raise SampleError(
            f"elements of type {name} need the package ml_dtypes: pip install ml_dtypes"
        ) from None
    except (AttributeError, SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise SampleError(
            f"{name[:100]!r} is not an element type that NumPy knows: {str(error)[:100]}"
        ) from None
    # The name comes from another process, and NumPy would follow pointers in its elements.
    if dtype.hasobject or dtype.kind not in _SENDABLE_KINDS:
        raise SampleError(f"elements of type {name} cannot come out of shared memory")
    return dtype
