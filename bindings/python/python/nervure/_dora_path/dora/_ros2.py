"""The names of dora's bridge to ROS 2, so that programs which may use it can be imported."""

from typing import Any


class _Ros2:
    def __init__(self, *given: Any, **settings: Any) -> None:
        raise RuntimeError(
            f"dora.{type(self).__name__} needs dora's bridge to ROS 2, which Nervure does not have; "
            "bags of ROS 2 can be played: nervure replay --help"
        )


class Ros2Context(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2Node(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2NodeOptions(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2Topic(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2Publisher(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2Subscription(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2QosPolicies(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2Durability(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2Liveliness(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2ServiceClient(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2ServiceServer(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2ActionClient(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2ActionServer(_Ros2):
    """Not supported: see the error that it raises."""


class Ros2Transport(_Ros2):
    """Not supported: see the error that it raises."""
