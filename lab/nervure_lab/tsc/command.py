"""`analyze tsc`: computes every section that the folder has data for, and writes the pages."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from nervure_lab.tsc import build_farm, mininet, page, quality, repositories, survey, wifi
from nervure_lab.tsc.document import Section
from nervure_lab.tsc.github import Client
from nervure_lab.tsc.source import MissingData, Source

TOKEN = "GITHUB_TOKEN"


def analyze(directory: Path, output: Path, *, github: bool, quality_file: Path | None) -> int:
    """Returns the exit code: 1 if a section has no data."""
    source = Source(directory)
    client = Client(os.environ.get(TOKEN, "")) if github else None
    parts: dict[str, Callable[[], Section]] = {
        "Build farm": lambda: build_farm.section(source),
        "Mininet": lambda: mininet.section(source),
        "WiFi": lambda: wifi.section(source),
        "Repositories": lambda: repositories.section(source, client),
        "Code quality": lambda: quality.section(quality_file or quality.DEFAULT),
        "Survey": lambda: survey.section(source),
    }
    sections = []
    for number, (title, part) in enumerate(parts.items(), start=1):
        print(f"{number} of {len(parts)}: {title}", file=sys.stderr)
        try:
            sections.append(part())
        except MissingData as error:
            print(f"error: {title}: {error}", file=sys.stderr)
            sections.append(Section(title, "", missing=str(error)))
    for path in page.write(sections, output, str(directory)):
        print(path)
    return 1 if any(section.missing for section in sections) else 0
