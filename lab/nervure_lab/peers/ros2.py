"""ROS 2 through rclpy and rclcpp (``lab/programs/ros2/peer.cpp``), written against their documented API.
It is in no package registry: source its ``setup.bash`` before the lab, which then uses the interpreter that
finds ``rclpy``. ``lab/ros2.Dockerfile`` makes a container with both.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.peer import HOST, LINK, PROCESS, Configuration, OnMessage, Peer, Stamp, Wiring
from nervure_lab.peers.cyclonedds import tuned_settings

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain

_RMW = {"cyclonedds": "rmw_cyclonedds_cpp", "fastrtps": "rmw_fastrtps_cpp"}
_BOTH = frozenset({HOST, LINK})
_COMMON = "`std_msgs/UInt8MultiArray` through {} with {}; QoS of the case."
_CPP = {"language": "C++"}
_PROFILES = """<profiles xmlns="http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles">
  <transport_descriptors>
    <transport_descriptor>
      <transport_id>shared</transport_id>
      <type>SHM</type>
      <segment_size>33554432</segment_size>
      <maxMessageSize>8388608</maxMessageSize>
    </transport_descriptor>
    <transport_descriptor><transport_id>udp</transport_id><type>UDPv4</type></transport_descriptor>
  </transport_descriptors>
  <participant profile_name="lab" is_default_profile="true">
    <rtps>
      <userTransports><transport_id>shared</transport_id><transport_id>udp</transport_id></userTransports>
      <useBuiltinTransports>false</useBuiltinTransports>
    </rtps>
  </participant>
</profiles>
"""


def _of_rmw(name: str) -> tuple[Configuration, ...]:
    """The configurations over a middleware with its defaults."""
    rmw = _RMW[name]
    in_python, in_cpp = (f"{_COMMON.format(client, rmw)} Its defaults." for client in ("rclpy", "rclcpp"))
    return (
        Configuration(name, in_python, "defaults", _BOTH, {"rmw": rmw}),
        Configuration(f"{name}-cpp", in_cpp, "defaults", _BOTH, _CPP | {"rmw": rmw}),
    )


class Ros2(Peer):
    name = "ros2"
    title = "ROS 2"
    without_types = "the types are in no package of ROS 2; performance_test builds its own"
    configurations = (
        *_of_rmw("cyclonedds"),
        Configuration(
            "cyclonedds-cpp-tuned",
            f"{_COMMON.format('rclcpp', _RMW['cyclonedds'])} The settings of `cyclonedds-tuned`.",
            "ROS 2, DDS tuning; Cyclone's configuration reference",
            _BOTH,
            _CPP | {"rmw": _RMW["cyclonedds"]},
        ),
        *_of_rmw("fastrtps"),
        Configuration(
            "fastrtps-cpp-tuned",
            f"{_COMMON.format('rclcpp', _RMW['fastrtps'])} A shared-memory segment of 32 MiB with messages "
            "up to 8 MiB.",
            "Fast DDS documentation, large data rates",
            values=_CPP | {"rmw": _RMW["fastrtps"]},
        ),
        Configuration(
            "intraprocess",
            "`std_msgs/UInt8MultiArray` as `unique_ptr` between two nodes of one process, with "
            f"`use_intra_process_comms`; {_RMW['fastrtps']}.",
            "rclcpp, intra-process communication",
            frozenset({PROCESS}),
            _CPP | {"rmw": _RMW["fastrtps"], "copies_in_send": False},
        ),
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

    def prepare_configuration(self, toolchain: Toolchain, configuration: str) -> None:
        from nervure_lab.toolchain import PROGRAMS_DIRECTORY, run_tool

        if self._is_cpp(configuration):
            build = toolchain.environment(self.name) / "build"
            run_tool(["cmake", "-S", PROGRAMS_DIRECTORY / "ros2", "-B", build, "-DCMAKE_BUILD_TYPE=Release"])
            run_tool(["cmake", "--build", build])
            self._program = build / "peer"

    def _is_cpp(self, configuration: str) -> bool:
        return bool(self.configuration(configuration).value("language", self) == "C++")

    def versions(self) -> dict[str, str]:
        return {"ros": os.environ.get("ROS_DISTRO", "unknown"), **self._package_versions()}

    def _package_versions(self) -> dict[str, str]:
        found = {}
        for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(":"):
            for package in ("rclpy", "rclcpp", *_RMW.values()):
                file = Path(prefix) / "share" / package / "package.xml"
                if file.exists():
                    found[package] = file.read_text().partition("<version>")[2].partition("</version>")[0]
        return found

    def launch(self, launch: Launch) -> None:
        rmw = self.configuration(launch.configuration).values["rmw"]
        is_cpp = self._is_cpp(launch.configuration)
        command = [str(self._program)] if is_cpp else launch.python_command(self.python)
        for endpoint in launch.endpoints[:1] if launch.in_one_process else launch.endpoints:
            given = launch.environment(endpoint)
            wiring = Wiring(**json.loads(given["NERVURE_LAB_WIRING"]))
            environment = {
                "RMW_IMPLEMENTATION": rmw,
                "ROS_DOMAIN_ID": str(wiring.domain),
                "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{given['PYTHONPATH']}",
            }
            launch.spawn(endpoint, command, environment | _tuning(wiring))

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
            import rclpy

            rclpy.init()
            self._node = rclpy.create_node(f"lab_{wiring.role}_{wiring.index}")
        return self._node


def _tuning(wiring: Wiring) -> dict[str, str]:
    """The environment of a tuned configuration."""
    if wiring.configuration == "cyclonedds-cpp-tuned":
        return {"CYCLONEDDS_URI": tuned_settings(wiring)}
    if wiring.configuration == "fastrtps-cpp-tuned":
        file = Path(wiring.directory) / "profiles.xml"
        file.write_text(_PROFILES)
        # The name of the variable before and after version 2.12 of Fast DDS.
        variables = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
        return dict.fromkeys(variables, str(file))
    return {}


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
