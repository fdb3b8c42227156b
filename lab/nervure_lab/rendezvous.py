"""The driver's end of the connections to the endpoints of a run, which talk in lines.

An endpoint connects, sends a hello once it can send or receive, and then records, each a line of JSON. The
driver sends it single lines. No step is a sleep.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nervure_lab.children import Children

POLL_SECONDS = 0.25

Name = tuple[str, int]
"""Role and index of an endpoint."""


class Expired(Exception):
    """The time limit of a wait is over."""


class Failed(Exception):
    """A process has failed, or an endpoint has left; the message is the reason."""


class Connection:
    """One endpoint: its hello, and its records by their first key."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.hello: dict[str, Any] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.probes: dict[int, int] = {}
        """Time of the first probe, by publisher."""
        self._received = b""

    @property
    def role(self) -> str:
        return str(self.hello.get("role", "an endpoint"))

    @property
    def index(self) -> int:
        return int(self.hello.get("index", 0))

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"

    def has(self, key: str) -> bool:
        return key in self.records

    def take(self, received: bytes) -> bool:
        """Takes the lines that are complete; returns whether one of them is the hello."""
        self._received += received
        says_hello = False
        while b"\n" in self._received:
            line, _, self._received = self._received.partition(b"\n")
            record = json.loads(line)
            if not self.hello:
                self.hello = record
                says_hello = True
            elif "probe" in record:
                self.probes[record["probe"]] = record["received"]
            else:
                self.records[next(iter(record))] = record
        return says_hello


class Rendezvous:
    def __init__(
        self,
        path: Path,
        endpoints: int,
        children: Children,
        *,
        may_leave: Callable[[Connection], bool] = lambda connection: False,
    ) -> None:
        self.ends: dict[Name, Connection] = {}
        """Endpoints that have sent their hello."""
        self._children = children
        self._may_leave = may_leave
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(endpoints)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def wait(
        self,
        is_done: Callable[[], bool],
        timeout_seconds: float,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Reads until the condition is true. Raises ``Expired``, and ``Failed`` if a process has failed."""
        deadline = time.monotonic() + timeout_seconds
        while not is_done():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise Expired
            for chosen, _ in self._selector.select(min(remaining, POLL_SECONDS)):
                if chosen.data is None:
                    connection, _ = self._listener.accept()
                    self._selector.register(connection, selectors.EVENT_READ, Connection(connection))
                else:
                    self._read_from(chosen.data)
            if failure := self._children.failure():
                raise Failed(failure)
            meanwhile()

    def send(self, line: str, ends: Iterable[Connection]) -> None:
        for end in ends:
            # An endpoint that has left is detected by reading.
            with contextlib.suppress(OSError):
                end.socket.sendall(line.encode() + b"\n")

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _read_from(self, connection: Connection) -> None:
        try:
            received = connection.socket.recv(1 << 20)
        except ConnectionError:
            received = b""
        if not received:
            self._selector.unregister(connection.socket)
            connection.socket.close()
            if not self._may_leave(connection):
                raise Failed(f"{connection.name} left before the end{self._children.last_words()}")
        elif connection.take(received):
            self.ends[connection.role, connection.index] = connection
