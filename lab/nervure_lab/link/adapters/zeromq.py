"""ZeroMQ, from PyPI."""

from __future__ import annotations

from pathlib import Path

from nervure_lab.link.contract import Cell, Commands, Flow
from nervure_lab.toolchain import LAB_DIRECTORY, Toolchain, python_versions


class ZeroMq:
    name = "zeromq"
    title = "ZeroMQ, TCP"
    settings = "PUB and SUB over TCP (Cubic), high-water marks of ten samples at both ends."
    congestion_control = "cubic"

    def prepare(self, toolchain: Toolchain, directory: Path) -> None:
        self._python = toolchain.python_environment("link-zeromq", ["pyzmq>=26,<28"])

    def versions(self) -> dict[str, str]:
        return python_versions(self._python, ["pyzmq"])

    def commands(self, cell: Cell, flow: Flow) -> Commands:
        program = [str(self._python), str(LAB_DIRECTORY / "nervure_lab/link/endpoints/over_zeromq.py")]
        return Commands([*program, "receive"], [*program, "send"])


ADAPTERS = [ZeroMq()]
