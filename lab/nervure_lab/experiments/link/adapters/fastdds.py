"""Fast DDS, from the system's packages; its endpoint is in C++."""

from __future__ import annotations

from nervure_lab.experiments.link.case import Commands, Flow, LinkCase
from nervure_lab.toolchain import Toolchain, fastdds_version


class FastDds:
    name = "fastdds"
    title = "Fast DDS"
    settings = (
        "Reliable, KEEP_LAST(10), asynchronous publishing, UDP alone, tuned as its authors advise for large "
        "data over lossy wireless: messages of 1472 bytes, periodic heartbeats at twice the sample rate "
        "instead of one with each message, no response or suppression delays; socket buffers of 8 MiB, or "
        "what the system grants."
    )
    congestion_control = "cubic"

    def prepare(self, toolchain: Toolchain) -> None:
        self._version = fastdds_version()
        self._program = str(toolchain.fastdds_program("main"))

    def versions(self) -> dict[str, str]:
        return {"fastdds": self._version}

    def commands(self, case: LinkCase, flow: Flow) -> Commands:
        return Commands([self._program, "receive"], [self._program, "send"])


ADAPTERS = [FastDds()]
