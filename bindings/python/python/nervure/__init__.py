"""Write Nervure nodes in Python.

A node is a program that ``nervure run`` starts. It receives events from its inputs, and sends values to its
outputs. The dataflow file declares its inputs and outputs::

    from nervure import Node

    node = Node()
    for event in node:
        if event.id == "image":
            node.send("brightness", event.numpy().mean(), like=event)

``observe("camera/image")`` receives samples of a running dataflow, from any program.
``launch("drive.yml")`` starts a dataflow for a test or a notebook.

NumPy and pyarrow are imported when a value is first requested in one of their types.
"""

from typing import TYPE_CHECKING, Any

from nervure import _stacks
from nervure._native import Event, Loan, Node, Observer, __version__, observe
from nervure.errors import (
    ConnectError,
    GoalCanceled,
    LaunchError,
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
    TransformError,
    UnknownClient,
    UnknownInput,
    UnknownName,
    UnknownOutput,
    UnknownParam,
)

if TYPE_CHECKING:
    from nervure._actions import Goal, GoalState
    from nervure._launch import Launched, Outcome, launch
    from nervure._transforms import Transform

_stacks.enable()

__all__ = [
    "ConnectError",
    "Event",
    "Goal",
    "GoalCanceled",
    "GoalState",
    "LaunchError",
    "Launched",
    "Loan",
    "LoanError",
    "NervureError",
    "Node",
    "NodeForked",
    "NodeTimeout",
    "NotSendable",
    "Observer",
    "OutOfMemory",
    "Outcome",
    "SampleError",
    "ServiceError",
    "ServiceGone",
    "Stopped",
    "TooLarge",
    "Transform",
    "TransformError",
    "UnknownClient",
    "UnknownInput",
    "UnknownName",
    "UnknownOutput",
    "UnknownParam",
    "__version__",
    "launch",
    "observe",
]


def __getattr__(name: str) -> Any:
    # Nodes start faster without the modules that these need.
    if name in ("Launched", "Outcome", "launch"):
        from nervure import _launch

        return getattr(_launch, name)
    if name in ("Goal", "GoalState"):
        from nervure import _actions

        return getattr(_actions, name)
    if name == "Transform":
        from nervure import _transforms

        return _transforms.Transform
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
