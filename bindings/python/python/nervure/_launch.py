"""Starts dataflows from tests and notebooks, through ``nervure run --json``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from nervure.__main__ import find_command
from nervure.errors import LaunchError

Json = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a dataflow that has ended.

    Attributes:
        exit_code: That of ``nervure run``: 0, or 3 if a node failed or an edge with the policy ``block``
            lost samples.
        summary: The last line of ``nervure run --json``: ``failed`` nodes, ``edges`` with the counts of
            their samples, ``log_folder``. None if ``nervure run`` itself has failed.
        error: Why ``nervure run`` has failed, as text.
    """

    exit_code: int
    summary: Json | None
    error: str | None

    def check(self) -> None:
        """Raises :class:`LaunchError` unless the exit code is 0, with the reasons."""
        if self.exit_code == 0:
            return
        reasons = [self.error] if self.error else []
        for node in (self.summary or {}).get("failed", []):
            reasons += [f"node `{node['id']}` failed: {node['reason']}", *node["stderr_tail"]]
        for edge in (self.summary or {}).get("edges", []):
            if edge["lost"]:
                reasons.append(f"{edge['topic']} -> {edge['input']}: {edge['lost']} lost")
        raise LaunchError("\n".join(reasons or [f"`nervure run` has ended with exit code {self.exit_code}"]))


class Launched:
    """A dataflow that :func:`launch` has started. It ends with this process.

    As a context manager it stops the dataflow at the end of the block, and raises :class:`LaunchError`
    if the outcome has an exit code other than 0, unless :meth:`wait` or :meth:`stop` has returned that.

    Attributes:
        dataflow: Its name, for ``observe("camera/image", dataflow=..)`` and for ``nervure top -d``.
    """

    def __init__(self, dataflow: str, process: subprocess.Popen[str]) -> None:
        self.dataflow = dataflow
        self._process = process
        self._is_taken = False
        self._summary: Json | None = None
        self._error: Json | None = None
        self._has_begun = threading.Event()
        # `nervure run` waits while its stdout is full.
        self._reader = threading.Thread(target=self._read, name="nervure-launch", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        try:
            for line in self._process.stdout:
                message = json.loads(line)
                match message["message"]:
                    case "summary":
                        self._summary = message
                    case "error":
                        self._error = message["error"]
                    case "ready":
                        self._has_begun.set()
        finally:
            # `nervure run` stops the nodes when its stdout is closed.
            self._process.stdout.close()
            self._has_begun.set()

    def wait(self, timeout: float | None = None) -> Outcome:
        """Waits until the dataflow has ended.

        Args:
            timeout: The longest wait in seconds. Default: no limit.

        Raises:
            TimeoutError: The dataflow runs after the timeout.
        """
        self._reader.join(timeout)
        if self._reader.is_alive():
            raise TimeoutError(f"dataflow `{self.dataflow}` has not ended within {timeout} s")
        self._is_taken = True
        error = None if self._error is None else _error_text(self._error)
        return Outcome(self._process.wait(), self._summary, error)

    def stop(self, timeout: float | None = None) -> Outcome:
        """Asks the nodes to end, and waits as :meth:`wait` does.

        A node that has not ended after 5 s gets SIGTERM.
        """
        if self._reader.is_alive():
            self._process.send_signal(signal.SIGTERM)
        return self.wait(timeout)

    def __enter__(self) -> Launched:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        was_taken = self._is_taken
        outcome = self.stop()
        if error is None and not was_taken:
            outcome.check()


def launch(
    file: str | os.PathLike[str],
    *,
    params: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    name: str | None = None,
    timeout: float = 60.0,
) -> Launched:
    """Start a dataflow from a test or a notebook, and return when every node is ready, or it has ended.

    >>> with nervure.launch("drive.yml", params={"camera.fps": 60}) as drive:
    ...     image = next(nervure.observe("camera/image", dataflow=drive.dataflow))
    ...     assert image.numpy().mean() > 0

    Args:
        file: The dataflow file.
        params: Parameters that override those of the file, by ``node.parameter``.
        env: Environment variables of all nodes, and for ``${NAME}`` in the file.
        name: The name of the dataflow. Default: the name in its file. Two dataflows of the same file
            need different names.
        timeout: The longest wait for the nodes in seconds. After that the dataflow is stopped.

    Raises:
        LaunchError: The file, a parameter or a name is wrong, or the keeper cannot be started.
        TimeoutError: A node was not ready in time.
    """
    command = str(find_command())
    path = os.fspath(file)
    arguments = [command, "run", "--json"]
    arguments += [] if name is None else [f"--name={name}"]
    arguments += [f"--env={variable}={value}" for variable, value in (env or {}).items()]
    arguments += ["--", path]
    arguments += [f"{param}={_text(value)}" for param, value in (params or {}).items()]
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        # Ctrl-C is for this process, which then stops the dataflow.
        start_new_session=True,
    )
    launched = Launched(name or _name_in(command, path, env), process)
    if not launched._has_begun.wait(timeout):
        launched.stop()
        raise TimeoutError(f"the nodes of {path} were not ready within {timeout} s")
    if launched._error is not None:
        launched.wait().check()
    return launched


def _error_text(error: Json) -> str:
    lines = [error["message"], *error["caused_by"]]
    for finding in error["findings"]:
        if finding["severity"] == "error":
            lines.append(f"{finding['file']}:{finding.get('line', '')}: {finding['message']}")
    if error["hint"]:
        lines.append(f"hint: {error['hint']}")
    return "\n".join(lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _name_in(command: str, path: str, env: Mapping[str, str] | None) -> str:
    """The name of a dataflow file, or an empty text if the file has errors, which ``nervure run`` reports."""
    graph = subprocess.run(
        [command, "graph", "--json", "--", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | dict(env or {}),
        check=False,
    )
    return str(json.loads(graph.stdout)["name"]) if graph.returncode == 0 else ""
