"""The measurements of the experiment ``fleet``: each returns its figures by name, times in milliseconds."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nervure_lab.experiments.fleet.machines import (
    Fleet,
    Host,
    Machine,
    emulated_hosts,
    loopback_host,
    wait_for,
)
from nervure_lab.processes import cpu_seconds

SETTLING_SECONDS = 1.0
IMAGE_BYTES = 960 * 540 * 3
IMAGE_HZ = 25
IMU_BYTES = 36
IMU_HZ = 99
COMMAND_BYTES = 16
COMMAND_HZ = 50
FLOOD_BYTES = 512 << 10
FLOOD_HZ = 60


@dataclass(frozen=True)
class FleetCase:
    what: str
    loss_percent: int = 0
    rate_mbit: int = 300
    rounds: int = 1
    seconds: float = 0.0
    machines: int = 2
    nodes: int = 0


@dataclass(frozen=True)
class Programs:
    nervure: Path
    emulator: Path
    node: Path
    """The nodes of this experiment: `source BYTES`, `log FILE`."""

    def source(self, name: str, machine: str, size: int, rate_hz: float) -> dict[str, Any]:
        tick = {"tick": f"nervure/timer/hz/{rate_hz:g}"}
        common = {"id": name, "machine": machine, "path": str(self.node), "outputs": ["out"]}
        return common | {"args": f"source {size}", "inputs": tick}

    def sink(self, name: str, machine: str, file: Path, inputs: dict[str, Any]) -> dict[str, Any]:
        common = {"id": name, "machine": machine, "path": str(self.node)}
        return common | {"args": f"log {file}", "inputs": inputs}


def link_options(case: FleetCase) -> list[str]:
    """Of the emulated link."""
    return [f"--rate={case.rate_mbit}mbit", "--delay=1ms", "--queue=100ms", f"--loss={case.loss_percent}%"]


@contextmanager
def two_machines(programs: Programs, case: FleetCase, directory: Path) -> Iterator[Fleet]:
    """The paired machines `edge`, with the coordinator, and `robot`."""
    with emulated_hosts(programs.emulator, directory, link_options(case)) as hosts:
        machines = [
            Machine(name, host, programs.nervure, directory)
            for name, host in zip(("edge", "robot"), hosts, strict=True)
        ]
        fleet = Fleet(machines, directory)
        fleet.pair()
        yield fleet


def start_and_failure(programs: Programs, case: FleetCase, directory: Path) -> dict[str, Any]:
    """From `nervure start` to its first sample on the other machine, and from the kill of a node to the
    event of its consumer there.
    """
    figures: dict[str, list[float]] = {"first_sample_ms": [], "command_ms": [], "failure_known_ms": []}
    with two_machines(programs, case, directory) as fleet:
        for number in range(case.rounds):
            name, file = f"start-{number}", directory / f"sink-{number}.txt"
            nodes = [
                programs.source("source", "robot", 64, 100),
                programs.sink("sink", "edge", file, {"in": "source/out"}),
            ]
            path = fleet.write(name, nodes)
            begin = time.time_ns()
            fleet.operator.nervure("start", path)
            figures["command_ms"].append((time.time_ns() - begin) / 1e6)
            first = wait_for("a sample", partial(_times, file, "sample"))[0]
            figures["first_sample_ms"].append((first - begin) / 1e6)
            time.sleep(SETTLING_SECONDS)
            (source,) = fleet.processes(str(programs.node), "source")
            killed = time.time_ns()
            os.kill(source, signal.SIGKILL)
            known = wait_for("the failure", partial(_times, file, "closed", "failed"), 0.005)[0]
            figures["failure_known_ms"].append((known - killed) / 1e6)
            fleet.operator.nervure("stop", "-d", name, check=False)
    return figures


def unreachable(programs: Programs, case: FleetCase, directory: Path) -> dict[str, Any]:
    """From the cut of the network until `machine list` shows the other machine as unreachable; and how often
    it is shown so before, without a cut.
    """
    figures: dict[str, Any] = {"known_ms": [], "back_ms": [], "false_alarms": 0, "watched_s": case.seconds}
    with two_machines(programs, case, directory) as fleet:
        time.sleep(case.seconds)
        figures["false_alarms"] = fleet.operator.log().count("cannot be reached")
        (emulator,) = fleet.processes(str(programs.emulator), "run")
        for _ in range(case.rounds):
            time.sleep(2 * SETTLING_SECONDS)
            cut = time.monotonic()
            # No packet is carried while the emulator is stopped.
            os.kill(emulator, signal.SIGSTOP)
            try:
                wait_for("the alarm", lambda: fleet.reachable() == 1)
                figures["known_ms"].append((time.monotonic() - cut) * 1e3)
            finally:
                os.kill(emulator, signal.SIGCONT)
            back = time.monotonic()
            wait_for("the return", lambda: fleet.reachable() == 2)
            figures["back_ms"].append((time.monotonic() - back) * 1e3)
    return figures


def alarms(programs: Programs, case: FleetCase, directory: Path) -> dict[str, Any]:
    """How often a machine is shown as unreachable over a time in which it is not."""
    with two_machines(programs, case, directory) as fleet:
        time.sleep(case.seconds)
        shown = fleet.operator.log().count("cannot be reached")
        return {"false_alarms": shown, "reachable": fleet.reachable()}


def road(programs: Programs, case: FleetCase, directory: Path) -> dict[str, Any]:
    """The road video and an IMU from robot to edge, by the fleet and by `link bench`, in turns."""
    figures: dict[str, Any] = {"fleet": [], "bench": []}
    with two_machines(programs, case, directory) as fleet:
        for number in range(case.rounds):
            turns = [("fleet", _road_by_fleet), ("bench", _road_by_bench)]
            for name, measure in turns if number % 2 == 0 else turns[::-1]:
                figures[name].append(measure(programs, fleet, case.seconds, directory / f"{name}-{number}"))
    return figures


def _road_by_fleet(programs: Programs, fleet: Fleet, seconds: float, place: Path) -> dict[str, Any]:
    file = place.with_suffix(".txt")
    bulk = {"queue_size": 10, "qos": {"traffic_class": "bulk"}}
    nodes = [
        programs.source("camera", "robot", IMAGE_BYTES, IMAGE_HZ),
        programs.source("imu", "robot", IMU_BYTES, IMU_HZ),
        programs.sink(
            "sink",
            "edge",
            file,
            {"image": {"source": "camera/out"} | bulk, "imu": {"source": "imu/out", "queue_size": 10}},
        ),
    ]
    fleet.start(place.name, nodes)
    time.sleep(SETTLING_SECONDS)
    daemons = [machine.daemon_tree().pid for machine in fleet.machines]
    used = _cpu_over(daemons, seconds)
    streams = fleet.stop(place.name)
    received = samples_of(file)
    return {"cpu_s": used, "seconds": seconds} | {
        name: _stream_figures(received[name], streams[topic]) for name, topic in TOPICS.items()
    }


TOPICS = {"image": "camera/out", "imu": "imu/out"}


def _stream_figures(received: list[tuple[int, float]], stream: dict[str, Any]) -> dict[str, Any]:
    sent = stream["accepted"] + stream["lost"].get("queue", 0) + stream["lost"].get("not sent", 0)
    return {"delivered": stream["delivered"] / sent, "lost": stream["lost"]} | _latencies(received)


def _road_by_bench(programs: Programs, fleet: Fleet, seconds: float, place: Path) -> dict[str, Any]:
    edge, robot = (machine.host for machine in fleet.machines)
    file = place.with_suffix(".txt")
    keys, public = [place.with_suffix(f".{end}") for end in ("edge", "robot")], []
    for key in keys:
        words = [str(programs.nervure), "link", "key", str(key)]
        public.append(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip())
    bench = [str(programs.nervure), "link", "bench"]
    address = f"{edge.address}:7777"
    serve = ["serve", "--listen", address, "--key", str(keys[0]), "--allow", public[1], "--json"]
    receiver = edge.start([*bench, *serve, "--once", "--receptions", str(file)])
    streams = {"image": (IMAGE_BYTES, IMAGE_HZ, "bulk"), "imu": (IMU_BYTES, IMU_HZ, "default")}
    send = ["send", "--connect", address, "--key", str(keys[1]), "--peer", public[0], "--json"]
    counts = {}
    for name, (size, rate_hz, traffic_class) in streams.items():
        # The receiver writes its file in blocks, so that the measurement begins some seconds later.
        counts[name] = round((seconds + 6 * SETTLING_SECONDS) * rate_hz)
        options = f"size={size},rate_hz={rate_hz},qos=keep_last:10,class={traffic_class},count={counts[name]}"
        send += ["--stream", options]
    sender = robot.start([*bench, *send])
    wait_for("the bench", lambda: file.exists() and file.stat().st_size > 0)
    time.sleep(SETTLING_SECONDS)
    used = _cpu_over(fleet_processes(str(file), str(keys[1])), seconds)
    for process in (sender, receiver):
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"`link bench`: {output}")
    received: dict[str, list[tuple[int, float]]] = {name: [] for name in streams}
    for line in file.read_text().splitlines():
        stream, _, due, at = line.split()
        name = list(streams)[int(stream.rpartition("/")[2])]
        received[name].append((int(at), (int(at) - int(due)) / 1e6))
    return {"cpu_s": used, "seconds": seconds} | {
        name: {"delivered": len(received[name]) / counts[name]} | _latencies(received[name])
        for name in streams
    }


def fleet_processes(*arguments: str) -> list[int]:
    """The processes that have one of these as their last or any argument, `nsenter` aside."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[0] != "nsenter" and any(argument in words for argument in arguments):
                found.append(int(entry.name))
    return found


