"""The elements of a section of the page: tables, figures with their data, and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Cell = str | float | int | None

HOLDS = "holds"
DIFFERS = "holds differently"
FAILS = "does not hold"
VERDICTS = (HOLDS, DIFFERS, FAILS)


@dataclass(frozen=True)
class Table:
    name: str
    """Also the name of the data file."""
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Figure:
    name: str
    caption: str
    svg: str
    data: Table
    """The values that are drawn."""


@dataclass(frozen=True)
class Finding:
    """A claim of the report, and whether the data support it."""

    where: str
    claim: str
    verdict: str
    numbers: str
    """The numbers that decide, in one or two sentences."""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"expected a verdict {', '.join(VERDICTS)}, got {self.verdict}")


@dataclass(frozen=True)
class Section:
    title: str
    method: str
    findings: Sequence[Finding] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    threats: Sequence[str] = ()
    missing: str = ""
    """The reason why the section is empty."""
    facts: dict[str, float] = field(default_factory=dict)
    """The headline numbers by name."""


def shown(value: Cell) -> str:
    """Returns the cell as the page shows it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        if value != value:
            return "-"
        if value == 0:
            return "0"
        return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)
