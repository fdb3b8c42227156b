"""Receives orders of the keeper until it closes the connection."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType, TracebackType
from typing import Any

from nervure import _native
from nervure._host import program, shared, threads

_MAX_MESSAGE_BYTES = 160 * 1024
# The control socket of a node, and pipes for its stdout and stderr.
_DESCRIPTORS = 3
_HERE = str(Path(__file__).parent)


def main() -> None:
    """Serves the keeper."""
    variable = os.environ.pop(_native._HOST_FD_VARIABLE, None)
    if variable is None:
        sys.exit(f"error: {_native._HOST_FD_VARIABLE} is not set: the keeper starts this program")
    connection = socket.socket(fileno=int(variable))
    connection.set_inheritable(False)
    connection.setblocking(True)
    _native._set_host(threads.take_control)
    threads.inherit_nodes()
    shared.install()
    while True:
        packet, descriptors, _, _ = socket.recv_fds(
            connection, _MAX_MESSAGE_BYTES, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        if not packet:
            return
        order = json.loads(packet)
        if order["message"] == "start":
            _start(order, descriptors, connection)


def _start(order: dict[str, Any], descriptors: list[int], keeper: socket.socket) -> None:
    control, stdout, stderr = descriptors
    run = threads.Run(
        id=order["node"],
        control=control,
        arguments=[_name(order["program"]), *order.get("args", [])],
        streams={"stdout": _stream(stdout), "stderr": _stream(stderr)},
        main=ModuleType("__main__"),
    )
    thread = threading.Thread(target=_run, args=(run, order, keeper), name=run.id)
    try:
        thread.start()
    except RuntimeError as error:
        threads.end(run)
        _report(keeper, "ended", node=run.id, code=1, reason=f"there is no thread for it: {error}")


def _name(what: dict[str, str]) -> str:
    """The script, or the function."""
    (name,) = what.values()
    return name


def _stream(descriptor: int) -> io.TextIOWrapper:
    """A stream without a buffer, as with ``python -u``."""
    raw = open(descriptor, "wb", buffering=0)  # noqa: SIM115
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def _report(keeper: socket.socket, message: str, **fields: Any) -> None:
    # Without a keeper there is no reader, and nothing to do.
    with contextlib.suppress(OSError):
        keeper.send(json.dumps({"message": message, **fields}).encode())


def _run(run: threads.Run, order: dict[str, Any], keeper: socket.socket) -> None:
    """The thread of a node."""
    threads.begin(run)
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):
        Path(f"/proc/self/task/{thread}/comm").write_text(run.id[:15])
    _report(keeper, "running", node=run.id, thread=thread)
    code, reason = _named(_execute, run.id)(run, order)
    threads.join_others(run)
    # The node leaves when its object is gone, and globals that refer to each other keep it.
    run.main.__dict__.clear()
    run.dora_node = None
    gc.collect()
    threads.end(run)
    _report(keeper, "ended", node=run.id, code=code, reason=reason)


def _named(function: Callable[..., Any], node: str) -> Callable[..., Any]:
    """The function under the name of a node: dumps of the stacks of all threads show names of functions."""
    code = function.__code__.replace(co_name=f"the thread of node {node}")
    return FunctionType(code, function.__globals__)


def _execute(run: threads.Run, order: dict[str, Any]) -> tuple[int, str]:
    """Returns the exit code of the node's program, and what to add to it."""
    try:
        _native._prepare_thread(order.get("cpu_affinity", []), json.dumps(order["scheduling"]))
    except OSError as error:
        return 1, str(error)
    try:
        match order["program"]:
            case {"python": path}:
                program.script(path, run.main)
            case {"function": name}:
                program.function(name)
            case other:
                return 1, f"{other} is not Python"
    except SystemExit as exit:
        return _exit_code(exit.code)
    except BaseException as error:
        reason = traceback.format_exception_only(type(error), error)[-1].strip()
        error = error.with_traceback(_own_part(error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        return 1, reason
    return 0, ""


def _exit_code(code: Any) -> tuple[int, str]:
    """As Python makes an exit code of the argument of ``sys.exit``."""
    if code is None:
        return 0, ""
    if isinstance(code, int):
        return code & 0xFF, ""
    print(code, file=sys.stderr)
    return 1, str(code)


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the node's own code on."""
    part = trace
    while part and part.tb_frame.f_code.co_filename.startswith((_HERE, "<frozen importlib")):
        part = part.tb_next
    return part


if __name__ == "__main__":
    main()
