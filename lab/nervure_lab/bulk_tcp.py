"""One unlimited TCP flow to the first host of the emulated link: ``bulk_tcp.py receive|send PORT``.
Every 100 ms the receiver writes a line with CLOCK_MONOTONIC in nanoseconds and the bytes received so far.
Standard library alone.
"""

from __future__ import annotations

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


def progress(log: str) -> list[tuple[int, int]]:
    """Times in nanoseconds, and the bytes received by then. A killed receiver may leave half a line."""
    lines = [line.split() for line in log.splitlines()]
    return [(int(line[0]), int(line[1])) for line in lines if len(line) == 2]


def goodput_mbit(log: str, begin_nanos: int, end_nanos: int) -> float:
    """The mean rate between two times, from the last lines before them."""
    total_at_begin = total_at_end = 0
    for at, total in progress(log):
        total_at_begin = total if at <= begin_nanos else total_at_begin
        total_at_end = total if at <= end_nanos else total_at_end
    return (total_at_end - total_at_begin) * 8e3 / (end_nanos - begin_nanos)


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]](int(sys.argv[2]))
