"""What every result file says of its run: when, where, of which source, under which load."""

from __future__ import annotations

import contextlib
import datetime
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nervure_lab.machine import describe_machine, load_average, source_version

PLACES = frozenset({"--report", "--output"})
"""Options that say where results go, and nothing of what is measured."""


def command_to_repeat(arguments: Sequence[str]) -> str:
    """What another reader would type, on another machine."""
    words: list[str] = []
    following = iter(arguments)
    for word in following:
        option, equals, _ = word.partition("=")
        if option not in PLACES:
            words.append(word)
        elif not equals:
            next(following, None)
    return shlex.join(["python", "-m", "nervure_lab", *words])


@contextlib.contextmanager
def envelope(
    schema: str, experiment: str, profile: str, keep: Callable[[dict[str, Any]], None]
) -> Iterator[dict[str, Any]]:
    """Yields what is known before the first run, completes it after the last and hands it to ``keep``,
    however the runs end. Ctrl-C ends the block, not the program: the result is marked as interrupted.
    """
    result: dict[str, Any] = {
        "schema": schema,
        "experiment": experiment,
        "profile": profile,
        "command": command_to_repeat(sys.argv[1:]),
        "source": source_version(),
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "load_average_before": load_average(),
        "interrupted": False,
    }
    start = time.monotonic()
    try:
        yield result
    except KeyboardInterrupt:
        result["interrupted"] = True
    finally:
        result["seconds"] = round(time.monotonic() - start, 1)
        result["load_average_after"] = load_average()
        keep(result)
