"""What a cell of the link experiment is, and what an adapter answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nervure_lab.toolchain import Toolchain

RECEIVER_ADDRESS = "10.77.0.1"
"""The receiver is the first host of the emulator, the sender the second."""
PORT = 7447


@dataclass(frozen=True)
class Cell:
    """One link and one stream over it. Loss and delay are those of either direction."""

    rate_mbit: float
    loss_percent: float
    payload_bytes: int = 512 * 1024
    rate_hz: float = 30.0
    round_trip_ms: float = 2.0
    queue_ms: float = 100.0
    samples: int = 1000
    jitter_ms: float = 0.0
    fade: str = ""
    """Good and bad times, as the emulator writes them."""
    half_duplex: bool = False

    @property
    def sending_seconds(self) -> float:
        return self.samples / self.rate_hz

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
        return options


@dataclass(frozen=True)
class Commands:
    """What runs in the two hosts. The receiver writes its report, JSON whose last line counts, to its
    standard output or to the file that ``LAB_REPORT`` names."""

    receiver: list[str]
    sender: list[str]


class LinkAdapter(Protocol):
    """One way to carry samples over the link."""

    name: str
    title: str
    settings: str
    """How it is set up and why, in a sentence or two, for the report."""
    congestion_control: str
    """That of TCP in both hosts."""

    def prepare(self, toolchain: Toolchain, directory: Path) -> None:
        """Installs or builds what is needed; raises ``Unavailable``."""

    def versions(self) -> dict[str, str]:
        """The exact versions in use; called after ``prepare``."""

    def commands(self, cell: Cell) -> Commands:
        """What to run for a cell."""
