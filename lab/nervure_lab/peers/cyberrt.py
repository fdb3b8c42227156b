"""CyberRT, the middleware of Apollo, from PyPI: nodes in Python. Its wheel is for CPython 3.10 alone."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.peer import HOST, LINK, Configuration, OnMessage, Peer, Stamp, Wiring

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain

_IPC_RMID = 0
_SCRIPT = 'export CYBER_IP={address}; exec "$@"'


class CyberRt(Peer):
    name = "cyberrt"
    title = "CyberRT"
    without_types = "messages are of protobuf; the types are in no package, performance_test builds its own"
    requirements = ("pycyber==0.0.7", "protobuf==5.29.6")
    packages = ("pycyber", "protobuf")
    configurations = (
        Configuration(
            "default",
            "A message of protobuf with one field of bytes. The queue depth of the case, which is all that "
            "its Python API can set. Shared memory on one host, RTPS between hosts.",
            "defaults",
            frozenset({HOST, LINK}),
        ),
    )
    _node: Any = None
    _message: Any = None
    _segments: frozenset[int] = frozenset()

    def prepare(self, toolchain: Toolchain) -> None:
        self.python = toolchain.python_environment(self.name, self.requirements, _interpreter())

    def launch(self, launch: Launch) -> None:
        self._segments = frozenset(_segments())
        for endpoint in launch.endpoints:
            wiring = Wiring(**json.loads(launch.environment(endpoint)["NERVURE_LAB_WIRING"]))
            address = "$(hostname -I | cut -d ' ' -f 1)" if wiring.place == LINK else wiring.address
            script = ["sh", "-c", _SCRIPT.format(address=address), "sh"]
            environment = {"CYBER_DOMAIN_ID": str(wiring.domain), "GLOG_log_dir": launch.directory}
            launch.spawn(endpoint, [*script, *launch.python_command(self.python)], environment)

    def clean(self, launch: Launch) -> None:
        """Removes the shared memory of this run, which outlives its processes."""
        library = ctypes.CDLL(None)
        for segment in set(_segments()) - self._segments:
            library.shmctl(segment, _IPC_RMID, None)

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        node = self._node_of(wiring)
        writer = node.create_writer(f"{wiring.run_name}/{topic}", self._message, wiring.depth)
        return _CyberPublisher(writer, self._message)

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        node = self._node_of(wiring)
        node.create_reader(
            f"{wiring.run_name}/{topic}", self._message, lambda message: on_message(message.payload)
        )
        return _CyberSubscriber()

    def _node_of(self, wiring: Wiring) -> Any:
        if self._node is None:
            from pycyber import cyber

            name = f"lab_{wiring.role}_{wiring.index}"
            cyber.init(name)
            self._message = _bytes_type()
            self._node = cyber.Node(name)
        return self._node


def _interpreter() -> Path:
    """A CPython 3.10; raises ``Unavailable`` without one."""
    from nervure_lab.contract import Unavailable

    found = [Path(name) for name in [shutil.which("python3.10")] if name]
    found += sorted((Path.home() / ".pyenv" / "versions").glob("3.10.*/bin/python3.10"))
    for python in found:
        if not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
            return python
    raise Unavailable("pycyber has wheels for CPython 3.10 alone, and there is no python3.10 here")


def _segments() -> list[int]:
    """The segments of System V to which no process is attached and whose creator has ended."""
    found = []
    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        _, segment, _, _, creator, _, attached = line.split()[:7]
        if attached == "0" and not Path("/proc", creator).exists():
            found.append(int(segment))
    return found


def _bytes_type() -> Any:
    """The class of a message of protobuf with one field of bytes."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="nervure_lab.proto", package="nervure_lab")
    message = file.message_type.add(name="Bytes")
    message.field.add(name="payload", number=1, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("nervure_lab.Bytes"))


class _CyberPublisher:
    def __init__(self, writer: Any, message: Any) -> None:
        self._writer = writer
        self._message = message

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        stamp(source)
        self._writer.write(self._message(payload=bytes(source)))


class _CyberSubscriber:
    """Threads of its scheduler deliver."""

    def spin(self, timeout_seconds: float) -> None:
        time.sleep(timeout_seconds)


PEER = CyberRt()
