"""The contract between the runner, the experiments and the adapters.

An adapter runs one middleware (or one floor of the machine). An experiment plans cases, turns them into
jobs, measures one job at a time for the runner, and writes the page from the stored runs.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from nervure_lab.processes import Processes
    from nervure_lab.toolchain import Toolchain


class Unavailable(Exception):
    """An adapter or experiment cannot run here; the message is one line with the reason."""


class Adapter(Protocol):
    """The part of an adapter that all experiments use; each experiment adds how it measures one."""

    name: str
    """Unique within the experiment, as in result files: ``iceoryx2-rust``."""
    title: str
    """As in pages: ``iceoryx2 (Rust)``."""
    settings: str
    """Its settings with their reasons, in a sentence or two, for the page."""

    def prepare(self, toolchain: Toolchain) -> None:
        """Installs or builds the requirements; raises ``Unavailable``."""

    def versions(self) -> dict[str, str]:
        """Returns the exact versions in use; called after ``prepare``."""


class Planned(Protocol):
    """One case of a plan, for several adapters and repeats."""

    @property
    def group(self) -> str: ...

    @property
    def name(self) -> str:
        """Unique within the plan; ``--cells`` matches it."""

    @property
    def case(self) -> Any:
        """A frozen dataclass."""

    def repeats_of(self, adapter: str) -> int:
        """Returns the number of repeats, 0 for an adapter that does not take part."""


@dataclass(frozen=True)
class Job:
    """One run that waits for its turn."""

    adapter: str
    repeat: int
    planned: Any
    case: Any
    """As this adapter runs it."""
    at_most_seconds: float
    expected_cores: float | None = None
    """Mean number of cores that it is expected to use; None if unknown."""
    runs_alone: bool = True

    @property
    def name(self) -> str:
        return str(self.planned.name)

    @property
    def cores(self) -> float:
        """Its part of the budget; infinite for a job that runs alone."""
        return math.inf if self.runs_alone or self.expected_cores is None else self.expected_cores


A = TypeVar("A", bound=Adapter)
P = TypeVar("P", bound=Planned)


class Experiment(ABC, Generic[A, P]):
    """One question, with its own cases, adapters and figures."""

    name: str
    summary: str
    page: Path | None = None
    """Where the page goes unless the command line says otherwise; None if figures are only printed."""
    tries: int = 1
    """Limit of the attempts at a run that the machine disturbs."""
    fields_without_effect: frozenset[str] = frozenset()
    """Fields of a case in which two runs of one cell may differ."""

    @abstractmethod
    def adapters(self) -> list[A]:
        """Returns every adapter, in the order of the page."""

    @abstractmethod
    def plan(self, quick: bool) -> list[P]:
        """Returns every case; the most important ones first."""

    @abstractmethod
    def jobs(self, planned: Sequence[P], adapters: Sequence[A]) -> list[Job]:
        """Returns every run in its order, so that an interrupted session has some of everything."""

    @abstractmethod
    def run(
        self, adapter: A, job: Job, earlier: Sequence[dict[str, Any]], processes: Processes
    ) -> dict[str, Any]:
        """Measures one job. The record has at least ``case``; a failure of the adapter is a record too."""

    @abstractmethod
    def progress(self, run: dict[str, Any]) -> str:
        """Returns the outcome of a run in a few words."""

    @abstractmethod
    def write_page(self, result: dict[str, Any], page: Path) -> list[str]:
        """Writes the page from the stored runs; returns the errors that make the result invalid."""

    def set_up(self, toolchain: Toolchain) -> None:
        """Builds what all adapters need; raises ``Unavailable``."""

    def store_beside(self, output: Path) -> None:
        """Takes the place of the result file, for experiments that keep more than it beside it."""

    def describe(self, adapter: A) -> dict[str, Any]:
        """Returns the entry of an adapter in the result file."""
        return {"name": adapter.name, "title": adapter.title, "settings": adapter.settings}

    def disturbance(self, run: dict[str, Any]) -> str:
        """Returns the reason why a disturbed run is repeated; empty if it is not."""
        return ""

    def cores(self, run: dict[str, Any]) -> tuple[float, float] | None:
        """Returns the cores that a run was expected to take and did take, if both are known."""
        return None

    def is_of(self, run: dict[str, Any], job: Job) -> bool:
        """Whether a stored run is of the same adapter and cell as a job, whatever its repeat."""
        return bool(run["adapter"] == job.adapter) and self.key(run["case"]) == self.key(asdict(job.case))

    def covers(self, run: dict[str, Any], job: Job) -> bool:
        """Whether a stored run of the same cell is as long as the job asks for."""
        return True

    def key(self, case: dict[str, Any]) -> str:
        """Returns the key that all runs of a cell share."""
        return case_key(case, self.fields_without_effect)


def case_key(case: dict[str, Any], without: frozenset[str] = frozenset()) -> str:
    # 20 and 20.0 are the same value.
    values = {name: float(value) if type(value) is int else value for name, value in case.items()}
    return json.dumps({name: value for name, value in values.items() if name not in without}, sort_keys=True)


def chosen(planned: Sequence[P], patterns: str | None) -> list[P]:
    """Returns the cases of which a pattern (`headline`, `300-*-512K`, several with commas) matches the name
    or the group, in the order of the patterns; raises ``ValueError`` for a pattern without a match.
    """
    if patterns is None:
        return list(planned)
    found: list[P] = []
    for pattern in patterns.split(","):
        matching = [cell for cell in planned if fnmatch(cell.name, pattern) or fnmatch(cell.group, pattern)]
        if not matching:
            groups = ", ".join(dict.fromkeys(cell.group for cell in planned))
            raise ValueError(
                f"no cell is called {pattern}; there are the groups {groups}, and `list` names the cells"
            )
        found += [cell for cell in matching if cell not in found]
    return found
