"""The link experiment: its figures, its page, and one real run over the emulated link."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from nervure_lab.contract import Unavailable
from nervure_lab.link.adapters import all_link_adapters
from nervure_lab.link.adapters.baselines import Udp
from nervure_lab.link.analysis import cells, impossible
from nervure_lab.link.contract import Cell
from nervure_lab.link.emulator import build_emulator, run_cell
from nervure_lab.link.plan import plan
from nervure_lab.link.report import write_link_report

COUNTERS = ("lost_random", "lost_burst", "lost_outage", "dropped_queue", "dropped_too_big")


def a_run(adapter: str = "udp", seed: int = 1, delivered: int = 50, **link: Any) -> dict[str, Any]:
    """100 samples of 150,000 bytes at 10 Hz, half of them delivered over 40 Mbit/s with 20 % of loss."""
    nothing = {"packets": 0, "bytes": 0}
    sender: dict[str, Any] = dict.fromkeys(COUNTERS, nothing)
    sender |= {
        "offered": {"packets": 10_000, "bytes": 15_000_000},
        "delivered": {"packets": 8_000, "bytes": 12_000_000},
        "lost_random": {"packets": 2_000, "bytes": 3_000_000},
        "airtime_seconds": 3.0,
    }
    cell = Cell(40, 20, payload_bytes=150_000, rate_hz=10, samples=100)
    return {
        "adapter": adapter,
        "cell": asdict(cell),
        "seed": seed,
        "exit_code": 0,
        "link": {"seconds": 13.0, "hosts": [{}, sender | link]},
        "receiver": {"delivered": delivered, "mean_ms": 20.0, "p99_ms": 40.0, "seconds": 10.0},
    }


def a_result(*runs: dict[str, Any]) -> dict[str, Any]:
    machine = {"cpu": "a processor", "cores": 2, "virtual_machine": True, "kernel": "6.1"}
    adapters = [
        {
            "name": "udp",
            "title": "UDP",
            "settings": "Plain.",
            "available": True,
            "versions": {"kernel": "6.1"},
        },
        {
            "name": "zenoh",
            "title": "Zenoh",
            "settings": "",
            "available": False,
            "reason": "no pip",
            "versions": {},
        },
    ]
    return {
        "schema": "nervure-lab/link@1",
        "profile": "full",
        "command": "python -m nervure_lab run link",
        "source": "abc",
        "started": "2026-01-01",
        "machine": machine,
        "load_average_before": 0.1,
        "load_average_after": 0.2,
        "interrupted": False,
        "adapters": adapters,
        "runs": list(runs),
    }


def test_figures_are_of_the_schedule_and_of_the_limit() -> None:
    (cell,) = cells(a_result(a_run()))
    run = cell.worst
    assert run.delivered_percent == 50
    assert run.goodput_mbit == pytest.approx(50 * 150_000 * 8e-6 / 10)
    assert run.limit_percent == pytest.approx(100 * 6 / (40 * 0.8 * 1472 / 1500))
    assert run.bytes_per_byte == pytest.approx(2)
    assert run.fault == ""


def test_the_worst_seed_is_shown() -> None:
    (cell,) = cells(a_result(a_run(seed=1), a_run(seed=2, delivered=20), a_run(seed=3, delivered=70)))
    assert (cell.worst.seed, len(cell.runs)) == (2, 3)


def test_more_than_the_link_carried_fails_the_run() -> None:
    past_it = a_run(delivered=100)
    assert "came over the link" in impossible(a_result(past_it))[0]
    too_long = a_run(airtime_seconds=13.1)
    assert "of airtime" in impossible(a_result(too_long))[0]
    too_fast = a_run()
    too_fast["receiver"]["seconds"] = 1.5
    assert "the limit is" in impossible(a_result(too_fast))[0]
    assert impossible(a_result(a_run())) == []


def test_a_run_without_a_report_is_the_worst() -> None:
    silent = a_run(seed=2)
    silent["receiver"] = None
    (cell,) = cells(a_result(a_run(), silent))
    assert (cell.worst.fault, cell.worst.delivered_percent) == ("no report", 0)


def test_the_report_of_nervure_is_understood() -> None:
    run = a_run("nervure")
    latency = {"samples": 50, "mean_ms": 5.0, "p99_ms": 9.0}
    streams = {"bench/0": {"delivered": 50, "latency": latency}}
    run["receiver"] = {"kind": "summary", "seconds": 9.8, "streams": streams}
    (cell,) = cells(a_result(run))
    assert (cell.worst.delivered_percent, cell.worst.p99_ms) == (50, 9.0)
    assert cell.worst.goodput_mbit == pytest.approx(6.0)


def test_the_page_names_what_was_not_measured(tmp_path: Path) -> None:
    (tmp_path / "link.json").write_text(json.dumps(a_result(a_run())))
    assert write_link_report(tmp_path / "link.json", tmp_path / "link.md") == []
    page = (tmp_path / "link.md").read_text()
    assert "## 40 Mbit/s, 20 % loss; 146 KiB at 10 Hz; RTT 2 ms, queue 100 ms" in page
    assert "| UDP | 50.0 | 20 | 40 | 6.0 | 19 | 2.00 | 1 |" in page
    assert "**Zenoh** was not measured: no pip" in page


def test_plans_have_seeds_and_samples() -> None:
    assert all(planned.seeds >= 5 and planned.cell.samples >= 1000 for planned in plan(quick=False))
    assert sum(planned.cell.sending_seconds for planned in plan(quick=True)) < 60
    names = [adapter.name for adapter in all_link_adapters()]
    assert len(set(names)) == len(names)


def test_a_clean_link_delivers_every_sample() -> None:
    try:
        emulator = build_emulator()
    except Unavailable as error:
        pytest.skip(f"the emulated link does not run here: {error}")
    cell = Cell(100, 0, payload_bytes=10_000, rate_hz=50, samples=20)
    run = run_cell(emulator, Udp(), cell, 1) | {"load_average": 0.0}
    assert run["receiver"] and run["receiver"]["delivered"] == 20, run["stderr"]
    (figures,) = cells(a_result(run))
    assert figures.worst.fault == ""
    # A datagram of 1472 bytes for 1460 of the sample, and the headers.
    assert figures.worst.bytes_per_byte == pytest.approx((10_000 + 7 * (12 + 28)) / 10_000)
