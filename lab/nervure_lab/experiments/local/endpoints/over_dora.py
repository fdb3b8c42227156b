"""Endpoint as a dora node. Its API copies inside `send_output`."""

from __future__ import annotations

import numpy
import pyarrow
from dora import Node

from nervure_lab.endpoint import Endpoint
from nervure_lab.experiments.local.endpoint import Consumer, Stamp, now_nanos, produce


def main() -> None:
    endpoint = Endpoint()
    node = Node()
    if endpoint.case.role == "producer":

        def publish(source: numpy.ndarray, stamp: Stamp) -> None:
            stamp(source)
            node.send_output("out", pyarrow.array(source))

        produce(endpoint, publish)
        return
    consumer = Consumer(endpoint)
    while not consumer.finished:
        event = node.next()
        received_at_nanos = now_nanos()
        if event is None or event["type"] == "STOP":
            break
        if event["type"] == "INPUT":
            consumer.observe(received_at_nanos, event["value"].to_numpy())
    consumer.report()


main()
