"""A case: the stream, or the echo, and the link below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nervure_lab.messages import BYTES, Message
from nervure_lab.peer import HOST, LINK, PROCESS

ADDRESS_OF_FIRST_HOST = {PROCESS: "127.0.0.1", HOST: "127.0.0.1", LINK: "10.77.0.1"}


@dataclass(frozen=True)
class Case:
    payload_bytes: int
    rate_hz: float
    messages: int
    """Without the warm-up."""
    pattern: Literal["stream", "echo"] = "stream"
    place: Literal["process", "host", "link"] = "host"
    warmup: int = 10
    publishers: int = 1
    """Over the link, each on a host of its own."""
    subscribers: int = 1
    reliable: bool = True
    depth: int = 10
    """KEEP_LAST depth, or length of the queue."""
    keep_all: bool = False
    """KEEP_ALL in place of the depth; only DDS knows it."""
    message: Message = BYTES
    """With a type, ``payload_bytes`` is the size that ``messages.py`` gives it."""
    reads: bool = False
    """Whether subscribers read the payload, by one copy of all of it."""
    work_millis: float = 0.0
    """Time for which a subscriber computes on each payload, as a part of its read; not over the link."""
    ends_on_time: bool = False
    """Whether a late publisher ends with the schedule, and omits the remaining messages."""
    drain_seconds: float = 1.0
    """Time after the last publication in which messages still count."""
    rate_mbit: float = 0.0
    loss_percent: float = 0.0
    """IP packets lost from host to host, in either direction."""
    hop_loss_percent: float = 0.0
    """Instead: loss of each of two hops, as the 2020 report set it; 1-(1-p)^2 from host to host."""
    round_trip_ms: float = 2.0
    queue_ms: float = 100.0
    outage: tuple[float, float] | None = None
    """Seconds from the start of the schedule to an interruption, and its duration."""
    half_duplex: bool = False
    """Whether all hosts share one air and take turns."""
    neighbours: int = 0
    """Further hosts, each of which sends one TCP flow without a rate limit to the first host."""

    @property
    def host_to_host_loss(self) -> float:
        """As a share, 0 to 1."""
        if self.hop_loss_percent:
            return 1 - (1 - self.hop_loss_percent / 100) ** 2
        return self.loss_percent / 100

    @property
    def all_messages(self) -> int:
        return self.warmup + self.messages

    @property
    def sending_seconds(self) -> float:
        return self.all_messages / self.rate_hz

    @property
    def payload_mbit(self) -> float:
        """Offered payload rate of all publishers together."""
        return self.publishers * self.payload_bytes * self.rate_hz * 8e-6

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        """Role and index, receivers first."""
        if self.pattern == "echo":
            return [("echo", 0), ("client", 0)]
        receivers = [("subscriber", index) for index in range(self.subscribers)]
        return receivers + [("publisher", index) for index in range(self.publishers)]

    @property
    def process_roles(self) -> tuple[str, ...]:
        """The roles of processes whose CPU time is shown apart."""
        if self.place == PROCESS:
            return ("process",)
        return ("client", "echo") if self.pattern == "echo" else ("publisher", "subscriber")

    def emulator_options(self, seed: int, outage_at: float | None) -> list[str]:
        options = [
            f"--rate={self.rate_mbit:g}mbit",
            f"--loss={100 * self.host_to_host_loss:.4g}%",
            f"--delay={self.round_trip_ms / 2:g}ms",
            f"--queue={self.queue_ms:g}ms",
            f"--seed={seed}",
        ]
        if self.half_duplex:
            options.append("--half-duplex")
        if self.outage and outage_at is not None:
            options.append(f"--outage={outage_at:.3f}s:{self.outage[1]:g}s")
        return options
