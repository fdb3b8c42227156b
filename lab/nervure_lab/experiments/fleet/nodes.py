"""Traffic between two machines whose nodes have nothing to send, by number of nodes: a dataflow of Nervure,
and participants of Cyclone DDS.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from nervure_lab.contract import Unavailable
from nervure_lab.experiments.fleet.machines import MARK, emulated_hosts, wait_for
from nervure_lab.experiments.fleet.measures import (
    SETTLING_SECONDS,
    FleetCase,
    Programs,
    link_counters,
    link_options,
    two_machines,
)
from nervure_lab.peers.cyclonedds import PEER as CYCLONEDDS
from nervure_lab.toolchain import Toolchain

SETTLED_SECONDS = 5 * SETTLING_SECONDS
"""After the last node has started."""
NEVER_HZ = 0.001


def nodes(programs: Programs, case: FleetCase, directory: Path, toolchain: Toolchain) -> dict[str, Any]:
    """Half of the nodes are on either machine: each sends to one of the other."""
    figures: dict[str, Any] = {"nervure": _by_nervure(programs, case, _folder(directory, "nervure"))}
    try:
        CYCLONEDDS.prepare(toolchain)
        figures["cyclonedds"] = _by_cyclone(programs, case, _folder(directory, "cyclonedds"))
    except Unavailable as error:
        figures["unavailable"] = str(error)
    return figures


def _folder(directory: Path, name: str) -> Path:
    (directory / name).mkdir()
    return directory / name


def _by_nervure(programs: Programs, case: FleetCase, place: Path) -> dict[str, Any]:
    with two_machines(programs, case, place) as fleet:
        time.sleep(SETTLED_SECONDS)
        dataflow = []
        for index in range(case.nodes // 2):
            source, sink = f"source-{index}", f"sink-{index}"
            dataflow.append(programs.source(source, "robot", 64, NEVER_HZ))
            inputs = {"in": f"{source}/out"}
            dataflow.append(programs.sink(sink, "edge", place / f"{sink}.txt", inputs))
        path = fleet.write("nodes", dataflow)
        before = link_counters(place)
        begin = time.monotonic()
        fleet.operator.nervure("start", path)
        took = time.monotonic() - begin
        figures = _traffic(place, before, case.seconds)
        fleet.stop("nodes")
    return {"seconds": took} | figures


def _by_cyclone(programs: Programs, case: FleetCase, place: Path) -> dict[str, Any]:
    program = Path(__file__).with_name("cyclone_nodes.py")
    environment = os.environ | {MARK: str(place)}
    with emulated_hosts(programs.emulator, place, link_options(case)) as hosts:
        time.sleep(2 * SETTLING_SECONDS)
        before = link_counters(place)
        files = []
        for host, role in zip(hosts, ("readers", "writers"), strict=True):
            files.append(place / f"{role}.txt")
            with files[-1].open("w") as output:
                words: list[str | Path] = [CYCLONEDDS.python, program, role, str(case.nodes // 2)]
                host.start(words, env=environment, stdout=output)
        opened = [wait_for("participants", partial(_time, file, "opened")) for file in files]
        matched = wait_for("the writers", partial(_time, files[0], "matched"))
        figures = _traffic(place, before, case.seconds)
    return {"seconds": max(0, matched - max(opened)) / 1e9} | figures


def _traffic(place: Path, before: dict[str, Any], seconds: float) -> dict[str, Any]:
    """In both directions: until the nodes have settled, and a second of rest."""
    time.sleep(SETTLED_SECONDS)
    settled = link_counters(place)
    time.sleep(seconds)
    after = link_counters(place)
    found: dict[str, Any] = {}
    for name, one, other in (("begin", before, settled), ("rest", settled, after)):
        hosts = list(zip(one["hosts"], other["hosts"], strict=True))
        for unit in ("packets", "bytes"):
            found[f"{name}_{unit}"] = sum(b["offered"][unit] - a["offered"][unit] for a, b in hosts)
    found["rest_seconds"] = after["seconds"] - settled["seconds"]
    return found


def _time(file: Path, what: str) -> int:
    """The time at which it was printed; 0 if never."""
    lines = [line.split() for line in file.read_text().splitlines()]
    return next((int(words[1]) for words in lines if len(words) == 2 and words[0] == what), 0)
