"""Transports of the operating system: UDP, and TCP with two congestion controls."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from nervure_lab.contract import Unavailable
from nervure_lab.experiments.link.baselines.tcp import PEER as TCP
from nervure_lab.experiments.link.baselines.udp import PEER as UDP
from nervure_lab.experiments.link.peer_run import AdapterOfPeer
from nervure_lab.peer import Peer
from nervure_lab.toolchain import Toolchain


class Baseline(AdapterOfPeer):
    """A peer of the lab's own, in the interpreter of the lab."""

    def __init__(self, peer: Peer, congestion_control: str = "cubic") -> None:
        super().__init__(peer, "default", congestion_control=congestion_control)

    def prepare(self, toolchain: Toolchain) -> None:
        known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
        if self.congestion_control not in known:
            raise Unavailable(f"this kernel has no TCP {self.congestion_control}, only {', '.join(known)}")
        self.peer.python = Path(sys.executable)

    def versions(self) -> dict[str, str]:
        return {"kernel": platform.release(), "python": platform.python_version()}


class Tcp(Baseline):
    def __init__(self, congestion_control: str, title: str) -> None:
        super().__init__(TCP, congestion_control)
        self.name = f"tcp-{congestion_control}"
        self.title = f"TCP {title}"
        self.settings = f"{self.settings} Congestion control {title}."


ADAPTERS = [Baseline(UDP), Tcp("cubic", "Cubic"), Tcp("bbr", "BBR")]
