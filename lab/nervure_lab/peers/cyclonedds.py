"""Cyclone DDS, from PyPI. For bytes its endpoint passes serialised bytes to the library, which avoids the
slow serialisation of Python lists; other messages are classes as its compiler of IDL writes them. Types are
declared by annotations that must not be strings, so this file has no ``from __future__ import annotations``.
"""

import copy
import os
import struct
from dataclasses import dataclass
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
    TITLES,
)
from nervure_lab.peer import HOST, LINK, PROCESS, Configuration, OnMessage, Peer, Stamp, Wiring

_HEAD = struct.Struct("<BBBBI")
"""Plain CDR, little endian; the length of the sequence."""
_TUNED_FOR_HOST = """
<CycloneDDS><Domain Id="any">
  <General><MaxMessageSize>65500B</MaxMessageSize><FragmentSize>65000B</FragmentSize></General>
  <Internal>
    <Watermarks><WhcHigh>{queue_bytes}B</WhcHigh></Watermarks>
    <SocketReceiveBufferSize min="default" max="8MiB"/>
    <SocketSendBufferSize min="default" max="8MiB"/>
  </Internal>
</Domain></CycloneDDS>
"""
_TUNED_FOR_LINK = """
<CycloneDDS><Domain Id="any">
  <General>
    <MaxMessageSize>1472B</MaxMessageSize>
    <FragmentSize>1344B</FragmentSize>
    <MaxRexmitMessageSize>1456B</MaxRexmitMessageSize>
  </General>
  <Internal>
    <HeartbeatInterval min="1ms" minsched="{heartbeat_ms:.1f}ms" max="1s">
      {heartbeat_ms:.1f}ms
    </HeartbeatInterval>
    <NackDelay>1ms</NackDelay>
    <Watermarks><WhcHigh>{queue_bytes}B</WhcHigh></Watermarks>
    <MaxQueuedRexmitBytes>{queue_bytes}B</MaxQueuedRexmitBytes>
    <DefragReliableMaxSamples>32</DefragReliableMaxSamples>
    <SocketReceiveBufferSize min="default" max="8MiB"/>
    <SocketSendBufferSize min="default" max="8MiB"/>
  </Internal>
</Domain></CycloneDDS>
"""
_BOTH = frozenset({HOST, LINK})

DEFAULT = Configuration("default", "No configuration file; QoS of the case.", "defaults", _BOTH)
TUNED = Configuration(
    "tuned",
    "One host: `MaxMessageSize` 65500 B, `FragmentSize` 65000 B. Link: messages of 1472 B, heartbeats of "
    "half a period, `NackDelay` 1 ms, `MaxQueuedRexmitBytes` of the history, `DefragReliableMaxSamples` 32. "
    "Both: `WhcHigh` of the history, socket buffers up to 8 MiB.",
    "Cyclone's configuration reference; large data over lossy wireless (poster)",
    _BOTH,
)


class CycloneDds(Peer):
    name = "cyclonedds"
    title = "Cyclone DDS"
    messages = frozenset(TITLES)
    requirements = ("cyclonedds==11.0.1",)
    packages = ("cyclonedds",)
    configurations = (
        DEFAULT,
        TUNED,
        Configuration(
            "participant",
            "Both ends in one participant, which hands samples over without a transport. No "
            "configuration file.",
            "defaults",
            frozenset({PROCESS}),
        ),
    )

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        return _CyclonePublisher(_participant(self, wiring), topic, wiring)

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        return _CycloneSubscriber(_participant(self, wiring), topic, wiring, on_message)

    _shared: Any = None


def _participant(peer: CycloneDds, wiring: Wiring) -> Any:
    if peer._shared is None:
        # The library reads its configuration when it is loaded.
        if settings := settings_of(wiring):
            os.environ["CYCLONEDDS_URI"] = settings
        from cyclonedds.domain import DomainParticipant

        peer._shared = DomainParticipant(wiring.domain)
    return peer._shared


