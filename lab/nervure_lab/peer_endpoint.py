"""An endpoint of any peer: ``python -m nervure_lab.peer_endpoint PEER``. Standard library alone.

Open-loop pacing, stamping, sequence numbers, the echo and the logs are here, so that they are the same for
all peers. Every message begins with the header, before the same random bytes in all messages.

The driver talks to it by lines: ``probe`` (publishers send probes until every subscriber has one), ``start
T``, ``stop``, ``leave``. An endpoint answers with JSON lines.
"""

from __future__ import annotations

import array
import ctypes
import hashlib
import importlib
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from nervure_lab.peer import Peer, Publisher, Subscriber, Wiring

HEADER = struct.Struct("<qqqq")
"""Sequence, index of the publisher, due time, time of the stamp; nanoseconds of CLOCK_MONOTONIC."""
PROBE = -1
LEAST_BYTES = 64
PROBE_SECONDS = 0.02
SPIN_SECONDS = 0.05
BUSY_NANOS = 150_000
"""The last part of each wait is a busy loop: sleeping alone wakes up late by tens of microseconds."""
PUBLICATION_FIELDS = ("sequence", "due", "before", "stamped", "returned")
RECEPTION_FIELDS = ("sequence", "publisher", "due", "stamped", "received", "read")

now_nanos = time.monotonic_ns


class Driver:
    """The connection to the driver."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._received = b""
        self._lock = threading.Lock()

    def report(self, record: dict[str, Any]) -> None:
        with self._lock:
            self._socket.sendall(json.dumps(record).encode() + b"\n")

    def line(self, timeout_seconds: float | None = None) -> str | None:
        """The next line, or None after the timeout."""
        while b"\n" not in self._received:
            readable, _, _ = select.select([self._socket], [], [], timeout_seconds)
            if not readable:
                return None
            received = self._socket.recv(4096)
            if not received:
                os._exit(1)  # The driver has ended; nothing may wait for a peer.
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()


class Receptions:
    """Takes the messages of one endpoint, from any one thread of the peer."""

    def __init__(self, driver: Driver, publishers: int, messages: int, case: dict[str, Any]) -> None:
        self._driver = driver
        self._publishers = publishers
        self._expected = messages * publishers
        self._reads = bool(case["reads"])
        self._work_nanos = int(case["work_millis"] * 1e6)
        self._operate = function_named(case.get("operation", ""))
        self._probed: set[int] = set()
        self._seen: set[tuple[int, int]] = set()
        self.log = array.array("q")
        self.wrong = 0
        """Messages without a header."""
        self.complete = threading.Event()

    def on_message(self, payload: Any) -> None:
        received = now_nanos()
        if memoryview(payload).nbytes < HEADER.size:
            self.wrong += 1
            return
        sequence, publisher, due, stamped = HEADER.unpack_from(payload)
        if sequence == PROBE:
            if publisher not in self._probed:
                self._probed.add(publisher)
                self._driver.report({"probe": publisher, "received": received})
            return
        if self._reads:
            bytes(payload)
            read = now_nanos()
        else:
            read = received
        if self._operate is not None:
            self._operate(payload)
            read = now_nanos()
        if self._work_nanos:
            compute(payload, received + self._work_nanos)
            read = now_nanos()
        self.log.extend((sequence, publisher, due, stamped, received, read))
        self._seen.add((sequence, publisher))
        if len(self._seen) >= self._expected:
            self.complete.set()


def function_named(name: str) -> Callable[[Any], None] | None:
    """Imports ``module:function``; None without a name."""
    module, _, function = name.partition(":")
    found: Callable[[Any], None] | None = getattr(importlib.import_module(module), function) if name else None
    return found


def compute(payload: Any, until_nanos: int) -> None:
    """Reads all of the payload repeatedly, without Python's lock, as the libraries of a detector do."""
    while now_nanos() < until_nanos:
        hashlib.blake2b(payload)


class Publications:
    """Publishes the messages of the case at their due times, however long a publication takes."""

    def __init__(self, publisher: Publisher, index: int, payload_bytes: int) -> None:
        self._publisher = publisher
        self._index = index
        # Not zeros: compression and shared zero pages would favour some.
        self._source = bytearray(os.urandom(max(payload_bytes, LEAST_BYTES)))
        self._probe = bytearray(LEAST_BYTES)
        self._stamped = 0
        self.log = array.array("q")

    def probe(self) -> None:
        self._publisher.publish(self._probe, self._stamp_of(PROBE, 0))

    def publish(self, sequence: int, due: int) -> None:
        before = now_nanos()
        self._publisher.publish(self._source, self._stamp_of(sequence, due))
        self.log.extend((sequence, due, before, self._stamped, now_nanos()))

    def _stamp_of(self, sequence: int, due: int) -> Callable[[Any], None]:
        def stamp(memory: Any) -> None:
            self._stamped = now_nanos()
            HEADER.pack_into(memory, 0, sequence, self._index, due, self._stamped)

        return stamp


def wait_until(due_nanos: int, spin: Callable[[float], None] | None = None) -> None:
    """Waits for a time; the last part is a busy loop. With ``spin``, messages are received meanwhile."""
    while (left := due_nanos - BUSY_NANOS - now_nanos()) > 0:
        if spin is not None and left > 2_000_000:
            spin(left * 1e-9 - 0.001)
        else:
            time.sleep(left * 1e-9)
    while now_nanos() < due_nanos:
        pass


