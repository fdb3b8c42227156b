"""The peers of the lab with endpoints in Python: the stream is the image, the subscriber computes on it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nervure_lab.comparison.case import Case
from nervure_lab.comparison.samples import table_of_logs
from nervure_lab.comparison.session import Session
from nervure_lab.experiments.own import ENVIRONMENT, Build
from nervure_lab.peer import PROCESS, Peer
from nervure_lab.peers.cyberrt import PEER as CYBERRT
from nervure_lab.peers.cyclonedds import PEER as CYCLONEDDS
from nervure_lab.peers.dora import PEER as DORA
from nervure_lab.peers.iceoryx2 import PEER as ICEORYX2
from nervure_lab.peers.zenoh import PEER as ZENOH
from nervure_lab.peers.zeromq import PEER as ZEROMQ
from nervure_lab.toolchain import Toolchain, python_versions

if TYPE_CHECKING:
    from nervure_lab.comparison.session import Outcome

IMAGE_BYTES = 480 * 640 * 3
OPENCV = "opencv-python-headless"
OPERATION = "nervure_lab.experiments.sobel.nodes:apply"


class PeerBuild(Build):
    """A peer in one of its configurations, with the OpenCV of the checkout's environment in its own one."""

    def __init__(self, peer: Peer, configuration: str) -> None:
        self._peer = copy.copy(peer)
        self._configuration = configuration
        self.name = f"{peer.name}-{configuration}"
        self.title = f"{peer.title}, {configuration}"
        chosen = peer.configuration(configuration)
        self.settings = chosen.settings
        self.place = "composed" if PROCESS in chosen.places else "processes"

    def prepare(self, toolchain: Toolchain) -> None:
        version = python_versions(ENVIRONMENT / "python", [OPENCV])[OPENCV]
        original = type(self._peer)
        self._peer.name = f"{original.name}-sobel"
        self._peer.requirements = (*original.requirements, f"{OPENCV}=={version}", "numpy>=2,<3")
        self._peer.packages = (*original.packages, OPENCV)
        self._peer.prepare(toolchain)
        self._peer.prepare_configuration(toolchain, self._configuration)
        self.python = self._peer.python

    def versions(self) -> dict[str, str]:
        return self._peer.versions()

    def measure(self, frames: int, warmup: int, rate_hz: float) -> dict[str, Any]:
        case = Case(IMAGE_BYTES, rate_hz, frames, warmup=warmup)
        if self.place == "composed":
            case = replace(case, place="process")
        with Session(self._peer, case, 1, None, operation=OPERATION) as session:
            outcome = session.measure(self._configuration)
        if outcome.outcome != "ok":
            reason = f"{outcome.outcome}: {outcome.reason}"
            return {"begun_nanos": [], "taken_nanos": [], "lost": frames, "failure": reason}
        return _figures(outcome, warmup)


def _figures(outcome: Outcome, warmup: int) -> dict[str, Any]:
    """The capture ends where the publication begins, as that of Nervure where the loan begins."""
    table = table_of_logs(outcome.logs, outcome.start_nanos, warmup, 1, echo=False)
    images = table.filter(~table["warmup"])
    received = images.drop_nulls("received_nanos").sort("sequence")
    return {
        "begun_nanos": (received["received_nanos"] - received["before_nanos"]).to_list(),
        "taken_nanos": (received["read_nanos"] - received["before_nanos"]).to_list(),
        "lost": len(images) - len(received),
    }


def peers() -> list[PeerBuild]:
    """Shared memory where a peer has it, and its tuned settings where they differ."""
    return [
        PeerBuild(CYBERRT, "default"),
        PeerBuild(CYCLONEDDS, "tuned"),
        PeerBuild(CYCLONEDDS, "participant"),
        PeerBuild(DORA, "tuned"),
        PeerBuild(ICEORYX2, "shm"),
        PeerBuild(ICEORYX2, "local"),
        PeerBuild(ZENOH, "shm"),
        PeerBuild(ZENOH, "session"),
        PeerBuild(ZEROMQ, "ipc"),
        PeerBuild(ZEROMQ, "inproc"),
    ]
