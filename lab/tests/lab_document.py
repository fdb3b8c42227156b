"""Result documents to analyse, without running anything."""

from __future__ import annotations

import dataclasses
from typing import Any

from nervure_lab.experiments.local.case import Case, ConsumerResult, Outcome, RunResult, Usage


class Document:
    """Builds a result file, run by run."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {
            "schema": "nervure-lab/result@2",
            "experiment": "local",
            "profile": "full",
            "command": "python -m nervure_lab run local",
            "source": "0123456",
            "started": "2026-01-01T00:00:00+00:00",
            "machine": {
                "cpu": "a CPU",
                "cores": 2,
                "virtual_machine": True,
                "kernel": "6.1",
                "architecture": "x86_64",
                "governor": "not exposed",
                "memory_bytes": 2**34,
                "shared_memory_bytes": 2**33,
                "python": "3.11.7",
            },
            "load_average_before": 0.1,
            "load_average_after": 0.2,
            "interrupted": False,
            "planned": [],
            "seconds": 60.0,
            "adapters": [],
            "runs": [],
        }

    def add_adapter(self, name: str, *, reason: str = "") -> None:
        self.content["adapters"].append(
            {
                "name": name,
                "title": f"the {name}",
                "language": "python" if name.endswith(("python", "socket")) else "rust",
                "kind": "floor" if name.startswith("floor") else "peer",
                "settings": "as it comes",
                "copies_in_send": False,
                "available": not reason,
                "reason": reason,
                "versions": {} if reason else {name: "1.0"},
            }
        )

    def lines(self) -> list[dict[str, Any]]:
        """The content as the lines of a result file."""
        ends = ("interrupted", "seconds", "load_average_after")
        session = {key: value for key, value in self.content.items() if key not in (*ends, "runs")}
        return [
            {"kind": "session"} | session,
            *({"kind": "run"} | run for run in self.content["runs"]),
            {"kind": "end"} | {key: self.content[key] for key in ends},
        ]

    def add_run(
        self,
        adapter: str,
        case: Case,
        latencies_micros: list[list[float]],
        *,
        repeat: int = 0,
        lost: int = 0,
        reordered: int = 0,
        outcome: Outcome = "ok",
        reason: str = "",
    ) -> None:
        """One list of latencies a consumer; end to end is ten microseconds more."""
        usage = Usage(0.005, 1.0, 100, 10_000_000, 1)
        consumers = [
            ConsumerResult(
                index=index,
                received=len(micros),
                lost=lost,
                lost_before_first=0,
                reordered=reordered,
                duplicates=0,
                warmup_latency_nanos=[],
                warmup_end_to_end_nanos=[],
                latency_nanos=[int(value * 1000) for value in micros],
                end_to_end_nanos=[int(value * 1000) + 10_000 for value in micros],
                first_receive_nanos=1_000,
                window_start_nanos=0,
                last_receive_nanos=1_000_000_000,
                window_messages=len(micros),
                window_bytes=len(micros) * case.payload_bytes,
                usage=usage,
            )
            for index, micros in enumerate(latencies_micros)
        ]
        if outcome != "ok":
            consumers = []
        sent = len(latencies_micros[0]) + lost if latencies_micros else None
        result = RunResult(outcome, reason, sent, 500, usage, consumers)
        self.content["runs"].append(
            {
                "adapter": adapter,
                "name": f"{case.mode}-{case.payload_bytes}",
                "repeat": repeat,
                "case": dataclasses.asdict(case),
                **result.as_json(),
                "source": "0123456",
                "load_average": 0.1,
                "beside_others": False,
            }
        )
