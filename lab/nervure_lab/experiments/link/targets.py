"""The targets of Nervure's link. Each is checked on every case that it concerns, with the worst seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from nervure_lab.experiments.link.figures import CellFigures, RunFigures, Undisturbed, cell_key, cells

ADAPTER = "nervure"


@dataclass(frozen=True)
class Target:
    cells: str
    """Patterns of case names, separated by spaces."""
    what: str
    measure: Callable[[RunFigures], float | None]
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    undisturbed: Callable[[Undisturbed], float] | None = None
    """The same measure of the samples that met no stop of the machine."""

    @property
    def text(self) -> str:
        bound = f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"
        return f"{self.what} {bound}{self.unit}"

    def holds(self, value: float) -> bool:
        """Compares the unrounded value, so that rounding never decides."""
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0.0)

    def worst(self, values: list[float]) -> float:
        return min(values) if self.at_least is not None else max(values)


def _more(name: str) -> Callable[[RunFigures], float | None]:
    """A figure that only runs of one kind have."""
    return lambda run: run.more.get(name)


_DELIVERED: dict[str, Any] = {"what": "delivered", "measure": lambda run: run.delivered_percent, "unit": " %"}
_P99: dict[str, Any] = {
    "what": "p99",
    "measure": lambda run: run.p99_ms,
    "undisturbed": lambda samples: samples.p99_ms,
    "unit": " ms",
}
_OLDEST: dict[str, Any] = {
    "what": "oldest",
    "measure": lambda run: run.max_ms,
    "undisturbed": lambda samples: samples.max_ms,
    "unit": " ms",
}
_LIMIT: dict[str, Any] = {
    "what": "of the capacity of its packets",
    "measure": lambda run: run.own_limit_percent,
    "unit": " %",
}

TARGETS = (
    Target("300-*-512K 1000-*-512K", **_DELIVERED, at_least=99.5),
    Target("300-40-512K", **_P99, at_most=60),
    Target("300-20-512K 1000-*-512K", **_P99, at_most=33),
    Target("54-*-512K", **_LIMIT, at_least=95),
    Target("54-*-512K", **_OLDEST, at_most=250),
    Target("300-*-1K", **_P99, at_most=25),
    Target("cubic-first cubic-later", "own share", _more("share_percent"), " % of the link", at_least=40),
    Target("cubic-first cubic-later", "left to TCP", _more("other_percent"), " % of the link", at_least=30),
    Target("same-later", "apart", _more("apart_percent"), " % of their mean", at_most=10),
    Target("robots-30", "Jain index", _more("jain"), "", at_least=0.9),
    Target("robots-30", "together", _more("aggregate_percent"), " % of the capacity of packets", at_least=85),
    Target("gigabit-4M", "mean", _more("mean_of_serialisation"), " times the serialisation", at_most=1.15),
    Target("gigabit-4M", "CPU of the sender", lambda run: run.sender_cpu, " s/Gbit", at_most=1),
    Target("gigabit-4M", "CPU of the receiver", lambda run: run.receiver_cpu, " s/Gbit", at_most=1),
    Target("outage-128K outage-512K", "fresh after", _more("fresh_after_ms"), " ms", at_most=100),
    Target("outage-128K outage-512K", "oldest", _more("oldest_ms"), " ms, its lifespan", at_most=500),
    Target("outage-128K-keep-all", "accepted and not delivered", _more("accepted_lost"), "", at_most=0),
    Target("outage-128K-keep-all", "delivered out of order", _more("out_of_order"), "", at_most=0),
    Target("connect-0", "p95 of first sample", _more("first_p95_ms"), " ms (3 RTT + 20 ms)", at_most=26),
    Target("connect-40", "p95 of first sample", _more("first_p95_ms"), " ms", at_most=500),
    Target("veth-10K", "there and back over UDP's", _more("over_udp_ms"), " ms", at_most=0.5),
    Target("rtt-40", **_DELIVERED, at_least=99),
    Target("rtt-40", **_P99, at_most=150),
    Target("rtt-200 jitter half-duplex", **_DELIVERED, at_least=99),
    Target("fades", **_DELIVERED, at_least=98),
    Target("queue-5ms", **_LIMIT, at_least=85),
    Target("poster-*", **_DELIVERED, at_least=99.5),
    Target("grid-*-1k", **_DELIVERED, at_least=99.5),
    Target("grid-*-512k", "of the attainable payload", lambda run: run.attainable_percent, " %", at_least=95),
)


def is_judged_by_latency(name: str) -> bool:
    """Whether a target of this case is a latency, so that delays of the machine distort it."""
    judged = (target.cells.split() for target in TARGETS if target.what.startswith(("p99", "p95", "mean")))
    return any(fnmatch(name, pattern) for patterns in judged for pattern in patterns)


@dataclass(frozen=True)
class Verdict:
    """One target and one case."""

    group: str
    name: str
    target: Target
    value: float | None
    """Value of the worst seed; None if not measured."""
    undisturbed: float | None
    """The value without the samples that met a stop of the machine; None if the stops are not known."""
    seeds: int
    planned_seeds: int

    @property
    def word(self) -> str:
        if self.value is None:
            return "not measured"
        if self.target.holds(self.value):
            return "met"
        outside = self.undisturbed is not None and self.target.holds(self.undisturbed)
        return "met outside stops" if outside else "missed"


def verdicts(result: dict[str, Any]) -> list[Verdict]:
    """Returns the verdict of each target on each planned case, in the order of the plan."""
    figures = cells(result)
    found = []
    for planned in result["planned"]:
        if ADAPTER not in planned["repeats"]:
            continue
        case = figures.get((cell_key(planned["case"]), ADAPTER))
        for target in TARGETS:
            if any(fnmatch(planned["name"], pattern) for pattern in target.cells.split()):
                value, seeds = _value(target, case)
                planned_seeds = planned["repeats"][ADAPTER]
                found.append(
                    Verdict(
                        planned["group"],
                        planned["name"],
                        target,
                        value,
                        _undisturbed(target, case),
                        seeds,
                        planned_seeds,
                    )
                )
    return found


def _value(target: Target, case: CellFigures | None) -> tuple[float | None, int]:
    """Returns the worst value and the number of seeds. A run without the figure, for example one that hung,
    counts as infinitely bad. A figure that is NaN lacks the run to compare with, and is not counted.
    """
    if case is None:
        return (None, 0)
    unbounded = float("-inf") if target.at_least is not None else float("inf")
    found = [None if run.fault else target.measure(run) for run in case.runs]
    values = [unbounded if value is None else value for value in found]
    known = [value for value in values if not math.isnan(value)]
    return (target.worst(known) if known else None, len(known))


def _undisturbed(target: Target, case: CellFigures | None) -> float | None:
    """Returns the undisturbed value of the worst seed; None unless every seed has one."""
    if case is None or target.undisturbed is None:
        return None
    found = [None if run.fault else run.undisturbed for run in case.runs]
    known = [target.undisturbed(samples) for samples in found if samples]
    return target.worst(known) if known and len(known) == len(found) else None
