"""Transports of the operating system: UDP, and TCP with two congestion controls."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from nervure_lab.contract import Unavailable
from nervure_lab.experiments.link.case import ENDPOINTS, Commands, Flow, LinkCase
from nervure_lab.toolchain import Toolchain


class _Baseline:
    congestion_control = "cubic"
    program: str

    def prepare(self, toolchain: Toolchain) -> None:
        known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
        if self.congestion_control not in known:
            raise Unavailable(f"this kernel has no TCP {self.congestion_control}, only {', '.join(known)}")

    def versions(self) -> dict[str, str]:
        return {"kernel": platform.release(), "python": platform.python_version()}

    def commands(self, case: LinkCase, flow: Flow) -> Commands:
        program = [sys.executable, str(ENDPOINTS / self.program)]
        return Commands([*program, "receive"], [*program, "send"])


class Udp(_Baseline):
    name = "udp"
    title = "UDP, not repaired"
    settings = (
        "Fragments of 1472 bytes, each sent once and at once. A sample counts if all its fragments arrived."
    )
    program = "over_udp.py"


class Tcp(_Baseline):
    program = "over_tcp.py"

    def __init__(self, congestion_control: str, title: str) -> None:
        self.congestion_control = congestion_control
        self.name = f"tcp-{congestion_control}"
        self.title = f"TCP {title}"
        self.settings = (
            f"One connection, TCP_NODELAY, {title}; the sender queues the last ten samples, and drops the "
            "oldest when the queue is full."
        )


ADAPTERS = [Udp(), Tcp("cubic", "Cubic"), Tcp("bbr", "BBR")]
