"""The cost of a request: a call with its answer, beside a sample that is sent to a node and back.

A client alternates between a call of a service and a sample to the same node, which sends it back. Both are
two hops with the same number of bytes. The client sleeps in between, so that each time the other process is
asleep. The ratio is that of the medians; its interval is a bootstrap over blocks of turns.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nervure_lab.experiments.own import RESAMPLINGS, Build, OwnExperiment, PlannedFigures
from nervure_lab.statistics import median

PERIOD_SECONDS = 0.005
WARMUP_TURNS = 50
BLOCK_TURNS = 25

SERVER = """
from nervure import Node

node = Node()
for event in node:
    if event.type == "REQUEST":
        event.reply(event.numpy())
    elif event.id == "there":
        node.send("back", event.numpy())
"""

CLIENT = """
import sys
import time

import numpy
from nervure import Node

count, size, period = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
node = Node()
value = numpy.zeros(size, numpy.uint8)
calls, hops = [], []
for _ in range(count):
    time.sleep(period)
    begin = time.perf_counter_ns()
    node.call("echo", value, timeout=5.0)
    calls.append(time.perf_counter_ns() - begin)
    time.sleep(period)
    begin = time.perf_counter_ns()
    node.send("there", value)
    event = node.next(timeout=5.0)
    hops.append(time.perf_counter_ns() - begin)
    assert event.id == "back", event
for call, hop in zip(calls, hops):
    print(call, hop)
"""

Turn = tuple[int, int]
"""Nanoseconds of a call and of two hops."""


@dataclass(frozen=True)
class CallsCase:
    payload_bytes: int
    turns: int


class Calls(OwnExperiment):
    name = "calls"
    summary = "a call with its answer beside two hops of a sample, from Python to Python"

    def adapters(self) -> list[Build]:
        return [Build(needs_python=True)]

    def plan(self, quick: bool) -> list[PlannedFigures]:
        turns = 200 if quick else 2000
        return [PlannedFigures(f"{size}B", CallsCase(size, turns), 1, self.name) for size in (64, 4096)]

    def expected_seconds(self, case: CallsCase) -> float:
        return 1 + (case.turns + WARMUP_TURNS) * 2 * PERIOD_SECONDS

    def measure(self, build: Build, case: CallsCase, directory: Path) -> dict[str, Any]:
        (directory / "server.py").write_text(SERVER, encoding="utf-8")
        (directory / "client.py").write_text(CLIENT, encoding="utf-8")
        server: dict[str, Any] = {"id": "server", "path": "server.py", "services": ["echo"]}
        client: dict[str, Any] = {"id": "client", "path": "client.py", "clients": {"echo": "server/echo"}}
        server |= {"inputs": {"there": "client/there"}, "outputs": ["back"]}
        client |= {"inputs": {"back": "server/back"}, "outputs": ["there"]}
        client["args"] = f"{case.turns + WARMUP_TURNS} {case.payload_bytes} {PERIOD_SECONDS}"
        lines = build.logs_of(directory, [server, client], "client")
        return {"turns_nanos": [[int(call), int(hop)] for call, hop in lines[WARMUP_TURNS:]]}

    def lines(self, runs: list[dict[str, Any]]) -> list[str]:
        return [_line(run) for run in runs]


def _line(run: dict[str, Any]) -> str:
    turns: list[Turn] = run["figures"]["turns_nanos"]
    blocks = [turns[first : first + BLOCK_TURNS] for first in range(0, len(turns), BLOCK_TURNS)]
    generator = random.Random(0)
    resampled = sorted(_ratio(generator.choices(blocks, k=len(blocks))) for _ in range(RESAMPLINGS))
    low, high = (resampled[int(share * RESAMPLINGS)] for share in (0.025, 0.975))
    call, hop = _medians(blocks)
    return (
        f"{run['case']['payload_bytes']} bytes: call and answer {call / 1000:.1f} us, two hops "
        f"{hop / 1000:.1f} us, ratio {call / hop:.2f} (95 % interval {low:.2f} to {high:.2f})"
    )


def _medians(blocks: list[list[Turn]]) -> tuple[float, float]:
    turns = [turn for block in blocks for turn in block]
    return median([call for call, _ in turns]), median([hop for _, hop in turns])


def _ratio(blocks: list[list[Turn]]) -> float:
    call, hop = _medians(blocks)
    return call / hop


EXPERIMENT = Calls()
