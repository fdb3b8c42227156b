"""The section on code quality: packages against REP-2004, from `quality.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from nervure_lab.tsc.document import DIFFERS, HOLDS, Cell, Finding, Section, Table

DEFAULT = Path(__file__).with_name("quality.yaml")
_LEVEL = "Level declared"


def section(path: Path = DEFAULT) -> Section:
    requirements, packages = read(path)
    rows: list[list[Cell]] = []
    for requirement in requirements:
        if requirement == _LEVEL:
            rows.append([requirement, *(_level(package) for package in packages)])
        else:
            rows.append([requirement, *(package["entries"].get(requirement, "none") for package in packages)])
    rows.append(["Source", *(package["source"] for package in packages)])
    columns = ["requirement", *(package["name"] for package in packages)]
    levels = {package["name"]: package["level"] for package in packages}
    return Section(
        "Code quality: REP-2004",
        "What each package declares about itself, by the categories of REP-2004; for Nervure, which "
        "declares nothing, the level "
        "whose requirements it meets. 1 is the best level.",
        _findings(levels),
        [Table("quality", "Declarations of quality.", columns, rows)],
        threats=(
            "Self-declarations: the wording differs more than the practice, and nothing was verified for "
            "the packages of 2020.",
            "The row of Nervure was written by its developers.",
        ),
    )


def _level(package: dict[str, Any]) -> str:
    if "met_level" in package:
        return f"{package['level']}; meets level {package['met_level']}"
    return str(package["level"])


def _findings(levels: dict[str, Any]) -> list[Finding]:
    cyclone, fast = (levels.get(name) for name in ("Cyclone DDS (2020)", "Fast RTPS (2020)"))
    layer = levels.get("rmw_cyclonedds (2020)")
    if cyclone is None or fast is None:
        return []
    return [
        Finding(
            "5.3",
            "Cyclone DDS is declared as level 3, Fast RTPS as level 2.",
            HOLDS if (cyclone, fast) == (3, 2) else DIFFERS,
            f"Declared levels {cyclone} and {fast}.",
        ),
        Finding(
            "5.3",
            "Cyclone DDS has no quality declaration.",
            DIFFERS,
            "The report's own table cites one, kept in the repository of rmw_cyclonedds, for level "
            f"{cyclone}; it was rmw_cyclonedds "
            f"itself that had none (level {layer}).",
        ),
    ]


def read(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns the requirements and the packages; raises ``ValueError`` with the missing parts."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: expected a table of quality in YAML, {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected keys requirements and packages, got {str(content)[:60]!r}")
    requirements, packages = content.get("requirements"), content.get("packages")
    if not isinstance(requirements, list) or not all(isinstance(name, str) for name in requirements):
        raise ValueError(f"{path}: expected requirements as a list of names")
    if not isinstance(packages, list) or not packages:
        raise ValueError(f"{path}: expected packages as a list")
    for number, package in enumerate(packages, start=1):
        _check(package, requirements, f"{path}, package {number}")
    return requirements, packages


def _check(package: Any, requirements: list[str], where: str) -> None:
    if not isinstance(package, dict):
        raise ValueError(f"{where}: expected keys name, source, level and entries, got {str(package)[:60]!r}")
    for key, kind in (("name", str), ("source", str), ("level", (int, str)), ("entries", dict)):
        if not isinstance(package.get(key), kind):
            raise ValueError(f"{where}: expected {key}, got {package.get(key)!r}")
    where = f"{where} ({package['name']})"
    for name, text in package["entries"].items():
        if name not in requirements or name == _LEVEL:
            known = ", ".join(name for name in requirements if name != _LEVEL)
            raise ValueError(f"{where}: unknown requirement {name!r}; there are {known}")
        if not isinstance(text, str):
            raise ValueError(f"{where}: expected text for {name}, got {text!r}")
