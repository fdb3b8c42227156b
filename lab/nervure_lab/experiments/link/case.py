"""A case of the experiment ``link``, and the contract of its adapters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nervure_lab.contract import Adapter
from nervure_lab.processes import Processes

RECEIVER_ADDRESS = "10.77.0.1"
"""The receiver is the first host; the senders are the others."""
PORT = 7447
JOIN_SECONDS = 8.0
"""Delay of the second of two flows on one link."""
DRAIN_SECONDS = 3.0
"""Time for late samples after the end of the schedule."""


@dataclass(frozen=True)
class LinkCase:
    """A link and the streams over it. Loss and delay apply to either direction."""

    rate_mbit: float
    loss_percent: float
    payload_bytes: int = 512 * 1024
    rate_hz: float = 30.0
    round_trip_ms: float = 2.0
    queue_ms: float = 100.0
    samples: int = 1000
    jitter_ms: float = 0.0
    fade: str = ""
    """Durations of good and bad times, in the emulator's syntax."""
    half_duplex: bool = False
    lifespan_ms: float = 0.0
    """Greatest age of a delivered sample; 0 for no limit. Only Nervure supports it."""
    keep_last: int = 10
    """History depth of Nervure's stream; the peers always keep the last ten."""
    keep_all: bool = False
    """The sender waits rather than drop a sample. Only Nervure supports it."""
    outage: tuple[float, float] | None = None
    """Seconds from the start of the emulator to an interruption, and the duration of the interruption."""
    beside: str = ""
    """Another flow: `cubic-first` (a TCP flow, which this one joins), `cubic-later` or `same-later`."""
    robots: int = 1
    """Number of sending hosts."""
    connects: int = 0
    """Instead of one stream, this number of connections in sequence, each for one sample."""
    veth: bool = False
    """No emulator: a pair of Ethernet devices between two network namespaces."""

    @property
    def sending_seconds(self) -> float:
        return self.samples / self.rate_hz

    @property
    def payload_mbit(self) -> float:
        """Offered payload rate of all senders together."""
        return self.robots * self.payload_bytes * self.rate_hz * 8e-6

    def emulator_options(self, seed: int) -> list[str]:
        options = [
            f"--rate={self.rate_mbit}mbit",
            f"--loss={self.loss_percent}%",
            f"--delay={self.round_trip_ms / 2}ms",
            f"--queue={self.queue_ms}ms",
            f"--seed={seed}",
        ]
        if self.jitter_ms:
            options.append(f"--jitter={self.jitter_ms}ms")
        if self.fade:
            options.append(f"--bursts={self.fade}")
        if self.half_duplex:
            options.append("--half-duplex")
        if self.outage:
            options.append(f"--outage={self.outage[0]}s:{self.outage[1]}s")
        return options


class LinkAdapter(Adapter, Protocol):
    """One way to carry samples over the link."""

    def run(self, emulator: Path, case: LinkCase, seed: int, processes: Processes) -> dict[str, Any]:
        """Runs a case once and returns its record. A failed run is a result too."""
