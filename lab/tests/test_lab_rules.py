"""Who may import whom, as the README's table says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "nervure_lab"
ALLOWED = {
    "adapters": {"contract", "session", "toolchain"},
    "endpoints": {"endpoint"},
    "experiments": {"contract", "plan"},
    "analysis": {"analysis"},
    "report": {"analysis"},
}


@pytest.mark.parametrize("folder", ALLOWED)
def test_folders_import_only_what_they_may(folder: str) -> None:
    files = [path for path in (PACKAGE / folder).glob("*.py") if path.name != "__init__.py"]
    assert files
    for path in files:
        wrong = set(imported_parts(path)) - ALLOWED[folder]
        assert not wrong, f"{path.name} imports {wrong}; {folder} may import {ALLOWED[folder]}"


LINK_ALLOWED = {
    "adapters": {"contract", "toolchain", "machine", "link.contract"},
    "endpoints": {"link.endpoint"},
    ".": {
        *("contract", "envelope", "toolchain", "machine", "link.contract", "link.plan", "link.slots"),
        *("link.emulator", "link.results", "link.measures", "link.analysis", "link.targets", "link.ticker"),
    },
}
READS_RESULTS_ONLY = {
    "measures": set(),
    "analysis": {"link.measures"},
    "targets": {"link.analysis"},
    "results": set(),
}


@pytest.mark.parametrize("folder", LINK_ALLOWED)
def test_the_link_experiment_keeps_the_same_rules(folder: str) -> None:
    files = [path for path in (PACKAGE / "link" / folder).glob("*.py") if path.name != "__init__.py"]
    assert files
    for path in files:
        wrong = set(imported_parts(path)) - LINK_ALLOWED[folder]
        assert not wrong, f"link/{folder}/{path.name} imports {wrong}"


@pytest.mark.parametrize("name", READS_RESULTS_ONLY)
def test_the_figures_of_the_link_are_made_from_results_alone(name: str) -> None:
    wrong = set(imported_parts(PACKAGE / "link" / f"{name}.py")) - READS_RESULTS_ONLY[name]
    assert not wrong, f"link/{name}.py reads result files and nothing else, but imports {wrong}"


def imported_parts(path: Path) -> Iterator[str]:
    """The module of every import of the package: `session` of `nervure_lab.session`, `link.plan` of
    `nervure_lab.link.plan`.
    """
    for statement in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(statement, ast.ImportFrom):
            names = [statement.module or ""]
        elif isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        for name in names:
            if name.startswith("nervure_lab."):
                first, *rest = name.split(".")[1:]
                yield f"link.{rest[0]}" if first == "link" and rest else first
