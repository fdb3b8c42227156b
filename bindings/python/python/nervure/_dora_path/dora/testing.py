"""A node for unit tests: events from a list, and outputs collected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["MockNode"]


class MockNode:
    """Stands in for :class:`dora.Node` without a dataflow.

    Args:
        inputs: Pairs of input and value. Each becomes an event ``INPUT``; the last event is ``STOP``.
        metadata: Metadata of every input; each event has its own copy.
    """

    def __init__(self, inputs: list[tuple[str, Any]], metadata: dict[str, Any] | None = None) -> None:
        events: list[dict[str, Any]] = [
            {"type": "INPUT", "id": input_id, "value": value, "metadata": dict(metadata or {})}
            for input_id, value in inputs
        ]
        self._events = iter([*events, {"type": "STOP"}])
        self.outputs: dict[str, list[Any]] = {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        return next(self._events)

    def next(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next event; ``None`` after the last."""
        return next(self._events, None)

    async def recv_async(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next event; ``None`` after the last."""
        return self.next()

    def send_output(self, output_id: str, data: Any, metadata: dict[str, Any] | None = None) -> None:
        """Appends the value to ``outputs[output_id]``."""
        self.outputs.setdefault(output_id, []).append(data)
