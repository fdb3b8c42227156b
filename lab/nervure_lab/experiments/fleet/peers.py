"""Large samples between two machines, by a dataflow of Nervure and by peers, in turns over the same link."""

from __future__ import annotations

import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from nervure_lab.comparison.case import Case
from nervure_lab.comparison.samples import table_of_logs
from nervure_lab.comparison.session import Session
from nervure_lab.contract import Unavailable
from nervure_lab.experiments.fleet.machines import MARK, Host, emulated_hosts
from nervure_lab.experiments.fleet.measures import (
    SETTLING_SECONDS,
    FleetCase,
    Programs,
    link_options,
    samples_of,
    two_machines,
)
from nervure_lab.peer import Peer
from nervure_lab.peers.cyclonedds import PEER as CYCLONEDDS
from nervure_lab.peers.dora import PEER as DORA
from nervure_lab.peers.dora import remove_segments, shared_segments
from nervure_lab.peers.fastdds import PEER as FASTDDS
from nervure_lab.peers.zenoh import PEER as ZENOH
from nervure_lab.statistics import nearest_rank
from nervure_lab.toolchain import Toolchain

PAYLOAD_BYTES = 512 << 10
RATE_HZ = 30.0
DEPTH = 10
DRAIN_SECONDS = 3.0
DORA_PORT = 6013
DORA_SECONDS = 20.0
"""For the start of a dataflow of dora, beside the time of its samples."""


@dataclass(frozen=True)
class Endpoints:
    """A peer whose ends are those of the declared experiments."""

    title: str
    peer: Peer
    configuration: str
    is_reliable: bool = True


ENDPOINTS = {
    "cyclonedds": Endpoints("Cyclone DDS", CYCLONEDDS, "tuned"),
    "fastdds": Endpoints("Fast DDS", FASTDDS, "tuned-async"),
    # Congestion control DROP, the default of publications.
    "zenoh": Endpoints("Zenoh with a router", ZENOH, "router", is_reliable=False),
}
TITLES = {
    "nervure": "Nervure",
    **{name: it.title for name, it in ENDPOINTS.items()},
    "dora": "dora, coordinator and daemons",
}


def beside(programs: Programs, case: FleetCase, directory: Path, toolchain: Toolchain) -> dict[str, Any]:
    """Returns for each middleware its runs, or why it cannot be run."""
    found: dict[str, Any] = {name: [] for name in TITLES}
    unavailable: dict[str, str] = {}
    for turn in range(case.rounds):
        names = [*TITLES][turn:] + [*TITLES][:turn]
        for name in names:
            if name in unavailable:
                continue
            place = directory / f"{name}-{turn}"
            place.mkdir()
            try:
                found[name].append(_run(name, programs, case, place, turn + 1, toolchain))
            except Unavailable as error:
                unavailable[name] = str(error)
    return {"runs": found, "unavailable": unavailable}


def _run(
    name: str, programs: Programs, case: FleetCase, place: Path, seed: int, toolchain: Toolchain
) -> dict[str, Any]:
    if name == "nervure":
        return _by_nervure(programs, case, place)
    if name == "dora":
        DORA.prepare(toolchain)
        return _by_dora(programs, case, place)
    endpoints = ENDPOINTS[name]
    endpoints.peer.prepare(toolchain)
    return _by_endpoints(endpoints, programs, case, seed)


def _by_nervure(programs: Programs, case: FleetCase, place: Path) -> dict[str, Any]:
    file = place / "sink.txt"
    with two_machines(programs, case, place) as fleet:
        nodes = [
            programs.source("source", "robot", PAYLOAD_BYTES, RATE_HZ),
            programs.sink("sink", "edge", file, {"in": {"source": "source/out", "queue_size": DEPTH}}),
        ]
        fleet.start("beside", nodes)
        time.sleep(case.seconds)
        stream = fleet.stop("beside")["source/out"]
    sent = stream["accepted"] + stream["lost"].get("queue", 0) + stream["lost"].get("not sent", 0)
    return _figures([age for _, age in samples_of(file).get("in", [])], sent)


