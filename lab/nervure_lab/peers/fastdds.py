"""Fast DDS, from the system's packages; its endpoint is in C++ (``lab/programs/fastdds/peer.cpp``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nervure_lab.messages import TITLES
from nervure_lab.peer import HOST, LINK, PROCESS, Configuration, Peer

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Launch
    from nervure_lab.toolchain import Toolchain

LIBRARIES = ("-lfastrtps", "-lfastcdr")
_BOTH = frozenset({HOST, LINK})


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
    )

    def prepare(self, toolchain: Toolchain) -> None:
        from nervure_lab.toolchain import fastdds_version

        self._version = fastdds_version()
        self._program = toolchain.cpp_program(self.name, ["fastdds/peer.cpp"], LIBRARIES)

    def versions(self) -> dict[str, str]:
        return {"fastdds": self._version}

    def launch(self, launch: Launch) -> None:
        # The name of the variable before and after version 2.12.
        variables = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
        profiles = dict.fromkeys(variables, launch.settings_file) if launch.settings_file else {}
        launch.spawn_all([self._program], profiles)


PEER = FastDds()
