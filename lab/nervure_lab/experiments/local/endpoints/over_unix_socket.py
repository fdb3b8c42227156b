"""Endpoint over bare stream sockets, given as numbers of inherited descriptors."""

from __future__ import annotations

import socket
import struct
import sys

import numpy

from nervure_lab.endpoint import Endpoint
from nervure_lab.experiments.local.endpoint import Consumer, Stamp, now_nanos, produce

LENGTH = struct.Struct("=Q")


def main() -> None:
    endpoint = Endpoint()
    sockets = [socket.socket(fileno=int(number)) for number in sys.argv[1:]]
    if endpoint.case.role == "producer":

        def publish(source: numpy.ndarray, stamp: Stamp) -> None:
            stamp(source)
            length = LENGTH.pack(source.nbytes)
            for receiver in sockets:
                receiver.sendall(length)
                receiver.sendall(source)

        produce(endpoint, publish)
        return
    (sender,) = sockets
    buffer = memoryview(bytearray(endpoint.case.payload_bytes))
    header = memoryview(bytearray(LENGTH.size))
    consumer = Consumer(endpoint)
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
