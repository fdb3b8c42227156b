"""Fast DDS, from the system's packages; its endpoint is in C++."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from nervure_lab.contract import Unavailable
from nervure_lab.experiments.link.case import Commands, Flow, LinkCase
from nervure_lab.toolchain import PROGRAMS_DIRECTORY, Toolchain

_SOURCE = PROGRAMS_DIRECTORY / "fastdds" / "main.cpp"
_LIBRARIES = ["-lfastrtps", "-lfastcdr", "-pthread"]


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
        headers = [*Path("/usr/include").glob("fastrtps/config.h")]
        headers += Path("/usr/include").glob("*/fastrtps/config.h")
        if not headers or shutil.which("g++") is None:
            raise Unavailable("not installed: apt install g++ libfastrtps-dev libfastcdr-dev")
        found = re.search(r'define FASTRTPS_VERSION_STR "(.*)"', headers[0].read_text())
        self._version = found.group(1) if found else "unknown"
        self._program = str(toolchain.directory / "fastdds")
        build = ["nice", "g++", "-std=c++17", "-O2", str(_SOURCE), "-o", self._program, *_LIBRARIES]
        built = subprocess.run(build, capture_output=True, text=True, check=False)
        if built.returncode:
            reason = next((line for line in built.stderr.splitlines() if "error" in line), built.stderr)
            raise Unavailable(f"cannot build its endpoint: {reason.strip()}")

    def versions(self) -> dict[str, str]:
        return {"fastdds": self._version}

    def commands(self, case: LinkCase, flow: Flow) -> Commands:
        return Commands([self._program, "receive"], [self._program, "send"])


ADAPTERS = [FastDds()]
