"""dora-rs, from PyPI: Python nodes under `dora run`, with its defaults and tuned."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nervure_lab.experiments.local.case import ENDPOINTS, Case, Kind, Language, RunResult
from nervure_lab.experiments.local.session import Session
from nervure_lab.toolchain import LAB_DIRECTORY, Toolchain, python_versions

_SHARED_MEMORY = Path("/dev/shm")
_ENDPOINT = ENDPOINTS / "over_dora.py"


class DoraPython:
    title = "dora (Python)"
    name = "dora-python"
    language: Language = "python"
    kind: Kind = "peer"
    copies_in_send = True
    settings = (
        "`dora run` with two keys set: `queue_size`, the queue depth of the case, and in floods "
        "`queue_policy: backpressure`. Otherwise the defaults, with 8 MB of shared memory per node."
    )

    def prepare(self, toolchain: Toolchain) -> None:
        self._python = toolchain.dora_environment()

    def versions(self) -> dict[str, str]:
        return python_versions(self._python, ["dora-rs", "dora-rs-cli", "pyarrow", "numpy"])

    def refusal(self, case: Case) -> str | None:
        return None

    def run(self, case: Case) -> RunResult:
        before = set(_SHARED_MEMORY.glob("*.zenoh"))
        with Session(case) as session:
            # JSON is YAML.
            (session.directory / "dataflow.yml").write_text(json.dumps(self._dataflow(case, session)))
            programs = self._python.parent
            session.spawn(
                [programs / "dora", "run", "dataflow.yml"],
                environment={
                    "PATH": f"{programs}:/usr/bin:/bin",
                    "VIRTUAL_ENV": str(programs.parent),
                    "PYTHONPATH": str(LAB_DIRECTORY),
                },
            )
            try:
                return session.result()
            finally:
                session.end_processes()
                _remove_segments(before)

    def _dataflow(self, case: Case, session: Session) -> dict[str, Any]:
        source: dict[str, Any] = {"source": "producer/out", "queue_size": case.queue_depth}
        if case.mode == "flood":
            source["queue_policy"] = "backpressure"
        producer = {
            "id": "producer",
            "path": str(_ENDPOINT),
            "outputs": ["out"],
            "env": session.environment("producer"),
            **self._producer_keys(case),
        }
        consumers = [
            {
                "id": f"consumer-{index}",
                "path": str(_ENDPOINT),
                "inputs": {"in": source},
                "env": session.environment("consumer", index),
            }
            for index in range(case.consumers)
        ]
        return {"nodes": [producer, *consumers]}

    def _producer_keys(self, case: Case) -> dict[str, Any]:
        return {}


class DoraPythonTuned(DoraPython):
    name = "dora-python-tuned"
    title = "dora (Python, tuned)"
    settings = (
        "As above, with `shared_memory_pool_size` of the producer raised to hold every message that fits the "
        "queues of the case, as its documentation advises for large messages at a high rate."
    )

    def _producer_keys(self, case: Case) -> dict[str, Any]:
        messages_in_flight = (case.queue_depth + 4) * case.consumers
        megabytes = max(64, messages_in_flight * case.payload_bytes // 1_000_000 + 1)
        return {"shared_memory_pool_size": f"{min(megabytes, 4000)}MB"}


def _remove_segments(before: set[Path]) -> None:
    """Removes the segments that this run left behind: those that are new and that no process maps."""
    for segment in set(_SHARED_MEMORY.glob("*.zenoh")) - before:
        if not any(str(segment) in text for text in _all_memory_maps()):
            segment.unlink(missing_ok=True)


def _all_memory_maps() -> Iterator[str]:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            yield maps.read_text()


ADAPTERS = [DoraPython(), DoraPythonTuned()]
