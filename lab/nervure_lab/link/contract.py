"""What a cell of the link experiment is, and what an adapter answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nervure_lab.toolchain import Toolchain

RECEIVER_ADDRESS = "10.77.0.1"
"""The receiver is the first host, the senders are the others."""
PORT = 7447
JOIN_SECONDS = 8.0
"""How much later the second of two flows on one link begins."""


@dataclass(frozen=True)
class Cell:
    """A link, and what is sent over it. Loss and delay are those of either direction."""

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
    lifespan_ms: float = 0.0
    """How old a sample may become; 0 is any age. For those who can."""
    keep_last: int = 10
    """How many samples may wait, of Nervure's; the others keep the last ten always."""
    keep_all: bool = False
    """Every sample arrives, and the sender waits. For those who can."""
    outage: tuple[float, float] | None = None
    """Seconds from the start of the emulator to an interruption, and how long it lasts."""
    beside: str = ""
    """Who else uses the link: `cubic-first` (one TCP flow, this one joins), `cubic-later`, `same-later`."""
    robots: int = 1
    """Hosts that send to the first."""
    connects: int = 0
    """Instead of one stream: so many connections after each other, each for one sample."""
    veth: bool = False
    """No emulator: a pair of Ethernet devices between two network namespaces."""

    @property
    def sending_seconds(self) -> float:
        return self.samples / self.rate_hz

    @property
    def payload_mbit(self) -> float:
        """What is asked for, by all senders together."""
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


@dataclass(frozen=True)
class Flow:
    """One sender and one receiver of a run: its number, and where they leave what they found."""

    directory: Path
    number: int = 0

    @property
    def port(self) -> int:
        return PORT + self.number

    @property
    def receiver_report(self) -> Path:
        """JSON, of which the last line counts."""
        return self.directory / f"receiver-{self.number}.json"

    @property
    def sender_report(self) -> Path:
        return self.directory / f"sender-{self.number}.json"

    @property
    def receptions(self) -> Path:
        """A line a sample: stream, number, when it was due and when received, in nanoseconds of
        CLOCK_MONOTONIC.
        """
        return self.directory / f"receptions-{self.number}"


@dataclass(frozen=True)
class Commands:
    """What runs in the two hosts. The environment names the files of the flow: ``LAB_REPORT`` (where standard
    output goes if the program does not write it) and ``LAB_RECEPTIONS``."""

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

    def commands(self, cell: Cell, flow: Flow) -> Commands:
        """What to run for a cell."""