def control(programs: Programs, case: FleetCase, directory: Path) -> dict[str, Any]:
    """Commands at 50 Hz in both directions, alone and beside images from the robot that exceed the link."""
    figures: dict[str, Any] = {"alone": [], "beside": []}
    urgent = {"queue_size": 5, "qos": {"traffic_class": "control"}}
    with two_machines(programs, case, directory) as fleet:
        for number in range(2 * case.rounds):
            kind = "beside" if number % 2 else "alone"
            name = f"control-{number}"
            files = {end: directory / f"{name}-{end}.txt" for end in ("edge", "robot", "viewer")}
            nodes = [
                programs.source("driver", "edge", COMMAND_BYTES, COMMAND_HZ),
                programs.source("odometry", "robot", COMMAND_BYTES, COMMAND_HZ),
                programs.sink("wheels", "robot", files["robot"], {"in": {"source": "driver/out"} | urgent}),
                programs.sink("planner", "edge", files["edge"], {"in": {"source": "odometry/out"} | urgent}),
            ]
            if kind == "beside":
                bulk = {"queue_size": 2, "qos": {"traffic_class": "bulk", "lifespan": "300ms"}}
                image = {"image": {"source": "camera/out"} | bulk}
                nodes += [
                    programs.source("camera", "robot", FLOOD_BYTES, FLOOD_HZ),
                    programs.sink("viewer", "edge", files["viewer"], image),
                ]
            fleet.start(name, nodes)
            time.sleep(SETTLING_SECONDS + case.seconds)
            streams = fleet.stop(name)
            figures[kind].append(
                {
                    "to_robot": _stream_figures(samples_of(files["robot"])["in"], streams["driver/out"]),
                    "to_edge": _stream_figures(samples_of(files["edge"])["in"], streams["odometry/out"]),
                    "image_delivered": streams["camera/out"]["delivered"] if kind == "beside" else 0,
                }
            )
    return figures


