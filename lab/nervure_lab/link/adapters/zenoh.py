"""Zenoh, from PyPI."""

from __future__ import annotations

from pathlib import Path

from nervure_lab.link.contract import Cell, Commands, Flow
from nervure_lab.toolchain import LAB_DIRECTORY, Toolchain, python_versions


class Zenoh:
    name = "zenoh"
    title = "Zenoh, TCP"
    settings = (
        "Two peers that connect directly over TCP (Cubic), scouting and shared memory off; congestion "
        "control DROP, its default for publications."
    )
    congestion_control = "cubic"

    def prepare(self, toolchain: Toolchain, directory: Path) -> None:
        self._python = toolchain.python_environment("link-zenoh", ["eclipse-zenoh>=1.5,<2"])

    def versions(self) -> dict[str, str]:
        return python_versions(self._python, ["eclipse-zenoh"])

    def commands(self, cell: Cell, flow: Flow) -> Commands:
        program = [str(self._python), str(LAB_DIRECTORY / "nervure_lab/link/endpoints/over_zenoh.py")]
        return Commands([*program, "receive"], [*program, "send"])


ADAPTERS = [Zenoh()]
