"""The nodes of the experiment ``sobel``, and the library call alone: `nodes.py ROLE FRAMES`. For each image a
line with two times from its capture is printed, in nanoseconds: the begin and the end of the operation.

They run in the environment of Nervure, with NumPy and OpenCV; `apply` in those of the peers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy

SHAPE = (480, 640, 3)
RATE_HZ = 30
SENSOR_HZ = 100
JOINTS = 20


def main(role: str, frames: int) -> None:
    # One thread, so that the operation itself is the same in every case.
    cv2.setNumThreads(1)
    if role == "library":
        library(frames)
        return
    from nervure import Node

    ROLES[role](Node(), frames)


def picture() -> numpy.ndarray:
    """A smooth image with noise, as of a camera."""
    noise = numpy.random.default_rng(0).integers(0, 255, SHAPE, dtype=numpy.uint8)
    blurred: numpy.ndarray = cv2.GaussianBlur(noise, (5, 5), 0)
    return blurred


class Gradient:
    """The absolute gradient by the Sobel operator, as OpenCV's documentation computes it. Memory is reused:
    otherwise most of the difference between the cases is how malloc treats each process.
    """

    def __init__(self) -> None:
        self._signed = numpy.empty(SHAPE, numpy.int16)
        self._along = [numpy.empty(SHAPE, numpy.uint8) for _ in range(2)]
        self.result = numpy.empty(SHAPE, numpy.uint8)

    def compute(self, image: numpy.ndarray) -> None:
        for order, along in enumerate(self._along):
            cv2.Sobel(image, cv2.CV_16S, 1 - order, order, dst=self._signed)
            cv2.convertScaleAbs(self._signed, dst=along)
        cv2.addWeighted(self._along[0], 0.5, self._along[1], 0.5, 0, dst=self.result)


_OF_PEER: list[Gradient] = []


def apply(payload: Any) -> None:
    """The operation on the bytes of an image, for the endpoint of a peer."""
    if not _OF_PEER:
        cv2.setNumThreads(1)
        _OF_PEER.append(Gradient())
    _OF_PEER[0].compute(numpy.frombuffer(payload, numpy.uint8).reshape(SHAPE))


def library(frames: int) -> None:
    """Capture and operation in one loop, without nodes and messages."""
    source, image = picture(), numpy.empty(SHAPE, numpy.uint8)
    operation = Gradient()
    taken = []
    start = time.monotonic_ns()
    for number in range(frames):
        time.sleep(max(start + number * 10**9 // RATE_HZ - time.monotonic_ns(), 0) * 1e-9)
        captured = time.monotonic_ns()
        image[:] = source
        taken.append(operate(operation, image, captured))
    report(taken)


def operate(operation: Gradient, image: numpy.ndarray, captured: int) -> tuple[int, int]:
    """Returns the times from the capture to begin and end."""
    begun = time.monotonic_ns()
    operation.compute(image)
    return begun - captured, time.monotonic_ns() - captured


def report(taken: list[tuple[int, int]]) -> None:
    print("\n".join(f"{begin} {end}" for begin, end in taken), flush=True)


def camera(node: Any, frames: int) -> None:
    source = picture()
    for _ in range(frames):
        node.next()
        captured = time.monotonic_ns()
        with node.loan("image", SHAPE, numpy.uint8, metadata={"captured": captured}) as loan:
            loan.array[:] = source


def sobel(node: Any, _frames: int) -> None:
    operation = Gradient()
    taken = []
    for event in node:
        if event.type == "INPUT":
            taken.append(operate(operation, event.numpy(), event.metadata["captured"]))
        # Releases the image before it waits for the next.
        del event
    report(taken)


def servos(node: Any, frames: int) -> None:
    """Reads joints, accelerometer and gyroscope of the body."""
    for number in range(frames * SENSOR_HZ // RATE_HZ):
        node.next()
        node.send("joints", numpy.full(JOINTS, number, numpy.float32))
        node.send("accelerometer", numpy.array([0, 0, 9.81], numpy.float32))
        node.send("gyroscope", numpy.zeros(3, numpy.float32))


def fusion(node: Any, _frames: int) -> None:
    """Orientation from the raw readings."""
    rates = numpy.zeros(3, numpy.float32)
    for event in node:
        if event.type == "INPUT" and event.id == "gyroscope":
            rates = event.numpy().copy()
        elif event.type == "INPUT":
            node.send("orientation", numpy.concatenate([event.numpy(), rates]))


def passing_on(output: str) -> Callable[[Any, int], None]:
    """A node that answers each message of its first input."""

    def run(node: Any, _frames: int) -> None:
        for event in node:
            if event.type == "INPUT" and event.id == "joints":
                node.send(output, event.numpy() * 0.5)

    return run


def monitor(node: Any, _frames: int) -> None:
    for event in node:
        del event


ROLES = {
    "camera": camera,
    "sobel": sobel,
    "servos": servos,
    "fusion": fusion,
    "transforms": passing_on("transforms"),
    "motion": passing_on("commands"),
    "monitor": monitor,
}

if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
