"""Writes ``report.html``, which holds everything, and ``report.md`` with ``figures/`` beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nervure_lab.comparison.declaration import Declaration, declarations
from nervure_lab.comparison.report.figures import figures_of
from nervure_lab.comparison.report.summary import (
    THREATS,
    Row,
    rows_of_cell,
    sentences,
    unavailable,
)
from nervure_lab.comparison.results import ResultSet
from nervure_lab.drawing import Figure
from nervure_lab.pages import environment, write_figures

_TEMPLATES = Path(__file__).parent


@dataclass
class Table:
    cell: str
    roles: tuple[str, ...]
    """Whose CPU time its rows show, beside that of daemons."""
    rows: list[Row]


@dataclass
class Section:
    declaration: Declaration
    sentences: list[str]
    tables: list[Table]
    figures: list[Figure]
    problems: list[str]
    document: dict[str, Any]

    @property
    def commands(self) -> list[str]:
        return sorted({session["command"] for session in self.document["sessions"]})


def write_report(directory: Path, page: Path | None = None) -> Path:
    """Returns the HTML file. Raises ``ValueError`` for damaged results."""
    results = ResultSet.load(directory)
    by_name = {it.name: it for it in [*declarations(), *declarations(directory)]}
    sections = [_section(results, by_name[name]) for name in results.documents if name in by_name]
    first = next(iter(results.documents.values()))
    values: dict[str, Any] = {
        "sections": sections,
        "machine": first["machine"],
        "sources": sorted({document["source"] for document in results.documents.values()}),
        "started": min(document["started"] for document in results.documents.values()),
        "minutes": sum(document["seconds"] for document in results.documents.values()) / 60,
        "load": max(document["load_average_before"] for document in results.documents.values()),
        "quick": any(document["profile"] == "quick" for document in results.documents.values()),
        "interrupted": any(document["interrupted"] for document in results.documents.values()),
        "unavailable": unavailable(results),
        "adapters": _adapters(results),
        "threats": THREATS,
        "reading": _reading(directory),
    }
    html = page or directory / "report.html"
    template = environment(_TEMPLATES, html=True).get_template("report.html.jinja")
    html.write_text(template.render(values), encoding="utf-8")
    values["pictures"] = write_figures(html, [figure for section in sections for figure in section.figures])
    template = environment(_TEMPLATES, html=False).get_template("report.md.jinja")
    html.with_suffix(".md").write_text(template.render(values), encoding="utf-8")
    return html


def _section(results: ResultSet, declaration: Declaration) -> Section:
    name = declaration.name
    roles = {cell.name: cell.case.process_roles for cell in results.of(name)}
    tables = [Table(cell, roles[cell], rows_of_cell(results, name, cell)) for cell in results.names(name)]
    problems = [
        f"{cell.adapter}, {cell.name}: {problem}" for cell in results.of(name) for problem in cell.problems
    ]
    return Section(
        declaration,
        sentences(results, name),
        tables,
        figures_of(results, name, declaration.figures),
        problems,
        results.documents[name],
    )


def _adapters(results: ResultSet) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for experiment in results.documents:
        for adapter in results.adapters(experiment):
            found.setdefault(adapter["name"], adapter)
    return list(found.values())


def _reading(directory: Path) -> list[str]:
    """Paragraphs of ``reading.txt`` beside the results: a person's interpretation."""
    file = directory / "reading.txt"
    return file.read_text(encoding="utf-8").strip().split("\n\n") if file.exists() else []
