"""The peers of the lab over the link, each in the configuration that its authors advise for such links."""

from __future__ import annotations

from nervure_lab.experiments.link.peer_run import DEPTH, AdapterOfPeer
from nervure_lab.peer import Peer
from nervure_lab.peers.cyclonedds import PEER as CYCLONEDDS
from nervure_lab.peers.fastdds import PEER as FASTDDS
from nervure_lab.peers.zenoh import PEER as ZENOH
from nervure_lab.peers.zeromq import PEER as ZEROMQ


class _Peer(AdapterOfPeer):
    def __init__(self, peer: Peer, configuration: str, *, title: str = "", is_reliable: bool = True) -> None:
        super().__init__(peer, configuration, title=title, is_reliable=is_reliable)
        quality = "Reliable" if is_reliable else "Best effort"
        self.settings = f"{quality}, with the last {DEPTH} samples. {self.settings}"


ADAPTERS = [
    _Peer(CYCLONEDDS, "tuned"),
    _Peer(FASTDDS, "tuned-async"),
    # Best effort is congestion control DROP, the default of publications: the samples of an open loop are
    # not delayed by those before them.
    _Peer(ZENOH, "tcp", title="Zenoh, TCP", is_reliable=False),
    _Peer(ZEROMQ, "tcp-short", title="ZeroMQ, TCP"),
]
