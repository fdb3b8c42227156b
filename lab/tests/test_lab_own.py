"""The small experiments that measure Nervure alone: their plans and their pages, from runs made up here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nervure_lab.experiments import all_experiments
from nervure_lab.experiments.sobel.experiment import dataflow

SMALL = ("calls", "cold", "cyclic", "fleet", "observers", "recording", "sobel")


def run(
    name: str, figures: dict[str, Any], case: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"name": name, "case": case or {}, "figures": figures, "adapter": "nervure", "repeat": 0, **more}


@pytest.mark.parametrize("name", SMALL)
def test_a_quick_run_is_expected_to_take_less_than_three_minutes(name: str) -> None:
    experiment = all_experiments()[name]
    quick, full = (
        sum(
            job.at_most_seconds
            for job in experiment.jobs(experiment.plan(is_quick), experiment.adapters()[:1])
        )
        for is_quick in (True, False)
    )
    assert 0 < quick < 180
    assert full >= quick


def test_adapters_take_turns() -> None:
    cold = all_experiments()["cold"]
    order = [(job.repeat, job.adapter) for job in cold.jobs(cold.plan(True), cold.adapters())]
    assert order == [(0, "nervure"), (0, "other"), (1, "other"), (1, "nervure")]


def test_calls_shows_medians_and_their_ratio() -> None:
    turns = [[2000, 1000]] * 49 + [[1_000_000, 1000]]
    (line,) = all_experiments()["calls"].lines([run("64B", {"turns_nanos": turns}, {"payload_bytes": 64})])
    expected = "64 bytes: call and answer 2.0 us, two hops 1.0 us, ratio 2.00 (95 % interval 2.00 to 2.00)"
    assert line == expected


def test_cold_compares_the_builds_repeat_by_repeat() -> None:
    own, other = ({step: [nanos, 2 * nanos] for step in ("loan", "send", "take")} for nanos in (100.0, 150.0))
    runs = [run("64B", own), run("64B", other, adapter="other")] * 2
    lines = all_experiments()["cold"].lines(runs)
    assert lines[0].split() == ["nanoseconds", "nervure", "other"]
    assert lines[1].split() == ["loan", "median", "100", "150", "1.50x", "[1.50,", "1.50]"]
    assert lines[-1].split() == ["take", "p99", "200", "300", "1.50x", "[1.50,", "1.50]"]


def test_observers_compares_each_phase_with_the_one_alone() -> None:
    phases = [[10.0 * number, 10.0 * number + 3] for number in range(4)]
    windows = [[10.0 * number + 1, 1000.0 * (1 + number % 2), 5000.0] for number in range(4)]
    outside = [5.0, 9_000_000.0, 9_000_000.0]
    figures = {
        "kinds": ["alone", "observed"],
        "phases_seconds": phases,
        "windows": {"camera": [*windows, outside]},
        "observer_core_shares": [0.1, 0.2, 0.3],
    }
    assert all_experiments()["observers"].lines([run("record", figures, {"robot": "record"})]) == [
        "record: the observer took 20.0% of a core",
        "  camera, median: 1.0 us alone",
        "    observed: 2.0 us, ratio 2.000 (95 % interval 2.000 to 2.000)",
        "  camera, 99 %: 5.0 us alone",
        "    observed: 5.0 us, ratio 1.000 (95 % interval 1.000 to 1.000)",
    ]


def test_recording_shows_the_recorder_and_the_latency_meanwhile() -> None:
    recorder = {"core_share": 0.05, "summary": "9 samples", "disk_megabytes_per_second": 300.0}
    case = {"records": True, "height": 10, "width": 100, "camera_hz": 999, "seconds": 10}
    runs = [
        run("alone", {"p50_nanos": {"sink/image": 40_000}}, case | {"records": False}),
        run("recorded", recorder | {"p50_nanos": {"sink/image": 50_000}}, case),
    ]
    assert all_experiments()["recording"].lines(runs) == [
        "100x10 RGB at 999 Hz (3 MB/s) and an IMU at 99 Hz: 5.0% of a core, 9 samples; plain writes 300 MB/s",
        "  latency of sink/image: p50 40 us, while recording 50 us",
    ]


def test_the_robot_of_the_sobel_experiment_has_seven_nodes_and_topics() -> None:
    nodes = dataflow(10, in_graph=True, composed=False)
    topics = [f"{node['id']}/{output}" for node in nodes for output in node.get("outputs", [])]
    used = {source for node in nodes for source in node["inputs"].values() if "timer" not in source}
    assert (len(nodes), len(topics)) == (7, 7) and used == set(topics)
    assert len(dataflow(10, in_graph=False, composed=False)) == 2
    composed = dataflow(10, in_graph=True, composed=True)
    assert {node["process"] for node in composed} == {"robot"}


def sobel_runs() -> list[dict[str, Any]]:
    """The last of ten images takes twice as long, and begins after four times as long."""

    def figures(milliseconds: float) -> dict[str, Any]:
        nanos = round(milliseconds * 1e6)
        begun = [nanos // 10] * 9 + [4 * nanos // 10]
        return {"taken_nanos": [nanos] * 9 + [2 * nanos], "begun_nanos": begun, "lost": 1}

    return [
        run("library", figures(2.0)),
        run("composed-alone", figures(3.0)),
        run("composed-alone", figures(3.0)),
    ]


def test_sobel_states_milliseconds_beside_the_library_call() -> None:
    lines = all_experiments()["sobel"].lines(sobel_runs())
    assert lines[2] == "| library | 10 | 1 | 2.00 (2.00 to 2.00) | 3.82 | 3.98 | 4.00 | 0.20 | 0.80 |  |"
    assert (
        lines[3]
        == "| composed-alone | 20 | 2 | 3.00 (3.00 to 3.00) | 6.00 | 6.00 | 6.00 | 0.30 | 1.20 | 1.00 |"
    )


def test_sobel_names_the_peer_of_a_case_and_the_reason_of_its_failure() -> None:
    failed = {"taken_nanos": [], "begun_nanos": [], "lost": 10, "failure": "hung: it did not stop"}
    runs = [*sobel_runs(), run("processes-alone", failed, adapter="zeromq-ipc")]
    lines = all_experiments()["sobel"].lines(runs)
    assert lines[4] == "| zeromq-ipc processes-alone | 0 | 10 | | | | | | | |"
    assert lines[-1] == "zeromq-ipc processes-alone: hung: it did not stop"


def test_peers_take_part_in_sobel_alone_and_in_their_place() -> None:
    sobel = all_experiments()["sobel"]
    adapters = [it for it in sobel.adapters() if it.name in ("nervure", "zeromq-ipc", "zeromq-inproc")]
    names: dict[str, set[str]] = {}
    for job in sobel.jobs(sobel.plan(True), adapters):
        names.setdefault(job.adapter, set()).add(job.name)
    assert len(names["nervure"]) == 5
    assert names["zeromq-ipc"] == {"processes-alone"}
    assert names["zeromq-inproc"] == {"composed-alone"}


def test_sobel_draws_the_distributions_with_every_image_behind_them(tmp_path: Path) -> None:
    result = {
        "experiment": "sobel",
        "runs": sobel_runs(),
        "source": "abc",
        "started": "2026-11-25",
        "seconds": 60.0,
        "profile": "quick",
        "interrupted": False,
        "machine": {"cpu": "a processor", "cores": 2, "virtual_machine": True, "kernel": "6.1"},
        "load_average_before": 0.1,
        "load_average_after": 0.2,
        "adapters": [{"title": "Nervure", "available": True, "versions": {"opencv": "5"}, "settings": "-"}],
        "command": "python -m nervure_lab run sobel",
    }
    all_experiments()["sobel"].write_page(result, tmp_path / "sobel.md")
    # There is no run in the graph, so there is no figure of it.
    assert [file.name for file in sorted((tmp_path / "sobel-figures").iterdir())] == [
        "sobel-alone.csv",
        "sobel-alone.png",
    ]
    rows = (tmp_path / "sobel-figures" / "sobel-alone.csv").read_text().splitlines()
    assert rows[:2] == ["case,run,image,micros", "library,0,0,2000"]
    assert len(rows) == 1 + 10 + 20
    html = (tmp_path / "sobel.html").read_text()
    assert "composed-alone: 20 images, median 3.00 · p99 6.00 · p99.9 6.00 · maximum 6.00 ms" in html
    assert html.count("<tr>") == 3 and "opencv 5" in html and "data:text/csv;base64" in html
    assert "](sobel-figures/sobel-alone.png)" in (tmp_path / "sobel.md").read_text()


def test_fleet_judges_the_worst_start_and_the_median_of_pairs() -> None:
    times = {"first_sample_ms": [50.0, 510.0], "command_ms": [60.0, 520.0], "failure_known_ms": [3.0, 5.0]}
    sample = {"delivered": 1.0, "mean_ms": 20.0, "p99_ms": 30.0}
    road = [
        {"cpu_s": cpu, "seconds": 10.0, "image": sample | {"mean_ms": mean}, "imu": sample}
        for cpu, mean in ((2.2, 20.2), (2.0, 20.0))
    ]
    case = {"loss_percent": 0, "rounds": 1}
    lines = all_experiments()["fleet"].lines(
        [
            run("start-0", times, case | {"what": "start"}),
            run("road-0", {"fleet": road[:1], "bench": road[1:]}, case | {"what": "road"}),
        ]
    )
    assert lines[2].endswith("| median 280 ms, at most 510 ms | at most 0.5 s | missed |")
    assert lines[4].endswith("| median 4 ms, at most 5 ms | 2 RTT + 50 ms: 54 ms | met |")
    assert lines[6].endswith("20.2 ms, `link bench` 20 ms: ratio 1.010 | within 2 % | met |")
    assert lines[-1].endswith("ratio 1.10 | at most 1.15 times | met |")


def test_fleet_states_peers_that_cannot_be_run_and_the_traffic_of_nodes() -> None:
    good = {"delivered": 1.0, "mean_ms": 20.0, "p99_ms": 30.0}
    names = ("nervure", "cyclonedds", "fastdds", "zenoh", "dora")
    runs = {name: [good] for name in names} | {
        "zenoh": [{"delivered": 0.0, "failure": "no sample arrived"}],
        "nervure": [good | {"delivered": share} for share in (1.0, 0.9, 0.95)],
    }
    traffic = {"begin_packets": 90, "begin_bytes": 9000, "rest_packets": 40, "rest_bytes": 5000}
    nodes = {"nervure": traffic | {"seconds": 0.5, "rest_seconds": 4.0}, "unavailable": "no wheel"}
    lines = all_experiments()["fleet"].lines(
        [
            run(
                "peers-20",
                {"runs": runs, "unavailable": {"fastdds": "not installed"}},
                {"what": "peers", "loss_percent": 20},
            ),
            run("nodes-10", nodes, {"what": "nodes", "nodes": 10}),
            run("alarms-20", {"false_alarms": 0}, {"what": "alarms", "loss_percent": 20, "seconds": 600}),
        ]
    )
    assert "95.0% delivered, mean 20 ms, p99 30 ms (delivered by 3 runs: 90.0%, 95.0%, 100.0%)" in lines[2]
    assert "not run: not installed" in lines[4]
    assert "0.0% delivered; no sample arrived" in lines[5]
    assert "90 packets, 9 kB until they have settled; at rest 10.0 packets a second, 10.0 kbit/s" in lines[7]
    assert "not run: no wheel" in lines[8]
    assert lines[9] == "| false alarms in 10 minutes, 20 % loss | 0 | none | met |"
