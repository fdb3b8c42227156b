"""Events and sends for asyncio. Imported when first needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nervure.errors import NodeTimeout

if TYPE_CHECKING:
    from nervure import Event, Node

# Events taken in a row before other tasks get a turn.
_EVENTS_IN_A_ROW = 16
# How long a blocked send stays deaf to its cancellation.
_PATIENCE_SECONDS = 0.05

_taken_in_a_row = 0


async def next_event(node: Node) -> Event:
    """Waits for the next event without blocking the event loop."""
    global _taken_in_a_row
    _taken_in_a_row += 1
    if _taken_in_a_row >= _EVENTS_IN_A_ROW:
        _taken_in_a_row = 0
        await asyncio.sleep(0)
    while (event := node._poll()) is None:
        _taken_in_a_row = 0
        await _wait(node)
    return event


async def send(node: Node, output: str, value: Any, **envelope: Any) -> None:
    """Sends at once where there is room, and else waits for it in a thread of the loop's pool."""
    if node.try_send(output, value, **envelope):
        return
    cancelled = False

    def blocked() -> None:
        while not cancelled:
            try:
                return node.send(output, value, **envelope, timeout=_PATIENCE_SECONDS)
            except NodeTimeout:
                pass

    try:
        await asyncio.get_running_loop().run_in_executor(None, blocked)
    except asyncio.CancelledError:
        cancelled = True
        raise


async def _wait(node: Node) -> None:
    armed = node._arm()
    if armed is None:
        return
    eventfd, seconds = armed
    loop = asyncio.get_running_loop()
    news = loop.create_future()

    def wake() -> None:
        if not news.done():
            news.set_result(None)

    loop.add_reader(eventfd, wake)
    timer = None if seconds is None else loop.call_later(seconds, wake)
    try:
        await news
    finally:
        loop.remove_reader(eventfd)
        if timer is not None:
            timer.cancel()
        node._disarm()
