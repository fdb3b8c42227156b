"""ZeroMQ, from PyPI: PUB and SUB."""

from __future__ import annotations

from typing import Any

from nervure_lab.peer import HOST, LINK, PROCESS, Configuration, OnMessage, Peer, Stamp, Wiring


class ZeroMq(Peer):
    name = "zeromq"
    title = "ZeroMQ"
    requirements = ("pyzmq==27.3.0",)
    packages = ("pyzmq",)
    configurations = (
        Configuration(
            "inproc", "PUB and SUB of one context over `inproc`, defaults.", "defaults", frozenset({PROCESS})
        ),
        Configuration("ipc", "PUB and SUB over a Unix socket, defaults.", "defaults", frozenset({HOST})),
        Configuration("tcp", "PUB and SUB over TCP (Cubic), defaults.", "defaults", frozenset({HOST, LINK})),
        Configuration(
            "tcp-short",
            "As `tcp`, with high-water marks of the history depth at both ends instead of 1000, so that old "
            "samples do not queue.",
            "zmq_setsockopt(3), ZMQ_SNDHWM",
            frozenset({LINK}),
            {"short": True},
        ),
    )

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        import zmq

        socket = zmq.Context.instance().socket(zmq.PUB)
        return _ZeroMqPublisher(self._attach(socket, wiring, topic, wiring.publisher_listens))

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        import zmq

        socket = zmq.Context.instance().socket(zmq.SUB)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        return _ZeroMqSubscriber(
            self._attach(socket, wiring, topic, not wiring.publisher_listens), on_message
        )

    def _attach(self, socket: Any, wiring: Wiring, topic: str, listens: bool) -> Any:
        import zmq

        socket.setsockopt(zmq.LINGER, 0)
        if self.configuration(wiring.configuration).values.get("short"):
            socket.setsockopt(zmq.SNDHWM, wiring.depth)
            socket.setsockopt(zmq.RCVHWM, wiring.depth)
        port = wiring.port + (topic == "pong")
        address = {"inproc": f"inproc://{topic}", "ipc": f"ipc://{wiring.directory}/{topic}"}.get(
            wiring.configuration, f"tcp://{wiring.address}:{port}"
        )
        (socket.bind if listens else socket.connect)(address)
        return socket


class _ZeroMqPublisher:
    def __init__(self, socket: Any) -> None:
        self._socket = socket

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        stamp(source)
        self._socket.send(source)


class _ZeroMqSubscriber:
    def __init__(self, socket: Any, on_message: OnMessage) -> None:
        self._socket = socket
        self._on_message = on_message

    def spin(self, timeout_seconds: float) -> None:
        if self._socket.poll(int(timeout_seconds * 1000)):
            self._on_message(self._socket.recv(copy=False).buffer)


PEER = ZeroMq()