def _by_endpoints(endpoints: Endpoints, programs: Programs, case: FleetCase, seed: int) -> dict[str, Any]:
    count = round(case.seconds * RATE_HZ)
    stream = Case(
        PAYLOAD_BYTES,
        RATE_HZ,
        count,
        place="link",
        warmup=0,
        reliable=endpoints.is_reliable,
        depth=DEPTH,
        drain_seconds=DRAIN_SECONDS,
        rate_mbit=case.rate_mbit,
        loss_percent=case.loss_percent,
    )
    with Session(endpoints.peer, stream, seed, programs.emulator) as session:
        outcome = session.measure(endpoints.configuration)
    if outcome.outcome in ("failed", "hung"):
        return {"delivered": 0.0, "failure": outcome.reason}
    table = table_of_logs(outcome.logs, outcome.start_nanos, warmup=0, subscribers=1, echo=False)
    arrived = table.filter(pl.col("received_nanos").is_not_null())
    ages = ((arrived["received_nanos"] - arrived["due_nanos"]) * 1e-6).to_list()
    return _figures(ages, count)


def _by_dora(programs: Programs, case: FleetCase, place: Path) -> dict[str, Any]:
    """Its coordinator and a daemon on the machine of the sink, another daemon on that of the source."""
    before = shared_segments()
    file, count = place / "sink.txt", round(case.seconds * RATE_HZ)
    dora = DORA.python.parent / "dora"
    environment = os.environ | {
        MARK: str(place),
        "HOME": str(place),
        "PATH": f"{DORA.python.parent}:/usr/bin:/bin",
        "VIRTUAL_ENV": str(DORA.python.parent.parent),
    }
    with emulated_hosts(programs.emulator, place, link_options(case)) as (edge, robot):

        def start(host: Host, name: str, *words: str) -> Any:
            log = (place / f"{name}.log").open("w")
            # Its daemons work in folders below their own.
            return host.start(["env", "-C", place, dora, *words], env=environment, stdout=log)

        start(edge, "coordinator", "coordinator", "--interface", "0.0.0.0", "--store", "memory")
        time.sleep(SETTLING_SECONDS)
        for host, name in ((edge, "edge"), (robot, "robot")):
            address = ["--coordinator-addr", edge.address, "--zenoh-listen", host.address]
            start(host, name, "daemon", "--machine-id", name, *address, "--zenoh-no-multicast")
            time.sleep(SETTLING_SECONDS)
        dataflow = place / "dataflow.yml"
        dataflow.write_text(json.dumps({"nodes": _dora_nodes(file, count)}))
        words = ["start", str(dataflow), "--coordinator-addr", edge.address, "--detach"]
        begun = start(edge, "start", *words)
        until = time.monotonic() + DORA_SECONDS + case.seconds
        while time.monotonic() < until and len(_lines(file)) < count:
            if begun.poll() not in (None, 0):
                return {"delivered": 0.0, "failure": _last_line(place / "start.log")}
            time.sleep(SETTLING_SECONDS / 4)
        remaining = _lines(file)
    remove_segments(before)
    if not remaining:
        return {"delivered": 0.0, "failure": "no sample arrived"}
    return _figures([(int(at) - int(due)) / 1e6 for _, due, at in remaining], count)


def _dora_nodes(file: Path, count: int) -> list[dict[str, Any]]:
    program = Path(__file__).with_name("dora_node.py")
    common: dict[str, Any] = {"path": str(DORA.python)}
    source = {"id": "source", "args": f"{program} source {PAYLOAD_BYTES} {RATE_HZ:g} {count}"}
    sink = {"id": "sink", "args": f"{program} sink {file}"}
    return [
        common | source | {"outputs": ["out"], "deploy": {"machine": "robot"}},
        common
        | sink
        | {
            "inputs": {"in": {"source": "source/out", "queue_size": DEPTH}},
            "deploy": {"machine": "edge"},
        },
    ]


def _lines(file: Path) -> list[list[str]]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [words for line in lines if len(words := line.split()) == 3]


def _last_line(file: Path) -> str:
    lines = [line for line in file.read_text().splitlines() if line.strip()]
    return lines[-1].strip() if lines else "the command failed"


def _figures(ages: list[float], sent: int) -> dict[str, Any]:
    if not ages:
        return {"delivered": 0.0}
    ordered = sorted(ages)
    return {
        "delivered": len(ages) / sent,
        "mean_ms": statistics.fmean(ages),
        "p99_ms": nearest_rank(ordered, 0.99),
    }
