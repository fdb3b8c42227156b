"""Runs small dataflows of real processes, through the ``nervure`` command of this environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
# Far longer than any test needs: a dataflow that takes longer hangs.
HANGS_AFTER_SECONDS = 60


def nervure_command() -> str:
    """The path of the command: beside this Python, or else on the search path."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("nervure", path=beside) or shutil.which("nervure")
    assert found, f"the command `nervure` is neither in {beside} nor on the path: run `make demo`"
    return found


@dataclass
class Result:
    """The exit code and output of a dataflow."""

    returncode: int
    stdout: str
    stderr: str

    def lines(self, node: str) -> list[str]:
        """The lines that a node printed."""
        matches = (re.match(rf"{re.escape(node)} *\| ?(.*)", line) for line in self.stdout.splitlines())
        return [match.group(1) for match in matches if match]


class Dataflow:
    """A dataflow whose nodes are Python programs, given as text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Unique, because tests find the dataflow by its name.
        self.name = f"test-{os.getpid()}-{folder.name.replace('_', '-')}"[:60]
        self.nodes: list[dict[str, Any]] = []
        # Keys of the dataflow itself.
        self.keys: dict[str, Any] = {}
        self.process: subprocess.Popen[str] | None = None

    def node(
        self,
        id: str,
        code: str,
        *,
        inputs: dict[str, Any] | None = None,
        outputs: list[str] | dict[str, Any] | None = None,
        **keys: Any,
    ) -> None:
        (self.folder / f"{id}.py").write_text(textwrap.dedent(code))
        node: dict[str, Any] = {"id": id, "path": f"{id}.py", **keys}
        if inputs:
            node["inputs"] = inputs
        if outputs:
            node["outputs"] = outputs
        self.nodes.append(node)

    def start(self, *arguments: str, file: Path | None = None) -> None:
        """Starts the dataflow, or a file's, for tests that act on it while it runs."""
        if file is None:
            file = self.folder / "dataflow.yml"
            # JSON is a subset of YAML.
            file.write_text(json.dumps({**self.keys, "nodes": self.nodes}))
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(TESTS),
            "PYTHONUNBUFFERED": "1",
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        self.process = subprocess.Popen(
            [nervure_command(), "run", "--name", self.name, str(file), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def finish(self, *, returncode: int | None = 0) -> Result:
        """Waits for the end, and checks the exit code unless ``returncode`` is None."""
        assert self.process
        stdout, stderr = self.process.communicate(timeout=HANGS_AFTER_SECONDS)
        result = Result(self.process.returncode, stdout, stderr)
        if returncode is not None:
            assert result.returncode == returncode, f"stdout:\n{stdout}\nstderr:\n{stderr}"
        return result

    def run(self, *arguments: str, returncode: int | None = 0) -> Result:
        self.start(*arguments)
        return self.finish(returncode=returncode)

    def wait_for(self, name: str) -> str:
        """Waits until a node has written the file ``name`` in the dataflow's folder, and returns its text."""
        path = self.folder / name
        deadline = time.monotonic() + HANGS_AFTER_SECONDS
        while not path.exists() or not path.read_text().endswith("\n"):
            assert self.process and self.process.poll() is None, self.finish(returncode=None)
            assert time.monotonic() < deadline, f"no node wrote {name}"
            time.sleep(0.01)
        return path.read_text().strip()

    def interrupt(self) -> None:
        """Sends SIGINT, as Ctrl-C does."""
        assert self.process
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kills the dataflow if a test left it running. Its keeper ends with it."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.communicate(timeout=HANGS_AFTER_SECONDS)


@pytest.fixture
def dataflow(tmp_path: Path) -> Any:
    flow = Dataflow(tmp_path)
    yield flow
    flow.kill()


# An input whose sender waits for room, so that no sample is lost at any rate.
def lossless(source: str) -> dict[str, Any]:
    return {"source": source, "queue_policy": "block", "queue_size": 4}
