"""A Cyclone DDS writer and reader."""

import os
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from nervure_lab.experiments.link.endpoint import CONNECT_SECONDS, Receptions, Run

DEPTH = 10
CONFIGURATION = """
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
HEAD = struct.Struct("<BBBBI")
"""Plain CDR, little endian; the length of the sequence."""


def entities(run: Run):
    """A participant and a topic of bytes."""
    os.environ["CYCLONEDDS_URI"] = CONFIGURATION.format(
        heartbeat_ms=1000 / (2 * run.rate_hz), queue_bytes=max(DEPTH * run.payload_bytes, 500_000)
    )
    # The library reads its configuration when it is loaded.
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.idl import IdlStruct
    from cyclonedds.idl.types import sequence, uint8
    from cyclonedds.qos import Policy, Qos
    from cyclonedds.topic import Topic
    from cyclonedds.util import duration

    @dataclass
    class Bytes(IdlStruct, typename="Bytes"):
        payload: sequence[uint8]

        def serialize(self, *_arguments, **_options) -> bytes:
            return HEAD.pack(0, 1, 0, 0, len(self.payload)) + self.payload

        @classmethod
        def deserialize(cls, data, *_arguments, **_options) -> "Bytes":
            return cls(memoryview(data)[HEAD.size :][: HEAD.unpack_from(data)[4]])

    domain = DomainParticipant(0)
    qos = Qos(Policy.Reliability.Reliable(duration(milliseconds=100)), Policy.History.KeepLast(DEPTH))
    return domain, Topic(domain, "lab", Bytes, qos=qos), qos, Bytes


def wait_for_match(matched: Callable[[], list]) -> None:
    until = time.monotonic() + CONNECT_SECONDS
    while not matched() and time.monotonic() < until:
        time.sleep(0.01)


def send(run: Run) -> None:
    domain, topic, qos, bytes_type = entities(run)
    from cyclonedds.core import DDSException
    from cyclonedds.pub import DataWriter, Publisher

    writer = DataWriter(Publisher(domain), topic, qos=qos)

    def publish(sample: bytes) -> None:
        try:
            writer.write(bytes_type(sample))
        except DDSException as error:
            if error.code != DDSException.DDS_RETCODE_TIMEOUT:
                raise

    wait_for_match(writer.get_matched_subscriptions)
    run.ready()
    run.send_all(publish)


def receive(run: Run) -> None:
    domain, topic, qos, _ = entities(run)
    from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
    from cyclonedds.sub import DataReader, Subscriber

    reader = DataReader(Subscriber(domain), topic, qos=qos)
    waiting = WaitSet(domain)
    waiting.attach(ReadCondition(reader, ViewState.Any | InstanceState.Any | SampleState.NotRead))
    receptions = Receptions(run)
    wait_for_match(reader.get_matched_publications)
    run.ready()
    while left := receptions.seconds_left:
        waiting.wait(int(left * 1e9))
        for sample in reader.take(DEPTH):
            payload = getattr(sample, "payload", None)
            if payload is not None:
                receptions.add(payload)
    receptions.report()
    # Deleting the entities would wait for the other end.
    os._exit(0)


{"send": send, "receive": receive}[sys.argv[1]](Run())
