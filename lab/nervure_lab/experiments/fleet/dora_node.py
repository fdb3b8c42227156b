"""A node of dora: ``source BYTES HZ COUNT`` sends samples at fixed times, with the time at which each is due;
``sink FILE`` writes a line for each. Runs in the environment of dora: standard library, numpy, pyarrow, dora.
"""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path

HEADER = struct.Struct("<qq")
"""Sequence, due time in nanoseconds of CLOCK_REALTIME."""
BEFORE_FIRST_SECONDS = 2.0


def source(size: int, rate_hz: float, count: int) -> None:
    import numpy
    import pyarrow
    from dora import Node

    node = Node()
    data = numpy.random.default_rng(1).integers(0, 256, size, numpy.uint8)
    start = time.time_ns() + int(BEFORE_FIRST_SECONDS * 1e9)
    for sequence in range(count):
        due = start + int(sequence * 1e9 / rate_hz)
        time.sleep(max(0.0, (due - time.time_ns()) / 1e9))
        data[: HEADER.size] = numpy.frombuffer(HEADER.pack(sequence, due), numpy.uint8)
        node.send_output("out", pyarrow.array(data))
    time.sleep(5.0)


def sink(file: str) -> None:
    from dora import Node

    node = Node()
    with Path(file).open("w", buffering=1) as log:
        for event in node:
            if event["type"] == "INPUT":
                value = event["value"]
                head = value.buffers()[1].to_pybytes()[value.offset : value.offset + HEADER.size]
                sequence, due = HEADER.unpack(head)
                log.write(f"{sequence} {due} {time.time_ns()}\n")
            elif event["type"] in ("STOP", "INPUT_CLOSED"):
                break


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "source":
        source(int(words[0]), float(words[1]), int(words[2]))
    else:
        sink(words[0])
