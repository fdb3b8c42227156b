"""Runs the Python operators of a node, as dora's runtime does: ``python -m nervure.operators``.

An operator is a class ``Operator`` in a file of its own. Its method ``on_event(dora_event, send_output)`` is
called for each event, and returns a ``DoraStatus``. ``nervure run`` lists the operators of the node in
``NERVURE_OPERATORS``, as JSON. The operator ``plot`` receives the node's input ``plot/image`` as ``image``.

With ``NERVURE_HOT_RELOAD`` in the environment, a changed file is loaded again while the node runs. The new
object takes over the attributes of the old one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from dora import DoraStatus, Node

# Interval in which the files are checked for changes.
RELOAD_SECONDS = 1.0


class OperatorFailed(Exception):
    """An operator has failed. The message has its name and its last step."""


class SourceFile:
    """The file of an operator, as a module that can be loaded several times."""

    def __init__(self, path: Path, operator: str) -> None:
        self.path = path
        # The second operator of a file must not replace the module of the first.
        name = path.stem if path.stem not in sys.modules else f"{path.stem}_{operator}"
        self._module = ModuleType(name)
        self._module.__file__ = str(path)
        sys.modules[name] = self._module
        if (folder := str(path.parent)) not in sys.path:
            sys.path.insert(0, folder)

    def load(self) -> type:
        """Executes the file and returns its class ``Operator``."""
        self._version = self._newest_version()
        # Not by `importlib.reload`: its cache misses a second change within one second.
        code = compile(self.path.read_bytes(), self.path, "exec")
        exec(code, self._module.__dict__)
        operator: type = self._module.Operator
        return operator

    def has_changed(self) -> bool:
        """Whether the file changed since it was last loaded."""
        try:
            return self._newest_version() != self._version
        except OSError:
            # Editors replace a file by another one: it is gone for a moment.
            return False

    def _newest_version(self) -> tuple[int, int, int]:
        status = self.path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino


class Host:
    """One operator with its inputs and outputs."""

    def __init__(self, declared: Mapping[str, Any]) -> None:
        self.id: str = declared["id"]
        self._open_inputs = set(declared["inputs"])
        self._outputs: list[str] = declared["outputs"]
        path = Path(declared["python"]).resolve()
        if not path.is_file():
            raise OperatorFailed(f"operator `{self.id}`: there is no file `{path}`")
        self._source = SourceFile(path, self.id)
        try:
            self._operator = self._source.load()()
        except Exception as error:
            self._fail("the start", error)

    def connect(self, node: Node) -> None:
        """Gives the operator its outputs and, as dora's runtime does, the dataflow file as a dict."""
        self._node = node
        # Few operators use the attribute, and it needs PyYAML.
        with contextlib.suppress(RuntimeError):
            self._operator.dataflow_descriptor = node.dataflow_descriptor()

    def send_output(self, output: str, data: Any, metadata: dict[str, Any] | None = None) -> None:
        """Sends ``data``, as ``bytes`` or an Arrow array, from an output of this operator."""
        self._node.send_output(f"{self.id}/{output}", data, metadata)

    def handle(self, event: dict[str, Any]) -> bool:
        """Gives an event to the operator. Returns whether the operator takes more events."""
        status = self._call(event)
        if event["type"] == "INPUT_CLOSED":
            self._open_inputs.discard(event["id"])
            return status is DoraStatus.CONTINUE and bool(self._open_inputs)
        return status is DoraStatus.CONTINUE and event["type"] != "STOP"

    def reload_if_changed(self) -> bool:
        """Loads the file again if it has changed. Returns whether the operator takes more events.

        An error is reported, and the old object stays: the file may be in the middle of an edit.
        """
        if not self._source.has_changed():
            return True
        try:
            operator = self._source.load()()
            operator.__dict__.update(self._operator.__dict__)
            self._operator = operator
        except Exception as error:
            print_traceback(error)
            message = f"operator `{self.id}` was not reloaded, and runs on unchanged: {summary(error)}"
            print(f"error: {message}", file=sys.stderr, flush=True)
            return True
        print(f"operator `{self.id}` was reloaded from {self._source.path}", flush=True)
        event = {"kind": "dora", "type": "RELOAD", "id": self.id}
        try:
            return self._call(event) is DoraStatus.CONTINUE
        except OperatorFailed as failure:
            print(f"warning: {failure}", file=sys.stderr, flush=True)
            return True

    def drop(self) -> None:
        """Drops the operator's object, so that its ``__del__`` runs while the node is connected."""
        del self._operator

    def close_outputs(self) -> None:
        """Ends the outputs, for an operator that has ended before others of its node."""
        for output in self._outputs:
            self._node._close_output(f"{self.id}/{output}")

    def _call(self, event: dict[str, Any]) -> DoraStatus:
        try:
            returned = self._operator.on_event(event, self.send_output)
        except Exception as error:
            self._fail(f"`on_event` for {describe(event)}", error)
        try:
            status = DoraStatus(returned.value)
        except (AttributeError, ValueError):
            message = (
                f"`on_event` of operator `{self.id}` returned {returned!r} for {describe(event)}, "
                "expected DoraStatus.CONTINUE, DoraStatus.STOP or DoraStatus.STOP_ALL"
            )
            raise OperatorFailed(message) from None
        if status is DoraStatus.STOP_ALL:
            # So does dora 1.1.
            message = (
                f"operator `{self.id}` returned DoraStatus.STOP_ALL, which is not implemented: "
                "return DoraStatus.STOP, and end the sources of the dataflow"
            )
            raise OperatorFailed(message)
        return status

    def _fail(self, action: str, error: Exception) -> NoReturn:
        print_traceback(error)
        raise OperatorFailed(f"operator `{self.id}` failed in {action}: {summary(error)}") from None