def settings_of(wiring: Wiring) -> str:
    """The value of ``CYCLONEDDS_URI`` for an endpoint; empty for the defaults of the library."""
    if wiring.settings_file:
        return f"file://{wiring.settings_file}"
    return tuned_settings(wiring) if wiring.configuration == "tuned" else ""


def tuned_settings(wiring: Wiring) -> str:
    text = _TUNED_FOR_LINK if wiring.place == LINK else _TUNED_FOR_HOST
    return text.format(
        heartbeat_ms=1000 / (2 * wiring.rate_hz),
        queue_bytes=max(wiring.depth * wiring.payload_bytes, 500_000),
    )


def _quality(wiring: Wiring) -> Any:
    from cyclonedds.qos import Policy, Qos
    from cyclonedds.util import duration

    reliability = Policy.Reliability.BestEffort
    if wiring.reliable:
        reliability = Policy.Reliability.Reliable(duration(milliseconds=100))
    history = Policy.History.KeepAll if wiring.keep_all else Policy.History.KeepLast(wiring.depth)
    return Qos(reliability, history)


def _bytes_type() -> Any:
    """The type of the topic: bytes that are serialised already."""
    from cyclonedds.idl import IdlStruct
    from cyclonedds.idl.types import sequence, uint8

    @dataclass
    class Bytes(IdlStruct, typename="Bytes"):  # type: ignore[call-arg,misc]
        payload: sequence[uint8]

        def serialize(self, *_arguments: Any, **_options: Any) -> bytes:
            return b"".join((_HEAD.pack(0, 1, 0, 0, len(self.payload)), self.payload))

        @classmethod
        def deserialize(cls, data: Any, *_arguments: Any, **_options: Any) -> Any:
            return cls(memoryview(data)[_HEAD.size :][: _HEAD.unpack_from(data)[4]])

    return Bytes


class _Bytes:
    """A payload without a type."""

    def __init__(self) -> None:
        self.type = _bytes_type()

    def stamped(self, source: bytearray, stamp: Stamp) -> Any:
        stamp(source)
        return self.type(source)

    def payload(self, sample: Any) -> Any:
        return sample.payload


class _Struct:
    """A struct. The header is in the octets of its first two `Struct16`."""

    def __init__(self, size: int) -> None:
        self._header = bytearray(_LEAST_BYTES)
        self.type, self._value = _struct(size)

    def stamped(self, source: bytearray, stamp: Stamp) -> Any:
        stamp(self._header)
        for part, first in zip(_first_two(self._value), (0, OCTETS), strict=True):
            for name, octet in zip(_OCTET_NAMES, self._header[first : first + OCTETS], strict=True):
                setattr(part, name, octet)
        return self._value

    def payload(self, sample: Any) -> bytes:
        return bytes(getattr(part, name) for part in _first_two(sample) for name in _OCTET_NAMES)


class _PointCloud:
    """A point cloud. The header is in the first points."""

    def __init__(self, size: int) -> None:
        self._points = bytearray(size)
        self.type, self._value = _point_cloud(self._points)

    def stamped(self, source: bytearray, stamp: Stamp) -> Any:
        stamp(self._points)
        return self._value

    def payload(self, sample: Any) -> Any:
        return sample.data


_LEAST_BYTES = 64
_OCTET_NAMES = [f"struct{digit}" for digit in STRUCT_DIGITS]


def _first_two(value: Any) -> list[Any]:
    members = list(vars(value).values())[:2]
    return members if hasattr(members[0], _OCTET_NAMES[0]) else _first_two(members[0])


def _idl(title: str, /, **members: Any) -> Any:
    """A class as the compiler of IDL writes it."""
    from cyclonedds.idl import IdlStruct

    names = {"__annotations__": members, "__module__": __name__, "__qualname__": title}
    return dataclass(type(IdlStruct)(title, (IdlStruct,), names, typename=title))


