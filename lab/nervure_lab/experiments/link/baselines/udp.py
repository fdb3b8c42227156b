"""Fragments in plain UDP datagrams, sent once: the effect of a link without retransmission."""

from __future__ import annotations

import socket
import struct
from typing import Any

from nervure_lab.peer import LINK, Configuration, OnMessage, Peer, Stamp, Wiring

FRAGMENT = struct.Struct("<III")
"""Sample, fragment, number of fragments."""
FRAGMENT_BYTES = 1472 - FRAGMENT.size
BUFFER_BYTES = 8 << 20
INCOMPLETE_SAMPLES = 30
"""Older samples will hardly be completed."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


class Udp(Peer):
    name = "udp"
    title = "UDP, not repaired"
    configurations = (
        Configuration(
            "default",
            "Fragments of 1472 bytes, each sent once and at once. A sample counts if all its fragments "
            "arrived.",
            "defaults",
            frozenset({LINK}),
        ),
    )

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        return _UdpPublisher(wiring)

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        return _UdpSubscriber(wiring, on_message)


class _UdpPublisher:
    def __init__(self, wiring: Wiring) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, BUFFER_BYTES)
        self._address = (wiring.address, wiring.port)
        self._number = 0

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        stamp(source)
        count = -(-len(source) // FRAGMENT_BYTES)
        for index in range(count):
            part = source[index * FRAGMENT_BYTES : (index + 1) * FRAGMENT_BYTES]
            self._socket.sendto(FRAGMENT.pack(self._number, index, count) + part, self._address)
        self._number += 1


class _UdpSubscriber:
    def __init__(self, wiring: Wiring, on_message: OnMessage) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, BUFFER_BYTES)
        self._socket.bind((wiring.address, wiring.port))
        self._on_message = on_message
        self._partial: dict[int, dict[int, bytes]] = {}

    def spin(self, timeout_seconds: float) -> None:
        self._socket.settimeout(timeout_seconds)
        try:
            datagram = self._socket.recv(2048)
        except TimeoutError:
            return
        number, index, count = FRAGMENT.unpack_from(datagram)
        parts = self._partial.setdefault(number, {})
        parts[index] = datagram[FRAGMENT.size :]
        if len(parts) == count:
            self._on_message(b"".join(parts[index] for index in range(count)))
            del self._partial[number]
            oldest = number - INCOMPLETE_SAMPLES
            self._partial = {other: parts for other, parts in self._partial.items() if other > oldest}


PEER = Udp()
