"""Reads the declared experiments: a TOML file each, in ``declarations``."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nervure_lab.comparison.case import Case
from nervure_lab.messages import BYTES, TITLES, expect_size
from nervure_lab.nearest import suggestion
from nervure_lab.quantities import format_size

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DIRECTORY = Path(__file__).parent / "declarations"
_CASE_FIELDS = frozenset(field.name for field in dataclasses.fields(Case))
_KEYS = frozenset({"name", "title", "question", "source", "figures", "cell", "case", "quick", "full"})
_FIGURES = frozenset(
    {
        "bars",
        "end-to-end",
        "histogram",
        "over-time",
        "by-size",
        "throughput",
        "loss-map",
        "rate",
        "blocking",
        "sharing",
        "cpu",
        "types",
    }
)


@dataclass(frozen=True)
class PlannedCase:
    group: str
    name: str
    case: Case
    repeats: int

    def repeats_of(self, adapter: str) -> int:
        return self.repeats


@dataclass(frozen=True)
class Declaration:
    name: str
    title: str
    question: str
    source: str
    figures: tuple[str, ...]
    plans: dict[str, list[PlannedCase]]
    """By profile: quick and full."""
    file: Path


def declarations(directory: Path = DIRECTORY) -> list[Declaration]:
    return [read_declaration(file) for file in sorted(directory.glob("*.toml"))]


def read_declaration(file: Path) -> Declaration:
    """Raises ``ValueError`` with the file and the key."""
    try:
        entry = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {file}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: {error}") from error
    try:
        _expect_known(entry, _KEYS, "key")
        for figure in entry["figures"]:
            _expect_known({figure: None}, _FIGURES, "figure")
        plans = {profile: list(_plan(entry, entry[profile])) for profile in ("quick", "full")}
        return Declaration(
            entry["name"],
            entry["title"],
            entry["question"],
            entry["source"],
            tuple(entry["figures"]),
            plans,
            file,
        )
    except KeyError as error:
        raise ValueError(f"{file}: the key {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file}: {error}") from error


def _plan(entry: dict[str, Any], profile: dict[str, Any]) -> Iterator[PlannedCase]:
    for grid in profile["grid"]:
        values = entry.get("case", {}) | {key: grid[key] for key in grid if key != "outage"}
        _expect_known(values, _CASE_FIELDS, "field of a case")
        lists = {key: value for key, value in values.items() if isinstance(value, list)}
        for chosen in itertools.product(*lists.values()):
            case = Case(**(values | dict(zip(lists, chosen, strict=True)) | _outage(grid)))
            _check(case)
            # In names without a space, and with K for KiB.
            size = format_size(case.payload_bytes).replace(" ", "").replace("iB", "")
            name = entry["cell"].format(
                **dataclasses.asdict(case),
                size=TITLES[case.message] + size,
                condition=_condition(case),
                reliability="" if case.reliable else "-best-effort",
            )
            yield PlannedCase(entry["name"], name, case, int(grid.get("repeats", profile["repeats"])))


def _outage(grid: dict[str, Any]) -> dict[str, Any]:
    return {"outage": (float(grid["outage"][0]), float(grid["outage"][1]))} if "outage" in grid else {}


def _condition(case: Case) -> str:
    if case.outage:
        return "outage"
    return f"loss{case.loss_percent:g}" if case.loss_percent else "ideal"


def _check(case: Case) -> None:
    for name in ("payload_bytes", "rate_hz", "messages", "publishers", "subscribers", "depth"):
        if getattr(case, name) <= 0:
            raise ValueError(f"expected {name} above 0, got {getattr(case, name)}")
    if case.place == "link" and (case.rate_mbit <= 0 or case.pattern == "echo"):
        raise ValueError("over the link messages go one way, and rate_mbit is above 0")
    if case.place == "link" and case.work_millis:
        raise ValueError("over the link subscribers do not compute")
    if case.place != "link" and case.neighbours:
        raise ValueError("neighbours are on the link")
    _expect_known({case.message: None}, frozenset(TITLES), "type of messages")
    expect_size(case.message, case.payload_bytes)
    if case.message != BYTES and (
        case.place == "link" or case.pattern == "echo" or case.reads or case.work_millis
    ):
        raise ValueError("a message with a type is not for the link, an echo, or a subscriber that reads it")
    if case.place == "process" and len(case.endpoints) != 2:
        raise ValueError("in one process there are two ends: one publisher and one subscriber, or an echo")
    if not 0 <= case.host_to_host_loss < 1:
        raise ValueError(f"expected a loss from 0 to 100 %, got {100 * case.host_to_host_loss}")


def _expect_known(entry: dict[str, Any], known: frozenset[str], what: str) -> None:
    for key in entry:
        if key not in known and key != "repeats":
            raise ValueError(f"there is no {what} {key!r}{suggestion(key, known)}")