def _struct(size: int) -> Any:
    """Returns the type and a value."""
    from cyclonedds.idl.types import float64, uint8, uint64

    if size == OCTETS:
        octets = dict.fromkeys(_OCTET_NAMES, uint8)
        smallest = _idl(STRUCT_NAMES[size], **octets, time=float64, id=uint64)
        return smallest, smallest(*[0] * OCTETS, 0.0, 0)
    part, value = _struct(size // OCTETS)
    prefix = STRUCT_NAMES[size // OCTETS].lower()
    parts = {prefix + digit: part for digit in STRUCT_DIGITS}
    found = _idl(STRUCT_NAMES[size], **parts, time=float64, id=uint64)
    return found, found(*[copy.deepcopy(value) for _ in STRUCT_DIGITS], 0.0, 0)


def _point_cloud(points: bytearray) -> Any:
    """Returns the type and a value over these points."""
    from cyclonedds.idl.types import array, float64, int32, uint8, uint32, uint64

    size, count = len(points), len(POINT_FIELDS)
    time = _idl("Time", sec=int32, nanosec=uint32)
    header = _idl("Header", stamp=time, frame_id=str)
    field = _idl("PointField", name=str, offset=uint32, datatype=uint8, count=uint32)
    cloud = _idl(
        "PointCloud",
        header=header,
        height=uint32,
        width=uint32,
        fields=array[field, count],
        is_bigendian=bool,
        point_step=uint32,
        row_step=uint32,
        data=array[uint8, size],
        is_dense=bool,
        time=float64,
        id=uint64,
    )
    fields = [field(name, 4 * at, FLOAT32, 1) for at, name in enumerate(POINT_FIELDS)]
    first = header(time(0, 0), FRAME)
    return cloud, cloud(first, 1, size // POINT_BYTES, fields, False, POINT_BYTES, size, points, True, 0.0, 0)


_MESSAGES: list[Any] = []
"""One for all topics of this process: two classes of one type would not be the same to the library."""


def _message(wiring: Wiring) -> Any:
    if not _MESSAGES:
        if wiring.message == BYTES:
            _MESSAGES.append(_Bytes())
        else:
            make = _Struct if wiring.message == STRUCT else _PointCloud
            _MESSAGES.append(make(wiring.payload_bytes))
    return _MESSAGES[0]


def _topic(participant: Any, name: str, wiring: Wiring) -> Any:
    from cyclonedds.topic import Topic

    return Topic(participant, name, _message(wiring).type, qos=_quality(wiring))


class _CyclonePublisher:
    def __init__(self, participant: Any, topic: str, wiring: Wiring) -> None:
        from cyclonedds.core import DDSException
        from cyclonedds.pub import DataWriter, Publisher

        self._timeout = (DDSException, DDSException.DDS_RETCODE_TIMEOUT)
        subject = _topic(participant, topic, wiring)
        self._writer = DataWriter(Publisher(participant), subject, qos=_quality(wiring))
        self._stamped = _message(wiring).stamped

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        exception, timeout = self._timeout
        try:
            self._writer.write(self._stamped(source, stamp))
        except exception as error:
            # A reliable writer whose history is full drops the sample after its blocking time.
            if error.code != timeout:
                raise


class _CycloneSubscriber:
    def __init__(self, participant: Any, topic: str, wiring: Wiring, on_message: OnMessage) -> None:
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
        from cyclonedds.sub import DataReader, Subscriber

        subject = _topic(participant, topic, wiring)
        self._reader = DataReader(Subscriber(participant), subject, qos=_quality(wiring))
        self._waiting = WaitSet(participant)
        self._waiting.attach(
            ReadCondition(self._reader, ViewState.Any | InstanceState.Any | SampleState.NotRead)
        )
        self._on_message = on_message
        self._payload, self._type = _message(wiring).payload, _message(wiring).type
        self._depth = wiring.depth

    def spin(self, timeout_seconds: float) -> None:
        self._waiting.wait(max(int(timeout_seconds * 1e9), 1))
        for sample in self._reader.take(self._depth):
            if isinstance(sample, self._type):
                self._on_message(self._payload(sample))


PEER = CycloneDds()
