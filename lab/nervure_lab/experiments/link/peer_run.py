"""Runs a peer of the lab over the link: its endpoints are those of the declared experiments."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl

from nervure_lab.comparison.case import Case
from nervure_lab.comparison.samples import table_of_logs
from nervure_lab.comparison.session import FIXED_START_SECONDS, Outcome, Session
from nervure_lab.experiments.link import veth
from nervure_lab.experiments.link.case import DRAIN_SECONDS, LinkCase
from nervure_lab.experiments.link.ticker import watched
from nervure_lab.peer import Peer
from nervure_lab.processes import Processes
from nervure_lab.statistics import nearest_rank
from nervure_lab.toolchain import Toolchain

DEPTH = 10


class AdapterOfPeer:
    """A peer in one configuration."""

    def __init__(
        self,
        peer: Peer,
        configuration: str,
        *,
        title: str = "",
        is_reliable: bool = True,
        congestion_control: str = "cubic",
    ) -> None:
        self.peer = peer
        self.name = peer.name
        self.title = title or peer.title
        self.settings = peer.configuration(configuration).settings
        self.congestion_control = congestion_control
        self._configuration = configuration
        self._is_reliable = is_reliable

    def prepare(self, toolchain: Toolchain) -> None:
        self.peer.prepare(toolchain)

    def versions(self) -> dict[str, str]:
        return self.peer.versions()

    def run(self, emulator: Path, case: LinkCase, seed: int, processes: Processes) -> dict[str, Any]:
        if case.beside or case.connects or case.robots > 1:
            raise ValueError("a peer sends one stream over the link")
        with (
            tempfile.TemporaryDirectory(prefix="nervure-lab-") as directory,
            _LinkSession(self, case, seed, emulator, processes) as session,
        ):
            with watched(Path(directory)) as machine:
                found = session.measure(self._configuration)
            return _record(found, case) | {"machine": machine.figures(_origin_nanos(found, case))}

    def stream(self, case: LinkCase) -> Case:
        """The case as the endpoints see it."""
        return Case(
            case.payload_bytes,
            case.rate_hz,
            case.samples,
            place="link",
            warmup=0,
            reliable=self._is_reliable,
            depth=DEPTH,
            drain_seconds=DRAIN_SECONDS,
            outage=case.outage,
        )


class _LinkSession(Session):
    def __init__(
        self, adapter: AdapterOfPeer, case: LinkCase, seed: int, emulator: Path, processes: Processes
    ) -> None:
        super().__init__(
            adapter.peer,
            adapter.stream(case),
            seed,
            emulator,
            is_interrupted=lambda: processes.ended,
        )
        self._link_case = case
        self._congestion_control = adapter.congestion_control

    def link_command(
        self, emulator: Path, options: Sequence[str], first_host: str, other_hosts: Sequence[str]
    ) -> list[str | Path]:
        if self._link_case.veth:
            return veth.command(first_host, other_hosts[0])
        return super().link_command(emulator, options, first_host, other_hosts)

    def emulator_options(self) -> list[str]:
        case = self._link_case
        if case.outage:
            case = replace(case, outage=(FIXED_START_SECONDS + case.outage[0], case.outage[1]))
        return [
            *case.emulator_options(self._seed),
            f"--congestion-control={self._congestion_control}",
        ]


def _origin_nanos(found: Outcome, case: LinkCase) -> int | None:
    """The time from which receptions count: the start of the emulator; with an outage that of the schedule,
    so that the outage is at the place that the case names.
    """
    if found.link is None:
        return None
    before_schedule = int(FIXED_START_SECONDS * 1e9) if case.outage else 0
    return int(found.link["start_monotonic_nanos"]) + before_schedule


def _record(found: Outcome, case: LinkCase) -> dict[str, Any]:
    record = {"case": asdict(case), "exit_code": 0, "stderr": "", "link": found.link, "beside": None}
    if found.outcome in ("failed", "hung"):
        failure = {"exit_code": 1, "stderr": found.reason, "flows": [{"receiver": None, "sender": None}]}
        return record | failure
    table = table_of_logs(found.logs, found.start_nanos, warmup=0, subscribers=1, echo=False)
    arrived = table.filter(pl.col("received_nanos").is_not_null()).sort("arrival")
    latencies = sorted((arrived["received_nanos"] - arrived["due_nanos"]) * 1e-6)
    count = len(latencies)
    receiver = {
        "delivered": count,
        "duplicates": int((table["receptions"] - 1).clip(0).sum()),
        "mean_ms": sum(latencies) / count if count else 0.0,
        "p50_ms": nearest_rank(latencies, 0.5) if count else 0.0,
        "p99_ms": nearest_rank(latencies, 0.99) if count else 0.0,
        "max_ms": latencies[-1] if count else 0.0,
        "seconds": max(arrived["received_nanos"]) * 1e-9 if count else 0.0,
        "cpu_s": _cpu_seconds(found, "subscriber"),
        "gave_up": not count,
    }
    flow: dict[str, Any] = {"receiver": receiver, "sender": {"cpu_s": _cpu_seconds(found, "publisher")}}
    origin = _origin_nanos(found, case)
    if origin is not None:
        offset = found.start_nanos - origin
        flow["receptions_micros"] = [
            [sequence, (due + offset) // 1000, (received + offset) // 1000]
            for sequence, due, received in arrived["sequence", "due_nanos", "received_nanos"].iter_rows()
        ]
    return record | {"flows": [flow]}


def _cpu_seconds(found: Outcome, role: str) -> float:
    return math.fsum(entry["cpu_seconds"] for entry in found.processes if entry["role"].startswith(role))
