"""dora-rs, from PyPI: Python nodes under `dora run`, with its defaults and tuned."""

from __future__ import annotations

from typing import Any

from nervure_lab.experiments.local.case import Case, Kind, Language, RunResult, endpoint_arguments
from nervure_lab.experiments.local.dataflow import write_dataflow
from nervure_lab.experiments.local.session import Session
from nervure_lab.peers.dora import PEER, pool_size, remove_segments, run_command, shared_segments
from nervure_lab.toolchain import LAB_DIRECTORY, Toolchain


class DoraPython:
    title = "dora (Python)"
    name = "dora-python"
    language: Language = "python"
    kind: Kind = "peer"
    copies_in_send = PEER.copies_in_send
    settings = (
        "`dora run` with two keys set: `queue_size`, the queue depth of the case, and in floods "
        "`queue_policy: backpressure`. Otherwise the defaults, with 8 MB of shared memory per node."
    )
    _configuration = "default"

    def prepare(self, toolchain: Toolchain) -> None:
        PEER.prepare(toolchain)

    def versions(self) -> dict[str, str]:
        return PEER.versions()

    def refusal(self, case: Case) -> str | None:
        return None

    def run(self, case: Case) -> RunResult:
        before = shared_segments()
        with Session(case) as session:
            program, *arguments = endpoint_arguments(PEER, self._configuration)
            file = write_dataflow(
                session,
                {"path": program, "args": " ".join(arguments)},
                {"queue_policy": "backpressure"} if case.mode == "flood" else {},
                self._producer_keys(case),
            )
            command, environment = run_command(PEER.python, file)
            session.spawn(command, environment={**environment, "PYTHONPATH": str(LAB_DIRECTORY)})
            try:
                return session.result()
            finally:
                session.end_processes()
                remove_segments(before)

    def _producer_keys(self, case: Case) -> dict[str, Any]:
        return {}


class DoraPythonTuned(DoraPython):
    name = "dora-python-tuned"
    title = "dora (Python, tuned)"
    settings = (
        "As above, with `shared_memory_pool_size` of the producer raised to hold every message that fits the "
        "queues of the case, as its documentation advises for large messages at a high rate."
    )
    _configuration = "tuned"

    def _producer_keys(self, case: Case) -> dict[str, Any]:
        size = pool_size(case.queue_depth, case.consumers, case.payload_bytes)
        return {"shared_memory_pool_size": size}


ADAPTERS = [DoraPython(), DoraPythonTuned()]
