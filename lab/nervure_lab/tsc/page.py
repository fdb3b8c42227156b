"""Writes the sections as one self-contained HTML page, and as Markdown with its figures beside it."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Sequence
from pathlib import Path

import jinja2
import markupsafe

from nervure_lab.machine import source_version
from nervure_lab.tsc.document import VERDICTS, Figure, Finding, Section, Table, shown

TITLE = "The ROS middleware evaluation of 2020, recomputed"


def write(sections: Sequence[Section], directory: Path, data: str) -> list[Path]:
    """Returns the written pages; `data` names where the data are from. Figures and their values go to files
    beside the Markdown page.
    """
    figures, values = directory / "figures", directory / "data"
    for folder in (figures, values):
        folder.mkdir(parents=True, exist_ok=True)
    context = {
        "title": TITLE,
        "sections": sections,
        "verdicts": {verdict: _with_verdict(sections, verdict) for verdict in VERDICTS},
        "source": data,
        "version": source_version(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }
    pages = []
    for name in ("page.html", "page.md"):
        path = directory / f"evaluation-2020{Path(name).suffix}"
        path.write_text(_environment(name).get_template(f"{name}.j2").render(context), encoding="utf-8")
        pages.append(path)
    for section in sections:
        for table in section.tables:
            _write_table(table, values / f"{table.name}.csv")
        for figure in section.figures:
            (figures / f"{figure.name}.svg").write_text(_standalone(figure), encoding="utf-8")
            _write_table(figure.data, values / f"figure-{figure.name}.csv")
    return pages


def _with_verdict(sections: Sequence[Section], verdict: str) -> list[tuple[Section, Finding]]:
    return [(section, one) for section in sections for one in section.findings if one.verdict == verdict]


def _environment(name: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("nervure_lab.tsc", "."),
        autoescape=name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"shown": shown, "svg": _inline, "cell": _cell}
    return environment


def _inline(figure: Figure) -> markupsafe.Markup:
    """The drawing is the lab's own output, the caption is text."""
    label = markupsafe.escape(figure.caption)
    svg = figure.svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return markupsafe.Markup(svg)


def _standalone(figure: Figure) -> str:
    return '<?xml version="1.0" encoding="utf-8"?>\n' + figure.svg


def _cell(value: object) -> str:
    """Text of a cell or a sentence in a Markdown table."""
    text = value if isinstance(value, str) else shown(value)  # type: ignore[arg-type]
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _write_table(table: Table, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(table.rows)
