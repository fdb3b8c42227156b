"""Metadata of samples, as dora's programs give and read it.

Nervure's metadata has no times. A time travels as bytes, which dora's metadata does not have.
"""

from __future__ import annotations

import datetime
import struct
from typing import Any

from dora._logging import warn

# A time in the metadata: this prefix, and nanoseconds since 1970-01-01 UTC.
_TIME_PREFIX = b"dora:time:"
_UTC = datetime.timezone.utc


def time_of(nanos: int) -> datetime.datetime:
    """The time, with the microseconds that Python's times have."""
    return datetime.datetime.fromtimestamp(nanos // 1000 / 1e6, _UTC)


def to_nervure(given: dict[str, Any] | None) -> tuple[dict[str, Any], int | None]:
    """The metadata to send, and the stamp if ``timestamp`` is a time."""
    if given is None:
        return {}, None
    if not isinstance(given, dict):
        raise TypeError(f"metadata is {type(given).__name__}, expected a dict")
    sent, stamp = {}, None
    for key, value in given.items():
        if isinstance(value, datetime.datetime):
            nanos = int(value.timestamp() * 1e6) * 1000
            if key == "timestamp":
                stamp = nanos
            else:
                sent[key] = _TIME_PREFIX + struct.pack("<q", nanos)
        else:
            sent[key] = _value(key, value)
    return sent, stamp


def from_nervure(event: Any) -> dict[str, Any]:
    """The metadata of an event."""
    metadata: dict[str, Any] = {"timestamp": time_of(event.stamp_nanos)}
    for key, value in event.metadata.items():
        if isinstance(value, bytes) and value.startswith(_TIME_PREFIX):
            value = time_of(struct.unpack("<q", value[len(_TIME_PREFIX) :])[0])
        metadata[key] = value
    return metadata


def _value(key: str, value: Any) -> Any:
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        # As in dora, the first element determines the type.
        kind = type(value[0]) if value else str
        if kind is int and not all(isinstance(element, int) for element in value):
            raise TypeError(f"metadata {key!r}: a list that begins with an int has only ints")
        if kind is str and not all(isinstance(element, str) for element in value):
            raise TypeError(f"metadata {key!r}: a list that begins with a str has only str")
        if kind is float:
            return [float(element) for element in value]
        if kind in (int, str):
            return list(value)
    warn(f"metadata {key!r} is {type(value).__name__}, which is sent as text: {value}")
    return str(value)
