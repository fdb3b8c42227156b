"""Stored runs as cells: all repeats of one case by one adapter."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import Any

from nervure_lab.statistics import Ratio, Statistic, median, p99, ratio


@dataclass(frozen=True)
class CellKey:
    """The fields in which comparable runs agree."""

    language: str
    mode: str
    payload_bytes: int
    consumers: int
    touch: bool
    rate_hz: float


@dataclass
class Cell:
    """All repeats of one case by one adapter, including those that hung or failed."""

    runs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def was_refused(self) -> bool:
        """Whether the adapter does not take part in this case."""
        return all(run["outcome"] == "not_run" for run in self.runs)

    @property
    def measured(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if run["outcome"] == "ok"]

    @property
    def has_producer(self) -> bool:
        """Whether one process sends to others; a floor may have only one process."""
        return any(run["producer"] is not None for run in self.runs)

    @property
    def problems(self) -> list[str]:
        """Outcome and reason of each repeat that hung or failed."""
        return [
            f"{run['outcome']}: {run['reason']}" for run in self.runs if run["outcome"] in ("hung", "failed")
        ]

    def samples(self, column: str) -> list[list[float]]:
        """Returns ``latency_nanos`` or ``end_to_end_nanos`` of all consumers, one list a repeat.

        The list of a repeat that hung or failed is empty, so that the repeats of two cells correspond.
        """
        return [
            [nanos for consumer in run["consumers"] for nanos in consumer[column]]
            if run["outcome"] == "ok"
            else []
            for run in self.runs
        ]

    def pooled(self, column: str) -> list[float]:
        return [nanos for repeat in self.samples(column) for nanos in repeat]

    def medians_of_repeats(self, column: str) -> list[float]:
        return [median(repeat) for repeat in self.samples(column) if repeat]

    def medians_of_consumers(self, column: str) -> list[list[float]]:
        """Returns one list a repeat, one median a consumer, without consumers that received nothing."""
        return [
            [median(consumer[column]) for consumer in run["consumers"] if consumer[column]]
            for run in self.measured
        ]

    def count(self, name: str) -> int:
        """Returns the sum of ``received``, ``lost``, ``reordered`` or ``duplicates``."""
        return sum(consumer[name] for run in self.measured for consumer in run["consumers"])

    @property
    def is_lossless(self) -> bool:
        """Whether every message arrived, in order."""
        return self.count("lost") == 0 and self.count("reordered") == 0

    @property
    def sent(self) -> int:
        """Expected deliveries: messages times consumers."""
        return sum((run["sent"] or 0) * len(run["consumers"]) for run in self.measured)

    def rates(self, what: str) -> list[float]:
        """Returns ``window_messages`` or ``window_bytes`` per second of each repeat's slowest consumer."""
        return [
            min(consumer[what] / _window_seconds(consumer) for consumer in run["consumers"])
            for run in self.measured
        ]

    def cpu_shares(self, role: str) -> list[float]:
        """Returns the cores used by the ``producer`` or the mean ``consumer``, one value a repeat."""
        shares = []
        for run in self.measured:
            usages = (
                [run["producer"]]
                if role == "producer"
                else [consumer["usage"] for consumer in run["consumers"]]
            )
            usages = [usage for usage in usages if usage]
            if usages:
                shares.append(
                    sum(usage["cpu_seconds"] / usage["window_seconds"] for usage in usages) / len(usages)
                )
        return shares

    def first_messages(self) -> list[float]:
        """Returns the seconds from the first spawn to the first message, one value a repeat."""
        return [
            (run["consumers"][0]["first_receive_nanos"] - run["spawned_at_nanos"]) * 1e-9
            for run in self.measured
            if run["consumers"][0]["first_receive_nanos"] is not None
        ]

    def last_messages(self) -> list[float]:
        """Returns the seconds from the first spawn to the last message at any consumer, of each repeat."""
        return [
            (max(consumer["last_receive_nanos"] for consumer in run["consumers"]) - run["spawned_at_nanos"])
            * 1e-9
            for run in self.measured
        ]

    def of_process(self, role: str, name: str) -> list[float]:
        """Returns a figure of the process in this role, one value a repeat."""
        return [
            process[name] for run in self.measured for process in run["processes"] if process["role"] == role
        ]


@dataclass(frozen=True)
class Timing:
    """The figures of one column of a cell, in microseconds."""

    median: float
    p99: float
    samples: int


class Results:
    """The runs of a result file of the experiment ``local``."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.adapters: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in document["adapters"]}
        self._cells: dict[tuple[str, CellKey], Cell] = {}
        for run in document["runs"]:
            case = run["case"]
            key = CellKey(*(case[name] for name in CellKey.__dataclass_fields__))
            self._cells.setdefault((run["adapter"], key), Cell()).runs.append(run)

    def cell(
        self,
        adapter: str,
        mode: str,
        payload_bytes: int,
        *,
        consumers: int = 1,
        touch: bool = True,
        rate_hz: float = 50.0,
    ) -> Cell | None:
        """Returns None for a cell that was not planned, or that the adapter refused."""
        if adapter not in self.adapters:
            return None
        language = self.adapters[adapter]["language"]
        cell = self._cells.get((adapter, CellKey(language, mode, payload_bytes, consumers, touch, rate_hz)))
        return None if cell is None or cell.was_refused else cell

    def all_cells(self) -> list[tuple[str, CellKey, Cell]]:
        """Returns every cell that was run, ordered by adapter and case."""
        names = list(self.adapters)
        cells = [(name, key, cell) for (name, key), cell in self._cells.items() if not cell.was_refused]
        return sorted(cells, key=lambda item: (names.index(item[0]), astuple(item[1])))

    def sizes(self, *, mode: str, consumers: int) -> list[int]:
        """Returns the payload sizes that were measured at 50 Hz or flooded."""
        return sorted(
            {
                key.payload_bytes
                for _, key in self._cells
                if key.mode == mode and key.consumers == consumers and key.touch and key.rate_hz == 50.0
            }
        )


def timing(cell: Cell, column: str) -> Timing | None:
    """Returns None if nothing arrived."""
    values = cell.pooled(column)
    return Timing(median(values) / 1e3, p99(values) / 1e3, len(values)) if values else None


def compare(
    ours: Cell | None, other: Cell | None, column: str, statistic: Statistic = median
) -> Ratio | None:
    """Returns the ratio over the repeats in which both cells have messages, or None if there are none."""
    if ours is None or other is None:
        return None
    pairs = [
        (mine, theirs)
        for mine, theirs in zip(ours.samples(column), other.samples(column), strict=False)
        if mine and theirs
    ]
    if not pairs:
        return None
    return ratio([mine for mine, _ in pairs], [theirs for _, theirs in pairs], statistic)


def _window_seconds(consumer: dict[str, Any]) -> float:
    window: int = consumer["last_receive_nanos"] - consumer["window_start_nanos"]
    # A consumer that received nothing within the window has a rate of zero, whatever the divisor.
    return max(window * 1e-9, 1e-9)
