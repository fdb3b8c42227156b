"""Events and sends for asyncio. Imported when first needed."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

from nervure._native import take_answer
from nervure.errors import NodeTimeout

if TYPE_CHECKING:
    from nervure import Event, Node, Observer

# Events received in a row before other tasks get a turn.
_EVENTS_IN_A_ROW = 16
# How often a blocked send checks whether it was cancelled.
_CANCEL_CHECK_SECONDS = 0.05

_taken_in_a_row = 0


async def next_event(node: Node | Observer) -> Event:
    """Waits for the next event without blocking the event loop."""
    global _taken_in_a_row
    _taken_in_a_row += 1
    if _taken_in_a_row >= _EVENTS_IN_A_ROW:
        _taken_in_a_row = 0
        await asyncio.sleep(0)
    while (event := node._poll()) is None:
        _taken_in_a_row = 0
        await _wait(node, for_events=True)
    return event


async def send(node: Node, output: str, value: Any, **envelope: Any) -> None:
    """Sends at once if every receiver has room, otherwise in a thread of the loop's pool."""
    if node.try_send(output, value, **envelope):
        return
    cancelled = False

    def blocked() -> None:
        while not cancelled:
            try:
                return node.send(output, value, **envelope, timeout=_CANCEL_CHECK_SECONDS)
            except NodeTimeout:
                pass

    try:
        await asyncio.get_running_loop().run_in_executor(None, blocked)
    except asyncio.CancelledError:
        cancelled = True
        raise


async def call(
    node: Node, client: str, value: Any, timeout: float | None, metadata: dict[str, Any] | None
) -> Event:
    """Sends a request to a service, and waits for the answer without blocking the event loop."""
    request = node._begin_call(client, value, metadata)

    async def answered() -> Event:
        while (answer := take_answer(node, client, request)) is None:
            await _wait(node)
        return answer

    try:
        return await asyncio.wait_for(answered(), timeout)
    except asyncio.TimeoutError:
        service = node._forget_call(request)
        raise NodeTimeout(f"service {service} has not answered within {timeout:g} s") from None
    except asyncio.CancelledError:
        node._forget_call(request)
        raise


class _News:
    """Watches a node's eventfd for all tasks that wait: one for events, the others for answers."""

    def __init__(self, node: Node | Observer, eventfd: int, seconds: float) -> None:
        self.node = node
        self.eventfd = eventfd
        self.waiting: set[asyncio.Future[None]] = set()
        self.has_receiver = False
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(eventfd, self.wake)
        self.timer = self.loop.call_later(seconds, self.wake)

    def wake(self) -> None:
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        self.close()

    def close(self) -> None:
        if _watched.get(self.node) is self:
            del _watched[self.node]
            self.loop.remove_reader(self.eventfd)
            self.timer.cancel()
            self.node._disarm()


_watched: weakref.WeakKeyDictionary[Node | Observer, _News] = weakref.WeakKeyDictionary()


async def _wait(node: Node | Observer, *, for_events: bool = False) -> None:
    news = _watched.get(node)
    # The node refuses a second task that waits for events: each event is delivered once.
    if news is None or (for_events and news.has_receiver):
        armed = node._arm()
        if armed is None:
            return
        eventfd, seconds = armed
        if eventfd is None:
            # An observer that polls.
            try:
                return await asyncio.sleep(seconds)
            finally:
                node._disarm()
        news = _watched[node] = _News(node, eventfd, seconds)
    future = asyncio.get_running_loop().create_future()
    news.waiting.add(future)
    news.has_receiver |= for_events
    try:
        await future
    finally:
        if for_events:
            news.has_receiver = False
        news.waiting.discard(future)
        if not news.waiting:
            news.close()
