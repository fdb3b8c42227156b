"""The result file: JSON, one object a line, each written when it is known, so that an interrupted
experiment leaves what it had and can go on.

- `session`: the envelope of all results, with the adapters and what is planned. One each time it is started.
- `run`: one run.
- `end`: of a session, with what is known then.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMA = "nervure-lab/link@2"


class ResultFile:
    """Adds lines to a file. One that is there already is gone on with, or put aside as `NAME.before`."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = _whole_lines(path) if resume and path.exists() else []
        self.resumed = bool(lines)
        if lines:
            path.write_text("".join(f"{line}\n" for line in lines))
        elif path.exists():
            path.rename(path.with_name(path.name + ".before"))

    def add(self, kind: str, fields: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"kind": kind} | fields, separators=(",", ":")) + "\n")


def load(path: Path) -> dict[str, Any]:
    """All sessions as one: what was planned and who took part in any, every run, and of the rest what the
    last one says. Raises ``ValueError`` for another kind of file.
    """
    try:
        objects = [json.loads(line) for line in _whole_lines(path)]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: expected one JSON object a line, {error}") from error
    if not objects or objects[0].get("schema") != SCHEMA:
        found = objects[0].get("schema") if objects else "an empty file"
        raise ValueError(f"{path}: expected a result of the experiment link ({SCHEMA}), got {found}")
    sessions = [entry for entry in objects if entry["kind"] == "session"]
    ends = [entry for entry in objects if entry["kind"] == "end"]
    # Without its end it was killed.
    result: dict[str, Any] = {"interrupted": True} | sessions[-1]
    if objects[-1]["kind"] == "end":
        result |= ends[-1]
    result["seconds"] = sum(entry["seconds"] for entry in ends)
    result["load_average_before"] = max(entry["load_average_before"] for entry in sessions)
    result["sessions"] = _sessions(objects)
    result["runs"] = [run for session in result["sessions"] for run in session["runs"]]
    result["adapters"] = _of_all(sessions, "adapters")
    result["planned"] = _of_all(sessions, "planned")
    return result


def _sessions(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each session with its own runs."""
    found: list[dict[str, Any]] = []
    for entry in objects:
        if entry["kind"] == "session":
            found.append(entry | {"runs": []})
        elif entry["kind"] == "run":
            found[-1]["runs"].append(entry)
    return found


def _of_all(sessions: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    """Adapters or cells by their name: a later session may concern a few of them only, and add seeds."""
    found: dict[str, dict[str, Any]] = {}
    for session in sessions:
        for entry in session[what]:
            before = found.get(entry["name"], {})
            seeds = {"seeds": before.get("seeds", {}) | entry["seeds"]} if what == "planned" else {}
            found[entry["name"]] = entry | seeds
    return list(found.values())


def _whole_lines(path: Path) -> list[str]:
    """Without the last one if it was not written to its end."""
    text = path.read_text()
    return text[: text.rfind("\n") + 1].splitlines()
