"""Cyclone DDS, from PyPI."""

from __future__ import annotations

from nervure_lab.experiments.link.case import ENDPOINTS, Commands, Flow, LinkCase
from nervure_lab.toolchain import Toolchain, python_versions


class CycloneDds:
    name = "cyclonedds"
    title = "Cyclone DDS"
    settings = (
        "Reliable, KEEP_LAST(10), tuned for large samples over lossy wireless: `MaxMessageSize` 1472, "
        "`FragmentSize` 1344, `MaxRexmitMessageSize` 1456, `HeartbeatInterval` of half a period, `NackDelay` "
        "1 ms, `WhcHigh` and `MaxQueuedRexmitBytes` of ten samples, `DefragReliableMaxSamples` 32, socket "
        "buffers of 8 MiB or what the system grants. Its endpoint passes serialised bytes to the library, "
        "which avoids the slow serialisation of Python lists."
    )
    congestion_control = "cubic"

    def prepare(self, toolchain: Toolchain) -> None:
        self._python = toolchain.python_environment("link-cyclonedds", ["cyclonedds>=11,<12"])

    def versions(self) -> dict[str, str]:
        return python_versions(self._python, ["cyclonedds"])

    def commands(self, case: LinkCase, flow: Flow) -> Commands:
        program = [str(self._python), str(ENDPOINTS / "over_cyclonedds.py")]
        return Commands([*program, "receive"], [*program, "send"])


ADAPTERS = [CycloneDds()]