def print_traceback(error: Exception) -> None:
    """Prints the traceback from the operator's own code on."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def summary(error: Exception) -> str:
    """The last line of the error's traceback."""
    return traceback.format_exception_only(type(error), error)[-1].strip()


def describe(event: Mapping[str, Any]) -> str:
    """The type of an event, and its input."""
    return f"{event['type']} of `{event['id']}`" if event.get("id") else str(event["type"])


def run(hosts: list[Host], node: Node, *, hot_reload: bool) -> None:
    """Gives events to the operators until the last one has ended."""
    running = {host.id: host for host in hosts}
    reload_at = time.monotonic() + RELOAD_SECONDS

    def handled(host: Host, takes_more: bool) -> None:
        if not takes_more:
            running.pop(host.id).drop()
            if running:
                host.close_outputs()

    while running:
        event = node.next(timeout=RELOAD_SECONDS) if hot_reload else node.next()
        if event is None:
            return
        if hot_reload and time.monotonic() >= reload_at:
            reload_at = time.monotonic() + RELOAD_SECONDS
            for host in list(running.values()):
                handled(host, host.reload_if_changed())
        kind = event["type"]
        if kind == "STOP":
            for host in list(running.values()):
                handled(host, host.handle(dict(event)))
        elif kind in ("INPUT", "INPUT_CLOSED"):
            operator, _, input_id = event["id"].partition("/")
            # An operator that has ended gets nothing more.
            if operator in running:
                handled(running[operator], running[operator].handle({**event, "id": input_id}))


def main() -> None:
    """Runs the operators of ``NERVURE_OPERATORS``."""
    declared = os.environ.get("NERVURE_OPERATORS")
    if declared is None:
        sys.exit("error: NERVURE_OPERATORS is not set: `nervure run` starts operators, from a dataflow file")
    try:
        hosts = [Host(operator) for operator in json.loads(declared)]
        node = Node()
        for host in hosts:
            host.connect(node)
        run(hosts, node, hot_reload="NERVURE_HOT_RELOAD" in os.environ)
    except OperatorFailed as failure:
        sys.exit(f"error: {failure}")


if __name__ == "__main__":
    main()
