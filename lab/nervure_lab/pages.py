"""Shared parts of the pages of reports: the templates' environment, and files of figures beside Markdown."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape

from nervure_lab.drawing import Figure

_STYLE = Path(__file__).parent / "style"


def environment(templates: Path, *, html: bool) -> Environment:
    """Of the templates in a directory; those of HTML include ``style.css``."""
    found = Environment(
        loader=FileSystemLoader([templates, _STYLE]), autoescape=html, trim_blocks=True, lstrip_blocks=True
    )
    found.filters |= {"data_link": _data_link, "svg": Markup, "inline": inline}
    return found


def write_figures(page: Path, figures: Iterable[Figure]) -> str:
    """Writes pictures and their data beside a page; returns the name of the directory."""
    directory = page.with_name(page.stem + "-figures")
    directory.mkdir(exist_ok=True)
    for figure in figures:
        (directory / f"{figure.name}.png").write_bytes(figure.png)
        (directory / f"{figure.name}.csv").write_text(figure.csv, encoding="utf-8")
    return directory.name


def inline(text: str) -> Markup:
    """The code and the emphasis of a Markdown text as HTML."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*([^*]+)\*", r"<i>\1</i>", marked))


def _data_link(csv: str) -> str:
    return "data:text/csv;base64," + base64.b64encode(csv.encode()).decode()
