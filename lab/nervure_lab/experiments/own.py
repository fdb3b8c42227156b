"""The common part of the experiments that measure Nervure alone: the build, the plan, and a dataflow per run.
Each run stores its figures by name; the page is a few lines of text, and pictures where there are some.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.contract import Experiment, Job, Unavailable
from nervure_lab.machine import source_version
from nervure_lab.processes import Processes
from nervure_lab.toolchain import REPOSITORY_DIRECTORY, Toolchain

if TYPE_CHECKING:
    from nervure_lab.drawing import Figure

RESAMPLINGS = 2000
ENVIRONMENT = REPOSITORY_DIRECTORY / ".venv" / "bin"


class Build:
    """Nervure from this checkout: the command, one example, and a Python with the module."""

    name = "nervure"
    title = "Nervure"
    settings = "The defaults."

    def __init__(self, *, example: str = "", needs_python: bool = False) -> None:
        self._example = example
        self._needs_python = needs_python
        self.python = ENVIRONMENT / "python"

    def prepare(self, toolchain: Toolchain) -> None:
        if self._needs_python:
            self.command = ENVIRONMENT / "nervure"
            if not self.command.exists():
                raise Unavailable("there is no `nervure` in .venv; `make demo` installs it")
        else:
            self.command = toolchain.workspace_program("nervure-cli", "nervure")
        if self._example:
            self.example = toolchain.workspace_example("nervure-node", self._example)

    def versions(self) -> dict[str, str]:
        return {"nervure": source_version()}

    def run_arguments(self, directory: Path, nodes: list[dict[str, Any]], *options: str) -> list[str]:
        """The command that runs a dataflow; writes its file into the directory."""
        file = directory / "dataflow.yml"
        # JSON is YAML.
        file.write_text(json.dumps({"nodes": nodes}), encoding="utf-8")
        return [str(self.command), "run", "--json", *options, str(file)]

    def environment(self, directory: Path) -> dict[str, str]:
        path = f"{ENVIRONMENT}:{os.environ['PATH']}"
        return os.environ | {"NERVURE_LOG_DIR": str(directory), "PATH": path}

    def logs_of(self, directory: Path, nodes: list[dict[str, Any]], node: str) -> list[list[str]]:
        """Runs a dataflow to its end; returns the words of each line that a node printed."""
        run = subprocess.run(
            self.run_arguments(directory, nodes, "--name", f"lab-{os.getpid()}"),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env=self.environment(directory),
        )
        messages = [json.loads(line) for line in run.stdout.splitlines()]
        return [it["text"].split() for it in messages if it["message"] == "log" and it["node"] == node]


@dataclass(frozen=True)
class PlannedFigures:
    name: str
    case: Any
    repeats: int
    group: str

    def repeats_of(self, adapter: str) -> int:
        return self.repeats


class OwnExperiment(Experiment[Build, PlannedFigures]):
    """Measures one build of Nervure, or several in turns."""

    @abstractmethod
    def measure(self, build: Build, case: Any, directory: Path) -> dict[str, Any]:
        """Returns the figures of one run by name; the directory is on the disk of the checkout."""

    @abstractmethod
    def expected_seconds(self, case: Any) -> float:
        """Returns the approximate duration of one run."""

    @abstractmethod
    def lines(self, runs: list[dict[str, Any]]) -> list[str]:
        """Returns the text of the page."""

    def jobs(self, planned: Sequence[PlannedFigures], adapters: Sequence[Build]) -> list[Job]:
        """Returns the runs with the adapters in turns, another one first in each repeat."""
        found = []
        for repeat in range(max((entry.repeats for entry in planned), default=0)):
            for entry in planned:
                taking_part = [it for it in adapters if repeat < entry.repeats_of(it.name)]
                for position in range(len(taking_part)):
                    adapter = taking_part[(position + repeat) % len(taking_part)]
                    seconds = self.expected_seconds(entry.case)
                    found.append(Job(adapter.name, repeat, entry, entry.case, at_most_seconds=seconds))
        return found

    def run(
        self, adapter: Build, job: Job, earlier: Sequence[dict[str, Any]], processes: Processes
    ) -> dict[str, Any]:
        scratch = REPOSITORY_DIRECTORY / "out"
        scratch.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=scratch, prefix="nervure-lab-") as directory:
            return {"case": asdict(job.case), "figures": self.measure(adapter, job.case, Path(directory))}

    def progress(self, run: dict[str, Any]) -> str:
        return "measured"

    def pictures(self, runs: list[dict[str, Any]]) -> list[Figure]:
        """Returns the pictures of the page."""
        return []

    def write_page(self, result: dict[str, Any], page: Path) -> list[str]:
        # It draws; endpoints and `list` do not.
        from nervure_lab.experiments.own_page import write

        lines = self.lines(result["runs"])
        print("\n".join(lines))
        write(page, self.summary, result, lines, self.pictures(result["runs"]))
        return []
