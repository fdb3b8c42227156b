"""Goals of actions, as their clients see them. Imported when first needed."""

from __future__ import annotations

import time
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from nervure._native import begin_goal, cancel_goal, goal_state, wait_for_progress
from nervure.errors import GoalCanceled, NodeTimeout

if TYPE_CHECKING:
    from collections.abc import Generator

    from nervure import Event, Node


class GoalState(IntEnum):
    """The state of a goal, with the names and numbers of ROS 2 (``action_msgs/GoalStatus``)."""

    UNKNOWN = 0
    """The node of the action has not reported on it."""
    ACCEPTED = 1
    EXECUTING = 2
    """It has sent feedback."""
    CANCELING = 3
    """It was asked to cancel the goal."""
    SUCCEEDED = 4
    CANCELED = 5
    ABORTED = 6
    """It has failed, or ended."""


class Goal:
    """A goal that was sent to an action by :meth:`Node.act`.

    Iterating returns its feedback, as ``INPUT`` events; :meth:`result` waits for its end::

        goal = node.act("go", {"x": 2.0, "y": 3.5}, timeout=60)
        for feedback in goal:
            print(feedback.object)
        print(goal.result().object)

    In asyncio, ``async for feedback in goal`` and ``await goal`` do the same.
    """

    def __init__(self, node: Node, client: str, goal: object, timeout: float | None) -> None:
        self._node = node
        self._client = client
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._call = begin_goal(node, client, goal, timeout)
        self._state: GoalState | None = None
        self._end: Event | Exception | None = None
        self._was_cancelled = False

    @property
    def state(self) -> GoalState:
        """Its state, as far as its node has reported it."""
        return GoalState(goal_state(self._node, self._call)) if self._state is None else self._state

    def cancel(self) -> None:
        """Asks its node to cancel it, and returns at once. :meth:`result` then raises
        :exc:`GoalCanceled`, or returns the result of a goal that was reached before.
        """
        if self._end is None:
            self._was_cancelled = True
            cancel_goal(self._node, self._call)

    def result(self) -> Event:
        """Waits for its end, and returns its result. Feedback that was not taken is dropped.

        Raises:
            GoalCanceled: it was cancelled.
            ServiceGone: the node of the action does not run, or ended before.
            ServiceError: the node has failed to reach it, with the reason.
            NodeTimeout: it had not ended within ``timeout`` of :meth:`Node.act`, and was cancelled.
            Stopped: the dataflow stops.
        """
        for _ in self:
            pass
        return self._ended()

    def __iter__(self) -> Goal:
        return self

    def __next__(self) -> Event:
        if self._end is None and (feedback := self._progress(self._left())) is not None:
            return feedback
        if self._end is None:
            self._give_up()
        raise StopIteration

    def __aiter__(self) -> Goal:
        return self

    async def __anext__(self) -> Event:
        import asyncio

        from nervure._asyncio import _wait

        while self._end is None:
            if (feedback := self._progress(0.0)) is not None:
                return feedback
            if self._end is not None:
                break
            try:
                await asyncio.wait_for(_wait(self._node), self._left())
            except asyncio.TimeoutError:
                self._give_up()
        raise StopAsyncIteration

    def __await__(self) -> Generator[Any, None, Event]:
        return self._awaited().__await__()

    async def _awaited(self) -> Event:
        async for _ in self:
            pass
        return self._ended()

    def _left(self) -> float | None:
        """Seconds until its time limit."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _progress(self, timeout: float | None) -> Event | None:
        """The next feedback. Returns ``None`` at the end, or after ``timeout`` seconds."""
        try:
            progress = wait_for_progress(self._node, self._client, self._call, timeout)
        except GoalCanceled as error:
            self._state = GoalState.CANCELED
            # Its node knows the limit, and may have cancelled it before this looked.
            self._end = error if self._was_cancelled or self._left() != 0.0 else self._late()
            return None
        except Exception as error:
            self._state = GoalState.ABORTED
            self._end = error
            return None
        if progress is None:
            return None
        is_feedback, event = progress
        if is_feedback:
            return event
        self._end = event
        self._state = GoalState.SUCCEEDED
        return None

    def _give_up(self) -> None:
        """Its time limit has passed."""
        self._state = self.state
        cancel_goal(self._node, self._call)
        self._end = self._late()

    def _late(self) -> NodeTimeout:
        action = self._node._forget_call(self._call)
        return NodeTimeout(f"action {action} has not ended within {self._timeout:g} s")

    def _ended(self) -> Event:
        if isinstance(self._end, Exception):
            raise self._end
        assert self._end is not None
        return self._end


def act(node: Node, client: str, goal: object, timeout: float | None) -> Goal:
    """Sends a goal to an action."""
    return Goal(node, client, goal, timeout)
