"""The native half of the package. Use it through ``nervure``."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar, final, overload

import numpy.typing as npt
from typing_extensions import Self

from nervure._actions import Goal
from nervure._transforms import Transforms

__all__ = [
    "_CONTROL_FD_VARIABLE",
    "_HOST_FD_VARIABLE",
    "_STACKS_SIGNAL",
    "Event",
    "Loan",
    "Node",
    "Observer",
    "__version__",
    "_prepare_thread",
    "_set_host",
    "begin_goal",
    "cancel_goal",
    "dora_close_output",
    "dora_event",
    "dora_follow",
    "dora_rest",
    "goal_state",
    "lookup_transform",
    "observe",
    "take_answer",
    "wait_for_progress",
]

__version__: str
_CONTROL_FD_VARIABLE: str
_HOST_FD_VARIABLE: str
_STACKS_SIGNAL: int

# `RELOAD` and `CLOCK_JUMP` are reserved.
_EventType = Literal[
    "INPUT",
    "INPUT_CLOSED",
    "STALE",
    "DEADLINE_MISSED",
    "REQUEST",
    "GOAL",
    "CANCEL",
    "PARAM",
    "NODE_FAILED",
    "NODE_RESTARTED",
    "STOP",
    "PAUSE",
    "RESUME",
    "SYNC",
    "CLOCK_JUMP",
    "RELOAD",
]
# `Event` has properties of these names.
_Bytes = bytes
_Object = object
_Text = str
_Scalar = bool | int | float | str | bytes
_Record = TypeVar("_Record")
_Class = type[_Record]
_Metadata = Mapping[str, _Scalar | Sequence[int] | Sequence[float] | Sequence[str]]

@final
class Node:
    """A node of a running dataflow.

    ``Node()`` is the node that ``nervure run`` started, or in whose place ``nervure attach`` runs this
    program. Such a process has one node. ``Node("plot")`` joins a running dataflow as its node with that id,
    which has ``path: dynamic`` in the file. The dataflow is the one named by ``dataflow``, else by
    ``NERVURE_DATAFLOW`` in the environment, else the only one that runs. When the object is gone, its place
    is free, and the node can be joined again. A program that ``nervure run`` started may pass its own id, so
    that it can be run both ways.

    For a node without inputs from other nodes (no inputs, or only timers) this returns when the whole
    dataflow is ready, so that no receiver misses its first samples.

    Iterate over the node to receive events; the last one is ``STOP``. Any thread may send. Receive in one
    place: each event is delivered once.

    Raises:
        ConnectError: the program was not started by ``nervure run``, or already has a node; no dataflow runs
            or several do; there is no such node, or another process has joined as it.
    """

    def __new__(cls, id: str | None = None, *, dataflow: str | None = None) -> Self: ...
    @property
    def id(self) -> str:
        """The node's id in the dataflow file."""
    @property
    def dataflow(self) -> str:
        """The dataflow's name."""
    @property
    def incarnation(self) -> int:
        """The number of restarts of the node: 0 at the first start."""
    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, timers included."""
    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
    def param(self, name: str) -> Any:
        """The current value of a parameter.

        A ``bool``, ``int``, ``float``, ``str``, or a list of these: the last set value, also from before a
        restart of the node, or else the dataflow file's. A change is visible here at once, and reported by an
        event ``PARAM``.

        Raises:
            UnknownParam: the node has no such parameter; the message lists the parameters.
        """
    @property
    def params(self) -> dict[str, Any]:
        """All parameters with their current values, in the order of the dataflow file."""
    @property
    def stopping(self) -> bool:
        """Whether the node has to stop; for programs that do not receive events."""
    @property
    def paused(self) -> bool:
        """Whether the dataflow is paused."""
    def now(self) -> float:
        """The dataflow's clock, in seconds since 1970-01-01 UTC. It stops while the dataflow is paused."""
    def now_nanos(self) -> int:
        """The dataflow's clock, in nanoseconds since 1970-01-01 UTC."""
    def ready(self) -> None:
        """Reports that this node, declared with ``ready: manual``, is ready. The dataflow starts when all
        nodes are ready.
        """
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event:
        """Waits for the next event. Other threads run meanwhile, and Ctrl-C ends the wait."""
    def next(self, *, timeout: float | None = None) -> Event | None:
        """Waits at most ``timeout`` seconds for the next event, or without a limit.

        Returns:
            The event; ``None`` after the timeout, and after ``STOP``.
        """
    @property
    def transforms(self) -> Transforms:
        """Transforms between coordinate frames, for a node with ``transforms: true`` in the dataflow
        file."""
    def latest(self, input: str) -> Event | None:
        """The newest sample of an input, without waiting: from its queue, or else the newest that was
        received since the first call for this input. It is kept, and with it its block.

        Samples that this takes or skips are not delivered as events.

        Returns:
            The sample as an ``INPUT`` event; ``None`` if none has arrived yet.

        Raises:
            UnknownInput: the node has no such input; the message lists the inputs.
        """
    def send(
        self,
        output: str,
        value: object,
        *,
        stamp: float | None = None,
        stamp_nanos: int | None = None,
        like: Event | None = None,
        metadata: _Metadata | None = None,
        frame: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Sends a value. It is copied once, into the memory that its receivers read.

        A sample that a receiver misses because of its own queue policy is no error: it is counted, and shown
        by ``nervure run``. The call waits while a receiver with the policy ``block`` has no room.

        Args:
            output: Name of the output.
            value: A NumPy array (any dtype but ``object``, any shape and order), ``bytes``, ``str``,
                ``bool``, ``int``, ``float``, a list or dict, an Arrow array, table or record batch, or an
                object with ``__dlpack__`` or the buffer protocol.
            stamp: The time at which the value was true, in seconds since 1970-01-01 UTC. The default is the
                time of the send.
            stamp_nanos: The same in nanoseconds, without the rounding of a float.
            like: The event that the value was computed from. Its stamp, frame and trace are passed on.
            metadata: Named values that are sent with the value: ``bool``, ``int``, ``float``, ``str``,
                ``bytes``, lists of ``int``, ``float`` or ``str``. At most 64 KiB.
            frame: The coordinate frame.
            timeout: The longest wait for a receiver with the policy ``block``, in seconds.

        Raises:
            UnknownOutput: the node has no such output; the message lists the outputs.
            NotSendable: the value is of a kind that cannot be sent, or does not fit the type of the output.
            TooLarge: the value is larger than the node's shared memory, or the metadata exceed their limit.
            NodeTimeout: a receiver had no room in time.
            Stopped: the dataflow stopped while the call waited.
        """
    def try_send(
        self,
        output: str,
        value: object,
        *,
        stamp: float | None = None,
        stamp_nanos: int | None = None,
        like: Event | None = None,
        metadata: _Metadata | None = None,
        frame: str | None = None,
    ) -> bool:
        """As :meth:`send`, but never waits. Returns ``False``, and sends nothing, while a receiver has no
        room, or if the dataflow is paused and this node has no inputs.
        """
    def call(
        self,
        client: str,
        value: object,
        *,
        timeout: float | None = None,
        metadata: _Metadata | None = None,
    ) -> Event:
        """Sends a request to a service, and waits for its answer, at most ``timeout`` seconds.

        Samples of the inputs stay in their queues meanwhile. Any thread may call.

        Args:
            client: The name under ``clients`` in the dataflow file.
            value: As for :meth:`send`.

        Returns:
            The answer, as an ``INPUT`` event whose ``id`` is the client's name.

        Raises:
            UnknownClient: the node has no such client; the message lists the clients.
            ServiceGone: the service's node does not run, or ended before it answered.
            ServiceError: the service failed, or the limit of requests in flight is reached.
            NodeTimeout: no answer arrived in time.
            Stopped: the dataflow stops.
        """
    def call_async(
        self,
        client: str,
        value: object,
        *,
        timeout: float | None = None,
        metadata: _Metadata | None = None,
    ) -> Awaitable[Event]:
        """As :meth:`call`, for asyncio: other tasks run meanwhile, and can call as well."""
    def act(self, client: str, goal: object, *, timeout: float | None = None) -> Goal:
        """Sends a goal to an action, without waiting. Iterate over the result for its feedback.

        Args:
            client: The name under ``clients`` in the dataflow file.
            goal: As the value of :meth:`send`.
            timeout: Seconds after which the goal is cancelled.

        Raises:
            UnknownClient: the node has no such client.
            ServiceGone: the node of the action does not run.
            ServiceError: the client is one of a service, or 16 goals are in flight.
        """
    def send_async(
        self,
        output: str,
        value: object,
        *,
        stamp: float | None = None,
        stamp_nanos: int | None = None,
        like: Event | None = None,
        metadata: _Metadata | None = None,
        frame: str | None = None,
    ) -> Awaitable[None]:
        """As :meth:`send`, for asyncio: other tasks run while a receiver has no room. Do not change the value
        before it was sent.
        """
    def loan(
        self,
        output: str,
        shape: int | Sequence[int],
        dtype: npt.DTypeLike,
        *,
        stamp: float | None = None,
        stamp_nanos: int | None = None,
        like: Event | None = None,
        metadata: _Metadata | None = None,
        frame: str | None = None,
        timeout: float | None = None,
    ) -> Loan:
        """Borrows shared memory to fill in place, so that nothing is copied::

            with node.loan("image", (540, 960, 3), "u1") as loan:
                camera.read_into(loan.array)

        The array is sent at the end of the block. An exception inside the block discards it. Its initial
        contents are unspecified.

        Raises:
            UnknownOutput: the node has no such output; the message lists the outputs.
            OutOfMemory: the node's shared memory is in use by samples that receivers hold.
        """
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[Event]:
        """Waits for the next event without blocking the event loop of asyncio."""
    def _poll(self) -> Event | None: ...
    def _arm(self) -> tuple[int | None, float] | None: ...
    def _disarm(self) -> None: ...
    def _begin_call(self, client: str, value: object, metadata: _Metadata | None) -> Any: ...
    def _forget_call(self, call: Any) -> str: ...
    def _next_dora(self, timeout: float | None = None) -> dict[str, Any] | None: ...
    def _poll_dora(self) -> dict[str, Any] | Literal[False] | None: ...
    def _send_dora(self, output: str, data: object, metadata: dict[str, Any] | None = None) -> bool: ...
    def _loan_dora(self, output: str, bytes: int, metadata: dict[str, Any] | None = None) -> Any: ...

# For `nervure._transforms`:
def lookup_transform(
    node: Node, target: str, source: str, time: Event | float | None, timeout: float | None
) -> tuple[list[float], list[float], int | None]: ...

# For the package `dora`:
def dora_follow(node: Node) -> None: ...
def dora_event(node: Node, event: Event) -> dict[str, Any] | None: ...
def dora_rest(node: Node) -> dict[str, Any] | None: ...
def dora_close_output(node: Node, output: str) -> None: ...
def observe(*topics: str, dataflow: str | None = None, depth: int = 4) -> Observer:
    """Receives topics of a running dataflow, from any program of the same user: a notebook, a dashboard::

        for sample in nervure.observe("camera/image"):
            show(sample.numpy())

    The dataflow is not delayed: an observer that is too slow misses samples, which ``Observer.dropped``
    counts.

    Args:
        topics: Each topic as ``node/output``, which is also the ``id`` of its samples.
        dataflow: The dataflow's name, or the process ID of its keeper. The default is the dataflow that
            ``NERVURE_DATAFLOW`` in the environment names, or the only one that runs.
        depth: The queue depth per topic. When the queue is full, the oldest sample is dropped.

    Raises:
        ConnectError: no dataflow runs or several do, or there is no such topic.
    """

@final
class Observer:
    """Samples of topics of a running dataflow: see :func:`observe`.

    Iterate over it with ``for`` or ``async for``. Samples are events of type ``INPUT``; the ``history`` of
    an output comes first. The iteration ends when the senders or the dataflow have ended for good. A sender
    that is restarted is still observed. Unlike a node's samples, an observer's are copies: keep any number of
    them, even after the observer is gone.
    """

    @property
    def id(self) -> str:
        """The observer's id in the dataflow, for example ``python@4711``."""
    @property
    def dataflow(self) -> str:
        """The dataflow's name."""
    @property
    def topics(self) -> tuple[str, ...]:
        """The observed topics."""
    @property
    def dropped(self) -> int:
        """The number of samples that were missed between those that were received."""
    def now(self) -> float:
        """The dataflow's clock, in seconds since 1970-01-01 UTC."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event:
        """Waits for the next sample. Other threads run meanwhile, and Ctrl-C ends the wait."""
    def next(self, *, timeout: float | None = None) -> Event | None:
        """Waits at most ``timeout`` seconds for the next sample, or without a limit.

        Returns:
            The sample; ``None`` after the timeout, and after the last sample.
        """
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[Event]:
        """Waits for the next sample without blocking the event loop of asyncio."""
    def _poll(self) -> Event | None: ...
    def _arm(self) -> tuple[int | None, float] | None: ...
    def _disarm(self) -> None: ...

@final
class Event:
    """An event of a node: a sample that arrived, a timer that is due, a stale input, a neighbour that failed,
    the order to stop.

    Values are views of shared memory where possible. They are read-only, and keep their block from being
    reused until the last view is gone. Copy data that you keep for long. ``event["id"]`` is ``event.id``, and
    the same holds for ``type``, ``value``, ``metadata``, ``stamp``, ``node``, ``reason`` and ``inputs``. The
    exception is ``INPUT_CLOSED``, where ``event["id"]`` is the input, as in dora.
    """

    @property
    def type(self) -> _EventType:
        """``INPUT``, ``SYNC``, ``INPUT_CLOSED``, ``STALE``, ``DEADLINE_MISSED``, ``REQUEST``, ``GOAL``,
        ``CANCEL``, ``PARAM``, ``NODE_FAILED``, ``NODE_RESTARTED``, ``PAUSE``, ``RESUME`` or ``STOP``. Ignore
        unknown types.
        """
    @property
    def id(self) -> str | None:
        """The input of a sample or tick; ``None`` for every other event. So ``event.id == "image"`` is enough
        to know that there is a sample.
        """
    @property
    def samples(self) -> dict[str, Any] | None:
        """For ``SYNC``, the samples of the inputs of ``sync`` that belong together: a dict from the name of
        an input to its ``Event`` of type ``INPUT``, or of a collected input to a list of them. ``None`` for
        other events.
        """
    @property
    def value(self) -> Any:
        """The value as a pyarrow array or record batch; ``None`` for events without a value (a timer's
        tick). For ``PARAM``, the same as ``object``.

        A tensor gives its elements in C order, without its shape; text and numbers give an array of one
        element. It needs pyarrow: ``pip install 'nervure[arrow]'``.
        """
    @property
    def object(self) -> Any:
        """The value as it was sent: ``bytes``, ``str``, a number, a NumPy array, a list or dict, an Arrow
        array; of an input with a standard type, its dataclass. For ``PARAM``, the parameter's value.

        A dict, dataclass or struct arrives as a dict, or as the dataclass of ``nervure.types`` if the input
        or the output that it comes from is declared with a standard type (``std/Imu@1``). Arrays in them are
        NumPy arrays with the dtype and shape that they were sent with, in place and read-only.

        Raises:
            SampleError: a record does not have the fields of the input's standard type.
        """
    def read(self, cls: _Class[_Record]) -> _Record:
        """The dict, dataclass or struct that was sent, as an object of a dataclass.

        The class may be one of ``nervure.types``, one that ``nervure types generate`` made, or any other.
        Records in fields and in their lists become objects of the dataclasses that their annotations name.
        Fields that the class does not have are left out, and absent ones have their defaults.

        Raises:
            SampleError: the value is no record, a field without a default is absent, or a field is a record
                and its annotation is not, or the other way round.
            TypeError: the class is no dataclass.
        """
    def numpy(self) -> npt.NDArray[Any]:
        """The value as a NumPy array: a tensor with its dtype and shape, in place and read-only; bytes as
        ``uint8``.

        Raises:
            SampleError: the event has no value, or it is a dict, a list of arrays or a record batch.
        """
    def copied(self) -> Self:
        """The same event with a copy of its value, which holds no shared memory: for events that you keep. A
        copied ``REQUEST`` or ``GOAL`` can still be answered.
        """
    @property
    def text(self) -> str:
        """The value of a text sample.

        Raises:
            SampleError: the value is not text.
        """
    @property
    def bytes(self) -> _Bytes:
        """A copy of the value's bytes, in any layout."""
    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that was sent with the value, by name."""
    @property
    def stamp(self) -> float | None:
        """The time at which the value was true, in seconds since 1970-01-01 UTC. For a tick, when it was
        due.
        """
    @property
    def stamp_nanos(self) -> int | None:
        """The stamp in nanoseconds since 1970-01-01 UTC."""
    @property
    def age(self) -> float | None:
        """Seconds since the stamp. For ``STALE``, seconds since the input's newest sample was sent, or since
        the start if there was none.
        """
    @property
    def latency(self) -> float | None:
        """Seconds from the send until this node took the sample from its queue."""
    @property
    def sequence(self) -> int | None:
        """Number of the sample within its output and incarnation, from 0. A gap is a loss. ``None`` for a
        value of ``on_failure``, which the sender did not send itself.
        """
    @property
    def incarnation(self) -> int | None:
        """Restarts of the sender before this sample. Each restart begins a new sequence."""
    @property
    def frame(self) -> str | None:
        """The coordinate frame, if one was sent."""
    @property
    def missed(self) -> int | None:
        """For a timer's tick, the number of earlier ticks that were merged into this one."""
    @property
    def service(self) -> str | None:
        """For ``REQUEST``, the name of the service; for ``GOAL`` and ``CANCEL``, that of the action."""
    @property
    def goal(self) -> int | None:
        """For ``GOAL`` and ``CANCEL``, the number of the goal in this process, from 1."""
    def update(self, value: _Object, *, metadata: _Metadata | None = None) -> None:
        """Sends feedback on a ``GOAL`` to its client. One that takes it slowly misses the oldest.

        Raises:
            ServiceError: the goal has ended, or the event is no goal.
        """
    def canceled(self) -> None:
        """Ends a ``GOAL`` as cancelled. A ``CANCEL`` is an event of the same goal."""
    def reply(self, value: _Object, *, metadata: _Metadata | None = None) -> None:
        """Answers a ``REQUEST``, or ends a ``GOAL`` with its result.

        If a request is dropped without an answer, the call of its sender fails.

        Raises:
            ServiceError: the request was answered already, or the event is not a request.
        """
    def fail(self, reason: str) -> None:
        """Reports to the caller of a ``REQUEST`` or ``GOAL`` that it failed, and why."""
    @property
    def param(self) -> str | None:
        """For ``PARAM``, the name of the parameter that was changed."""
    @property
    def overrun(self) -> float | None:
        """For ``DEADLINE_MISSED``, seconds beyond the deadline."""
    @property
    def count(self) -> int | None:
        """The number of events of this kind, including this one: for ``STALE``, since the newest sample; for
        ``DEADLINE_MISSED``, since the start of the process.
        """
    @property
    def node(self) -> str | None:
        """The neighbour that the event is about, or that sent the request."""
    @property
    def reason(self) -> str | None:
        """The reason, as text for users."""
    @property
    def inputs(self) -> list[str]:
        """The input that was closed, is stale, or whose event took too long to handle; or the inputs that a
        neighbour's failure or restart concerns.
        """
    @overload
    def __getitem__(self, key: Literal["type"], /) -> _EventType: ...
    @overload
    def __getitem__(self, key: Literal["metadata"], /) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str, /) -> Any: ...

