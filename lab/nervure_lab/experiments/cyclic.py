"""The jitter of a control loop at 1 kHz under full load, beside a bare loop of the same run.

A sensor wakes at a timer, a controller answers its sample, an actuator receives the command: three components
in C++ with `policy: fifo` and `memory_lock`, each in a process of its own (`alone`) or all in one
(`composed`). The bare loop sleeps with `clock_nanosleep` until absolute times, the method of cyclictest, with
the same scheduling and at the same time. Busy processes occupy every core, the disk and the loopback network.

The time of a turn is that from the moment when the tick was due until the loop runs; of the actuator, until
it has the command.
"""

from __future__ import annotations

import array
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nervure_lab.contract import Unavailable
from nervure_lab.experiments.own import Build, OwnExperiment, PlannedFigures
from nervure_lab.toolchain import PROGRAMS_DIRECTORY, Toolchain, run_tool

COMPONENTS = ("sensor", "controller", "actuator")
LOOPS = ("bare", "sensor", "actuator")
HZ = 1000
BOUNDS_MICROS = (5, 10, 20, 50, 100, 200, 500, 1000)
"""Upper bounds of the histogram. The last range has none."""
PERCENTILES = (50.0, 99.0, 99.9)

SPIN = "while True: pass"
DISK = """
import os
file = os.open("load.bin", os.O_CREAT | os.O_WRONLY)
block = os.urandom(1 << 20)
while True:
    os.pwrite(file, block, 0)
    os.fsync(file)
"""
NETWORK = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
receiver = server.accept()[0]
def receive():
    while receiver.recv(1 << 16): pass
