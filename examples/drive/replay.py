"""Play a recording at its original rate."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from nervure import Node

T = TypeVar("T")


def at_recorded_times(node: Node, recording: Iterable[tuple[float, T]]) -> Iterator[tuple[float, T]]:
    """Yield `(stamp, item)` when each `(seconds, item)` is due; return early when the dataflow stops.

    Every due time counts from the start, so that one late item does not delay the items after it.
    """
    start = node.now()
    for seconds, item in recording:
        stamp = start + seconds
        while event := node.next(timeout=max(0.0, stamp - node.now())):
            if event.type == "STOP":
                return
        yield stamp, item
