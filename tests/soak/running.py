"""`nervure run --json`, and its messages."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from .processes import Process, parent

# Seconds; far above the duration of any step.
PATIENCE = 60.0


class Running:
    """A dataflow that runs."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.folder = folder
        self.stderr_path = folder / "stderr"
        with self.stderr_path.open("wb") as stderr:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                # Ctrl-C for this program must not reach the dataflow.
                start_new_session=True,
            )
        self.run = Process(self.process.pid)
        self.keeper: Process | None = None
        self.messages: list[dict[str, Any]] = []
        self.nodes: dict[str, Process] = {}
        self.incarnations: dict[str, int] = {}
        # Every end of every node, in order.
        self.ends: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.edges: dict[str, dict[str, Any]] = {}
        self.edge_reports = 0
        self.is_ready = False
        # Every node has ended for good.
        self.is_finished = False
        self.summary: dict[str, Any] | None = None
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            message = json.loads(line)
            with self.changed:
                self.take(message)
                self.changed.notify_all()

    def take(self, message: dict[str, Any]) -> None:
        kind = message["message"]
        if kind == "node_started":
            earlier = self.nodes.get(message["id"])
            if earlier:
                earlier.close()
            self.nodes[message["id"]] = Process(message["pid"])
            self.incarnations[message["id"]] = message["incarnation"]
            if self.keeper is None:
                with contextlib.suppress(OSError):
                    self.keeper = Process(parent(message["pid"]))
        elif kind == "node_ended":
            self.ends[message["id"]].append(message)
        elif kind == "ready":
            self.is_ready = True
        elif kind == "finished":
            self.is_finished = True
        elif kind in ("edges", "summary"):
            self.edges = {edge["input"]: edge for edge in message["edges"]}
            self.edge_reports += 1
            if kind == "summary":
                self.summary = message
        if kind != "edges":
            self.messages.append(message)

    def wait_for(self, holds, patience: float = PATIENCE) -> bool:
        """Whether a condition on the messages so far becomes true in time."""
        deadline = time.monotonic() + patience
        with self.changed:
            while not holds():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self.changed.wait(min(left, 1.0))
                if not self.reader.is_alive() and not holds():
                    return False
        return True

    def is_alive(self, node: str) -> bool:
        """Whether its process is alive, by the messages so far."""
        ends = self.ends[node]
        return node in self.nodes and not (ends and ends[-1]["incarnation"] == self.incarnations[node])

    def signal(self, process: Process, number: signal.Signals) -> bool:
        """False when it has ended. The lock keeps the reader from replacing the process meanwhile."""
        with self.changed:
            return process.signal(number)

    def has_ended(self, node: str) -> bool:
        """Whether it ended for good."""
        ends = self.ends[node]
        return bool(ends) and not ends[-1]["restarts"]

    def wait_for_end(self) -> int:
        """Its exit code."""
        code = self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        return code

    def log(self) -> str:
        lines = []
        for message in self.messages:
            if message["message"] == "log":
                lines.append(f"{message['node']}: {message['text']}")
            elif message["message"] == "node_ended":
                lines.append(f"{message['id']} (incarnation {message['incarnation']}): {message['reason']}")
        return "\n".join(lines[-60:]) + "\n" + self.stderr_path.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """Kills `run` if it still runs, and closes all pidfds."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join(PATIENCE)
        for process in [self.run, self.keeper, *self.nodes.values()]:
            if process:
                process.close()


def environment(folder: Path, records: Path, temporary: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NERVURE_")}
    return clean | {
        "NERVURE_LOG_DIR": str(folder / "logs"),
        "SOAK_RECORDS": str(records),
        "TMPDIR": str(temporary),
        # Python nodes run with the interpreter of this program.
        "VIRTUAL_ENV": sys.prefix,
        "RUST_BACKTRACE": "1",
        "NO_COLOR": "1",
    }
