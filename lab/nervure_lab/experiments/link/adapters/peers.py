"""The peers of the lab over the link, each in the configuration that its authors advise for such links."""

from __future__ import annotations

from nervure_lab.experiments.link.peer_run import AdapterOfPeer
from nervure_lab.peers.cyclonedds import PEER as CYCLONEDDS
from nervure_lab.peers.fastdds import PEER as FASTDDS
from nervure_lab.peers.zenoh import PEER as ZENOH
from nervure_lab.peers.zeromq import PEER as ZEROMQ

ADAPTERS = [
    AdapterOfPeer(CYCLONEDDS, "tuned"),
    AdapterOfPeer(FASTDDS, "tuned-async"),
    # Best effort is congestion control DROP, the default of publications: the samples of an open loop are
    # not delayed by those before them.
    AdapterOfPeer(ZENOH, "tcp", title="Zenoh, TCP", is_reliable=False),
    AdapterOfPeer(ZEROMQ, "tcp-short", title="ZeroMQ, TCP"),
]
