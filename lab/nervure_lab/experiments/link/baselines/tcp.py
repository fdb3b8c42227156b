"""Samples in sequence over one TCP connection; the sender keeps the last ones that wait."""

from __future__ import annotations

import collections
import socket
import struct
import threading
from typing import Any

from nervure_lab.peer import LINK, Configuration, OnMessage, Peer, Stamp, Wiring

LENGTH = struct.Struct("<I")
CONNECT_SECONDS = 30.0


class Tcp(Peer):
    name = "tcp"
    title = "TCP"
    configurations = (
        Configuration(
            "default",
            "One connection, TCP_NODELAY; the sender drops the oldest sample when its queue is full.",
            "tcp(7)",
            frozenset({LINK}),
        ),
    )

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        return _TcpPublisher(wiring)

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        return _TcpSubscriber(wiring, on_message)


class _TcpPublisher:
    """Writes in a thread, so that a stalled connection does not delay the schedule."""

    def __init__(self, wiring: Wiring) -> None:
        self._waiting: collections.deque[bytes] = collections.deque(maxlen=wiring.depth)
        self._news = threading.Condition()
        address = (wiring.address, wiring.port)
        threading.Thread(target=self._write_all, args=[address], daemon=True).start()

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        stamp(source)
        with self._news:
            self._waiting.append(bytes(source))
            self._news.notify()

    def _write_all(self, address: tuple[str, int]) -> None:
        connection = _connect(address)
        while True:
            with self._news:
                self._news.wait_for(lambda: bool(self._waiting))
                sample = self._waiting.popleft()
            connection.sendall(LENGTH.pack(len(sample)) + sample)


def _connect(address: tuple[str, int]) -> socket.socket:
    while True:
        try:
            connection = socket.create_connection(address, timeout=CONNECT_SECONDS)
        except OSError:
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)
        return connection


class _TcpSubscriber:
    """Takes one connection; a part of a sample is kept between two calls of ``spin``."""

    def __init__(self, wiring: Wiring, on_message: OnMessage) -> None:
        self._listener = socket.create_server((wiring.address, wiring.port))
        self._connection: socket.socket | None = None
        self._on_message = on_message
        self._head = memoryview(bytearray(LENGTH.size))
        self._expect(self._head)

    def spin(self, timeout_seconds: float) -> None:
        source = self._connection or self._listener
        source.settimeout(timeout_seconds)
        try:
            if self._connection is None:
                self._connection, _ = self._listener.accept()
                return
            self._have += self._connection.recv_into(self._buffer[self._have :])
        except TimeoutError:
            return
        if self._have < len(self._buffer):
            return
        if self._buffer is self._head:
            self._expect(memoryview(bytearray(LENGTH.unpack(self._head)[0])))
            return
        self._on_message(self._buffer)
        self._expect(self._head)

    def _expect(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._have = 0


PEER = Tcp()
