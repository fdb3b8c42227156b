"""Cyclone DDS with its API for C, from the system's packages; its endpoint is in C++
(``lab/programs/cyclonedds/peer.cpp``) over types that its compiler of IDL writes.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from nervure_lab.messages import TITLES
from nervure_lab.peer import PROCESS, Configuration, Peer, Wiring
from nervure_lab.peers.cyclonedds import DEFAULT, TUNED, settings_of

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain


class CycloneDdsC(Peer):
    name = "cyclonedds-c"
    title = "Cyclone DDS (C)"
    language = "C++"
    messages = frozenset(TITLES)
    configurations = (
        DEFAULT,
        TUNED,
        Configuration(
            "intraprocess",
            "A participant for each end; the library hands samples over to readers of the same process "
            "without a transport. No configuration file.",
            "defaults",
            frozenset({PROCESS}),
        ),
    )

    def prepare(self, toolchain: Toolchain) -> None:
        from nervure_lab.toolchain import PROGRAMS_DIRECTORY, run_tool

        self._version = _version()
        generated = toolchain.environment(self.name) / "idl"
        generated.mkdir(exist_ok=True)
        # Without a warning that the default extensibility may change.
        run_tool(["idlc", "-x", "final", "-o", generated, PROGRAMS_DIRECTORY / "cyclonedds" / "messages.idl"])
        types = generated / "messages.o"
        run_tool(["gcc", "-O2", "-c", generated / "messages.c", "-o", types])
        options = [f"-I{generated}", str(types), "-lddsc"]
        self._program = toolchain.cpp_program(self.name, ["cyclonedds/peer.cpp"], options)

    def versions(self) -> dict[str, str]:
        return {"cyclonedds": self._version}

    def launch(self, launch: Launch) -> None:
        for endpoint in launch.endpoints[:1] if launch.in_one_process else launch.endpoints:
            wiring = Wiring(**json.loads(launch.environment(endpoint)["NERVURE_LAB_WIRING"]))
            launch.spawn(endpoint, [self._program], {"CYCLONEDDS_URI": settings_of(wiring)})


def _version() -> str:
    from nervure_lab.contract import Unavailable

    headers = [*Path("/usr/include").glob("dds/version.h"), *Path("/usr/include").glob("*/dds/version.h")]
    if not headers or shutil.which("g++") is None or shutil.which("idlc") is None:
        raise Unavailable("not installed: apt install g++ cyclonedds-dev")
    found = re.search(r'define DDS_VERSION "(.*)"', headers[0].read_text())
    return found.group(1) if found else "unknown"


PEER = CycloneDdsC()
