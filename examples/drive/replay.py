"""Play a recording at the pace at which it was made."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from nervure import Node

T = TypeVar("T")


def at_recorded_times(node: Node, recording: Iterable[tuple[float, T]]) -> Iterator[tuple[float, T]]:
    """Yield `(stamp, item)` when each `(seconds, item)` is due; return early when the dataflow stops.

    Every due time counts from the start, so that waiting too long once does not shift all that follows.
    """
    start = node.now()
    for seconds, item in recording:
        stamp = start + seconds
        while event := node.next(timeout=max(0.0, stamp - node.now())):
            if event.type == "STOP":
                return
        yield stamp, item
