"""ROS 1, from the system's packages, with rospy and roscpp (``lab/programs/ros1/peer.cpp``)."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.peer import HOST, LINK, PROCESS, Configuration, OnMessage, Peer, Stamp, Wiring

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain

_BOTH = frozenset({HOST, LINK})
_PYTHON = Path("/usr/bin/python3")
"""The interpreter that the system's packages are for."""
_PACKAGES = "python3-rospy python3-rosmaster python3-std-msgs libroscpp-dev libstd-msgs-dev"
_COMMON = "`std_msgs/UInt8MultiArray` over TCPROS, which has no best effort; queues of the depth."
_CPP = {"language": "C++"}
_SCRIPT = """
export ROS_IP={address}
{master}
until (exec 3<> /dev/tcp/{master_address}/{port}) 2> /dev/null; do sleep 0.02; done
exec "$@"
"""
"""The master has to be up before an endpoint opens."""


class Ros1(Peer):
    name = "ros1"
    title = "ROS 1"
    without_types = "the types are in no package of ROS 1; performance_test builds its own"
    configurations = (
        Configuration("rospy", f"{_COMMON} Otherwise the defaults.", "defaults", _BOTH),
        Configuration(
            "rospy-tuned",
            f"{_COMMON} `tcp_nodelay`, and a receive buffer (`buff_size`) of two messages.",
            "rospy, API of Subscriber",
            _BOTH,
        ),
        Configuration("roscpp", f"{_COMMON} Otherwise the defaults.", "defaults", _BOTH, _CPP),
        Configuration(
            "roscpp-tuned",
            f"{_COMMON} `TransportHints().tcpNoDelay()`.",
            "roscpp, Publishers and Subscribers, transport hints",
            _BOTH,
            _CPP,
        ),
        Configuration(
            "roscpp-intraprocess",
            "Both ends in one node, which hands messages over by pointer; queues of the depth.",
            "roscpp, Publishers and Subscribers, intraprocess publishing",
            frozenset({PROCESS}),
            _CPP | {"copies_in_send": False},
        ),
    )
    _is_open = False

    def prepare(self, toolchain: Toolchain) -> None:
        from nervure_lab.contract import Unavailable

        command = [str(_PYTHON), "-c", "import rospy, rosmaster, std_msgs.msg"]
        if not _PYTHON.exists() or subprocess.run(command, capture_output=True, check=False).returncode:
            raise Unavailable(f"not installed: apt install {_PACKAGES}")
        toolchain.environment(self.name)
        self.python = _PYTHON

    def prepare_configuration(self, toolchain: Toolchain, configuration: str) -> None:
        from nervure_lab.contract import Unavailable
        from nervure_lab.toolchain import run_tool

        if configuration.startswith("roscpp"):
            try:
                options = run_tool(["pkg-config", "--cflags", "--libs", "roscpp"]).split()
            except Unavailable as error:
                raise Unavailable(f"not installed: apt install g++ pkg-config {_PACKAGES}") from error
            self._program = toolchain.cpp_program(self.name, ["ros1/peer.cpp"], options)

    def versions(self) -> dict[str, str]:
        from nervure_lab.toolchain import python_versions

        found = python_versions(self.python, [])
        for package in ("rospy", "roscpp"):
            file = Path("/usr/share") / package / "package.xml"
            if file.exists():
                found[package] = file.read_text().partition("<version>")[2].partition("</version>")[0]
        return found

    def launch(self, launch: Launch) -> None:
        is_cpp = launch.configuration.startswith("roscpp")
        command = [str(self._program)] if is_cpp else launch.python_command(self.python)
        for endpoint in launch.endpoints[:1] if launch.in_one_process else launch.endpoints:
            wiring = Wiring(**json.loads(launch.environment(endpoint)["NERVURE_LAB_WIRING"]))
            environment = {
                "ROS_MASTER_URI": f"http://{wiring.address}:{wiring.port}",
                "ROS_HOME": launch.directory,
            }
            is_first = launch.in_one_process or endpoint in (("subscriber", 0), ("echo", 0))
            script = _script(wiring, has_master=is_first)
            launch.spawn(endpoint, ["bash", "-c", script, "bash", *command], environment)

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        import rospy
        from std_msgs.msg import UInt8MultiArray

        self._open_node(wiring)
        return _RosPublisher(rospy.Publisher(topic, UInt8MultiArray, queue_size=wiring.depth))

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        import rospy
        from std_msgs.msg import UInt8MultiArray

        self._open_node(wiring)
        options: dict[str, Any] = {}
        if wiring.configuration == "rospy-tuned":
            options = {"tcp_nodelay": True, "buff_size": 2 * wiring.payload_bytes + 65536}
        rospy.Subscriber(
            topic,
            UInt8MultiArray,
            lambda message: on_message(message.data),
            queue_size=wiring.depth,
            **options,
        )
        return _RosSubscriber()

    def _open_node(self, wiring: Wiring) -> None:
        import rospy

        if not self._is_open:
            rospy.init_node(f"lab_{wiring.role}_{wiring.index}", disable_signals=True, disable_rosout=True)
            self._is_open = True


def _script(wiring: Wiring, *, has_master: bool) -> str:
    """The command of an endpoint, with the master beside the one that is first."""
    address = "$(hostname -I | cut -d ' ' -f 1)" if wiring.place == LINK else wiring.address
    start = f"rosmaster --core -p {wiring.port} > /dev/null &" if has_master else ""
    return _SCRIPT.format(
        address=address, master=start, master_address=wiring.address, port=wiring.port
    ).strip()


class _RosPublisher:
    def __init__(self, publisher: Any) -> None:
        from std_msgs.msg import UInt8MultiArray

        self._publisher = publisher
        self._message = UInt8MultiArray

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        stamp(source)
        self._publisher.publish(self._message(data=bytes(source)))


class _RosSubscriber:
    """The node's own threads deliver."""

    def spin(self, timeout_seconds: float) -> None:
        time.sleep(timeout_seconds)


PEER = Ros1()
