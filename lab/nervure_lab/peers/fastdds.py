"""Fast DDS, from the system's packages; its endpoint is in C++ (``lab/programs/fastdds/peer.cpp``)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nervure_lab.messages import TITLES
from nervure_lab.peer import HOST, LINK, PROCESS, Configuration, Peer

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain

LIBRARIES = ("-lfastrtps", "-lfastcdr")
_BOTH = frozenset({HOST, LINK})
_LARGE_DATA = "large-data"


class FastDds(Peer):
    name = "fastdds"
    title = "Fast DDS"
    language = "C++"
    messages = frozenset(TITLES)
    configurations = (
        Configuration(
            "default-async",
            "Asynchronous publishing, the default of ROS 2; built-in transports, over the link UDP alone.",
            "defaults",
            _BOTH,
        ),
        Configuration(
            "default-sync",
            "Synchronous publishing where a sample fits a message, the default of Fast DDS; built-in "
            "transports, over the link UDP alone.",
            "defaults",
            frozenset({HOST}),
        ),
        Configuration(
            "intraprocess",
            "A participant for each end; readers of the same process take samples from the writer without a "
            "transport, the default of Fast DDS. Asynchronous publishing.",
            "defaults",
            frozenset({PROCESS}),
        ),
        Configuration(
            "tuned-async",
            "One host: shared-memory segment of 32 MiB with messages up to 8 MiB. Link: messages of 1472 B, "
            "heartbeats at twice the rate instead of one with each message, no response or suppression "
            "delays. Both: socket buffers of 8 MiB.",
            "Fast DDS documentation, large data rates; large data over lossy wireless (poster)",
            _BOTH,
        ),
        Configuration(
            _LARGE_DATA,
            "`FASTDDS_BUILTIN_TRANSPORTS=LARGE_DATA`: discovery over UDP, samples over TCP. Asynchronous "
            "publishing.",
            "Fast DDS documentation, large data mode",
            frozenset({LINK}),
        ),
    )

    def prepare(self, toolchain: Toolchain) -> None:
        from nervure_lab.toolchain import fastdds_version

        self._version = fastdds_version()
        self._program = toolchain.cpp_program(self.name, ["fastdds/peer.cpp"], LIBRARIES)

    def prepare_configuration(self, toolchain: Toolchain, configuration: str) -> None:
        from nervure_lab.contract import Unavailable

        if configuration == _LARGE_DATA and not has_large_data(self._version):
            raise Unavailable(
                f"Fast DDS {self._version} has no LARGE_DATA: expected 2.6.7, 2.10.3, 2.11.3 or newer"
            )

    def versions(self) -> dict[str, str]:
        return {"fastdds": self._version}

    def launch(self, launch: Launch) -> None:
        # The name of the variable before and after version 2.12.
        variables = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
        profiles = dict.fromkeys(variables, launch.settings_file) if launch.settings_file else {}
        mode = {"FASTDDS_BUILTIN_TRANSPORTS": "LARGE_DATA"} if launch.configuration == _LARGE_DATA else {}
        launch.spawn_all([self._program], profiles | mode)


def has_large_data(version: str) -> bool:
    """Each older series of releases has it from a patch of its own on; 2.7 to 2.9 never had it."""
    found = [int(part) for part in version.split(".") if part.isdigit()]
    if len(found) != 3:
        return False
    first_of_series = {(2, 6): 7, (2, 10): 3, (2, 11): 3}
    series = (found[0], found[1])
    return series >= (2, 12) or found[2] >= first_of_series.get(series, math.inf)


PEER = FastDds()