class Endpoint:
    def __init__(self, peer: Peer, wiring: Wiring, case: dict[str, Any]) -> None:
        self.peer = peer
        self.wiring = wiring
        self.case = case
        self.driver = Driver(os.environ["NERVURE_LAB_RENDEZVOUS"])
        self.subscriber: Subscriber | None = None
        self.publications: Publications | None = None
        self.receptions: Receptions | None = None

    def open(self) -> None:
        opening = now_nanos()
        role = self.wiring.role
        {"publisher": self._open_publisher, "subscriber": self._open_subscriber}.get(role, self._open_echo)()
        hello = {"role": role, "index": self.wiring.index, "pid": os.getpid()}
        self.driver.report({**hello, "opening": opening, "opened": now_nanos()})

    def run(self) -> None:
        if self.subscriber is not None and not self.peer.one_thread:
            threading.Thread(target=self._spin_forever, daemon=True).start()
        self._follow_driver()

    def _open_publisher(self) -> None:
        self._publish_on("data")

    def _open_subscriber(self) -> None:
        self._receive_on("data", self.wiring.publishers)

    def _open_echo(self) -> None:
        if self.wiring.role == "client":
            self._publish_on("ping")
            self._receive_on("pong", 1)
            return
        answer = self.peer.open_publisher(self.wiring, "pong")

        def send_back(payload: Any) -> None:
            # A copy, as an echo that computes an answer would make; and the peer may reuse its memory.
            answer.publish(bytearray(payload), lambda memory: None)

        self.subscriber = self.peer.open_subscriber(self.wiring, "ping", send_back)

    def _publish_on(self, topic: str) -> None:
        publisher = self.peer.open_publisher(self.wiring, topic)
        self.publications = Publications(publisher, self.wiring.index, self.wiring.payload_bytes)

    def _receive_on(self, topic: str, publishers: int) -> None:
        messages = self.case["warmup"] + self.case["messages"]
        self.receptions = Receptions(self.driver, publishers, messages, self.case)
        self.subscriber = self.peer.open_subscriber(self.wiring, topic, self.receptions.on_message)

    def _spin_forever(self) -> None:
        assert self.subscriber is not None
        while True:
            self.subscriber.spin(SPIN_SECONDS)

    def _spin_if_one_thread(self, seconds: float) -> None:
        if self.peer.one_thread and self.subscriber is not None:
            self.subscriber.spin(seconds)

    def _line(self, seconds: float) -> str | None:
        """The next line of the driver, or None after about this time."""
        if self.peer.one_thread and self.subscriber is not None:
            self.subscriber.spin(seconds)
            return self.driver.line(0)
        return self.driver.line(seconds)

    def _follow_driver(self) -> None:
        probing = False
        reported = False
        while True:
            if probing and self.publications is not None:
                self.publications.probe()
            line = self._line(PROBE_SECONDS if probing else SPIN_SECONDS)
            if line is not None:
                word, _, value = line.partition(" ")
                if word == "probe":
                    probing = True
                elif word == "start":
                    probing = False
                    if self.publications is not None:
                        self._send_all(int(value))
                        self._write("publications", self.publications.log)
                        self.driver.report({"sent": True})
                elif word == "stop":
                    if self.receptions is not None and not reported:
                        self._report_receptions()
                    reported = True
                    self.driver.report({"stopped": True})
                elif word == "leave":
                    os._exit(0)  # Closing may wait for the other end.
            if self.receptions is not None and not reported and self.receptions.complete.is_set():
                self._report_receptions()
                reported = True

    def _send_all(self, start: int) -> None:
        assert self.publications is not None
        period = 1e9 / self.case["rate_hz"]
        spin = self._spin_if_one_thread if self.peer.one_thread and self.subscriber is not None else None
        messages = self.case["warmup"] + self.case["messages"]
        end = start + int(messages * period) if self.case["ends_on_time"] else None
        for sequence in range(messages):
            due = start + int(sequence * period)
            wait_until(due, spin)
            if end is not None and now_nanos() > end:
                return
            self.publications.publish(sequence, due)
        # The report of this end must not disturb the last message.
        wait_until(due + int(period), spin)

    def _report_receptions(self) -> None:
        assert self.receptions is not None
        # A copy: late messages may still arrive on another thread.
        self._write("receptions", array.array("q", self.receptions.log))
        self.driver.report({"received": True, "wrong": self.receptions.wrong})

    def _write(self, kind: str, log: array.array[int]) -> None:
        name = f"{kind}-{self.wiring.role}-{self.wiring.index}.log"
        with open(f"{os.environ['NERVURE_LAB_LOGS']}/{name}", "wb") as file:  # noqa: PTH123
            log.tofile(file)


def without_timer_slack() -> None:
    """Sleeps end within a microsecond instead of the kernel's default of 50."""
    ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)


def prepare_process() -> None:
    sys.setswitchinterval(0.0005)
    without_timer_slack()


def main(module: str) -> None:
    prepare_process()
    peer: Peer = importlib.import_module(module).PEER
    case = json.loads(os.environ["NERVURE_LAB_CASE"])
    first, *others = [Endpoint(peer, wiring, case) for wiring in Wiring.all_from_environment()]
    # In turns, since they may share an object that the peer opens once in a process.
    for endpoint in (first, *others):
        endpoint.open()
    for endpoint in others:
        threading.Thread(target=endpoint.run, daemon=True).start()
    first.run()


if __name__ == "__main__":
    main(sys.argv[1])