@final
class Loan:
    """Shared memory for one value, filled in place: see :meth:`Node.loan`."""

    @property
    def array(self) -> npt.NDArray[Any]:
        """The memory as an array, writeable until it is sent or discarded.

        Raises:
            LoanError: the loan was sent or discarded.
        """
    def send(self) -> None:
        """Sends the array, as the end of the ``with`` block does.

        Raises:
            LoanError: the loan was sent or discarded, or views of the array (slices, reshapes) are still
                alive: a sent value must not change.
            NodeTimeout: a receiver with the policy ``block`` had no room in time. The loan is over.
        """
    def discard(self) -> None:
        """Returns the memory without sending it."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool: ...

def _set_host(take_control: Callable[[str | None], int]) -> None:
    """Makes ``Node()`` connect over the control socket that ``take_control(id)`` returns, and gives away."""

def _prepare_thread(cpu_affinity: list[int], scheduling: str) -> None:
    """Runs this thread on these processors, all if there are none, with this scheduling as JSON.

    Raises:
        OSError: something was refused.
    """

# For the modules `nervure._actions` and `nervure._asyncio`.
def begin_goal(node: Node, client: str, goal: object, timeout: float | None) -> Any: ...
def wait_for_progress(
    node: Node, client: str, call: Any, timeout: float | None
) -> tuple[bool, Event] | None: ...
def cancel_goal(node: Node, call: Any) -> None: ...
def goal_state(node: Node, call: Any) -> int: ...
def take_answer(node: Node, client: str, call: Any) -> Event | None: ...
