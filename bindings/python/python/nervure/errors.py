"""What can go wrong, as exceptions. Each but :class:`Stopped` is a :class:`NervureError`, and an exception of
Python's own where one fits.
"""

from __future__ import annotations


class NervureError(Exception):
    """The base of all exceptions of this package but :class:`Stopped`."""


class ConnectError(NervureError, ConnectionError):
    """The node cannot reach the keeper that should have started it."""


class UnknownName(NervureError, LookupError):
    """The node has no such input, output or parameter."""


class UnknownInput(UnknownName):
    """The node has no such input."""


class UnknownOutput(UnknownName):
    """The node has no such output."""


class UnknownParam(UnknownName):
    """The node has no such parameter."""


class UnknownClient(UnknownName):
    """The node has no such client."""


class ServiceError(NervureError, RuntimeError):
    """A service failed, or has as many requests as it takes."""


class ServiceGone(ServiceError, ConnectionError):
    """The node that answers does not run, or ended before it answered."""


class Stopped(SystemExit):
    """The dataflow stops, and what was waited for will not come.

    Uncaught, it ends the program as ``sys.exit()`` does: a node that is told to stop has not failed. It is no
    ``Exception``, so that ``except Exception`` does not keep a node running that has to end.
    """

    code = 0


class NodeForked(NervureError, RuntimeError):
    """A child process uses the node that it inherited from its parent."""


class NodeTimeout(NervureError, TimeoutError):
    """A consumer whose queue policy is ``block`` made no room in time."""


class OutOfMemory(NervureError, MemoryError):
    """The node's shared memory is in use by samples that consumers hold, or the system gives none."""


class NotSendable(NervureError, TypeError):
    """The value is of a kind that cannot be sent."""


class TooLarge(NervureError, ValueError):
    """The value, or what goes along with it, is larger than its limit."""


class SampleError(NervureError, ValueError):
    """The sample is something else than what was asked for, or damaged."""


class LoanError(NervureError, RuntimeError):
    """The loan is over, or cannot be sent while views of it are alive."""
