"""A case of the experiment ``local``, and the result of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from nervure_lab.contract import Adapter
from nervure_lab.peer import Peer
from nervure_lab.toolchain import LAB_DIRECTORY

ENDPOINTS = LAB_DIRECTORY / "nervure_lab" / "experiments" / "local" / "endpoints"

Language = Literal["rust", "python"]
Kind = Literal["floor", "peer", "ours"]
Mode = Literal["paced", "flood", "idle", "mesh"]
Outcome = Literal["ok", "hung", "failed", "not_run"]


def endpoint_arguments(peer: Peer, configuration: str) -> list[str]:
    """The arguments of a Python interpreter that runs the endpoint over a peer."""
    return [str(ENDPOINTS / "over_peer.py"), type(peer).__module__, configuration]


@dataclass(frozen=True)
class Case:
    """The same for every adapter of its language."""

    language: Language
    mode: Mode
    payload_bytes: int
    consumers: int = 1
    rate_hz: float = 50.0
    warmup_messages: int = 10
    messages: int = 50
    flood_seconds: float = 1.5
    flood_warmup_seconds: float = 0.3
    idle_seconds: float = 5.0
    mesh_inputs: int = 0
    """Mesh: every one of ``consumers`` nodes sends one message and has this many inputs from others."""
    queue_depth: int = 10
    touch: bool = True

    @property
    def expected_seconds(self) -> float:
        """Duration of the sending when nothing delays it."""
        seconds = {
            "paced": (self.warmup_messages + self.messages) / self.rate_hz,
            "flood": self.flood_seconds,
            "idle": self.idle_seconds,
            "mesh": 0.0,
        }
        return seconds[self.mode]


@dataclass
class Usage:
    """Resources that one process used in the measured window."""

    cpu_seconds: float
    window_seconds: float
    voluntary_context_switches: int
    max_rss_bytes: int
    threads: int


@dataclass
class ConsumerResult:
    """Messages of one consumer. Times are nanoseconds of CLOCK_MONOTONIC; counts include the warm-up."""

    index: int
    received: int
    lost: int
    lost_before_first: int
    reordered: int
    duplicates: int
    warmup_latency_nanos: list[int]
    warmup_end_to_end_nanos: list[int]
    latency_nanos: list[int]
    end_to_end_nanos: list[int]
    first_receive_nanos: int | None
    window_start_nanos: int
    last_receive_nanos: int
    window_messages: int
    window_bytes: int
    usage: Usage | None


@dataclass
class ProcessResult:
    """One process of a run, daemons included, as /proc shows it from outside; CPU time since the start."""

    role: str
    command: str
    cpu_seconds: float
    rss_bytes: int
    max_rss_bytes: int
    threads: int
    idle_wakeups_per_second: float | None
    """Voluntary context switches of all threads while nothing was sent; only measured when idle."""


@dataclass
class RunResult:
    """The outcome of one case. A run that hung or failed is a result too."""

    outcome: Outcome
    reason: str = ""
    sent: int | None = None
    spawned_at_nanos: int | None = None
    """When the first process was started; CLOCK_MONOTONIC, like the times of the consumers."""
    producer: Usage | None = None
    consumers: list[ConsumerResult] = field(default_factory=list)
    processes: list[ProcessResult] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class LocalAdapter(Adapter, Protocol):
    """One middleware, or one floor of the machine, on one host."""

    language: Language
    kind: Kind
    copies_in_send: bool
    """Whether the API copies the payload inside its send call, so that latency contains the copy."""

    def refusal(self, case: Case) -> str | None:
        """Returns the reason why this adapter skips a case of its language, or None."""

    def run(self, case: Case) -> RunResult:
        """Measures one case, and cleans up. A failure of the middleware is a result, not an exception."""
