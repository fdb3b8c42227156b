"""Writes the page of an experiment that measures Nervure alone: Markdown, and HTML if it has pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from nervure_lab.drawing import Figure
from nervure_lab.pages import environment, write_figures

_TEMPLATES = Path(__file__).parent


def write(
    page: Path, title: str, result: dict[str, Any], lines: Sequence[str], pictures: Sequence[Figure]
) -> None:
    text = list(lines)
    if pictures:
        directory = write_figures(page, pictures)
        for picture in pictures:
            text += ["", f"![{picture.title}]({directory}/{picture.name}.png)"]
            text += ["", f"[Data]({directory}/{picture.name}.csv) of: {picture.title}"]
        values = {"title": title, "result": result, "parts": list(_parts(lines)), "pictures": pictures}
        template = environment(_TEMPLATES, html=True).get_template("own_page.html.jinja")
        page.with_suffix(".html").write_text(template.render(values), encoding="utf-8")
    page.write_text("\n".join(text) + "\n", encoding="utf-8")


def _parts(lines: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The paragraphs and tables of a Markdown text."""
    for (is_table, _), group in groupby(lines, key=lambda line: (line.startswith("|"), not line)):
        found = list(group)
        if is_table:
            head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found]
            yield {"head": head, "rows": rows}
        elif found[0]:
            yield {"text": " ".join(found)}
