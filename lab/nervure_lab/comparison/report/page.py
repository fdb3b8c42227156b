"""Writes ``report.html``, which holds everything, and ``report.md`` with ``figures/`` beside it."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape
from markupsafe import Markup, escape

from nervure_lab.comparison.declaration import Declaration, declarations
from nervure_lab.comparison.report.figures import Figure, figures_of
from nervure_lab.comparison.report.summary import (
    THREATS,
    Row,
    rows_of_cell,
    sentences,
    unavailable,
)
from nervure_lab.comparison.results import ResultSet

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
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_link"] = _data_link
    environment.filters["svg"] = Markup
    environment.filters["inline"] = _inline
    html.write_text(environment.get_template("report.html.jinja").render(values), encoding="utf-8")
    pictures = html.with_suffix("").with_name(html.stem + "-figures")
    pictures.mkdir(exist_ok=True)
    for section in sections:
        for figure in section.figures:
            (pictures / f"{figure.name}.png").write_bytes(figure.png)
            (pictures / f"{figure.name}.csv").write_text(figure.csv, encoding="utf-8")
    plain = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=False, trim_blocks=True, lstrip_blocks=True
    )
    markdown = plain.get_template("report.md.jinja").render({**values, "pictures": pictures.name})
    html.with_suffix(".md").write_text(markdown, encoding="utf-8")
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
    """Paragraphs of ``reading.txt`` beside the results: what a person makes of them."""
    file = directory / "reading.txt"
    return file.read_text(encoding="utf-8").strip().split("\n\n") if file.exists() else []


def _inline(text: str) -> Markup:
    """The code and the emphasis of a Markdown text as HTML."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*([^*]+)\*", r"<i>\1</i>", marked))


def _data_link(csv: str) -> str:
    return "data:text/csv;base64," + base64.b64encode(csv.encode()).decode()
