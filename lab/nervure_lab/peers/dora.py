"""dora-rs, from PyPI: Python nodes under `dora run`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.arrow_messages import header_of, outgoing
from nervure_lab.messages import BYTES, TITLES
from nervure_lab.peer import Configuration, OnMessage, Peer, Stamp, Wiring

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch

_SHARED_MEMORY = Path("/dev/shm")


class Dora(Peer):
    name = "dora"
    title = "dora-rs"
    messages = frozenset(TITLES)
    requirements = ("dora-rs==1.1.0", "dora-rs-cli==1.1.0", "numpy>=2,<3")
    packages = ("dora-rs", "dora-rs-cli", "pyarrow", "numpy")
    one_thread = True  # A node object cannot be used by two threads.
    configurations = (
        Configuration("default", "`dora run`, `queue_size` of the case; otherwise the defaults.", "defaults"),
        Configuration(
            "tuned",
            "As `default`, with `shared_memory_pool_size` raised to hold the messages in all queues.",
            "dora's documentation of large messages",
        ),
    )

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        return _DoraPublisher(_node(), topic, wiring)

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        return _DoraSubscriber(_node(), on_message, wiring)

    def launch(self, launch: Launch) -> None:
        self._segments_before = shared_segments()
        keys: dict[str, Any] = {}
        if launch.configuration == "tuned":
            pool = pool_size(launch.depth, max(launch.subscribers, 1), launch.payload_bytes)
            keys["shared_memory_pool_size"] = pool
        file = launch.write_dataflow(str(self.python), {"queue_size": launch.depth}, keys)
        launch.spawn_launcher(*run_command(self.python, file))

    def clean(self, launch: Launch) -> None:
        remove_segments(self._segments_before)


def run_command(python: Path, file: str) -> tuple[list[str | Path], dict[str, str]]:
    """`dora run` of the environment of this interpreter, and its environment variables."""
    programs = python.parent
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "VIRTUAL_ENV": str(programs.parent)}
    return [programs / "dora", "run", file], environment


def pool_size(depth: int, subscribers: int, payload_bytes: int) -> str:
    """The shared memory of a sender that holds the messages in all queues."""
    bytes_in_flight = (depth + 4) * subscribers * payload_bytes
    return f"{min(max(64, bytes_in_flight // 1_000_000 + 1), 4000)}MB"


def shared_segments() -> set[Path]:
    return set(_SHARED_MEMORY.glob("*.zenoh"))


def remove_segments(before: set[Path]) -> None:
    """Removes the segments that are new and that no process maps."""
    for segment in shared_segments() - before:
        if not any(str(segment) in text for text in _memory_maps()):
            segment.unlink(missing_ok=True)


def _memory_maps() -> list[str]:
    found = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            found.append(maps.read_text())
    return found


_NODE: list[Any] = []


def _node() -> Any:
    if not _NODE:
        from dora import Node

        _NODE.append(Node())
    return _NODE[0]


class _DoraPublisher:
    def __init__(self, node: Any, topic: str, wiring: Wiring) -> None:
        import numpy
        import pyarrow

        self._node = node
        self._topic = topic
        self._stamped = outgoing(wiring, lambda source: pyarrow.array(numpy.frombuffer(source, numpy.uint8)))

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        self._node.send_output(self._topic, self._stamped(source, stamp))


class _DoraSubscriber:
    def __init__(self, node: Any, on_message: OnMessage, wiring: Wiring) -> None:
        self._node = node
        self._on_message = on_message
        self._payload: Callable[[Any], Any] = lambda value: value.to_numpy()
        if wiring.message != BYTES:
            self._payload = lambda value: header_of(wiring.message, value)

    def spin(self, timeout_seconds: float) -> None:
        event = self._node.next(timeout=timeout_seconds)
        if event is not None and event["type"] == "INPUT":
            self._on_message(self._payload(event["value"]))


PEER = Dora()
