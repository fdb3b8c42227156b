"""The results of a directory: ``EXPERIMENT.jsonl`` of each experiment, and the samples of every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from nervure_lab.comparison.accounting import (
    Floats,
    end_to_end_micros,
    interval,
    latencies_micros,
    spread,
)
from nervure_lab.comparison.case import Case
from nervure_lab.comparison.samples import read_table
from nervure_lab.store import load

LACKS_TYPE = "no such type"
"""The outcome of a run that did not begin, because the peer does not have the type of the messages."""


def is_measured(run: dict[str, Any]) -> bool:
    return "figures" in run and run["outcome"] in ("ok", "unconnected")


def is_of_system(role: str) -> bool:
    """Whether a process with this role belongs to the system under test, and not to the lab."""
    return role != "lab"


def cpu_percent(run: dict[str, Any], counts: Callable[[str], bool]) -> float | None:
    """Of one core, over the processes whose role counts; None without a window of measurement."""
    if not run["window_seconds"]:
        return None
    seconds = sum(entry["cpu_seconds"] for entry in run["processes"] if counts(str(entry["role"])))
    return float(100 * seconds / run["window_seconds"])


@dataclass
class Cell:
    """All repeats of one case with one adapter."""

    experiment: str
    name: str
    adapter: str
    case: Case
    runs: list[dict[str, Any]] = field(default_factory=list)
    directory: Path = Path()

    @property
    def measured(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if is_measured(run)]

    @property
    def problems(self) -> list[str]:
        return [f"{run['outcome']}: {run['reason']}" for run in self.runs if run["outcome"] != "ok"]

    @property
    def lacks_type(self) -> bool:
        """Whether the peer has no message of the case's type."""
        return all(run["outcome"] == LACKS_TYPE for run in self.runs)

    @cached_property
    def tables(self) -> list[pl.DataFrame]:
        """The samples of each measured repeat; raises ``ValueError`` for a damaged file."""
        return [read_table(self.directory / "samples" / run["samples"]) for run in self.measured]

    @cached_property
    def latencies(self) -> list[Floats]:
        """Microseconds, for each repeat."""
        return [latencies_micros(table, self.case) for table in self.tables]

    @cached_property
    def latency(self) -> dict[str, float | int]:
        """Percentiles over all repeats."""
        return spread(np.concatenate(self.latencies)) if self.latencies else {"count": 0}

    @cached_property
    def ends_to_ends(self) -> list[Floats]:
        """Microseconds from before the publication to the end of the read, so that every copy is in it; for
        each repeat.
        """
        return [end_to_end_micros(table) for table in self.tables]

    @cached_property
    def end_to_end(self) -> dict[str, float | int]:
        """Percentiles over all repeats."""
        return spread(np.concatenate(self.ends_to_ends)) if self.ends_to_ends else {"count": 0}

    @cached_property
    def received_hz(self) -> dict[str, float | int]:
        """Messages per second in each repeat, over the schedule without the time after it."""
        rates = [
            run["figures"]["received"] * self.case.rate_hz / self.case.all_messages for run in self.measured
        ]
        return spread(np.asarray(rates))

    def median_interval(self) -> tuple[float, float]:
        return interval(self.latencies)

    def total(self, name: str) -> int:
        return sum(int(run["figures"][name]) for run in self.measured)

    @property
    def delivered_percent(self) -> float | None:
        """Over all repeats; a run that failed or hung is not among them."""
        sent = self.total("sent")
        return 100 * self.total("received") / sent if sent else None

    @property
    def shares_mbit(self) -> list[float]:
        """Payload of each publisher that arrived within the schedule, in the mean over repeats."""
        found = np.array([run["figures"]["shares_mbit"] for run in self.measured])
        return [float(share) for share in found.mean(axis=0)]

    @property
    def neighbours_mbit(self) -> list[float]:
        """Goodput of each neighbour during the schedule, in the mean over repeats."""
        found = np.array([run["neighbours_mbit"] for run in self.measured])
        return [float(share) for share in found.mean(axis=0)]

    @property
    def discovery_ms(self) -> float | None:
        """The median over repeats of the slowest pair."""
        found = sorted(max(run["discovery"].values()) for run in self.measured if run["discovery"])
        return found[len(found) // 2] if found else None

    def cpu_percent(self, role: str) -> float:
        """Of one core, in the mean over repeats: of the endpoints of a role, or of the daemons."""
        found = [cpu_percent(run, lambda it: it.startswith(role)) for run in self.measured]
        shares = [share for share in found if share is not None]
        return sum(shares) / len(shares) if shares else 0.0

    def most_memory_bytes(self) -> int:
        """Resident memory of all processes of the system under test together; the most of all repeats."""
        sums = [
            sum(entry["max_rss_bytes"] for entry in run["processes"] if is_of_system(entry["role"]))
            for run in self.measured
        ]
        return max(sums, default=0)

    def switches_per_message(self) -> float | None:
        found = [
            sum(
                entry["voluntary_context_switches"]
                for entry in run["processes"]
                if is_of_system(str(entry["role"]))
            )
            / run["figures"]["sent"]
            for run in self.measured
            if run["figures"]["sent"]
        ]
        return sum(found) / len(found) if found else None


@dataclass
class ResultSet:
    directory: Path
    documents: dict[str, dict[str, Any]]
    """By experiment, as ``store.load`` returns them."""
    cells: list[Cell]

    @classmethod
    def load(cls, directory: Path) -> ResultSet:
        """Raises ``ValueError`` for a directory without results, or a damaged file."""
        files = sorted(directory.glob("*.jsonl"))
        documents = {}
        for file in files:
            document = load(file)
            documents[document["experiment"]] = document
        cells: dict[tuple[str, str, str], Cell] = {}
        for name, document in documents.items():
            for number, run in enumerate(document["runs"]):
                try:
                    case = Case(**_as_case(run["case"]))
                    key = (name, run["name"], run["adapter"])
                    cell = cells.setdefault(key, Cell(*key, case=case, directory=directory))
                    cell.runs.append(run)
                    _ = run["outcome"], run["reason"], run["processes"], run["discovery"]
                except (KeyError, TypeError) as error:
                    raise ValueError(
                        f"{directory / (name + '.jsonl')}: run {number + 1} ({run.get('adapter')}) is not "
                        f"of a declared experiment: {error}"
                    ) from error
        if not cells:
            raise ValueError(
                f"{directory}: no results of declared experiments; `nervure-lab run` writes them"
            )
        return cls(directory, documents, list(cells.values()))

    def of(self, experiment: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.experiment == experiment]

    def names(self, experiment: str) -> list[str]:
        """Names of the cells in the order of the plan."""
        present = {cell.name for cell in self.of(experiment)}
        return [entry["name"] for entry in self.documents[experiment]["planned"] if entry["name"] in present]

    def adapters(self, experiment: str) -> list[dict[str, Any]]:
        return list(self.documents[experiment]["adapters"])

    def find(self, experiment: str, name: str, adapter: str) -> Cell | None:
        found = (it for it in self.of(experiment) if it.name == name and it.adapter == adapter)
        return next(found, None)

    def measured(self, experiment: str, name: str) -> Iterator[Cell]:
        for adapter in self.adapters(experiment):
            cell = self.find(experiment, name, adapter["name"])
            if cell is not None and cell.measured:
                yield cell


def _as_case(values: dict[str, Any]) -> dict[str, Any]:
    outage = values.get("outage")
    return {**values, "outage": tuple(outage) if outage else None}
