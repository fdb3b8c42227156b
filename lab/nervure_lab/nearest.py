"""The nearest match for a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns "; did you mean ..?", or the list of all names, to follow the name in an error."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; there are {', '.join(names)}"
