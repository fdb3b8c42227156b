"""Endpoint over a peer of the lab: `over_peer.py MODULE CONFIGURATION`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from nervure_lab.experiments.local.endpoint import Consumer, Endpoint, produce
from nervure_lab.peer import HOST, Peer, Wiring
from nervure_lab.peer_endpoint import now_nanos

SPIN_SECONDS = 3600.0
"""A timeout would wake up an idle consumer."""
TOPIC = "out"


def main(module: str, configuration: str) -> None:
    peer: Peer = importlib.import_module(module).PEER
    endpoint = Endpoint()
    wiring = wiring_of(endpoint, configuration)
    if endpoint.case.role == "producer":
        produce(endpoint, peer.open_publisher(wiring, TOPIC).publish)
        return
    consumer = Consumer(endpoint)
    subscriber = peer.open_subscriber(wiring, TOPIC, lambda payload: consumer.observe(now_nanos(), payload))
    consumer.start()
    while not consumer.finished:
        subscriber.spin(SPIN_SECONDS)
    consumer.report()


def wiring_of(endpoint: Endpoint, configuration: str) -> Wiring:
    case = endpoint.case
    return Wiring(
        run_name=case.run_name,
        directory=str(Path(case.rendezvous).parent),
        place=HOST,
        configuration=configuration,
        role=case.role,
        index=case.index,
        publishers=1,
        subscribers=case.consumers,
        payload_bytes=case.payload_bytes,
        rate_hz=case.rate_hz,
        reliable=True,
        depth=case.queue_depth,
        address="127.0.0.1",
        port=0,
        domain=1,
        blocks=case.mode == "flood",
    )


main(*sys.argv[1:])
