"""A peer with known faults, over Unix datagrams: the reference for a measurement.

Of every 20 messages, number 3 and 11 are lost, number 5 arrives twice, and number 7 arrives after number 8.
The first two and the last message are lost, too. Every delivery happens ``DELAY_SECONDS`` after the
publication.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from nervure_lab.peer import Configuration, OnMessage, Peer, Stamp, Wiring
from nervure_lab.peer_endpoint import HEADER, PROBE

DELAY_SECONDS = 0.004
SLOW_SECONDS = 0.02
MESSAGES = 100


class Synthetic(Peer):
    name = "synthetic"
    title = "Synthetic"
    configurations = (
        Configuration("faulty", "Known faults.", "defaults"),
        Configuration("faultless", "A delay alone.", "defaults"),
        Configuration("crashing", "Ends in the middle.", "defaults"),
        Configuration("blocking", "The publish call never returns.", "defaults"),
        Configuration("slow", "The publish call takes 20 ms.", "defaults"),
    )

    def prepare(self, toolchain: Any) -> None:
        self.python = Path(sys.executable)

    def versions(self) -> dict[str, str]:
        return {"synthetic": "1"}

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        return _Publisher(wiring, topic)

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        return _Subscriber(wiring, topic, on_message)


def deliveries(sequence: int) -> int:
    """How often a message arrives."""
    if sequence in (0, 1, MESSAGES - 1) or sequence % 20 in (3, 11):
        return 0
    return 2 if sequence % 20 == 5 else 1


class _Publisher:
    def __init__(self, wiring: Wiring, topic: str) -> None:
        self._configuration = wiring.configuration
        self._paths = [f"{wiring.directory}/{topic}-{index}" for index in range(wiring.subscribers)]
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._queue: deque[tuple[float, bytes]] = deque()
        self._held: list[bytes] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._deliver, daemon=True).start()

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        stamp(source)
        sequence = HEADER.unpack_from(source)[0]
        if self._configuration == "crashing" and sequence == 10:
            raise SystemExit("the synthetic peer crashed")
        while self._configuration == "blocking" and sequence == 10:
            time.sleep(1)
        if self._configuration == "slow" and sequence != PROBE:
            time.sleep(SLOW_SECONDS)
        faulty = self._configuration == "faulty" and sequence != PROBE
        due = [bytes(source)] * (deliveries(sequence) if faulty else 1)
        if faulty and sequence % 20 == 7:
            self._held, due = due, []
        elif faulty and sequence % 20 == 8:
            due += self._held
        at = time.monotonic() + DELAY_SECONDS
        with self._changed:
            self._queue += [(at, payload) for payload in due]
            self._changed.notify()

    def _deliver(self) -> None:
        while True:
            with self._changed:
                while not self._queue or self._queue[0][0] > time.monotonic():
                    self._changed.wait(self._queue[0][0] - time.monotonic() if self._queue else None)
                _, payload = self._queue.popleft()
            for path in self._paths:
                self._socket.sendto(payload, path)


class _Subscriber:
    def __init__(self, wiring: Wiring, topic: str, on_message: OnMessage) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"{wiring.directory}/{topic}-{wiring.index}")
        self._on_message = on_message

    def spin(self, timeout_seconds: float) -> None:
        self._socket.settimeout(max(timeout_seconds, 1e-6))
        try:
            payload = self._socket.recv(1 << 20)
        except TimeoutError:
            return
        self._on_message(payload)


PEER = Synthetic()
