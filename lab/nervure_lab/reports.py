"""Files of JSON lines that the emulated link and the programs in its hosts write."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any


def last_summary(path: Path) -> dict[str, Any] | None:
    """Returns the last line that describes the whole run, or None. A killed program may leave half a line."""
    if not path.exists():
        return None
    for line in reversed(path.read_text().splitlines()):
        with contextlib.suppress(json.JSONDecodeError):
            found: dict[str, Any] = json.loads(line)
            if found.get("kind") in (None, "summary"):
                return found
    return None
