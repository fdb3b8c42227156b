"""The import rules of the README's table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "nervure_lab"
FRAMEWORK = {
    "contract",
    "runner",
    "slots",
    "store",
    "toolchain",
    "machine",
    "processes",
    "reports",
    "children",
    "rendezvous",
    "statistics",
    "drawing",
    "pages",
}
EXPERIMENTS = {"local", "link", "fleet", "calls", "cold", "observers", "own", "recording", "sobel", "cyclic"}
MAY_NOT_IMPORT_EXPERIMENTS = sorted(FRAMEWORK)
READS_RESULTS_ONLY = {
    "local/results": {"statistics"},
    "local/targets": {"quantities", "statistics", "local.results"},
    "local/report": {"quantities", "statistics", "local.results", "local.targets"},
    "link/measures": {"statistics"},
    "link/figures": {"contract", "statistics", "link.measures"},
    "link/targets": {"link.figures"},
    "link/tables": {"quantities", "link.figures", "link.measures", "link.targets"},
    "link/report": {"link.figures", "link.measures", "link.plan", "link.tables"},
}


@pytest.mark.parametrize("module", MAY_NOT_IMPORT_EXPERIMENTS)
def test_the_framework_names_no_experiment(module: str) -> None:
    assert set(imported_parts(PACKAGE / f"{module}.py")) <= FRAMEWORK


@pytest.mark.parametrize("experiment", ["local", "link"])
def test_experiments_do_not_import_each_other(experiment: str) -> None:
    files = list((PACKAGE / "experiments" / experiment).rglob("*.py"))
    assert len(files) > 10
    for path in files:
        others = {part.partition(".")[0] for part in imported_parts(path)} & EXPERIMENTS - {experiment}
        assert not others, f"{path.name} imports {others}"


@pytest.mark.parametrize("experiment", ["local", "link"])
def test_adapters_do_not_import_each_other(experiment: str) -> None:
    for path in modules_of(experiment, "adapters"):
        wrong = {part for part in imported_parts(path) if part.startswith(f"{experiment}.adapters")}
        assert not wrong, f"{path.name} imports {wrong}"


@pytest.mark.parametrize(
    ("experiment", "folder", "allowed"),
    [("local", "endpoints", {"peer", "peer_endpoint", "local.endpoint"}), ("link", "baselines", {"peer"})],
)
def test_endpoints_import_the_shared_endpoint_and_their_peer(
    experiment: str, folder: str, allowed: set[str]
) -> None:
    for path in modules_of(experiment, folder):
        wrong = set(imported_parts(path)) - allowed
        assert not wrong, f"{path.name} imports {wrong}"


@pytest.mark.parametrize("name", READS_RESULTS_ONLY)
def test_figures_are_made_from_results_alone(name: str) -> None:
    wrong = set(imported_parts(PACKAGE / "experiments" / f"{name}.py")) - READS_RESULTS_ONLY[name]
    assert not wrong, f"{name}.py reads result files and nothing else, but imports {wrong}"


def modules_of(experiment: str, folder: str) -> list[Path]:
    files = (PACKAGE / "experiments" / experiment / folder).glob("*.py")
    found = [path for path in files if path.name != "__init__.py"]
    assert found
    return found


def imported_parts(path: Path) -> Iterator[str]:
    """Each imported module of the package: `slots` for `nervure_lab.slots`, `local.case` for
    `nervure_lab.experiments.local.case`.
    """
    for statement in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(statement, ast.ImportFrom):
            names = [statement.module or ""]
        elif isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        for name in names:
            if name.startswith("nervure_lab."):
                yield name.removeprefix("nervure_lab.").removeprefix("experiments.")
