"""What an adapter is, what it is asked, and what it answers.

An adapter teaches the lab one middleware (or one floor of the machine). It is one file in ``adapters/``; it
imports this module, ``session`` and ``toolchain``, and never another adapter.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from nervure_lab.toolchain import Toolchain

Language = Literal["rust", "python"]
Kind = Literal["floor", "peer", "ours"]
Mode = Literal["paced", "flood", "idle", "mesh"]
Outcome = Literal["ok", "hung", "failed", "not_run"]


@dataclass(frozen=True)
class Case:
    """One cell of an experiment, the same for every adapter."""

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
        """How long the sending takes when nothing is in its way."""
        seconds = {
            "paced": (self.warmup_messages + self.messages) / self.rate_hz,
            "flood": self.flood_seconds,
            "idle": self.idle_seconds,
            "mesh": 0.0,
        }
        return seconds[self.mode]


@dataclass
class Usage:
    """What one process used in the window that was measured."""

    cpu_seconds: float
    window_seconds: float
    voluntary_context_switches: int
    max_rss_bytes: int
    threads: int


@dataclass
class ConsumerResult:
    """What one consumer saw. Times are nanoseconds of CLOCK_MONOTONIC; counts include the warm-up."""

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
    """One process of a run, daemons included, as /proc showed it from outside; CPU time since the start."""

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
    """The outcome of one case. A run that hung or failed is a result like any other."""

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


class Unavailable(Exception):
    """This adapter cannot run here; the message is one line that says why."""


class Adapter(Protocol):
    """One middleware, or one floor."""

    name: str
    """Unique, as in result files: ``iceoryx2-rust``."""
    title: str
    """As in reports: ``iceoryx2 (Rust)``."""
    language: Language
    kind: Kind
    settings: str
    """How it is set up and why, in a sentence or two, for the report."""
    copies_in_send: bool
    """Whether the API copies the payload inside its send call, so that latency contains the copy."""

    def prepare(self, toolchain: Toolchain) -> None:
        """Installs or builds what is needed; raises ``Unavailable``."""

    def versions(self) -> dict[str, str]:
        """The exact versions in use; called after ``prepare``."""

    def refusal(self, case: Case) -> str | None:
        """Why this adapter does not take part in a case of its language, or None."""

    def run(self, case: Case) -> RunResult:
        """Measures one case, leaves nothing behind, and never raises for what the middleware does."""
