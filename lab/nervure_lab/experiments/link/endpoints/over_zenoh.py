"""A Zenoh publisher and subscriber, connected directly over TCP."""

import queue
import sys
import time

import zenoh

from nervure_lab.experiments.link.endpoint import CONNECT_SECONDS, Receptions, Run

ENDPOINT = '["tcp/10.77.0.1:7447"]'


def session(side: str) -> zenoh.Session:
    config = zenoh.Config()
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("transport/shared_memory/enabled", "false")
    config.insert_json5(f"{side}/endpoints", ENDPOINT)
    if side == "connect":
        config.insert_json5("listen/endpoints", "[]")
        # By default Zenoh gives up after the first failed attempt; with -1 it would wait forever.
        config.insert_json5("connect/timeout_ms", str(int(CONNECT_SECONDS * 1000)))
        config.insert_json5("connect/exit_on_failure", "false")
    return zenoh.open(config)


def send(run: Run) -> None:
    with session("connect") as opened:
        publisher = opened.declare_publisher("lab", congestion_control=zenoh.CongestionControl.DROP)
        until = time.monotonic() + CONNECT_SECONDS
        while not publisher.matching_status.matching and time.monotonic() < until:
            time.sleep(0.01)
        run.ready()
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
