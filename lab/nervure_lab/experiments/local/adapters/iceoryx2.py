"""iceoryx2: the crate and the Python package."""

from __future__ import annotations

from pathlib import Path

from nervure_lab.experiments.local.case import Case, Kind, Language, RunResult, endpoint_arguments
from nervure_lab.experiments.local.session import Session
from nervure_lab.peers.iceoryx2 import PEER, remove_segments, write_configuration
from nervure_lab.toolchain import Toolchain, crate_versions

_SETTINGS = (
    "Event-driven, as its documentation recommends: a publish-subscribe service of slices aligned to 64 "
    "bytes, and an event service on whose listener the consumer blocks (cheaper than a wait set of one); "
    "the producer notifies after each send. `max_subscribers` is the number of consumers, "
    "`subscriber_max_buffer_size` the queue depth of the case (default: 2). Paced: safe overflow, its "
    "default. Flood: no overflow and `RetryUntilDelivered`, its default without overflow. Otherwise the "
    "defaults."
)


class _Iceoryx2:
    kind: Kind = "peer"
    copies_in_send = PEER.copies_in_send
    settings = _SETTINGS

    def refusal(self, case: Case) -> str | None:
        return None

    def run(self, case: Case) -> RunResult:
        with Session(case) as session:
            write_configuration(session.directory, session.run_name)
            try:
                for index in range(case.consumers):
                    session.spawn(self._command(), role="consumer", index=index)
                session.spawn(self._command(), role="producer")
                return session.result()
            finally:
                session.end_processes()
                remove_segments(session.run_name)

    def _command(self) -> list[str | Path]:
        raise NotImplementedError


class Iceoryx2Rust(_Iceoryx2):
    name = "iceoryx2-rust"
    title = "iceoryx2 (Rust)"
    language: Language = "rust"

    def prepare(self, toolchain: Toolchain) -> None:
        self._program = toolchain.rust_program("nervure-lab-iceoryx2")

    def versions(self) -> dict[str, str]:
        return crate_versions(["iceoryx2"])

    def _command(self) -> list[str | Path]:
        return [self._program]


class Iceoryx2Python(_Iceoryx2):
    name = "iceoryx2-python"
    title = "iceoryx2 (Python)"
    language: Language = "python"

    def prepare(self, toolchain: Toolchain) -> None:
        PEER.prepare(toolchain)

    def versions(self) -> dict[str, str]:
        return PEER.versions()

    def _command(self) -> list[str | Path]:
        return [PEER.python, *endpoint_arguments(PEER, "shm")]


ADAPTERS = [Iceoryx2Rust(), Iceoryx2Python()]
