"""The case of a Python endpoint and its rendezvous with the driver. Standard library alone.

An endpoint connects to the driver's socket and sends one line once it can send or receive. When all
endpoints of the run have done so, the driver sends each a line, which starts the run.
"""

from __future__ import annotations

import json
import os
import select
import socket
from types import SimpleNamespace


class Endpoint:
    """A process that knows its case and is connected to the driver."""

    def __init__(self) -> None:
        text = os.environ.get("NERVURE_LAB_CASE")
        if text is None:
            raise SystemExit("NERVURE_LAB_CASE is not set: `python -m nervure_lab run` starts this program")
        self.case = SimpleNamespace(**json.loads(text))
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(self.case.rendezvous)

    def ready_then_wait_for_start(self) -> str:
        """Sends the hello and returns the driver's line."""
        hello = {name: getattr(self.case, name, None) for name in ("role", "index")}
        self.report({**hello, "pid": os.getpid()})
        return self.wait_for_line()

    def report(self, record: dict) -> None:
        self._socket.sendall(json.dumps(record).encode() + b"\n")

    def wait_for_line(self) -> str:
        line = self._socket.recv(64)
        if not line:
            raise SystemExit("the driver has ended")
        return line.decode()

    def may_leave_within(self, timeout_seconds: float) -> bool:
        readable, _, _ = select.select([self._socket], [], [], timeout_seconds)
        return bool(readable)
