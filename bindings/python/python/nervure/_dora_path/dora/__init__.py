"""dora's Python API over Nervure: programs with ``from dora import Node`` run as nodes of Nervure.

``nervure run`` puts the folder that holds this package first on the ``PYTHONPATH`` of its nodes. So they find
it whether or not ``dora-rs`` is installed, and also in an environment in which ``nervure`` is not.
"""

from enum import Enum

from dora._command import build, run, start_runtime
from dora._node import Node
from dora._ros2 import (
    Ros2ActionClient,
    Ros2ActionServer,
    Ros2Context,
    Ros2Durability,
    Ros2Liveliness,
    Ros2Node,
    Ros2NodeOptions,
    Ros2Publisher,
    Ros2QosPolicies,
    Ros2ServiceClient,
    Ros2ServiceServer,
    Ros2Subscription,
    Ros2Topic,
    Ros2Transport,
)

__all__ = [
    "DoraStatus",
    "Node",
    "Ros2ActionClient",
    "Ros2ActionServer",
    "Ros2Context",
    "Ros2Durability",
    "Ros2Liveliness",
    "Ros2Node",
    "Ros2NodeOptions",
    "Ros2Publisher",
    "Ros2QosPolicies",
    "Ros2ServiceClient",
    "Ros2ServiceServer",
    "Ros2Subscription",
    "Ros2Topic",
    "Ros2Transport",
    "build",
    "run",
    "start_runtime",
]

# The version of dora's API that this package follows.
__version__ = "1.1.0"
__author__ = "Nervure"


class DoraStatus(Enum):
    """Returned by an operator's ``on_event``: whether the operator continues."""

    CONTINUE = 0
    STOP = 1
    STOP_ALL = 2
