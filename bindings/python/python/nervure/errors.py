"""The exceptions of the package. Each but :class:`Stopped` is a :class:`NervureError`, and also an exception
of Python where one fits.
"""

from __future__ import annotations

from typing import Literal


class NervureError(Exception):
    """The base of all exceptions of this package except :class:`Stopped`."""


class ConnectError(NervureError, ConnectionError):
    """The program cannot connect to a dataflow as a node or observer."""


class UnknownName(NervureError, LookupError):
    """The node has no such input, output, parameter or client."""


class UnknownInput(UnknownName):
    """The node has no such input."""


class UnknownOutput(UnknownName):
    """The node has no such output."""


class UnknownParam(UnknownName):
    """The node has no such parameter."""


class UnknownClient(UnknownName):
    """The node has no such client."""


class ServiceError(NervureError, RuntimeError):
    """A service failed, or the limit of requests in flight is reached."""


class ServiceGone(ServiceError, ConnectionError):
    """The service's node does not run, or ended before it answered."""


class GoalCanceled(ServiceError):
    """The goal of an action was cancelled."""


class TransformError(NervureError, LookupError):
    """There is no transform between two frames at that time."""

    kind: Literal[
        "late", "early", "no_common_time", "unknown_frame", "unconnected", "not_finite", "not_declared"
    ]
    """The reason: a transform has not come yet, or is no longer kept; no time is covered by all; the frame is
    unknown, or in another tree; numbers too large; no ``transforms: true`` in the dataflow file."""


class Stopped(SystemExit):
    """The dataflow stopped while a call waited.

    Uncaught, it ends the program as ``sys.exit()`` does: a node that has to stop has not failed. It is not
    an ``Exception``, so that ``except Exception`` does not keep such a node running.
    """

    code = 0


class NodeForked(NervureError, RuntimeError):
    """A child process uses the node that it inherited from its parent."""


class NodeTimeout(NervureError, TimeoutError):
    """A receiver with the queue policy ``block`` had no room in time, or a service did not answer in time."""


class OutOfMemory(NervureError, MemoryError):
    """The node's shared memory is in use by samples that receivers hold, or the system has none left."""


class NotSendable(NervureError, TypeError):
    """The value is of a kind that cannot be sent, or does not fit the type of the output."""


class TooLarge(NervureError, ValueError):
    """The value or its metadata is larger than its limit."""


class SampleError(NervureError, ValueError):
    """The sample is of another kind than the requested one, or damaged."""


class LoanError(NervureError, RuntimeError):
    """The loan was sent or discarded, or cannot be sent while views of its array are alive."""


class LaunchError(NervureError, RuntimeError):
    """A dataflow cannot be started, or one of its nodes or edges has failed."""
