"""ROS 2 through rclpy, written against its documented API. ROS 2 is in no package registry: source its
``setup.bash`` before the lab, which then uses the interpreter that finds ``rclpy``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.peer import HOST, LINK, Configuration, OnMessage, Peer, Stamp, Wiring

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain

_RMW = {"cyclonedds": "rmw_cyclonedds_cpp", "fastrtps": "rmw_fastrtps_cpp"}


class Ros2(Peer):
    name = "ros2"
    title = "ROS 2 (rclpy)"
    without_types = "the types are in no package of ROS 2; performance_test builds its own"
    configurations = tuple(
        Configuration(
            name,
            f"`std_msgs/UInt8MultiArray` through rclpy with {rmw}, its defaults; QoS of the case.",
            "defaults",
            frozenset({HOST, LINK}),
            {"rmw": rmw},
        )
        for name, rmw in _RMW.items()
    )
    _node: Any = None

    def prepare(self, toolchain: Toolchain) -> None:
        from nervure_lab.contract import Unavailable

        python = shutil.which("python3")
        found = python and subprocess.run(
            [python, "-c", "import rclpy, std_msgs.msg"], capture_output=True, check=False
        )
        if not python or not found or found.returncode:
            raise Unavailable("not installed here: source the setup.bash of ROS 2, and run the lab again")
        self.python = Path(python)

    def versions(self) -> dict[str, str]:
        return {"ros": os.environ.get("ROS_DISTRO", "unknown"), **self._package_versions()}

    def _package_versions(self) -> dict[str, str]:
        found = {}
        for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(":"):
            for package in ("rclpy", *_RMW.values()):
                file = Path(prefix) / "share" / package / "package.xml"
                if file.exists():
                    found[package] = file.read_text().partition("<version>")[2].partition("</version>")[0]
        return found

    def launch(self, launch: Launch) -> None:
        rmw = self.configuration(launch.configuration).values["rmw"]
        for endpoint in launch.endpoints:
            paths = f"{os.environ.get('PYTHONPATH', '')}:{launch.environment(endpoint)['PYTHONPATH']}"
            environment = {"RMW_IMPLEMENTATION": rmw, "PYTHONPATH": paths}
            launch.spawn(endpoint, launch.python_command(self.python), environment)

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        from std_msgs.msg import UInt8MultiArray

        node = self._node_of(wiring)
        return _RosPublisher(node.create_publisher(UInt8MultiArray, f"lab_{topic}", _quality(wiring)))

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        from std_msgs.msg import UInt8MultiArray

        node = self._node_of(wiring)
        node.create_subscription(
            UInt8MultiArray, f"lab_{topic}", lambda message: on_message(message.data), _quality(wiring)
        )
        return _RosSubscriber(node)

    def _node_of(self, wiring: Wiring) -> Any:
        if self._node is None:
            os.environ["ROS_DOMAIN_ID"] = str(wiring.domain)
            import rclpy

            rclpy.init()
            self._node = rclpy.create_node(f"lab_{wiring.role}_{wiring.index}")
        return self._node


def _quality(wiring: Wiring) -> Any:
    from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy

    reliability = ReliabilityPolicy.RELIABLE if wiring.reliable else ReliabilityPolicy.BEST_EFFORT
    return QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=wiring.depth, reliability=reliability)


class _RosPublisher:
    def __init__(self, publisher: Any) -> None:
        import array

        from std_msgs.msg import UInt8MultiArray

        self._publisher = publisher
        self._message = UInt8MultiArray
        self._array = array.array

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        # The message has an array of its own; the stamp is set before that copy, as for other APIs that copy.
        stamp(source)
        message = self._message()
        message.data = self._array("B", source)
        self._publisher.publish(message)


class _RosSubscriber:
    def __init__(self, node: Any) -> None:
        self._node = node

    def spin(self, timeout_seconds: float) -> None:
        import rclpy

        rclpy.spin_once(self._node, timeout_sec=timeout_seconds)


PEER = Ros2()
