"""What an experiment is: cases, and how often each is repeated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nervure_lab.contract import Case


@dataclass(frozen=True)
class PlannedCase:
    """A case, for all adapters of its language that do not refuse it."""

    case: Case
    repeats: int
    only: frozenset[str] | None = None
    """Names of the adapters that take part; None for all."""


@dataclass(frozen=True)
class Experiment:
    name: str
    summary: str
    plan: Callable[[bool], list[PlannedCase]]
    """Takes whether to be quick."""
