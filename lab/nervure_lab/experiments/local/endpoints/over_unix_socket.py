"""Endpoint over bare stream sockets, given as numbers of inherited descriptors."""

from __future__ import annotations

import socket
import struct
import sys

from nervure_lab.experiments.local.endpoint import Consumer, Endpoint, produce
from nervure_lab.peer import Stamp
from nervure_lab.peer_endpoint import now_nanos

LENGTH = struct.Struct("=Q")


def main() -> None:
    endpoint = Endpoint()
    sockets = [socket.socket(fileno=int(number)) for number in sys.argv[1:]]
    if endpoint.case.role == "producer":

        def publish(source: bytearray, stamp: Stamp) -> None:
            stamp(source)
            length = LENGTH.pack(len(source))
            for receiver in sockets:
                receiver.sendall(length)
                receiver.sendall(source)

        produce(endpoint, publish)
        return
    (sender,) = sockets
    buffer = memoryview(bytearray(endpoint.case.payload_bytes))
    header = memoryview(bytearray(LENGTH.size))
    consumer = Consumer(endpoint)
    consumer.start()
    while not consumer.finished:
        receive_exactly(sender, header)
        message = buffer[: LENGTH.unpack(header)[0]]
        receive_exactly(sender, message)
        consumer.observe(now_nanos(), message)
    consumer.report()


def receive_exactly(sender: socket.socket, view: memoryview) -> None:
    received = 0
    while received < len(view):
        count = sender.recv_into(view[received:])
        if not count:
            raise SystemExit("the producer closed its socket")
        received += count


main()
