"""iceoryx2, from PyPI: event-driven publish and subscribe through shared memory."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nervure_lab.peer import PROCESS, Configuration, OnMessage, Peer, Stamp, Wiring

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain


class Iceoryx2(Peer):
    name = "iceoryx2"
    title = "iceoryx2"
    without_types = "shares types of a fixed layout without serialisation; the lab declares none for it"
    copies_in_send = False
    requirements = ("iceoryx2==0.10.0", "numpy>=2,<3")
    packages = ("iceoryx2", "numpy")
    configurations = (
        Configuration(
            "shm",
            "A publish-subscribe service of byte slices, and an event service on whose listener the "
            "subscriber blocks; the publisher notifies after each send. Queue depth of the case instead of "
            "2, safe overflow (default).",
            "its book, event-based communication",
        ),
        Configuration(
            "rust",
            "As `shm`, with endpoints in Rust.",
            "its book, event-based communication",
            values={"language": "Rust"},
        ),
        Configuration(
            "local",
            "As `shm`, with services of one process (`ServiceType.Local`).",
            "its book, event-based communication",
            frozenset({PROCESS}),
        ),
    )

    def open_publisher(self, wiring: Wiring, topic: str) -> Any:
        return _IceoryxPublisher(*_services(wiring, topic), wiring.payload_bytes)

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Any:
        return _IceoryxSubscriber(*_services(wiring, topic), on_message)

    def prepare_configuration(self, toolchain: Toolchain, configuration: str) -> None:
        if configuration == "rust":
            self._program = toolchain.rust_program("nervure-lab-iceoryx2", "iceoryx2-lab-peer")

    def launch(self, launch: Launch) -> None:
        write_configuration(Path(launch.directory), launch.run_name)
        if launch.configuration == "rust":
            launch.spawn_all([self._program])
        else:
            super().launch(launch)

    def clean(self, launch: Launch) -> None:
        remove_segments(launch.run_name)


def write_configuration(directory: Path, run_name: str) -> None:
    """Gives the run its own root and prefix; iceoryx2 reads this file from the working directory."""
    configuration = directory / "config" / "iceoryx2.toml"
    configuration.parent.mkdir()
    configuration.write_text(
        f'[global]\nroot-path = "{directory}/iceoryx2"\nprefix = "{_prefix(run_name)}"\n'
    )


def remove_segments(run_name: str) -> None:
    """Removes the leftovers of killed processes."""
    for segment in Path("/dev/shm").glob(_prefix(run_name) + "*"):
        with contextlib.suppress(FileNotFoundError):
            segment.unlink()


def _prefix(run_name: str) -> str:
    return run_name.replace("-", "_") + "_"


def _services(wiring: Wiring, topic: str) -> tuple[Any, Any]:
    import iceoryx2 as iox2

    iox2.set_log_level(iox2.LogLevel.Error)
    kind = iox2.ServiceType.Local if wiring.place == PROCESS else iox2.ServiceType.Ipc
    node = iox2.NodeBuilder.new().create(kind)
    name = iox2.ServiceName.new(f"{wiring.run_name}/{topic}")
    event = node.service_builder(name).event().open_or_create()
    data = (
        node.service_builder(name)
        .publish_subscribe(iox2.Slice[ctypes.c_uint8])
        .payload_alignment(iox2.Alignment.new(64))
        .max_subscribers(max(wiring.subscribers, 1))
        .max_publishers(max(wiring.publishers, 1))
        .subscriber_max_buffer_size(wiring.depth)
        .enable_safe_overflow(not wiring.blocks)
        .open_or_create()
    )
    return event, data


class _IceoryxPublisher:
    def __init__(self, event: Any, data: Any, payload_bytes: int) -> None:
        import numpy

        self._array: Callable[[Any], Any] = lambda buffer: numpy.frombuffer(buffer, numpy.uint8)
        self._services = (event, data)
        self._publisher = data.publisher_builder().initial_max_slice_len(max(payload_bytes, 64)).create()
        self._notifier = event.notifier_builder().create()

    def publish(self, source: bytearray, stamp: Stamp) -> None:
        sample = self._publisher.loan_slice_uninit(len(source))
        memory = self._array(sample.payload().as_memory_view())
        memory[:] = self._array(source)
        stamp(memory)
        sample.assume_init().send()
        self._notifier.notify()


class _IceoryxSubscriber:
    def __init__(self, event: Any, data: Any, on_message: OnMessage) -> None:
        import iceoryx2 as iox2

        self._services = (event, data)
        self._subscriber = data.subscriber_builder().create()
        self._listener = event.listener_builder().create()
        self._on_message = on_message
        self._duration = iox2.Duration

    def spin(self, timeout_seconds: float) -> None:
        if timeout_seconds <= 0:
            return
        self._listener.timed_wait(self._duration.from_nanos(int(timeout_seconds * 1e9)))
        while (sample := self._subscriber.receive()) is not None:
            self._on_message(sample.payload().as_memory_view())
            sample.delete()


PEER = Iceoryx2()
