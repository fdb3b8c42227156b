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

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nervure_lab.children import Children
from nervure_lab.experiments.local.case import Case, ConsumerResult, Outcome, ProcessResult, RunResult, Usage
from nervure_lab.rendezvous import Expired, Failed, Rendezvous
from nervure_lab.toolchain import LAB_DIRECTORY

START_TIMEOUT_SECONDS = 30.0
"""Limit of the time from spawning to the last hello."""
DRAIN_TIMEOUT_SECONDS = 15.0
"""Time after the expected end of sending at which a run counts as hung."""
LEAVE_TIMEOUT_SECONDS = 5.0
IDLE_SETTLING_SECONDS = 1.0
"""Time after the start and before the end of an idle case that is not measured."""
_LAUNCHER = "launcher"
_REPORT = "role"
"""First key of the report of an endpoint."""


class Session:
    """The processes of one case."""

    def __init__(self, case: Case, *, producers: int = 1) -> None:
        self.case = case
        self.directory = Path(tempfile.mkdtemp(prefix="nervure-lab-"))
        self.run_name = self.directory.name
        self._expected = {("consumer", index) for index in range(case.consumers)}
        self._expected |= {("producer", index) for index in range(producers)}
        self._children = Children(self.directory)
        self._tree = self._children.tree
        self._idle_wakeups_per_second: dict[int, float] = {}
        self._rendezvous = Rendezvous(
            self.directory / "rendezvous",
            len(self._expected),
            self._children,
            may_leave=lambda end: end.has(_REPORT),
        )

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_processes()
        self._rendezvous.close()
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
        ends = self._rendezvous.ends
        try:
            self._wait(lambda: len(ends) == len(self._expected), START_TIMEOUT_SECONDS, "say hello")
            self._rendezvous.send("", ends.values())
            self._tree.sample()
            if self.case.mode == "idle":
                self._watch_idle_processes()
            limit = self.case.expected_seconds + DRAIN_TIMEOUT_SECONDS
            self._wait(lambda: all(end.has(_REPORT) for end in ends.values()), limit, "report")
            if self.case.mode != "idle":
                self._tree.sample()
            self._rendezvous.send("", ends.values())
            self._children.wait_for_leave(LEAVE_TIMEOUT_SECONDS)
        except Failed as error:
            return self._collect("failed", str(error))
        except _Hung as error:
            return self._collect("hung", str(error))
        return self._collect("ok", "")

    def _wait(self, is_done: Callable[[], bool], timeout_seconds: float, what: str) -> None:
        try:
            self._rendezvous.wait(is_done, timeout_seconds)
        except Expired:
            raise _Hung(f"{self._missing(what)} within {timeout_seconds:.0f} s") from None

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

    def _missing(self, what: str) -> str:
        ends = self._rendezvous.ends
        reported = {name for name, end in ends.items() if what == "say hello" or end.has(_REPORT)}
        names = ", ".join(f"{role} {index}" for role, index in sorted(self._expected - reported))
        return f"{names} did not {what}"

    def _collect(self, outcome: Outcome, reason: str) -> RunResult:
        result = RunResult(outcome=outcome, reason=reason, spawned_at_nanos=self._children.spawned_at_nanos)
        ends = self._rendezvous.ends
        for _, end in sorted(ends.items()):
            if not end.has(_REPORT):
                continue
            report = dict(end.records[_REPORT])
            usage = Usage(**report["usage"]) if report.get("usage") else None
            if report.pop("role") == "producer":
                result.sent = report["sent"]
                result.producer = usage
            else:
                result.consumers.append(ConsumerResult(**{**report, "usage": usage}))
        if result.sent is None and result.consumers:
            result.sent = result.consumers[0].received + result.consumers[0].lost
        roles = {end.hello["pid"]: f"{end.role} {end.index}" for end in ends.values()}
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


class _Hung(Exception):
    """Endpoints did not answer in time; the message names them."""
