"""The child processes of one run: started with their output in files, watched, and ended with all
descendants.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nervure_lab.processes import ProcessTree

TERMINATION_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL."""


class Children:
    def __init__(self, directory: Path, label_variable: str = "") -> None:
        self.tree = ProcessTree(label_variable)
        self.spawned_at_nanos: int | None = None
        self._directory = directory
        self._children: dict[subprocess.Popen[bytes], str] = {}

    def spawn(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str],
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Starts a program in the directory of this run."""
        if self.spawned_at_nanos is None:
            self.spawned_at_nanos = time.monotonic_ns()
        with self._log(name).open("wb") as output:
            child = subprocess.Popen(
                [str(part) for part in command],
                cwd=self._directory,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        self._children[child] = name
        self.tree.add_root(child.pid)

    def failure(self) -> str:
        """Returns the failed child with its last lines, or that all have left; empty without a failure."""
        codes = {name: child.poll() for child, name in self._children.items()}
        for name, code in codes.items():
            if code not in (None, 0):
                return f"{name} exited with {code}{self.last_words()}"
        if all(code == 0 for code in codes.values()):
            return f"all processes have left before their reports{self.last_words()}"
        return ""

    def last_words(self) -> str:
        lines = []
        for name in self._children.values():
            text = self._log(name).read_text(errors="replace").strip()
            lines += [line.strip() for line in text.splitlines()[-3:] if line.strip()]
        return ": " + " | ".join(lines)[-600:] if lines else ""

    def wait_for_leave(self, timeout_seconds: float) -> None:
        """Waits for all children to exit. The rest is killed later."""
        deadline = time.monotonic() + timeout_seconds
        for child in self._children:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return

    def end(self) -> None:
        """Sends SIGTERM to the children, so that launchers end their own processes; then kills the rest."""
        self.tree.sample()
        alive = [child for child in self._children if child.poll() is None]
        for child in alive:
            child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + TERMINATION_SECONDS
        for child in alive:
            try:
                child.wait(max(0.05, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self.tree.kill_survivors()

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"
