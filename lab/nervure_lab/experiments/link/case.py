"""A case of the experiment ``link``, and the programs that an adapter runs for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nervure_lab.contract import Adapter
from nervure_lab.toolchain import LAB_DIRECTORY

RECEIVER_ADDRESS = "10.77.0.1"
"""The receiver is the first host; the senders are the others."""
PORT = 7447
JOIN_SECONDS = 8.0
"""Delay of the second of two flows on one link."""
ENDPOINTS = LAB_DIRECTORY / "nervure_lab" / "experiments" / "link" / "endpoints"


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


@dataclass(frozen=True)
class Flow:
    """One sender and one receiver of a run: its number and the files that they write."""

    directory: Path
    number: int = 0

    @property
    def port(self) -> int:
        return PORT + self.number

    @property
    def receiver_report(self) -> Path:
        """JSON lines, of which the last one counts."""
        return self.directory / f"receiver-{self.number}.json"

    @property
    def sender_report(self) -> Path:
        return self.directory / f"sender-{self.number}.json"

    @property
    def receptions(self) -> Path:
        """A line a sample: stream, number, due time and reception, in nanoseconds of CLOCK_MONOTONIC."""
        return self.directory / f"receptions-{self.number}"


@dataclass(frozen=True)
class Commands:
    """The programs of the two hosts. Their environment names the files of the flow: ``NERVURE_LAB_REPORT``
    (also standard output, for programs that print their report) and ``NERVURE_LAB_RECEPTIONS``.
    """

    receiver: list[str]
    sender: list[str]


class LinkAdapter(Adapter, Protocol):
    """One way to carry samples over the link."""

    congestion_control: str
    """That of TCP in both hosts."""

    def commands(self, case: LinkCase, flow: Flow) -> Commands:
        """Returns the programs to run for a case."""
