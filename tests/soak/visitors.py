"""Programs of the campaign itself in a dataflow: nodes that join, and programs attached to nodes."""

import json
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from .plan import Node
from .running import PATIENCE


@dataclass
class Visitors:
    """The visitors of one round."""

    nervure: Path
    rust_node: Path
    environment: dict[str, str]
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def join(self, node: Node, keeper: int, leave_after_millis: int) -> bool:
        """Joins as a node with `path: dynamic`, until it leaves or is killed. False if it is there."""
        orders = node.orders | {"leave_after_millis": leave_after_millis}
        place = {"NERVURE_DATAFLOW": str(keeper), "NERVURE_NODE": node.id}
        return self.start(node.id, [str(self.rust_node), json.dumps(orders), node.id], place)

    def attach(self, node: str, keeper: int) -> bool:
        """Attaches the node's own program, not as the keeper's child. False if one is attached already."""
        return self.start(node, [str(self.nervure), "attach", node, "--dataflow", str(keeper)], {})

    def start(self, node: str, command: list[str], more: dict[str, str]) -> bool:
        if node in self.running and self.running[node].poll() is None:
            return False
        with (self.folder / "visitors").open("ab") as output:
            self.running[node] = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment | more,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Not a process of the dataflow: it does not end with one.
                start_new_session=True,
            )
        return True

    def replace(self, node: str, program: Path, keeper: int) -> subprocess.CompletedProcess[str]:
        command = [str(self.nervure), "node", "replace", node, str(program), "--dataflow", str(keeper)]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)

    def kill(self) -> int:
        """Kills all that run, and returns their number."""
        killed = 0
        for visitor in self.running.values():
            killed += visitor.poll() is None
            visitor.kill()
            visitor.wait()
        self.running.clear()
        return killed

    def wait(self) -> list[str]:
        """Visitors that do not end with their dataflow."""
        deadline = time.monotonic() + PATIENCE
        left = []
        for node, visitor in self.running.items():
            try:
                visitor.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                left.append(f"what has joined as {node}, or is attached to it")
        return left
