"""The node of each thread.

A thread that ``threading`` starts belongs to the node of the thread that starts it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TextIO

from nervure.errors import ConnectError


@dataclass(eq=False)
class Run:
    """One start of a node, until it has ended."""

    id: str
    # The descriptor of its control socket, until it connects.
    control: int | None
    # `sys.argv` of its threads.
    arguments: list[str]
    # Its stdout and stderr, until it has ended.
    streams: dict[str, TextIO]
    # The module that is `__main__` for its threads.
    main: ModuleType
    # The node of the package `dora`, which every `dora.Node()` of a node shares.
    dora_node: Any = None


_local = threading.local()
_running: dict[str, Run] = {}


def current() -> Run | None:
    """The run that this thread belongs to."""
    return getattr(_local, "run", None)


def begin(run: Run) -> None:
    """Makes this thread a node's."""
    _local.run = run
    _running[run.id] = run


def end(run: Run) -> None:
    """Ends a run, on its thread. Its other threads keep running, with the streams of the process."""
    if _running.get(run.id) is run:
        del _running[run.id]
    streams, run.streams = run.streams, {}
    for stream in streams.values():
        stream.close()
    if run.control is not None:
        os.close(run.control)
        run.control = None
    _local.run = None


def take_control(id: str | None) -> int:
    """Hands out a control socket: this thread's node's for ``Node()``, any node's for ``Node(id)``."""
    run = current()
    if run is None and id is not None:
        run = _running.get(id)
    if run is None:
        nodes = ", ".join(sorted(_running)) or "none"
        raise ConnectError(
            f"this thread belongs to no node of its process (running: {nodes}). Start it by `threading` from "
            'a thread of the node, or name the node: Node("camera"), for example'
        )
    if id not in (None, run.id):
        raise ConnectError(f"this thread belongs to node {run.id!r}, and asks to be node {id!r}")
    if run.control is None:
        raise ConnectError(f"node {run.id!r} is connected already: pass its `Node` on to where it is needed")
    _local.run = run
    control, run.control = run.control, None
    return control


def inherit_nodes() -> None:
    """Makes threads belong to the node of the thread that starts them."""
    start = threading.Thread.start

    def start_for_node(thread: threading.Thread) -> None:
        run = current()
        if run is not None:
            body = thread.run

            def run_for_node() -> None:
                _local.run = run
                body()

            thread.run = run_for_node  # type: ignore[method-assign]
            thread._nervure_run = run  # type: ignore[attr-defined]
        start(thread)

    threading.Thread.start = start_for_node  # type: ignore[assignment, method-assign]


def join_others(run: Run) -> None:
    """Waits for the threads that a node has started, but not for daemons, as Python does before it ends."""
    while others := [
        thread
        for thread in threading.enumerate()
        if getattr(thread, "_nervure_run", None) is run
        and not thread.daemon
        and thread is not threading.current_thread()
    ]:
        for thread in others:
            thread.join()
