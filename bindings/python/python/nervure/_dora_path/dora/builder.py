"""Builds dataflow files in Python, with the interface of dora's ``dora.builder``::

flow = DataflowBuilder("mobile-base")
camera = flow.add_node("camera", path="camera.py")
camera.add_input("tick", "dora/timer/millis/50")
plot = flow.add_node("plot", path="plot.py")
plot.add_input("image", camera.add_output("image"), queue_size=1)
flow.to_yaml("dataflow.yml")
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["DataflowBuilder", "Node", "Operator", "Output"]

_QUEUE_POLICIES = ("drop_oldest", "backpressure")


class DataflowBuilder:
    """A dataflow, as a list of nodes."""

    def __init__(self, name: str = "dora-dataflow") -> None:
        # As in dora, the name is not in the file.
        self.name = name
        self.nodes: list[Node] = []

    def add_node(self, id: str, **keys: Any) -> Node:
        """Adds a node with keys of the dataflow file, such as ``path`` and ``env``."""
        self.nodes.append(Node(id, **keys))
        return self.nodes[-1]

    def to_yaml(self, path: str | Path | None = None) -> str | None:
        """Writes the dataflow file to ``path``. Without a path, returns its text instead."""
        text = _yaml({"nodes": [node.to_dict() for node in self.nodes]})
        if not path:
            return text
        Path(path).write_text(text, encoding="utf-8")
        return None

    def __enter__(self) -> DataflowBuilder:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


class Output:
    """An output of a node: a source for the inputs of other nodes."""

    def __init__(self, node: Node, output_id: str) -> None:
        self.node = node
        self.output_id = output_id

    def __str__(self) -> str:
        return f"{self.node.id}/{self.output_id}"


class Node:
    """A node of a dataflow. The setters return the node, so that calls can be chained."""

    def __init__(self, id: str, **keys: Any) -> None:
        self.id = id
        self.config: dict[str, Any] = {**keys, "id": id}
        self.operators: list[Operator] = []

    def path(self, path: str) -> Node:
        """Sets the program: a script, an executable or a command."""
        return self._set(path=path)

    def args(self, args: str) -> Node:
        """Sets the arguments of the program."""
        return self._set(args=args)

    def env(self, env: dict[str, Any]) -> Node:
        """Sets environment variables of the program."""
        return self._set(env=env)

    def build(self, build_command: str) -> Node:
        """Sets the commands that build the program, one a line."""
        return self._set(build=build_command)

    def git(
        self, url: str, branch: str | None = None, tag: str | None = None, rev: str | None = None
    ) -> Node:
        """Sets the Git repository of the node, and what to check out of it."""
        revision = {"branch": branch, "tag": tag, "rev": rev}
        return self._set(git=url, **{key: value for key, value in revision.items() if value})

    def add_operator(self, operator: Operator) -> Node:
        """Adds an operator that runs in this node."""
        self.operators.append(operator)
        return self

    def add_output(self, output_id: str) -> Output:
        """Adds an output, unless the node has it already, and returns it."""
        outputs = self.config.setdefault("outputs", [])
        if output_id not in outputs:
            outputs.append(output_id)
        return Output(self, output_id)

    def add_input(
        self,
        input_id: str,
        source: str | Output,
        queue_size: int | None = None,
        queue_policy: str | None = None,
    ) -> Node:
        """Adds an input.

        Args:
            input_id: Its name.
            source: ``"node/output"``, a timer, or what ``add_output`` returned.
            queue_size: The number of samples that can wait.
            queue_policy: ``"drop_oldest"`` loses samples when the queue is full; ``"backpressure"`` lets the
                sender wait.

        Raises:
            ValueError: ``queue_size`` is below 1, or there is no such ``queue_policy``.
        """
        if queue_policy is not None and queue_policy not in _QUEUE_POLICIES:
            expected = " or ".join(map(repr, _QUEUE_POLICIES))
            raise ValueError(f"queue_policy is {queue_policy!r}, expected {expected}")
        if queue_size is not None and queue_size < 1:
            raise ValueError(f"queue_size is {queue_size}, expected at least 1")
        options = {"queue_size": queue_size, "queue_policy": queue_policy}
        options = {key: value for key, value in options.items() if value is not None}
        text = str(source)
        self.config.setdefault("inputs", {})[input_id] = {"source": text, **options} if options else text
        return self

    def to_dict(self) -> dict[str, Any]:
        """The node as in the dataflow file."""
        operators = [operator.to_dict() for operator in self.operators]
        return {**self.config, "operators": operators} if operators else dict(self.config)

    def _set(self, **keys: Any) -> Node:
        self.config.update(keys)
        return self


class Operator:
    """An operator: a part of a node that is a Python class or a shared library."""

    def __init__(
        self,
        id: str,
        name: str | None = None,
        description: str | None = None,
        build: str | None = None,
        python: str | None = None,
        shared_library: str | None = None,
        send_stdout_as: str | None = None,
    ) -> None:
        self.id = id
        keys = {
            "name": name,
            "description": description,
            "build": build,
            "python": python,
            "shared-library": shared_library,
            "send_stdout_as": send_stdout_as,
        }
        self.config: dict[str, Any] = {"id": id, **{key: value for key, value in keys.items() if value}}

    def to_dict(self) -> dict[str, Any]:
        """The operator as in the dataflow file."""
        return self.config


def _yaml(value: dict[str, Any]) -> str:
    try:
        import yaml
    except ImportError:
        # JSON is a subset of YAML.
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    text: str = yaml.dump(value)
    return text
