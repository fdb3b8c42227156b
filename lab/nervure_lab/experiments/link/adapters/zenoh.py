"""Zenoh, from PyPI."""

from __future__ import annotations

from nervure_lab.experiments.link.case import ENDPOINTS, Commands, Flow, LinkCase
from nervure_lab.toolchain import Toolchain, python_versions


class Zenoh:
    name = "zenoh"
    title = "Zenoh, TCP"
    settings = (
        "Two peers that connect directly over TCP (Cubic), scouting and shared memory off; congestion "
        "control DROP, its default for publications."
    )
    congestion_control = "cubic"

    def prepare(self, toolchain: Toolchain) -> None:
        self._python = toolchain.python_environment("link-zenoh", ["eclipse-zenoh>=1.5,<2"])

    def versions(self) -> dict[str, str]:
        return python_versions(self._python, ["eclipse-zenoh"])

    def commands(self, case: LinkCase, flow: Flow) -> Commands:
        program = [str(self._python), str(ENDPOINTS / "over_zenoh.py")]
        return Commands([*program, "receive"], [*program, "send"])


ADAPTERS = [Zenoh()]
