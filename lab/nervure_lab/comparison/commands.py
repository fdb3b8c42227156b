"""Commands that read stored results: the report of a directory, and a recommendation."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_commands(commands: Any) -> None:
    pass


def write_reports(directory: Path, page: Path | None = None) -> None:
    pass


_ = argparse