def rest(programs: Programs, case: FleetCase, directory: Path) -> dict[str, Any]:
    """Two daemons with nothing to do: memory, wake-ups, processor, packets."""
    with two_machines(programs, case, directory) as fleet:
        time.sleep(5 * SETTLING_SECONDS)
        before = [machine.daemon_tree() for machine in fleet.machines]
        packets_before = link_counters(directory)
        begin = time.monotonic()
        time.sleep(case.seconds)
        seconds = time.monotonic() - begin
        after = [machine.daemon_tree() for machine in fleet.machines]
        packets_after = link_counters(directory)
    figures: dict[str, Any] = {}
    for machine, one, other in zip(fleet.machines, before, after, strict=True):
        figures[machine.name] = {
            "rss_mb": other.rss_bytes / 1e6,
            "threads": other.threads,
            "wake_ups_per_s": (other.voluntary_context_switches - one.voluntary_context_switches) / seconds,
            "cpu_percent": 100 * (other.total_cpu_seconds - one.total_cpu_seconds) / seconds,
        }
    between = packets_after["seconds"] - packets_before["seconds"]
    for name, one, other in zip(figures, packets_before["hosts"], packets_after["hosts"], strict=True):
        for unit in ("packets", "bytes"):
            figures[name][f"{unit}_per_s"] = (other["offered"][unit] - one["offered"][unit]) / between
    return figures


