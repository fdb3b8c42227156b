"""ZeroMQ PUB and SUB over TCP, with queues of ten."""

import sys

import zmq

from nervure_lab.experiments.link.endpoint import CONNECT_SECONDS, Receptions, Run

ENDPOINT = "tcp://10.77.0.1:7447"


def send(run: Run) -> None:
    publisher = zmq.Context().socket(zmq.PUB)
    publisher.setsockopt(zmq.SNDHWM, 10)
    publisher.setsockopt(zmq.LINGER, 0)
    connected = publisher.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    publisher.connect(ENDPOINT)
    connected.poll(int(CONNECT_SECONDS * 1000))
    run.ready()
    run.send_all(publisher.send)


def receive(run: Run) -> None:
    subscriber = zmq.Context().socket(zmq.SUB)
    subscriber.setsockopt(zmq.RCVHWM, 10)
    subscriber.setsockopt(zmq.LINGER, 0)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    subscriber.bind(ENDPOINT)
    receptions = Receptions(run)
    run.ready()
    while left := receptions.seconds_left:
        if not subscriber.poll(int(left * 1000) + 1):
            break
        receptions.add(subscriber.recv())
    receptions.report()


{"send": send, "receive": receive}[sys.argv[1]](Run())
