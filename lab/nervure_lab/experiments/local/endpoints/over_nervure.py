"""Endpoint as a Nervure node. `send` copies once, into shared memory; loans suit data made in place."""

from __future__ import annotations

import numpy
from nervure import Node

from nervure_lab.endpoint import Endpoint
from nervure_lab.experiments.local.endpoint import Consumer, Stamp, now_nanos, produce


def main() -> None:
    endpoint = Endpoint()
    node = Node()
    if endpoint.case.role == "producer":

        def publish(source: numpy.ndarray, stamp: Stamp) -> None:
            stamp(source)
            node.send("out", source)

        produce(endpoint, publish)
        return
    consumer = Consumer(endpoint)
    for event in node:
        received_at_nanos = now_nanos()
        if event.type == "INPUT":
            consumer.observe(received_at_nanos, event.numpy())
            if consumer.finished:
                break
        # Releases the sample before it waits for the next, as the other endpoints do.
        del event
    consumer.report()


main()
