"""Write Nervure nodes in Python.

A node is a program that ``nervure run`` starts. It receives events from its inputs, and sends values to its
outputs. The dataflow file declares its inputs and outputs::

    from nervure import Node

    node = Node()
    for event in node:
        if event.id == "image":
            node.send("brightness", event.numpy().mean(), like=event)

``observe("camera/image")`` receives samples of a running dataflow, from any program.

NumPy and pyarrow are imported when a value is first requested in one of their types.
"""

from nervure import _stacks
from nervure._native import Event, Loan, Node, Observer, __version__, observe
from nervure.errors import (
    ConnectError,
    LoanError,
    NervureError,
    NodeForked,
    NodeTimeout,
    NotSendable,
    OutOfMemory,
    SampleError,
    ServiceError,
    ServiceGone,
    Stopped,
    TooLarge,
    UnknownClient,
    UnknownInput,
    UnknownName,
    UnknownOutput,
    UnknownParam,
)

_stacks.enable()

__all__ = [
    "ConnectError",
    "Event",
    "Loan",
    "LoanError",
    "NervureError",
    "Node",
    "NodeForked",
    "NodeTimeout",
    "NotSendable",
    "Observer",
    "OutOfMemory",
    "SampleError",
    "ServiceError",
    "ServiceGone",
    "Stopped",
    "TooLarge",
    "UnknownClient",
    "UnknownInput",
    "UnknownName",
    "UnknownOutput",
    "UnknownParam",
    "__version__",
    "observe",
]
