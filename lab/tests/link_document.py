"""Runs over the link to analyse, without running anything. As they are in a file: JSON has no tuples."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from nervure_lab.experiments.link.case import LinkCase

NOTHING = {"packets": 0, "bytes": 0}
COUNTERS = ("lost_random", "lost_burst", "lost_outage", "dropped_queue", "dropped_too_big")
PLAIN = LinkCase(40, 20, payload_bytes=150_000, rate_hz=10, samples=100)


def a_host(packets: int = 8_000, lost: int = 2_000, airtime_seconds: float = 3.0) -> dict[str, Any]:
    host: dict[str, Any] = dict.fromkeys(COUNTERS, NOTHING)
    return host | {
        "offered": {"packets": packets + lost, "bytes": (packets + lost) * 1500},
        "delivered": {"packets": packets, "bytes": packets * 1500},
        "lost_random": {"packets": lost, "bytes": lost * 1500},
        "airtime_seconds": airtime_seconds,
    }


def a_run(
    adapter: str = "udp", seed: int = 1, delivered: int = 50, cell: LinkCase = PLAIN, **host: Any
) -> dict[str, Any]:
    """100 samples of 150,000 bytes at 10 Hz, half of them delivered over 40 Mbit/s with 20 % of loss."""
    receiver = {"delivered": delivered, "mean_ms": 20.0, "p99_ms": 40.0, "max_ms": 50.0, "seconds": 10.0}
    run = {
        "adapter": adapter,
        "name": "a-cell",
        "case": asdict(cell),
        "repeat": seed,
        "exit_code": 0,
        "source": "abc",
        "load_average": 0.5,
        "link": {"seconds": 13.0, "hosts": [a_host(0, 0, 0.0), a_host() | host]},
        "flows": [{"receiver": receiver | {"cpu_s": 0.6}, "sender": {"cpu_s": 1.2}}],
        "beside": None,
    }
    result: dict[str, Any] = json.loads(json.dumps(run))
    return result


def a_planned(
    name: str = "a-cell", cell: LinkCase = PLAIN, group: str = "headline", **seeds: int
) -> dict[str, Any]:
    return {"group": group, "name": name, "case": json.loads(json.dumps(asdict(cell))), "repeats": seeds}


def a_session(*planned: dict[str, Any]) -> dict[str, Any]:
    machine = {"cpu": "a processor", "cores": 2, "virtual_machine": True, "kernel": "6.1"}
    zenoh = {"name": "zenoh", "title": "Zenoh", "settings": "", "versions": {}}
    common = {"settings": "Plain.", "available": True, "reason": "", "versions": {"kernel": "6.1"}}
    titles = {"nervure": "Nervure", "udp": "UDP"}
    adapters = [{"name": name, "title": title} | common for name, title in titles.items()]
    return {
        "schema": "nervure-lab/result@2",
        "experiment": "link",
        "profile": "full",
        "command": "python -m nervure_lab run link",
        "source": "abc",
        "started": "2026-01-01",
        "machine": machine,
        "load_average_before": 0.1,
        "adapters": [*adapters, zenoh | {"available": False, "reason": "no pip"}],
        "planned": list(planned),
    }


def a_result(*runs: dict[str, Any], planned: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return a_session(*planned) | {"runs": list(runs), "interrupted": False, "seconds": 60.0}
