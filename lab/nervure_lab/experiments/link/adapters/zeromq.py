"""ZeroMQ, from PyPI."""

from __future__ import annotations

from nervure_lab.experiments.link.case import ENDPOINTS, Commands, Flow, LinkCase
from nervure_lab.toolchain import Toolchain, python_versions


class ZeroMq:
    name = "zeromq"
    title = "ZeroMQ, TCP"
    settings = "PUB and SUB over TCP (Cubic), high-water marks of ten samples at both ends."
    congestion_control = "cubic"

    def prepare(self, toolchain: Toolchain) -> None:
        self._python = toolchain.python_environment("link-zeromq", ["pyzmq>=26,<28"])

    def versions(self) -> dict[str, str]:
        return python_versions(self._python, ["pyzmq"])

    def commands(self, case: LinkCase, flow: Flow) -> Commands:
        program = [str(self._python), str(ENDPOINTS / "over_zeromq.py")]
        return Commands([*program, "receive"], [*program, "send"])


ADAPTERS = [ZeroMq()]
