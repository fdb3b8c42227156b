"""A Zenoh publisher and subscriber, connected directly over TCP."""

import queue
import sys

import zenoh

from nervure_lab.link.endpoint import Receptions, Run

ENDPOINT = '["tcp/10.77.0.1:7447"]'


def session(side: str) -> zenoh.Session:
    config = zenoh.Config()
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("transport/shared_memory/enabled", "false")
    config.insert_json5(f"{side}/endpoints", ENDPOINT)
    if side == "connect":
        config.insert_json5("listen/endpoints", "[]")
        config.insert_json5("connect/timeout_ms", "-1")
    return zenoh.open(config)


def send(run: Run) -> None:
    run.ready()
    with session("connect") as opened:
        publisher = opened.declare_publisher("lab", congestion_control=zenoh.CongestionControl.DROP)
        run.send_all(publisher.put)


def receive(run: Run) -> None:
    receptions = Receptions(run)
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    with session("listen") as opened:
        opened.declare_subscriber("lab", lambda sample: arrived.put(sample.payload.to_bytes()))
        run.ready()
        while left := receptions.seconds_left:
            try:
                receptions.add(arrived.get(timeout=left))
            except queue.Empty:
                break
        # Closing would wait for the other end.
        receptions.report()


{"send": send, "receive": receive}[sys.argv[1]](Run())
