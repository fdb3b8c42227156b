"""iceoryx2: the crate and the Python package."""

from __future__ import annotations

import contextlib
from pathlib import Path

from nervure_lab.experiments.local.case import ENDPOINTS, Case, Kind, Language, RunResult
from nervure_lab.experiments.local.session import Session
from nervure_lab.toolchain import Toolchain, crate_versions, python_versions

_SHARED_MEMORY = Path("/dev/shm")
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
    copies_in_send = False
    settings = _SETTINGS

    def refusal(self, case: Case) -> str | None:
        return None

    def run(self, case: Case) -> RunResult:
        with Session(case) as session:
            prefix = session.run_name.replace("-", "_") + "_"
            _write_configuration(session.directory, prefix)
            try:
                for index in range(case.consumers):
                    session.spawn(self._command(), role="consumer", index=index)
                session.spawn(self._command(), role="producer")
                return session.result()
            finally:
                # Killed processes leave their segments behind.
                session.end_processes()
                for segment in _SHARED_MEMORY.glob(prefix + "*"):
                    with contextlib.suppress(FileNotFoundError):
                        segment.unlink()

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
        self._python = toolchain.python_environment("iceoryx2", ["iceoryx2==0.10.0", "numpy>=2,<3"])

    def versions(self) -> dict[str, str]:
        return python_versions(self._python, ["iceoryx2", "numpy"])

    def _command(self) -> list[str | Path]:
        return [self._python, ENDPOINTS / "over_iceoryx2.py"]


def _write_configuration(directory: Path, prefix: str) -> None:
    """Gives the run its own root and prefix; iceoryx2 reads this file from the working directory."""
    configuration = directory / "config" / "iceoryx2.toml"
    configuration.parent.mkdir()
    configuration.write_text(f'[global]\nroot-path = "{directory}/iceoryx2"\nprefix = "{prefix}"\n')


ADAPTERS = [Iceoryx2Rust(), Iceoryx2Python()]
