"""The native half of the package. Use it through ``nervure``."""

from collections.abc import Awaitable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, final, overload

import numpy.typing as npt
from typing_extensions import Self

__all__ = [
    "_CONTROL_FD_VARIABLE",
    "_STACKS_SIGNAL",
    "Event",
    "Loan",
    "Node",
    "Observer",
    "__version__",
    "observe",
]

__version__: str
_CONTROL_FD_VARIABLE: str
_STACKS_SIGNAL: int

# `RELOAD`, `SYNC`, `PAUSE`, `RESUME` and `CLOCK_JUMP` are reserved.
_EventType = Literal[
    "INPUT",
    "INPUT_CLOSED",
    "STALE",
    "DEADLINE_MISSED",
    "REQUEST",
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
_Scalar = bool | int | float | str | bytes
_Metadata = Mapping[str, _Scalar | Sequence[int] | Sequence[float] | Sequence[str]]

@final
class Node:
    """A node of a running dataflow.

    ``Node()`` is the node as which ``nervure run`` started the program, or in whose place ``nervure attach``
    runs it; such a process has one node. ``Node("plot")`` joins a dataflow that runs as its node of that id,
    which has ``path: dynamic`` in the file: the dataflow of that name, that which ``NERVURE_DATAFLOW`` in the
    environment names, or the only one. Its place is given back when the object is gone, and can be taken
    again. A program that ``nervure run`` started may give its own id, so that it can be both.

    A node that waits for nobody's samples (it has no inputs, or only timers) is returned when the whole
    dataflow is ready, so that nobody misses its first ones.

    Iterate over it to take events in; the last one is ``STOP``. Any thread may send. Receive in one place: an
    event is delivered once.

    Raises:
        ConnectError: it was not started by ``nervure run``, or is the second one of its process; no
            dataflow runs or several do, there is no such node, or another process has it.
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
        """0 at the first start, one more after each restart."""
    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, timers included."""
    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
    def param(self, name: str) -> Any:
        """The present value of a parameter.

        It is ``bool``, ``int``, ``float``, ``str``, or a list of those: that of the dataflow file, or what
        the parameter was set to since, also before the last restart of the node. An event ``PARAM`` tells of
        a change; the value is seen here at once.

        Raises:
            UnknownParam: with the names of the parameters.
        """
    @property
    def params(self) -> dict[str, Any]:
        """All parameters with their present values, in the order of the dataflow file."""
    @property
    def stopping(self) -> bool:
        """Whether the node was told to stop; for programs that do not look at their events."""
    @property
    def paused(self) -> bool:
        """Whether the dataflow is paused."""
    def now(self) -> float:
        """The dataflow's clock, in seconds since 1970-01-01 UTC. It stands still while the dataflow is
        paused.
        """
    def now_nanos(self) -> int:
        """The dataflow's clock, in nanoseconds since 1970-01-01 UTC."""
    def ready(self) -> None:
        """Says that a node with ``ready: manual`` is ready. The dataflow starts when all nodes are."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event:
        """Waits for the next event. Other threads run meanwhile, and Ctrl-C ends the wait."""
    def next(self, *, timeout: float | None = None) -> Event | None:
        """Waits at most ``timeout`` seconds for the next event; without a timeout, until there is one.

        Returns:
            The event; ``None`` when none came in time, and after ``STOP``.
        """
    def latest(self, input: str) -> Event | None:
        """The newest sample of an input, without waiting: taken from its queue, or else the newest that came
        since the first call for this input: it is kept, and its block with it.

        Samples that it takes or passes over are not delivered as events.

        Returns:
            The sample as an ``INPUT`` event; ``None`` when none came yet.

        Raises:
            UnknownInput: with the names of the inputs.
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
        """Sends a value. It is copied, once, into the memory that its receivers read.

        What a receiver misses because of its own queue policy is no error: it is counted, and shown by
        ``nervure run``. While a receiver whose policy is ``block`` has no room, the call waits.

        Args:
            output: Name of the output.
            value: A NumPy array (any dtype but ``object``, any shape and order), ``bytes``, ``str``,
                ``bool``, ``int``, ``float``, a list or dict, an Arrow array, table or record batch, or an
                object with ``__dlpack__`` or the buffer protocol.
            stamp: When the world was as the value says, in seconds since 1970-01-01 UTC; the time of sending
                if not given.
            stamp_nanos: The same in nanoseconds, without a float's rounding.
            like: The event that the value was computed from, whose stamp, frame and trace it keeps.
            metadata: Named values to go along: ``bool``, ``int``, ``float``, ``str``, ``bytes``, lists of
                ``int``, ``float`` or ``str``. At most 64 KiB.
            frame: The coordinate frame.
            timeout: Seconds to wait at most for a receiver whose policy is ``block``.

        Raises:
            UnknownOutput: with the names of the outputs.
            NotSendable: the value is of a kind that cannot be sent.
            TooLarge: the value is larger than the node's shared memory, or the metadata than their limit.
            NodeTimeout: a receiver made no room in time.
            Stopped: the dataflow stopped meanwhile.
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
        """As :meth:`send`, but never waits. ``False``, and nothing is sent, while a receiver has no room."""
    def call(
        self,
        client: str,
        value: object,
        *,
        timeout: float | None = None,
        metadata: _Metadata | None = None,
    ) -> Event:
        """Asks a service, and waits for its answer, for ``timeout`` seconds at most.

        Samples of the inputs wait meanwhile. Any thread may call.

        Args:
            client: The name under ``clients`` in the dataflow file.
            value: As for :meth:`send`.

        Returns:
            The answer, as an ``INPUT`` event whose ``id`` is the client's name.

        Raises:
            UnknownClient: with the names of the clients.
            ServiceGone: the node that answers does not run, or ended before it answered.
            ServiceError: the service failed, or has as many requests of this node as it takes.
            NodeTimeout: no answer came in time.
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
        """As :meth:`call`, for asyncio: other tasks run meanwhile, and can call too."""
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
        before.
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
        """Borrows shared memory to be filled in place, so that nothing is copied::

            with node.loan("image", (540, 960, 3), "u1") as loan:
                camera.read_into(loan.array)

        At the end of the block it is sent; an exception inside discards it. What the array holds before it is
        filled is unspecified.

        Raises:
            UnknownOutput: with the names of the outputs.
            OutOfMemory: the node's shared memory is in use by samples that receivers hold.
        """
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[Event]:
        """Waits for the next event without blocking the event loop of asyncio."""
    def _poll(self) -> Event | None: ...
    def _arm(self) -> tuple[int | None, float] | None: ...
    def _disarm(self) -> None: ...
    def _begin_call(self, client: str, value: object, metadata: _Metadata | None) -> Any: ...
    def _take_answer(self, client: str, call: Any) -> Event | None: ...
    def _forget_call(self, call: Any) -> str: ...

def observe(*topics: str, dataflow: str | None = None, depth: int = 4) -> Observer:
    """Receives topics of a dataflow that runs, from any program of the same user: a notebook, a dashboard::

        for sample in nervure.observe("camera/image"):
            show(sample.numpy())

    The dataflow is not held up: an observer that is too slow misses samples, which ``Observer.dropped``
    counts.

    Args:
        topics: ``node/output`` of each; it is the ``id`` of its samples.
        dataflow: Its name, or the process id of its keeper; else what ``NERVURE_DATAFLOW`` in the environment
            says, or the only one that runs.
        depth: Samples of a topic that wait for the observer at most; the oldest makes room.

    Raises:
        ConnectError: no dataflow runs or several do, or there is no such topic.
    """

@final
class Observer:
    """Samples of topics of a running dataflow: see :func:`observe`.

    Iterate over it, with ``for`` or ``async for``: samples are events of type ``INPUT``. The iteration ends
    when their senders have ended for good, or the dataflow has. A sender that is restarted goes on being
    observed, and what an output keeps as its ``history`` comes first. Unlike those of a node, samples are
    copies: keep as many as you like, also when the observer is gone.
    """

    @property
    def id(self) -> str:
        """Its id in the dataflow, ``python@4711``."""
    @property
    def dataflow(self) -> str:
        """The dataflow's name."""
    @property
    def topics(self) -> tuple[str, ...]:
        """The topics."""
    @property
    def dropped(self) -> int:
        """How many samples were missed between those that were received."""
    def now(self) -> float:
        """The dataflow's clock, in seconds since 1970-01-01 UTC."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event:
        """Waits for the next sample. Other threads run meanwhile, and Ctrl-C ends the wait."""
    def next(self, *, timeout: float | None = None) -> Event | None:
        """Waits at most ``timeout`` seconds for the next sample; without a timeout, until there is one.

        Returns:
            The sample; ``None`` when none came in time, and after the end.
        """
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[Event]:
        """Waits for the next sample without blocking the event loop of asyncio."""
    def _poll(self) -> Event | None: ...
    def _arm(self) -> tuple[int | None, float] | None: ...
    def _disarm(self) -> None: ...

@final
class Event:
    """What a node is told: a sample that arrived, a timer that is due, an input that is stale, a neighbour
    that failed, the order to stop.

    Values are views of shared memory where they can be: they are read-only, and keep their block from being
    used again until the last of them is gone. Copy what you keep for long. ``event["id"]`` is ``event.id``,
    and so on for ``type``, ``value``, ``metadata``, ``stamp``, ``node``, ``reason`` and ``inputs``; only of
    ``INPUT_CLOSED``, ``event["id"]`` is the input, as in dora.
    """

    @property
    def type(self) -> _EventType:
        """``INPUT``, ``INPUT_CLOSED``, ``STALE``, ``DEADLINE_MISSED``, ``REQUEST``, ``PARAM``,
        ``NODE_FAILED``, ``NODE_RESTARTED``, ``STOP``; ignore what you do not know.
        """
    @property
    def id(self) -> str | None:
        """The input that a sample or tick came from; ``None`` of every other event, so that ``event.id ==
        "image"`` is enough to know that there is one.
        """
    @property
    def value(self) -> Any:
        """The value as a pyarrow array or record batch; ``None`` where there is none (a timer's tick). Of
        ``PARAM``, as ``object``.

        A tensor gives its elements in C order, without its shape; text and numbers give an array of one. It
        needs pyarrow: ``pip install 'nervure[arrow]'``.
        """
    @property
    def object(self) -> Any:
        """The value as it was sent: ``bytes``, ``str``, a number, a NumPy array, a list or dict, an Arrow
        array. Of ``PARAM``, the parameter's value.

        A dataclass arrives as a dict. Arrays in lists and dicts are NumPy arrays with dtype and shape as
        sent, in place and read-only.
        """
    def numpy(self) -> npt.NDArray[Any]:
        """The value as a NumPy array: a tensor with its dtype and shape, in place and read-only; bytes as
        ``uint8``.

        Raises:
            SampleError: there is no value, or it is a dict, a list of arrays or a record batch.
        """
    def copied(self) -> Self:
        """The same event with a copy of the sample, which holds no shared memory: for what is kept.

        Raises:
            SampleError: it is a request, which is answered and not kept.
        """
    @property
    def text(self) -> str:
        """The text.

        Raises:
            SampleError: the value is no text.
        """
    @property
    def bytes(self) -> _Bytes:
        """A copy of the value's bytes, whatever they are."""
    @property
    def metadata(self) -> dict[str, Any]:
        """The named values that were sent along."""
    @property
    def stamp(self) -> float | None:
        """When the world was as the value says, in seconds since 1970-01-01 UTC; when a tick was due."""
    @property
    def stamp_nanos(self) -> int | None:
        """The stamp in nanoseconds."""
    @property
    def age(self) -> float | None:
        """Seconds since the stamp, now. Of ``STALE``: seconds since the input's newest sample was sent, or
        since the start when there was none.
        """
    @property
    def latency(self) -> float | None:
        """Seconds from the sending until this node took the sample from its queue."""
    @property
    def sequence(self) -> int | None:
        """Number of the sample within its output and incarnation, from 0. A gap is a loss. ``None`` of what
        the sender did not send itself (``on_failure``).
        """
    @property
    def incarnation(self) -> int | None:
        """How often the sender had been restarted. Each restart begins a new sequence."""
    @property
    def frame(self) -> str | None:
        """The coordinate frame, where one was sent."""
    @property
    def missed(self) -> int | None:
        """Of a timer's tick: earlier ticks that were merged into this one."""
    @property
    def service(self) -> str | None:
        """Of ``REQUEST``: the service that is asked for."""
    def reply(self, value: _Object, *, metadata: _Metadata | None = None) -> None:
        """Answers a ``REQUEST``.

        A request that is dropped unanswered is an error of its caller.

        Raises:
            ServiceError: it was answered already, or is no request.
        """
    def fail(self, reason: str) -> None:
        """Tells the caller of a ``REQUEST`` that there is no answer, and why."""
    @property
    def param(self) -> str | None:
        """Of ``PARAM``: the name of the parameter that was changed."""
    @property
    def overrun(self) -> float | None:
        """Of ``DEADLINE_MISSED``: seconds beyond the deadline."""
    @property
    def count(self) -> int | None:
        """Of ``STALE``: how often it was told since the newest sample; of ``DEADLINE_MISSED``: since the
        start of the process. This time is included.
        """
    @property
    def node(self) -> str | None:
        """The neighbour that the event is about, or that asks."""
    @property
    def reason(self) -> str | None:
        """What happened, for people."""
    @property
    def inputs(self) -> list[str]:
        """The input that was closed or is stale or whose event took too long, or those that a neighbour's
        failure or restart concerns.
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
        """The memory, writeable until it is sent or discarded.

        Raises:
            LoanError: the loan is over.
        """
    def send(self) -> None:
        """Sends it, as the end of the ``with`` block does.

        Raises:
            LoanError: the loan is over, or views of the array (slices, reshapes) are still alive: what is
                sent must not change any more.
            NodeTimeout: a receiver whose policy is ``block`` made no room in time. The loan is over.
        """
    def discard(self) -> None:
        """Gives the memory back unsent."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> bool: ...
