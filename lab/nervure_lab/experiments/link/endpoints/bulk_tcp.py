"""One TCP flow without a rate limit: `bulk_tcp.py receive|send PORT`. Every 100 ms the receiver writes a line
with CLOCK_MONOTONIC in nanoseconds and the bytes received so far.
"""

import contextlib
import os
import socket
import sys
import time

ADDRESS = "10.77.0.1"
CHUNK_BYTES = 256 * 1024
INTERVAL_NANOS = 100_000_000


def send(port: int) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection((ADDRESS, port), timeout=5) as link:
            link.settimeout(None)
            chunk = os.urandom(CHUNK_BYTES)
            while True:
                link.sendall(chunk)


def receive(port: int) -> None:
    listener = socket.create_server((ADDRESS, port))
    buffer = bytearray(CHUNK_BYTES)
    total, reported_nanos = 0, 0
    with open(os.environ["NERVURE_LAB_RECEPTIONS"], "w", encoding="ascii", buffering=1) as file:  # noqa: PTH123
        while True:
            link, _ = listener.accept()
            while got := link.recv_into(buffer):
                total += got
                now = time.monotonic_ns()
                if now - reported_nanos >= INTERVAL_NANOS:
                    reported_nanos = now
                    file.write(f"{now} {total}\n")


{"send": send, "receive": receive}[sys.argv[1]](int(sys.argv[2]))