threading.Thread(target=receive, daemon=True).start()
while True: client.sendall(bytes(1 << 16))
"""


@dataclass(frozen=True)
class CyclicCase:
    composed: bool
    seconds: int


class CyclicBuild(Build):
    """Nervure, the components, and the bare loop."""

    def __init__(self) -> None:
        super().__init__(needs_python=True)

    def prepare(self, toolchain: Toolchain) -> None:
        super().prepare(toolchain)
        self.programs = toolchain.directory / "cyclic"
        self.programs.mkdir(exist_ok=True)
        options = toolchain.native_api()
        for component in COMPONENTS:
            self._compile(component, f"lib{component}.so", ["-shared", "-fPIC"], options)
        self._compile("bare", "bare", [], [])
        if subprocess.run([self.programs / "bare", "0"], cwd=self.programs, check=False).returncode:
            raise Unavailable(
                "this user may not use real-time scheduling or lock memory: see `nervure doctor`"
            )

    def _compile(self, source: str, program: str, kind: list[str], libraries: list[str]) -> None:
        path = PROGRAMS_DIRECTORY / "cyclic" / f"{source}.cpp"
        output = ["-o", str(self.programs / program)]
        run_tool(["c++", "-std=c++17", "-O2", *kind, str(path), *output, *libraries])


class Cyclic(OwnExperiment):
    name = "cyclic"
    summary = "a control loop of three nodes at 1 kHz under full load, beside a bare loop"

    def adapters(self) -> list[Build]:
        return [CyclicBuild()]

    def plan(self, quick: bool) -> list[PlannedFigures]:
        seconds = 5 if quick else 600
        cases = {"alone": CyclicCase(False, seconds), "composed": CyclicCase(True, seconds)}
        return [PlannedFigures(name, case, 1, self.name) for name, case in cases.items()]

    def expected_seconds(self, case: CyclicCase) -> float:
        return case.seconds + 3

    def measure(self, build: Build, case: CyclicCase, directory: Path) -> dict[str, Any]:
        assert isinstance(build, CyclicBuild)
        nodes = dataflow_nodes(build.programs, is_composed=case.composed)
        command = build.run_arguments(
            directory, nodes, "--name", f"lab-{os.getpid()}", "--no-logs", "--stop-after", f"{case.seconds}s"
        )
        with full_load(directory):
            bare = subprocess.Popen([build.programs / "bare", str(case.seconds)], cwd=directory)
            ran = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, env=build.environment(directory)
            )
            if bare.wait():
                raise subprocess.CalledProcessError(bare.returncode, "bare")
            load = os.getloadavg()[0]
        summary = json.loads(ran.stdout.splitlines()[-1])
        missed = [unmet["count"] for unmet in summary["unmet"] if unmet["kind"] == "deadline_missed"]
        return {
            "load_average": load,
            "deadlines_missed": sum(missed),
            "loops": {loop: loop_figures(nanos_of(directory / f"{loop}.times")) for loop in LOOPS},
        }

    def lines(self, runs: list[dict[str, Any]]) -> list[str]:
        return [line for run in runs for line in [*_lines(run), ""]][:-1]


def dataflow_nodes(programs: Path, *, is_composed: bool) -> list[dict[str, Any]]:
    """The three nodes. A turn of the sensor has to end before the next one is due."""
    common: dict[str, Any] = {"scheduling": {"policy": "fifo", "priority": 80}, "memory_lock": True}
    if is_composed:
        common["process"] = "control"
    nodes: list[dict[str, Any]] = [
        {"inputs": {"tick": f"nervure/timer/hz/{HZ}"}, "outputs": ["measured"]},
        {"inputs": {"measured": "sensor/measured"}, "outputs": ["command"]},
        {"inputs": {"command": "controller/command"}},
    ]
    nodes[0]["loop"] = {"input": "tick", "finish_within": f"{1_000_000 // HZ}us"}
    return [
        {"id": id, "path": str(programs / f"lib{id}.so")} | node | common
        for id, node in zip(COMPONENTS, nodes, strict=True)
    ]


@contextmanager
def full_load(directory: Path) -> Iterator[None]:
    """Keeps every core, the disk of the directory, and the loopback network busy."""
    loads = [SPIN] * (os.cpu_count() or 1) + [DISK, NETWORK]
    # Other work on the machine goes on; real-time threads preempt both alike.
    busy = ["nice", "-n", "19", sys.executable, "-c"]
    children = [subprocess.Popen([*busy, load], cwd=directory) for load in loads]
    try:
        yield
        ended = [child.args for child in children if child.poll() is not None]
        assert not ended, ended
    finally:
        for child in children:
            child.kill()
            child.wait()


def nanos_of(file: Path) -> array.array[int]:
    nanos = array.array("q")
    nanos.frombytes(file.read_bytes())
    return nanos


def loop_figures(nanos: array.array[int]) -> dict[str, Any]:
    """The number of turns, percentiles and maximum in nanoseconds, and the histogram."""
    ordered = sorted(nanos)
    counts = [0] * (len(BOUNDS_MICROS) + 1)
    for value in ordered:
        counts[sum(value > bound * 1000 for bound in BOUNDS_MICROS)] += 1
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))] for share in PERCENTILES]
    return {"turns": len(ordered), "percentiles": at, "max": ordered[-1], "histogram": counts}


def _lines(run: dict[str, Any]) -> list[str]:
    figures = run["figures"]
    loops: dict[str, Any] = figures["loops"]
    kind = "in one process" if run["case"]["composed"] else "in three processes"
    tails = {loop: found["percentiles"][-1] for loop, found in loops.items()}
    lines = [
        f"{kind}, {run['case']['seconds']} s, load average {figures['load_average']:.1f} at the end",
        "",
        "| loop | turns | p50 us | p99 us | p99.9 us | max us | above 1 ms |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for loop, found in loops.items():
        micros = [f"{nanos / 1000:.1f}" for nanos in (*found["percentiles"], found["max"])]
        lines.append(f"| {loop} | {found['turns']} | {' | '.join(micros)} | {found['histogram'][-1]} |")
    lines += ["", f"| us | {' | '.join(loops)} |", "|---|" + "---:|" * len(loops)]
    ranges = [f"at most {bound}" for bound in BOUNDS_MICROS] + [f"above {BOUNDS_MICROS[-1]}"]
    for at, text in enumerate(ranges):
        counts = [str(found["histogram"][at]) for found in loops.values()]
        lines.append(f"| {text} | {' | '.join(counts)} |")
    return [
        *lines,
        "",
        f"p99.9 of the sensor: {tails['sensor'] / tails['bare']:.2f}x that of the bare loop; "
        f"deadlines of the sensor missed: {figures['deadlines_missed']}",
    ]


EXPERIMENT = Cyclic()
