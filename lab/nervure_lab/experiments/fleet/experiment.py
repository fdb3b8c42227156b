"""A dataflow on several machines: start, failures, samples beside `link bench`, control beside images, idle
daemons, fifty machines on this one; large samples and discovery beside peers.

Machines are namespaces of this one, with the emulated link between two, or loopback between many. Nodes are
those of the example `observed` of `nervure-node`, which log their events with the time. The page is one
table.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nervure_lab.experiments.fleet import measures, nodes, peers
from nervure_lab.experiments.fleet.measures import FleetCase, Programs
from nervure_lab.experiments.own import Build, OwnExperiment, PlannedFigures
from nervure_lab.toolchain import Toolchain, try_emulator

MEASURES: dict[str, Callable[[Programs, FleetCase, Path], dict[str, Any]]] = {
    "start": measures.start_and_failure,
    "unreachable": measures.unreachable,
    "alarms": measures.alarms,
    "road": measures.road,
    "control": measures.control,
    "rest": measures.rest,
    "many": measures.many,
}
ROUND_TRIP_MS = 2.0
SETUP_SECONDS = 3.0
"""Expected time to pair two machines."""


class FleetBuild(Build):
    def prepare(self, toolchain: Toolchain) -> None:
        super().prepare(toolchain)
        self.toolchain = toolchain
        self.emulator = toolchain.workspace_program("nervure-linkemu", "nervure-linkemu")
        try_emulator(self.emulator)


class FleetExperiment(OwnExperiment):
    name = "fleet"
    summary = "a dataflow on several machines: start, failures, samples, control, rest, fifty machines"

    def adapters(self) -> list[Build]:
        return [FleetBuild(example="observed")]

    def plan(self, quick: bool) -> list[PlannedFigures]:
        rounds = 2 if quick else 10
        cases = {
            "start-0": FleetCase("start", 0, rounds=rounds),
            "start-20": FleetCase("start", 20, rounds=rounds),
            "unreachable-0": FleetCase("unreachable", 0, rounds=rounds, seconds=1),
            "unreachable-20": FleetCase("unreachable", 20, rounds=rounds, seconds=5 if quick else 60),
            "road-0": FleetCase("road", 0, 600, rounds=1 if quick else 3, seconds=4 if quick else 15),
            "road-20": FleetCase("road", 20, 600, rounds=1 if quick else 3, seconds=4 if quick else 15),
            "control-0": FleetCase("control", 0, 100, rounds=1 if quick else 3, seconds=3 if quick else 10),
            "control-20": FleetCase("control", 20, 100, rounds=1 if quick else 3, seconds=3 if quick else 10),
            "rest": FleetCase("rest", seconds=5 if quick else 20),
            # Ten minutes are the target's; the figure of a quick run is of `unreachable-20`.
            **({} if quick else {"alarms-20": FleetCase("alarms", 20, seconds=600)}),
            **{
                f"peers-{loss}": FleetCase("peers", loss, rounds=3, seconds=10)
                for loss in (() if quick else (0, 1, 20))
            },
            **{
                f"nodes-{count}": FleetCase("nodes", seconds=5 if quick else 20, nodes=count)
                for count in ((10,) if quick else (10, 100))
            },
            "many": FleetCase("many", seconds=5 if quick else 10, machines=4, nodes=16)
            if quick
            else FleetCase("many", seconds=10, machines=50, nodes=200),
        }
        return [PlannedFigures(name, case, 1, case.what) for name, case in cases.items()]

    def expected_seconds(self, case: FleetCase) -> float:
        seconds = {
            "start": case.rounds * 3.0,
            "unreachable": case.seconds + case.rounds * 5.0,
            "road": case.rounds * 2 * (case.seconds + 4.0),
            "control": case.rounds * 2 * (case.seconds + 2.0),
            "rest": case.seconds + 5.0,
            "alarms": case.seconds,
            "peers": case.rounds * len(peers.TITLES) * (case.seconds + 8.0),
            "nodes": 2 * (case.seconds + nodes.SETTLED_SECONDS) + case.nodes * 0.05,
            "many": 2 * case.seconds + case.machines * 0.5,
        }
        return SETUP_SECONDS + seconds[case.what]

    def measure(self, build: Build, case: FleetCase, directory: Path) -> dict[str, Any]:
        assert isinstance(build, FleetBuild)
        programs = Programs(build.command.resolve(), build.emulator.resolve(), build.example.resolve())
        if case.what == "peers":
            return peers.beside(programs, case, directory, build.toolchain)
        if case.what == "nodes":
            return nodes.nodes(programs, case, directory, build.toolchain)
        return MEASURES[case.what](programs, case, directory)

    def lines(self, runs: list[dict[str, Any]]) -> list[str]:
        rows = [row for run in runs for row in ROWS[run["case"]["what"]](FleetCase(**run["case"]), run)]
        return ["| what | measured | target | |", "| :--- | :--- | :--- | :--- |", *map(str, rows)]


@dataclass(frozen=True)
class Row:
    what: str
    measured: str
    target: str = ""
    is_met: bool | None = None

    def __str__(self) -> str:
        verdict = {None: "", True: "met", False: "missed"}[self.is_met]
        return f"| {self.what} | {self.measured} | {self.target} | {verdict} |"


def _start_rows(case: FleetCase, run: dict[str, Any]) -> list[Row]:
    figures, loss = run["figures"], f"{case.loss_percent} % loss"
    most_s = 2.0 if case.loss_percent else 0.5
    first, known = figures["first_sample_ms"], figures["failure_known_ms"]
    most_known_ms = 2 * ROUND_TRIP_MS + 50
    return [
        Row(
            f"`start` to its first sample, {loss}",
            _spread(first),
            f"at most {most_s:g} s",
            max(first) <= most_s * 1e3,
        ),
        Row(f"`start` until the command returns, {loss}", _spread(figures["command_ms"])),
        Row(
            f"failure of a node known to its consumer, {loss}",
            _spread(known),
            f"2 RTT + 50 ms: {most_known_ms:.0f} ms",
            max(known) <= most_known_ms,
        ),
    ]


def _unreachable_rows(case: FleetCase, run: dict[str, Any]) -> list[Row]:
    figures, loss = run["figures"], f"{case.loss_percent} % loss"
    known, alarms = figures["known_ms"], figures["false_alarms"]
    return [
        Row(f"machine shown as unreachable, {loss}", _spread(known), "at most 1.5 s", max(known) <= 1500),
        Row(f"shown as reachable again, {loss}", _spread(figures["back_ms"])),
        Row(f"false alarms in {figures['watched_s']:g} s, {loss}", str(alarms), "none", alarms == 0),
    ]


def _alarms_rows(case: FleetCase, run: dict[str, Any]) -> list[Row]:
    alarms, minutes = run["figures"]["false_alarms"], case.seconds / 60
    what = f"false alarms in {minutes:g} minutes, {case.loss_percent} % loss"
    return [Row(what, str(alarms), "none", alarms == 0)]


def _peers_rows(case: FleetCase, run: dict[str, Any]) -> list[Row]:
    """Of each middleware the run with the median share delivered."""
    rows = []
    for name, title in peers.TITLES.items():
        what = f"512 KiB at 30 Hz, {case.loss_percent} % loss: {title}"
        if why := run["figures"]["unavailable"].get(name):
            rows.append(Row(what, f"not run: {why}"))
            continue
        runs = sorted(run["figures"]["runs"][name], key=lambda it: float(it["delivered"]))
        middle = runs[len(runs) // 2]
        text = f"{middle['delivered']:.1%} delivered"
        if "mean_ms" in middle:
            text += f", mean {middle['mean_ms']:.0f} ms, p99 {middle['p99_ms']:.0f} ms"
        if len(runs) > 1:
            shares = ", ".join(f"{it['delivered']:.1%}" for it in runs)
            text += f" (delivered by {len(runs)} runs: {shares})"
        rows.append(Row(what, text + (f"; {middle['failure']}" if "failure" in middle else "")))
    return rows


def _nodes_rows(case: FleetCase, run: dict[str, Any]) -> list[Row]:
    rows, figures = [], run["figures"]
    for name, title, what in (
        ("nervure", "nodes of a dataflow", "`start` returns"),
        ("cyclonedds", "participants of Cyclone DDS", "all readers have their writers"),
    ):
        if name not in figures:
            rows.append(Row(f"{case.nodes} {title}", f"not run: {figures['unavailable']}"))
            continue
        it = figures[name]
        per_second = {unit: it[f"rest_{unit}"] / it["rest_seconds"] for unit in ("packets", "bytes")}
        text = (
            f"{what} after {it['seconds']:.2f} s; {it['begin_packets']} packets, "
            f"{it['begin_bytes'] / 1e3:.0f} kB until they have settled; at rest "
            f"{per_second['packets']:.1f} packets a second, {per_second['bytes'] * 8e-3:.1f} kbit/s"
        )
        rows.append(Row(f"{case.nodes} {title} on two machines", text))
    return rows


def _road_rows(case: FleetCase, run: dict[str, Any]) -> list[Row]:
    figures, loss = run["figures"], f"{case.loss_percent} % loss"
    fleet, bench = figures["fleet"], figures["bench"]
    rows = []
    for name, title in (("image", "video"), ("imu", "IMU")):
        for key, label, unit, scale in (
            ("delivered", "delivered", "%", 100),
            ("mean_ms", "mean latency", "ms", 1),
            ("p99_ms", "p99 latency", "ms", 1),
        ):
            pairs = [(one[name][key], other[name][key]) for one, other in zip(fleet, bench, strict=True)]
            ratio = statistics.median(one / other for one, other in pairs)
            own, others = (scale * statistics.median(values) for values in zip(*pairs, strict=True))
            is_target = key != "p99_ms"
            is_met = ratio >= 0.98 if key == "delivered" else ratio <= 1.02
            rows.append(
                Row(
                    f"{title}, {label}, {loss}",
                    f"{own:.4g} {unit}, `link bench` {others:.4g} {unit}: ratio {ratio:.3f}",
                    "within 2 %" if is_target else "",
                    is_met if is_target else None,
                )
            )
    gigabits = measures.IMAGE_BYTES * measures.IMAGE_HZ * 8e-9
    per_gigabit = [
        [it["cpu_s"] / (it["seconds"] * gigabits * it["image"]["delivered"]) for it in runs]
        for runs in (fleet, bench)
    ]
    ratio = statistics.median(one / other for one, other in zip(*per_gigabit, strict=True))
    own, others = map(statistics.median, per_gigabit)
    measured = f"{own:.2f} s/Gbit, `link bench` {others:.2f} s/Gbit: ratio {ratio:.2f}"
    title = f"CPU of both daemons for each Gbit, {loss}"
    return [*rows, Row(title, measured, "at most 1.15 times", ratio <= 1.15)]


def _control_rows(case: FleetCase, run: dict[str, Any]) -> list[Row]:
    figures, rows = run["figures"], []
    directions = {"to_robot": "against the images", "to_edge": "in the direction of the images"}
    for direction, title in directions.items():
        values = {
            kind: [
                statistics.median(it[direction][key] for it in figures[kind])
                for key in ("p50_ms", "p99_ms", "delivered")
            ]
            for kind in ("alone", "beside")
        }
        texts = [
            f"{kind} {p50:.1f} / {p99:.1f} ms, {delivered:.1%} delivered"
            for kind, (p50, p99, delivered) in values.items()
        ]
        what = f"commands at 50 Hz {title}, median / p99, {case.loss_percent} % loss"
        rows.append(Row(what, "; ".join(texts).replace("beside", "beside them")))
    return rows


def _rest_rows(case: FleetCase, run: dict[str, Any]) -> list[Row]:
    rows = []
    for name, title in (("robot", "daemon"), ("edge", "daemon with coordinator")):
        it = run["figures"][name]
        rows += [
            Row(
                f"memory of an idle {title}",
                f"{it['rss_mb']:.1f} MB, {it['threads']} threads",
                "below 15 MB",
                it["rss_mb"] < 15,
            ),
            Row(
                f"wake-ups of an idle {title}",
                f"{it['wake_ups_per_s']:.1f} a second, {it['cpu_percent']:.2f} % of a core",
            ),
            Row(
                f"packets of an idle {title}",
                f"{it['packets_per_s']:.1f} a second, {it['bytes_per_s'] * 8e-3:.2f} kbit/s",
            ),
        ]
    return rows


def _many_rows(case: FleetCase, run: dict[str, Any]) -> list[Row]:
    it = run["figures"]
    title = f"{it['machines']} machines"
    rows = [Row(f"{title} paired and reachable", f"{it['paired_s']:.1f} s")]
    for kind, words in (("at_rest", "at rest"), ("running", f"with {it['nodes']} nodes")):
        load = it[kind]
        rows.append(
            Row(
                f"{title} {words}",
                f"{load['rss_mb_median']:.1f} MB for each daemon in the median, {load['rss_mb_most']:.1f} MB "
                f"at most; {load['cpu_percent_of_all']:.0f} % of a core for all daemons; "
                f"{load['wake_ups_per_s_median']:.0f} wake-ups and {load['packets_per_s_of_each']:.0f} "
                f"packets a second for each",
            )
        )
    return [
        *rows,
        Row(
            f"`start` of {it['nodes']} nodes on {title}",
            f"all have samples after {it['first_samples_s']:.1f} s, the command returns after "
            f"{it['command_s']:.1f} s",
        ),
        Row(
            f"`stop` of {it['nodes']} nodes on {title}",
            f"{it['stop_s']:.1f} s; {it['delivered']} samples delivered, {it['lost']} lost; "
            f"{it['processes_left']} processes left",
            "none left",
            it["processes_left"] == 0,
        ),
    ]


ROWS: dict[str, Callable[[FleetCase, dict[str, Any]], list[Row]]] = {
    "start": _start_rows,
    "unreachable": _unreachable_rows,
    "alarms": _alarms_rows,
    "peers": _peers_rows,
    "nodes": _nodes_rows,
    "road": _road_rows,
    "control": _control_rows,
    "rest": _rest_rows,
    "many": _many_rows,
}


def _spread(values: list[float]) -> str:
    return f"median {statistics.median(values):.0f} ms, at most {max(values):.0f} ms"


EXPERIMENT = FleetExperiment()
