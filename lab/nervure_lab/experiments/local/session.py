"""Runs the processes of one case: rendezvous, deadlines, resource usage, cleanup.

    with Session(case) as session:
        session.spawn([program, "..."], role="consumer", index=0)
        session.spawn([program, "..."], role="producer")
        return session.result()

An endpoint connects to ``rendezvous``, sends a hello once it can send or receive, and gets a line back when
all endpoints have done so. Each sends one report; when all reports are in, each gets a second line and exits.
No step is a sleep.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nervure_lab.children import Children
from nervure_lab.experiments.local.case import Case, ConsumerResult, Outcome, ProcessResult, RunResult, Usage
from nervure_lab.toolchain import LAB_DIRECTORY

START_TIMEOUT_SECONDS = 30.0
"""Limit of the time from spawning to the last hello."""
DRAIN_TIMEOUT_SECONDS = 15.0
"""Time after the expected end of sending at which a run counts as hung."""
LEAVE_TIMEOUT_SECONDS = 5.0
IDLE_SETTLING_SECONDS = 1.0
"""Time after the start and before the end of an idle case that is not measured."""
_LAUNCHER = "launcher"


class Session:
    """The processes of one case."""

    def __init__(self, case: Case, *, producers: int = 1) -> None:
        self.case = case
        self.directory = Path(tempfile.mkdtemp(prefix="nervure-lab-"))
        self.run_name = self.directory.name
        self._expected = {("consumer", index) for index in range(case.consumers)}
        self._expected |= {("producer", index) for index in range(producers)}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.directory / "rendezvous"))
        self._listener.listen(case.consumers + producers)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._children = Children(self.directory)
        self._tree = self._children.tree
        self._idle_wakeups_per_second: dict[int, float] = {}
        self._endpoints: dict[tuple[str, int], _Endpoint] = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_processes()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self, role: str, index: int = 0) -> dict[str, str]:
        """Returns the environment of an endpoint."""
        case = {
            **vars(self.case),
            "role": role,
            "index": index,
            "rendezvous": str(self.directory / "rendezvous"),
            "run_name": self.run_name,
        }
        return {"NERVURE_LAB_CASE": json.dumps(case), "PYTHONPATH": str(LAB_DIRECTORY)}

    def spawn(
        self,
        command: Sequence[str | Path],
        *,
        role: str = _LAUNCHER,
        index: int = 0,
        environment: dict[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Starts an endpoint, or a launcher that starts the endpoints, in the directory of this run."""
        variables = {} if role == _LAUNCHER else self.environment(role, index)
        self._children.spawn(f"{role}-{index}", command, {**variables, **(environment or {})}, pass_fds)

    def result(self) -> RunResult:
        """Runs the case and returns its result."""
        try:
            self._wait(
                lambda: len(self._endpoints) == len(self._expected), START_TIMEOUT_SECONDS, "say hello"
            )
            self._send_line_to_all()
            self._tree.sample()
            if self.case.mode == "idle":
                self._watch_idle_processes()
            limit = self.case.expected_seconds + DRAIN_TIMEOUT_SECONDS
            self._wait(lambda: all(end.report for end in self._endpoints.values()), limit, "report")
            if self.case.mode != "idle":
                self._tree.sample()
            self._send_line_to_all()
            self._children.wait_for_leave(LEAVE_TIMEOUT_SECONDS)
        except _Ended as ended:
            return self._collect(ended.outcome, ended.reason)
        return self._collect("ok", "")

    def _wait(self, is_done: Callable[[], bool], timeout_seconds: float, what: str) -> None:
        deadline = time.monotonic() + timeout_seconds
        while not is_done():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise _Ended("hung", f"{self._missing(what)} within {timeout_seconds:.0f} s")
            for key, _ in self._selector.select(min(remaining, 0.5)):
                if key.data is None:
                    connection, _ = self._listener.accept()
                    connection.settimeout(5.0)
                    self._selector.register(connection, selectors.EVENT_READ, _Endpoint(connection))
                else:
                    self._read_from(key.data)
            if failure := self._children.failure():
                raise _Ended("failed", failure)

    def _watch_idle_processes(self) -> None:
        time.sleep(IDLE_SETTLING_SECONDS)
        self._tree.sample()
        before = {pid: seen.voluntary_context_switches for pid, seen in self._tree.seen.items()}
        seconds = self.case.idle_seconds - 2 * IDLE_SETTLING_SECONDS
        time.sleep(seconds)
        self._tree.sample()
        self._idle_wakeups_per_second = {
            pid: (seen.voluntary_context_switches - before[pid]) / seconds
            for pid, seen in self._tree.seen.items()
            if pid in before
        }

    def _read_from(self, endpoint: _Endpoint) -> None:
        try:
            received = endpoint.socket.recv(1 << 20)
        except ConnectionError:
            received = b""
        if not received:
            self._selector.unregister(endpoint.socket)
            endpoint.socket.close()
            if endpoint.report is None:
                raise _Ended("failed", f"{endpoint.name} left before its report{self._children.last_words()}")
            return
        endpoint.received += received
        while b"\n" in endpoint.received:
            line, _, endpoint.received = endpoint.received.partition(b"\n")
            if endpoint.hello is None:
                endpoint.hello = json.loads(line)
                self._endpoints[(endpoint.hello["role"], endpoint.hello["index"])] = endpoint
            else:
                endpoint.report = json.loads(line)

    def _missing(self, what: str) -> str:
        reported = {
            name for name, endpoint in self._endpoints.items() if what == "say hello" or endpoint.report
        }
        names = ", ".join(f"{role} {index}" for role, index in sorted(self._expected - reported))
        return f"{names} did not {what}"

    def _send_line_to_all(self) -> None:
        for endpoint in self._endpoints.values():
            # An endpoint that has left is detected by reading.
            with contextlib.suppress(OSError):
                endpoint.socket.sendall(b"\n")

    def _collect(self, outcome: Outcome, reason: str) -> RunResult:
        result = RunResult(outcome=outcome, reason=reason, spawned_at_nanos=self._children.spawned_at_nanos)
        for _, endpoint in sorted(self._endpoints.items(), key=lambda item: item[0]):
            report = endpoint.report
            if report is None:
                continue
            usage = Usage(**report["usage"]) if report.get("usage") else None
            if report.pop("role") == "producer":
                result.sent = report["sent"]
                result.producer = usage
            else:
                result.consumers.append(ConsumerResult(**{**report, "usage": usage}))
        if result.sent is None and result.consumers:
            result.sent = result.consumers[0].received + result.consumers[0].lost
        roles = {
            endpoint.hello["pid"]: endpoint.name for endpoint in self._endpoints.values() if endpoint.hello
        }
        processes = (
            ProcessResult(
                role=roles.get(seen.pid, "daemon"),
                command=seen.command,
                cpu_seconds=seen.cpu_seconds,
                rss_bytes=seen.rss_bytes,
                max_rss_bytes=seen.max_rss_bytes,
                threads=seen.threads,
                idle_wakeups_per_second=self._idle_wakeups_per_second.get(seen.pid),
            )
            for seen in self._tree.seen.values()
        )
        result.processes = sorted(processes, key=lambda process: process.role)
        return result

    def end_processes(self) -> None:
        self._children.end()


class _Endpoint:
    """One connection: first a hello, then a report."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.received = b""
        self.hello: dict[str, Any] | None = None
        self.report: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return f"{self.hello['role']} {self.hello['index']}" if self.hello else "an endpoint"


class _Ended(Exception):
    def __init__(self, outcome: Outcome, reason: str) -> None:
        self.outcome: Outcome = outcome
        self.reason = reason
