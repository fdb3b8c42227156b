"""Floors of the machine: waking a sleeping process, and copying bytes into shared memory."""

from __future__ import annotations

import os

from nervure_lab.experiments.local.case import Case, Kind, Language, RunResult
from nervure_lab.experiments.local.session import Session
from nervure_lab.toolchain import Toolchain, crate_versions


class _Floor:
    language: Language = "rust"
    kind: Kind = "floor"
    copies_in_send = False
    producers: int
    argument: str

    def prepare(self, toolchain: Toolchain) -> None:
        self._program = toolchain.rust_program("nervure-lab-floors")

    def versions(self) -> dict[str, str]:
        return crate_versions(["rustix"])

    def run(self, case: Case) -> RunResult:
        memfd = os.memfd_create("nervure-lab-floor")
        try:
            os.ftruncate(memfd, 128 + case.payload_bytes)
            with Session(case, producers=self.producers) as session:
                for role, count in (("consumer", case.consumers), ("producer", self.producers)):
                    for index in range(count):
                        session.spawn(
                            [self._program, self.argument],
                            role=role,
                            index=index,
                            environment={"NERVURE_LAB_MEMFD": str(memfd)},
                            pass_fds=[memfd],
                        )
                return session.result()
        finally:
            os.close(memfd)


class FutexWake(_Floor):
    """The producer fills one block and wakes; the consumers sleep on a futex."""

    name = "floor-futex"
    title = "floor: futex wake-up"
    settings = (
        "All processes map one memfd with one block, one futex word and one count of releases. There is no "
        "queue, no choice of blocks and no check. The payload is copied into the block before the wake-up "
        "and read after it."
    )
    producers = 1
    argument = "wake"

    def refusal(self, case: Case) -> str | None:
        return "has no queue to flood" if case.mode == "flood" else None


class MemoryCopy(_Floor):
    """One process copies into one hot block; no process is woken."""

    name = "floor-memcpy"
    title = "floor: memcpy"
    settings = (
        "One process repeatedly copies the payload into the same memfd mapping; end to end is the copy, and "
        "the read if the case reads. The flood gives the copy bandwidth of the machine."
    )
    producers = 0
    argument = "copy"

    def refusal(self, case: Case) -> str | None:
        return "has one process" if case.consumers > 1 or case.mode == "idle" else None


ADAPTERS = [FutexWake(), MemoryCopy()]
