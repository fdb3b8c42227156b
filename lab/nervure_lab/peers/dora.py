"""dora-rs, from PyPI: Python nodes under `dora run`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.peer import Configuration, OnMessage, Peer, Stamp, Wiring

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch

_SHARED_MEMORY = Path("/dev/shm")


class Dora(Peer):
    name = "dora"
    title = "dora-rs"
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
        return _DoraPublisher(_node(), topic)

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        return _DoraSubscriber(_node(), on_message)

    def launch(self, launch: Launch) -> None:
        self._segments_before = set(_SHARED_MEMORY.glob("*.zenoh"))
        programs = self._python.parent
        keys: dict[str, Any] = {}
        if launch.configuration == "tuned":
            bytes_in_flight = (launch.depth + 4) * max(launch.subscribers, 1) * launch.payload_bytes
            keys["shared_memory_pool_size"] = f"{min(max(64, bytes_in_flight // 1_000_000 + 1), 4000)}MB"
        file = launch.write_dataflow(str(self._python), {"queue_size": launch.depth}, keys)
        launch.spawn_launcher(
            [programs / "dora", "run", file],
            {"PATH": f"{programs}:/usr/bin:/bin", "VIRTUAL_ENV": str(programs.parent)},
        )

    def clean(self, launch: Launch) -> None:
        """Removes the segments that are new and that no process maps."""
        for segment in set(_SHARED_MEMORY.glob("*.zenoh")) - self._segments_before:
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
    def __init__(self, node: Any, topic: str) -> None:
        import numpy
        import pyarrow

        self._node = node
        self._topic = topic
        self._array: Callable[[Any], Any] = lambda source: pyarrow.array(
            numpy.frombuffer(source, numpy.uint8)
        )

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        stamp(source)
        self._node.send_output(self._topic, self._array(source))


class _DoraSubscriber:
    def __init__(self, node: Any, on_message: OnMessage) -> None:
        self._node = node
        self._on_message = on_message

    def spin(self, timeout_seconds: float) -> None:
        event = self._node.next(timeout=timeout_seconds)
        if event is not None and event["type"] == "INPUT":
            self._on_message(event["value"].to_numpy())


PEER = Dora()
