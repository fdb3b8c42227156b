"""Fragments in plain UDP datagrams, sent once: the effect of a link without retransmission."""

import socket
import struct
import sys

from nervure_lab.experiments.link.endpoint import Receptions, Run

FRAGMENT = struct.Struct("<III")
"""Sample, fragment, number of fragments."""
FRAGMENT_BYTES = 1472 - FRAGMENT.size
ADDRESS = ("10.77.0.1", 7447)
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33


def send(run: Run) -> None:
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 8 << 20)
    link.connect(ADDRESS)
    run.ready()
    count = -(-run.payload_bytes // FRAGMENT_BYTES)
    number = 0

    def publish(sample: bytes) -> None:
        nonlocal number
        for index in range(count):
            part = sample[index * FRAGMENT_BYTES : (index + 1) * FRAGMENT_BYTES]
            link.send(FRAGMENT.pack(number, index, count) + part)
        number += 1

    run.send_all(publish)


def receive(run: Run) -> None:
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
    link.bind(ADDRESS)
    receptions = Receptions(run)
    run.ready()
    partial: dict[int, dict[int, bytes]] = {}
    while left := receptions.seconds_left:
        link.settimeout(left)
        try:
            datagram = link.recv(2048)
        except TimeoutError:
            break
        number, index, count = FRAGMENT.unpack_from(datagram)
        parts = partial.setdefault(number, {})
        parts[index] = datagram[FRAGMENT.size :]
        if len(parts) == count:
            receptions.add(b"".join(parts[index] for index in range(count)))
            del partial[number]
            # Older samples will hardly be completed.
            partial = {other: parts for other, parts in partial.items() if other + 30 > number}
    receptions.report()


{"send": send, "receive": receive}[sys.argv[1]](Run())