def many(programs: Programs, case: FleetCase, directory: Path) -> dict[str, Any]:
    """Many daemons and nodes on loopback: each machine sends to the next."""
    names = [f"m{number:02}" for number in range(case.machines)]
    per_machine = case.nodes // case.machines
    figures: dict[str, Any] = {"machines": case.machines}
    with loopback_host() as host:
        machines = [Machine(name, host, programs.nervure, directory) for name in names]
        fleet = Fleet(machines, directory)
        begin = time.monotonic()
        fleet.pair()
        figures["paired_s"] = time.monotonic() - begin
        figures["at_rest"] = _all_daemons(fleet, host, case.seconds)
        nodes, files = [], []
        for number, name in enumerate(names):
            for pair in range(per_machine // 2):
                file = directory / f"sink-{number}-{pair}.txt"
                files.append(file)
                neighbour = names[(number + 1) % len(names)]
                source, sink = f"source-{number}-{pair}", f"sink-{number}-{pair}"
                nodes.append(programs.source(source, name, 64, 10))
                nodes.append(programs.sink(sink, neighbour, file, {"in": f"{source}/out"}))
        figures["nodes"] = len(nodes)
        path = fleet.write("many", nodes)
        begin_nanos = time.time_ns()
        fleet.operator.nervure("start", path)
        figures["command_s"] = (time.time_ns() - begin_nanos) / 1e9
        wait_for("samples of all nodes", lambda: all(_times(file, "sample") for file in files), 0.2)
        first = [_times(file, "sample")[0] for file in files]
        figures["first_samples_s"] = (max(first) - begin_nanos) / 1e9
        figures["running"] = _all_daemons(fleet, host, case.seconds)
        begin = time.monotonic()
        streams = fleet.stop("many")
        figures["stop_s"] = time.monotonic() - begin
        figures["delivered"] = sum(it["delivered"] for it in streams.values())
        figures["lost"] = sum(sum(it["lost"].values()) for it in streams.values())
        figures["processes_left"] = len(fleet.processes(str(programs.node)))
    return figures


def _all_daemons(fleet: Fleet, host: Host, seconds: float) -> dict[str, float]:
    before = [machine.daemon_tree() for machine in fleet.machines]
    packets = _loopback_packets(host)
    begin = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - begin
    after = [machine.daemon_tree() for machine in fleet.machines]
    daemons = len(after)
    used = [other.total_cpu_seconds - one.total_cpu_seconds for one, other in zip(before, after, strict=True)]
    wakes = [
        other.voluntary_context_switches - one.voluntary_context_switches
        for one, other in zip(before, after, strict=True)
    ]
    return {
        "rss_mb_median": statistics.median(it.rss_bytes for it in after) / 1e6,
        "rss_mb_most": max(it.rss_bytes for it in after) / 1e6,
        "threads_median": statistics.median(it.threads for it in after),
        "cpu_percent_of_all": 100 * sum(used) / took,
        "wake_ups_per_s_median": statistics.median(wakes) / took,
        "packets_per_s_of_each": (_loopback_packets(host) - packets) / took / daemons,
    }


def _loopback_packets(host: Host) -> int:
    table = Path(f"/proc/{host.pid}/net/dev").read_text()
    (line,) = (line for line in table.splitlines() if line.strip().startswith("lo:"))
    return int(line.partition(":")[2].split()[1])


def link_counters(directory: Path) -> dict[str, Any]:
    lines = (directory / "link.jsonl").read_text().splitlines()
    counters: dict[str, Any] = json.loads(lines[-1])
    return counters


def _times(file: Path, *kinds: str) -> list[int]:
    """Times of these events of a sink."""
    if not file.exists():
        return []
    lines = [line.split() for line in file.read_text().splitlines()]
    return [int(line[2]) for line in lines if len(line) > 2 and line[0] in kinds]


def samples_of(file: Path) -> dict[str, list[tuple[int, float]]]:
    """By input: arrival in nanoseconds, and age in milliseconds, of each sample."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in file.read_text().splitlines():
        words = line.split()
        if words[0] == "sample":
            at = int(words[2])
            found.setdefault(words[1], []).append((at, (at - int(words[3])) / 1e6))
    return found


def _latencies(received: list[tuple[int, float]]) -> dict[str, float]:
    """Without the first second, in which the rate of the link is found."""
    start = min(at for at, _ in received) + int(SETTLING_SECONDS * 1e9)
    ages = sorted(age for at, age in received if at >= start)
    at = statistics.quantiles(ages, n=100, method="inclusive")
    return {
        "mean_ms": statistics.fmean(ages),
        "p50_ms": at[49],
        "p99_ms": at[98],
        "samples": len(ages),
    }


def _cpu_over(pids: list[int], seconds: float) -> float:
    """The processor time of some processes over this time."""

    def used() -> float:
        return sum(map(cpu_seconds, pids))

    before = used()
    time.sleep(seconds)
    return used() - before
