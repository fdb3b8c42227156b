"""Cyclone DDS, from PyPI. Its endpoint passes serialised bytes to the library, which avoids the slow
serialisation of Python lists. Its types are declared by annotations that must not be strings, so this file
has no ``from __future__ import annotations``.
"""

import os
import struct
from dataclasses import dataclass
from typing import Any

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


class CycloneDds(Peer):
    name = "cyclonedds"
    title = "Cyclone DDS"
    requirements = ("cyclonedds==11.0.1",)
    packages = ("cyclonedds",)
    configurations = (
        Configuration("default", "No configuration file; QoS of the case.", "defaults", _BOTH),
        Configuration(
            "tuned",
            "One host: `MaxMessageSize` 65500 B, `FragmentSize` 65000 B. Link: messages of 1472 B, "
            "heartbeats of half a period, `NackDelay` 1 ms, `MaxQueuedRexmitBytes` of the history, "
            "`DefragReliableMaxSamples` 32. Both: `WhcHigh` of the history, socket buffers up to 8 MiB.",
            "Cyclone's configuration reference; large data over lossy wireless (poster)",
            _BOTH,
        ),
        Configuration(
            "participant",
            "Both ends in one participant, which hands samples over without a transport. No "
            "configuration file.",
            "defaults",
            frozenset({PROCESS}),
        ),
    )

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        return _CyclonePublisher(_participant(self, wiring), topic, _quality(wiring))

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        return _CycloneSubscriber(
            _participant(self, wiring), topic, _quality(wiring), on_message, wiring.depth
        )

    _shared: Any = None


def _participant(peer: CycloneDds, wiring: Wiring) -> Any:
    if peer._shared is None:
        if wiring.settings_file:
            os.environ["CYCLONEDDS_URI"] = f"file://{wiring.settings_file}"
        elif wiring.configuration == "tuned":
            text = _TUNED_FOR_LINK if wiring.place == LINK else _TUNED_FOR_HOST
            # The library reads its configuration when it is loaded.
            os.environ["CYCLONEDDS_URI"] = text.format(
                heartbeat_ms=1000 / (2 * wiring.rate_hz),
                queue_bytes=max(wiring.depth * wiring.payload_bytes, 500_000),
            )
        from cyclonedds.domain import DomainParticipant

        peer._shared = DomainParticipant(wiring.domain)
    return peer._shared


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


_TYPE: list[Any] = []


def _topic(participant: Any, name: str, quality: Any) -> Any:
    from cyclonedds.topic import Topic

    if not _TYPE:
        _TYPE.append(_bytes_type())
    return Topic(participant, name, _TYPE[0], qos=quality)


class _CyclonePublisher:
    def __init__(self, participant: Any, topic: str, quality: Any) -> None:
        from cyclonedds.core import DDSException
        from cyclonedds.pub import DataWriter, Publisher

        self._timeout = (DDSException, DDSException.DDS_RETCODE_TIMEOUT)
        self._writer = DataWriter(Publisher(participant), _topic(participant, topic, quality), qos=quality)

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        stamp(source)
        exception, timeout = self._timeout
        try:
            self._writer.write(_TYPE[0](source))
        except exception as error:
            # A reliable writer whose history is full drops the sample after its blocking time.
            if error.code != timeout:
                raise


class _CycloneSubscriber:
    def __init__(self, participant: Any, topic: str, quality: Any, on_message: OnMessage, depth: int) -> None:
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
        from cyclonedds.sub import DataReader, Subscriber

        subject = _topic(participant, topic, quality)
        self._reader = DataReader(Subscriber(participant), subject, qos=quality)
        self._waiting = WaitSet(participant)
        self._waiting.attach(
            ReadCondition(self._reader, ViewState.Any | InstanceState.Any | SampleState.NotRead)
        )
        self._on_message = on_message
        self._depth = depth

    def spin(self, timeout_seconds: float) -> None:
        self._waiting.wait(max(int(timeout_seconds * 1e9), 1))
        for sample in self._reader.take(self._depth):
            payload = getattr(sample, "payload", None)
            if payload is not None:
                self._on_message(payload)


PEER = CycloneDds()
