"""The node."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from dora import _descriptor, _logging
from dora._nervure import native, nervure

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterator

# `nervure run` and `nervure attach` set one of them.
_STARTED = ("NERVURE_CONTROL_FD", "NERVURE_TOKEN")

# It is imported in a process of several nodes.
_THREADS = "nervure._host.threads"

# The connection of this process, if `nervure run` started it. A second `Node()` shares it.
_own: nervure.Node | None = None


class Node:
    """A node of a running dataflow, with the methods of dora's.

    In a program that ``nervure run`` started it is that node, with any ``node_id``. Otherwise ``node_id``
    names a node of the running dataflow with ``path: dynamic``. ``daemon_port`` has no effect.

    Raises:
        RuntimeError: there is no such node, or no dataflow runs.
    """

    def __init__(self, node_id: str | None = None, daemon_port: int | None = None) -> None:
        self._node = _connect(node_id)
        native.dora_follow(self._node)
        self._next = self._node._next_dora
        self._send = self._node._send_dora
        self._warned: set[str] = set()
        # Events that `is_empty` has taken.
        self._taken: deque[dict[str, Any]] = deque()
        _logging.take_over()

    # Events

    def next(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Waits for the next event, at most ``timeout`` seconds.

        Returns:
            The event; an event of type ``ERROR`` after the timeout; ``None`` after ``STOP``.
        """
        return self._taken.popleft() if self._taken else self._next(timeout)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        event = self._taken.popleft() if self._taken else self._next()
        if event is None:
            raise StopIteration
        return event

    def try_recv(self) -> dict[str, Any] | None:
        """The next event if there is one."""
        return (self._taken.popleft() if self._taken else self._node._poll_dora()) or None

    def drain(self) -> list[dict[str, Any]]:
        """All events that have arrived.

        Raises:
            RuntimeError: ``STOP`` was received before.
        """
        events = list(self._taken)
        self._taken.clear()
        while event := self._node._poll_dora():
            events.append(event)
        if event is False and not events:
            raise RuntimeError("Could not drain events. Channel is closed")
        return events

    def is_empty(self) -> bool:
        """Whether every event that has arrived was received."""
        if not self._taken and (event := self._node._poll_dora()):
            self._taken.append(event)
        return not self._taken

    async def recv_async(self, timeout: float | None = None) -> dict[str, Any] | None:
        """As :meth:`next`, for asyncio."""
        import asyncio

        if self._taken:
            return self._taken.popleft()
        if timeout is None:
            return await self._received()
        try:
            return await asyncio.wait_for(self._received(), timeout)
        except asyncio.TimeoutError:
            # A wait of 0 seconds makes the event ERROR.
            return self._next(0)

    async def _received(self) -> dict[str, Any] | None:
        while (reported := native.dora_rest(self._node)) is None:
            try:
                event = await self._node.__anext__()
            except StopAsyncIteration:
                return None
            if (reported := native.dora_event(self._node, event)) is not None:
                break
        return reported

    def merge_external_events(self, subscription: Any) -> None:
        """Not supported: dora takes a subscription of its bridge to ROS 2, and nothing else.

        Raises:
            RuntimeError: always, with an alternative.
        """
        raise RuntimeError(
            "merge_external_events takes a subscription of dora's bridge to ROS 2, which Nervure has not. "
            "Receive the topic in a node of its own, with rclpy, and send what arrives to an output; "
            "bags of ROS 2 can be played: nervure replay --help"
        )

    # Outputs

    def send_output(self, output_id: str, data: Any, metadata: dict[str, Any] | None = None) -> None:
        """Sends ``bytes`` or an Arrow array.

        An output that the dataflow file does not declare is ignored, with one warning.

        Raises:
            RuntimeError: the value is neither, or does not fit the node's shared memory.
        """
        try:
            if not self._send(output_id, data, metadata):
                self._warn_of(output_id)
        except nervure.Stopped:
            # The dataflow stops: the next event is STOP.
            pass
        except nervure.NervureError as error:
            raise RuntimeError(f"failed to send output: {error}") from error

    def send_output_raw(
        self, output_id: str, data_length: int, metadata: dict[str, Any] | None = None
    ) -> Any:
        """Borrows ``data_length`` bytes of shared memory to fill in place::

            with node.send_output_raw("image", height * width * 3) as buffer:
                numpy.frombuffer(buffer, numpy.uint8)[:] = pixels

        Receivers get an array of ``uint8``.

        Raises:
            RuntimeError: the dataflow file does not declare the output.
        """
        try:
            sample = self._node._loan_dora(output_id, data_length, metadata)
        except nervure.NervureError as error:
            raise RuntimeError(f"failed to allocate output: {error}") from error
        if sample is None:
            raise RuntimeError(f"Output `{output_id}` not in node's output list.")
        return sample

    def send_service_request(self, output_id: str, data: Any, metadata: dict[str, Any] | None = None) -> str:
        """Sends a value with a new ``request_id`` in its metadata, and returns that id."""
        request_id = _new_id()
        if metadata and "request_id" in metadata:
            _logging.warn("send_service_request replaces the `request_id` of the given metadata")
        self.send_output(output_id, data, {**(metadata or {}), "request_id": request_id})
        return request_id

    def send_service_response(self, output_id: str, data: Any, metadata: dict[str, Any]) -> None:
        """Sends a value with the metadata of a request, which holds its ``request_id``."""
        if "request_id" not in metadata:
            _logging.warn("send_service_response: the metadata has no `request_id`, so no request matches")
        self.send_output(output_id, data, metadata)

    def _warn_of(self, output: str) -> None:
        if output not in self._warned:
            self._warned.add(output)
            _logging.warn(f"Ignoring output `{output}` not in node's output list.")

    def _close_output(self, output: str) -> None:
        native.dora_close_output(self._node, output)

    # The node itself

    def dataflow_id(self) -> str:
        """A UUID of this run of the dataflow, the same in all its nodes."""
        import uuid

        # `pid-ticks/node`: unique on this machine until it boots.
        keeper = os.environ.get("NERVURE_KEEPER", "").partition("/")[0]
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._node.dataflow}/{keeper}"))

    def dataflow_descriptor(self) -> dict[str, Any]:
        """The dataflow file.

        Raises:
            RuntimeError: no file is known, or PyYAML is not installed.
        """
        return _descriptor.read()

    def node_config(self) -> dict[str, Any]:
        """The sources of the node's inputs, as in the dataflow file, and its outputs."""
        return _descriptor.config_of(self._node)

    def is_restart(self) -> bool:
        """Whether the node was started again after a failure."""
        return self._node.incarnation > 0

    def restart_count(self) -> int:
        """The number of restarts of the node."""
        return self._node.incarnation

    def timestamp(self) -> datetime.datetime:
        """The dataflow's clock."""
        import datetime

        micros = self._node.now_nanos() // 1000
        return datetime.datetime.fromtimestamp(micros / 1e6, datetime.timezone.utc)

    # Logs

    def log(
        self, level: str, message: str, target: str | None = None, fields: dict[str, str] | None = None
    ) -> None:
        """Prints a line with its level: error, warn, info, debug or trace."""
        _logging.log(level, message, target, fields)

    def log_error(self, message: str) -> None:
        """Prints a line of the level error."""
        _logging.log("error", message)

    def log_warn(self, message: str) -> None:
        """Prints a line of the level warn."""
        _logging.log("warn", message)

    def log_info(self, message: str) -> None:
        """Prints a line of the level info."""
        _logging.log("info", message)

    def log_debug(self, message: str) -> None:
        """Prints a line of the level debug."""
        _logging.log("debug", message)

    def log_trace(self, message: str) -> None:
        """Prints a line of the level trace."""
        _logging.log("trace", message)


def _connect(node_id: str | None) -> nervure.Node:
    global _own
    try:
        if _THREADS in sys.modules:
            return _of_thread(sys.modules[_THREADS])
        if not any(name in os.environ for name in _STARTED):
            return nervure.Node(node_id)
        if _own is None:
            _own = nervure.Node()
        return _own
    except nervure.ConnectError as error:
        raise RuntimeError(str(error)) from error


def _of_thread(threads: Any) -> nervure.Node:
    """The connection of the node that this thread belongs to."""
    run = threads.current()
    if run is None:
        return nervure.Node()
    if run.dora_node is None:
        run.dora_node = nervure.Node()
    return run.dora_node


def _new_id() -> str:
    """A UUID of version 7 (RFC 9562): milliseconds since 1970, then random bits."""
    import uuid

    millis = time.time_ns() // 1_000_000
    number = millis << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))
