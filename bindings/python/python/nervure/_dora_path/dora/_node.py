"""The node."""

from __future__ import annotations

import datetime
import os
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from dora import _descriptor, _events, _logging, _metadata
from dora._nervure import nervure
from dora._sample import SampleHandler

# `nervure run` and `nervure attach` set one of them.
_STARTED = ("NERVURE_CONTROL_FD", "NERVURE_TOKEN")
_TIMEOUT_LIMIT_SECONDS = 1e9

# The connection of this process, if `nervure run` started it. A second `Node()` shares it.
_own: Any = None


class Node:
    """A node of a running dataflow, with the methods of dora's.

    In a program that ``nervure run`` started it is that node, whatever ``node_id`` is. Otherwise ``node_id``
    names a node of the running dataflow with ``path: dynamic``. ``daemon_port`` has no effect.

    Raises:
        RuntimeError: there is no such node, or no dataflow runs.
    """

    def __init__(self, node_id: str | None = None, daemon_port: int | None = None) -> None:
        self._node = _connect(node_id)
        self._outputs = frozenset(self._node.outputs)
        self._warned: set[str] = set()
        self._ready: deque[dict[str, Any]] = deque()
        self._is_over = False
        _logging.take_over()

    # Events

    def next(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Waits for the next event, at most ``timeout`` seconds.

        Returns:
            The event; an event of type ``ERROR`` after the timeout; ``None`` after ``STOP``.
        """
        if timeout is None:
            return self._take(None)
        event = self._take(_checked(timeout))
        return _events.timed_out() if event is None and not self._is_over else event

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        event = self._take(None)
        if event is None:
            raise StopIteration
        return event

    def try_recv(self) -> dict[str, Any] | None:
        """The next event if there is one."""
        return self._take(0.0)

    def drain(self) -> list[dict[str, Any]]:
        """All events that have arrived.

        Raises:
            RuntimeError: the event ``STOP`` was received before.
        """
        if self._is_over and not self._ready:
            raise RuntimeError("Could not drain events. Channel is closed")
        events = []
        while (event := self._take(0.0)) is not None:
            events.append(event)
        return events

    def is_empty(self) -> bool:
        """Whether no event has arrived that was not received."""
        if not self._ready and (event := self._take(0.0)) is not None:
            self._ready.append(event)
        return not self._ready

    async def recv_async(self, timeout: float | None = None) -> dict[str, Any] | None:
        """As :meth:`next`, for asyncio."""
        import asyncio

        if timeout is not None:
            timeout = _checked(timeout)
        if self._ready:
            return self._ready.popleft()
        while not self._is_over:
            try:
                event = self._report(await asyncio.wait_for(self._node.__anext__(), timeout))
            except asyncio.TimeoutError:
                return _events.timed_out()
            except StopAsyncIteration:
                self._is_over = True
                break
            if event is not None:
                return event
        return None

    def merge_external_events(self, subscription: Any) -> None:
        """Not supported: it needs dora's bridge to ROS 2."""
        raise RuntimeError("merge_external_events needs dora's bridge to ROS 2, which Nervure does not have")

    # Outputs

    def send_output(self, output_id: str, data: Any, metadata: dict[str, Any] | None = None) -> None:
        """Sends ``bytes`` or an Arrow array.

        An output that the dataflow file does not declare is ignored, with one warning.

        Raises:
            RuntimeError: the value is neither, or does not fit the node's shared memory.
        """
        sent, stamp = _metadata.to_nervure(metadata)
        if not isinstance(data, bytes):
            if not hasattr(data, "__arrow_c_array__"):
                raise RuntimeError(
                    f"invalid `data` type, must be `PyBytes` or arrow array; got {type(data).__name__}"
                )
            if hasattr(data, "to_struct_array"):
                data = data.to_struct_array()
        if self._has(output_id):
            try:
                self._node.send(output_id, data, metadata=sent, stamp_nanos=stamp)
            except nervure.Stopped:
                # The dataflow stops: STOP is the next event.
                pass
            except nervure.NervureError as error:
                raise RuntimeError(f"failed to send output: {error}") from error

    def send_output_raw(
        self, output_id: str, data_length: int, metadata: dict[str, Any] | None = None
    ) -> SampleHandler:
        """Borrows ``data_length`` bytes of shared memory to fill in place::

            with node.send_output_raw("image", height * width * 3) as buffer:
                numpy.frombuffer(buffer, numpy.uint8)[:] = pixels

        Receivers get an array of ``uint8``.

        Raises:
            RuntimeError: the dataflow file does not declare the output.
        """
        sent, stamp = _metadata.to_nervure(metadata)
        if not self._has(output_id):
            raise RuntimeError(f"Output `{output_id}` not in node's output list.")
        try:
            loan = self._node.loan(output_id, data_length, "u1", metadata=sent, stamp_nanos=stamp)
        except nervure.NervureError as error:
            raise RuntimeError(f"failed to allocate output: {error}") from error
        return SampleHandler(loan)

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

    # The node itself

    def dataflow_id(self) -> str:
        """A UUID of this run of the dataflow, the same in all its nodes."""
        import uuid

        # `pid-ticks/node`: unique on this machine until it boots.
        keeper = os.environ.get("NERVURE_KEEPER", "").partition("/")[0]
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._node.dataflow}/{keeper}"))

    def dataflow_descriptor(self) -> dict[str, Any]:
        """The dataflow file."""
        return _descriptor.read()

    def node_config(self) -> dict[str, Any]:
        """The node's inputs, as in the dataflow file, and its outputs."""
        return _descriptor.config_of(self._node)

    def is_restart(self) -> bool:
        """Whether the node was started again after a failure."""
        return self.restart_count() > 0

    def restart_count(self) -> int:
        """The number of restarts of the node."""
        count: int = self._node.incarnation
        return count

    def timestamp(self) -> datetime.datetime:
        """The dataflow's clock."""
        return _metadata.time_of(self._node.now_nanos())

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

    # Helpers

    def _take(self, timeout: float | None) -> dict[str, Any] | None:
        """The next event of a kind that dora has; ``None`` after the timeout and after ``STOP``."""
        if self._ready:
            return self._ready.popleft()
        if self._is_over:
            return None
        end = None if timeout is None else time.monotonic() + timeout
        left = timeout
        while (event := self._node.next(timeout=left)) is not None:
            if (reported := self._report(event)) is not None:
                return reported
            left = None if end is None else max(0.0, end - time.monotonic())
        self._is_over |= timeout is None
        return None

    def _report(self, event: Any) -> dict[str, Any] | None:
        self._is_over |= event.type == "STOP"
        return _events.to_dict(event)

    def _has(self, output: str) -> bool:
        if output in self._outputs:
            return True
        if output not in self._warned:
            self._warned.add(output)
            _logging.warn(f"Ignoring output `{output}` not in node's output list.")
        return False


def _connect(node_id: str | None) -> Any:
    global _own
    try:
        if not any(name in os.environ for name in _STARTED):
            return nervure.Node(node_id)
        if _own is None:
            _own = nervure.Node()
        return _own
    except nervure.ConnectError as error:
        raise RuntimeError(str(error)) from error


def _checked(timeout: float) -> float:
    if 0 <= timeout < float("inf"):
        return min(float(timeout), _TIMEOUT_LIMIT_SECONDS)
    raise ValueError(f"invalid timeout of {timeout} seconds: it is 0 or more, and finite")


def _new_id() -> str:
    """A UUID of version 7 (RFC 9562): milliseconds since 1970, then random bits."""
    import uuid

    millis = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    number = millis << 80 | random
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))
