"""The result file of every experiment: JSON, one object a line, each written as soon as it is known, so that
an interrupted experiment keeps its runs and can be resumed. ``lab/schema/result.schema.json`` describes it.

- `session`: the source, the machine, the adapters and the plan. One for each start of the program.
- `run`: one run.
- `end`: the end of a session, with its duration.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nervure_lab.machine import describe_machine, load_average, source_version

SCHEMA = "nervure-lab/result@2"
OUTPUT_OPTIONS = frozenset({"--report", "--output", "--out"})
"""Options that name output files, without effect on the measurement."""


class ResultFile:
    """Appends lines to a file. An existing file is resumed, or renamed to `NAME.before`."""

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


@contextlib.contextmanager
def session(
    experiment: str,
    profile: str,
    fields: dict[str, Any],
    add: Callable[[str, dict[str, Any]], None],
) -> Iterator[None]:
    """Adds the start of a session, and its end however the block ends. Ctrl-C ends the block, not the
    program: the session is marked as interrupted.
    """
    start = {
        "schema": SCHEMA,
        "experiment": experiment,
        "profile": profile,
        "command": command_to_repeat(sys.argv[1:]),
        "source": source_version(),
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "load_average_before": load_average(),
    }
    add("session", start | fields)
    began = time.monotonic()
    interrupted = False
    try:
        yield
    except KeyboardInterrupt:
        interrupted = True
    finally:
        seconds = round(time.monotonic() - began, 1)
        end = {"interrupted": interrupted, "seconds": seconds, "load_average_after": load_average()}
        add("end", end)


def command_to_repeat(arguments: Sequence[str]) -> str:
    """The command as another reader would type it on another machine."""
    words: list[str] = []
    following = iter(arguments)
    for word in following:
        option, equals, _ = word.partition("=")
        if option not in OUTPUT_OPTIONS:
            words.append(word)
        elif not equals:
            next(following, None)
    return shlex.join(["python", "-m", "nervure_lab", *words])


def load(path: Path) -> dict[str, Any]:
    """Merges all sessions: the plans and adapters of all, every run, and otherwise the last session. Raises
    ``ValueError`` for another kind of file.
    """
    try:
        objects = [json.loads(line) for line in _whole_lines(path)]
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: expected one JSON object a line, {error}") from error
    if not objects or objects[0].get("schema") != SCHEMA:
        found = objects[0].get("schema") if objects else "an empty file"
        raise ValueError(f"{path}: expected a result file of the lab ({SCHEMA}), got {found}")
    sessions = [entry for entry in objects if entry["kind"] == "session"]
    ends = [entry for entry in objects if entry["kind"] == "end"]
    # A session without its end was killed.
    result: dict[str, Any] = {"interrupted": True, "load_average_after": 0.0} | sessions[-1]
    if objects[-1]["kind"] == "end":
        result |= ends[-1]
    result["seconds"] = sum(entry["seconds"] for entry in ends)
    result["load_average_before"] = max(entry["load_average_before"] for entry in sessions)
    result["sessions"] = _sessions(objects)
    result["runs"] = [run for entry in result["sessions"] for run in entry["runs"]]
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
    """Adapters or cells by name: a later session may concern a few of them only, and add repeats."""
    found: dict[str, dict[str, Any]] = {}
    for entry_of_session in sessions:
        for entry in entry_of_session[what]:
            before = found.get(entry["name"], {})
            repeats = {"repeats": before.get("repeats", {}) | entry["repeats"]} if what == "planned" else {}
            found[entry["name"]] = entry | repeats
    return list(found.values())


def _whole_lines(path: Path) -> list[str]:
    """The lines of the file without an incomplete last one."""
    text = path.read_text()
    return text[: text.rfind("\n") + 1].splitlines()
