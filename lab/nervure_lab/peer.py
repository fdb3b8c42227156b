"""The contract of a peer: one file in ``nervure_lab/peers`` for each middleware. Standard library alone.

The same file runs in two places. The driver reads the attributes of the peer, and installs it into an
environment of its own. There ``nervure_lab.peer_endpoint`` imports the file again and opens publishers and
subscribers; clocks, pacing, counts and the echo are its part, and the same for all peers. So the file imports
the peer's library inside functions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nervure_lab.messages import BYTES

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain

PROCESS, HOST, LINK = "process", "host", "link"
"""The places of an experiment: all ends in one process, processes of one host, or two hosts with the emulated
link between them.
"""

Stamp = Callable[[Any], None]
"""Writes the header into a buffer of at least 64 bytes, with the time of the call."""
OnMessage = Callable[[Any], None]
"""Takes a received payload: any object with the buffer protocol, valid until the function returns."""


@dataclass(frozen=True)
class Configuration:
    """One way to set the peer up: its defaults, or tuned, or another transport."""

    name: str
    settings: str
    """Differences from the peer's defaults, with the reasons, for the report."""
    source: str
    """Where the peer's own documentation advises it, or "defaults"."""
    places: frozenset[str] = frozenset({HOST})
    values: Mapping[str, Any] = field(default_factory=dict)
    """For the peer's own functions. The report shows ``encrypted``; ``language``, ``copies_in_send``,
    ``messages`` and ``without_types`` are in place of the peer's.
    """

    def value(self, name: str, peer: Peer) -> Any:
        return self.values.get(name, getattr(peer, name))


@dataclass(frozen=True)
class Wiring:
    """The topics and addresses that one endpoint has to open."""

    run_name: str
    """Unique; names and prefixes of the run derive from it."""
    directory: str
    """For files and sockets of the run; removed at its end."""
    place: str
    configuration: str
    role: str
    index: int
    publishers: int
    subscribers: int
    payload_bytes: int
    rate_hz: float
    reliable: bool
    depth: int
    """History depth, or length of the queue."""
    address: str
    """IPv4 address of the first host, where the subscribers are."""
    port: int
    """Free, like the one after it."""
    domain: int
    """A DDS domain, from 1 to 200."""
    keep_all: bool = False
    """KEEP_ALL in place of the depth, for peers that know it."""
    blocks: bool = False
    """Whether a publication waits while a queue is full, for peers that know it; otherwise the oldest message
    gives way.
    """
    settings_file: str = ""
    """A file in the peer's own format, in place of the settings of a configuration."""
    message: str = BYTES
    """A type of ``messages.py``, serialised in the peer's own way."""

    @classmethod
    def from_environment(cls) -> Wiring:
        text = os.environ.get("NERVURE_LAB_WIRING")
        if text is None:
            raise SystemExit("error: NERVURE_LAB_WIRING is not set: `nervure-lab run` starts this program")
        return cls(**json.loads(text))

    @classmethod
    def all_from_environment(cls) -> list[Wiring]:
        """The wirings of all endpoints of this process."""
        other = os.environ.get("NERVURE_LAB_OTHER_WIRING")
        return [cls.from_environment(), *([cls(**json.loads(other))] if other else [])]

    @property
    def publisher_listens(self) -> bool:
        """Whether publishers listen and subscribers connect. The only one of its kind, or the first host,
        listens.
        """
        return self.place == HOST and self.publishers == 1

    @property
    def listens(self) -> bool:
        """The same for a process that has one connection for all its topics."""
        return (self.role in ("publisher", "client")) == self.publisher_listens


class Publisher(Protocol):
    def publish(self, source: bytearray, stamp: Stamp) -> None:
        """Sends a copy of ``source``. Calls ``stamp`` on the peer's own memory after the copy; where its API
        copies inside its send call, calls ``stamp(source)`` right before that. A message with a type is built
        once, and has only the header of each call.
        """


class Subscriber(Protocol):
    def spin(self, timeout_seconds: float) -> None:
        """Passes messages to ``on_message``, and returns after the timeout at the latest."""


class Peer:
    """A middleware. Subclasses set the attributes and implement the two functions, or ``launch``."""

    name: str
    """In commands: ``zeromq``."""
    title: str
    language: str = "Python"
    copies_in_send: bool = True
    requirements: tuple[str, ...] = ()
    """Pinned requirements of its Python environment."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions are recorded."""
    configurations: tuple[Configuration, ...] = ()
    python: Path
    """Driver: the interpreter of its endpoints, after ``prepare``."""
    messages: frozenset[str] = frozenset({BYTES})
    """The types of ``messages.py`` that it can send."""
    without_types: str = "payloads are bytes"
    """The reason why it has no others."""
    one_thread: bool = False
    """Whether one thread has to do all: the endpoint then publishes and spins in turns."""

    def open_publisher(self, wiring: Wiring, topic: str) -> Publisher:
        raise NotImplementedError

    def open_subscriber(self, wiring: Wiring, topic: str, on_message: OnMessage) -> Subscriber:
        raise NotImplementedError

    def prepare(self, toolchain: Toolchain) -> None:
        """Driver: installs or builds the peer; raises ``Unavailable``."""
        self.python = toolchain.python_environment(self.name, self.requirements)

    def prepare_configuration(self, toolchain: Toolchain, configuration: str) -> None:
        """Driver: installs or builds further requirements of this configuration."""

    def versions(self) -> dict[str, str]:
        """Driver: the exact versions in use, after ``prepare``."""
        from nervure_lab.toolchain import python_versions

        return python_versions(self.python, self.packages)

    def launch(self, launch: Launch) -> None:
        """Driver: starts the endpoints of a run; a dataflow peer starts its launcher instead."""
        launch.spawn_all(launch.python_command(self.python))

    def clean(self, launch: Launch) -> None:
        """Driver: removes the leftovers of killed processes."""

    def configuration(self, name: str) -> Configuration:
        return next(entry for entry in self.configurations if entry.name == name)
