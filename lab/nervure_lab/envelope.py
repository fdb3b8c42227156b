"""What every result file says of its run: when, where, of which source, under which load."""

from __future__ import annotations

import contextlib
import datetime
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from nervure_lab.machine import describe_machine, load_average, source_version


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
        "command": shlex.join(["python", "-m", "nervure_lab", *sys.argv[1:]]),
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
