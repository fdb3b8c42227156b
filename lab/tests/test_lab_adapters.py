"""The contract of every adapter, on those that need no peer. Builds the floors; installs NumPy."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest
from nervure_lab.experiments.local.adapters import all_adapters
from nervure_lab.experiments.local.case import Case, LocalAdapter
from nervure_lab.toolchain import Toolchain

TOOLCHAIN = Toolchain(Path("/nonexistent"))
FLOORS = [adapter for adapter in all_adapters() if adapter.kind == "floor"]
SCHEMA = json.loads((Path(__file__).parent.parent / "schema" / "result.schema.json").read_text())
CASES = [
    {"mode": "paced", "payload_bytes": 64},
    {"mode": "paced", "payload_bytes": 65536, "touch": False},
    {"mode": "paced", "payload_bytes": 4096, "consumers": 3},
    {"mode": "flood", "payload_bytes": 64, "flood_seconds": 0.2, "flood_warmup_seconds": 0.05},
    {"mode": "idle", "payload_bytes": 64, "idle_seconds": 2.2},
]


def test_names_are_unique() -> None:
    names = [adapter.name for adapter in all_adapters()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("adapter", FLOORS, ids=lambda adapter: adapter.name)
@pytest.mark.parametrize("keys", CASES, ids=lambda keys: f"{keys['mode']}-{keys.get('consumers', 1)}")
def test_an_adapter_measures_what_it_is_asked(adapter: LocalAdapter, keys: dict) -> None:
    adapter.prepare(TOOLCHAIN)
    assert all(adapter.versions().values())
    case = Case(language=adapter.language, **{"warmup_messages": 2, "messages": 5, "rate_hz": 100.0, **keys})
    if adapter.refusal(case):
        pytest.skip(f"{adapter.name} {adapter.refusal(case)}")
    result = adapter.run(case)
    assert (result.outcome, result.reason) == ("ok", "")
    assert len(result.consumers) == case.consumers
    for consumer in result.consumers:
        assert consumer.received + consumer.lost == result.sent
        assert consumer.reordered == 0
    if case.mode == "paced":
        assert_times(case, result.sent, result.consumers)
    if case.mode == "flood":
        assert result.consumers[0].lost == 0
        assert result.consumers[0].window_messages > 0
    if case.mode == "idle":
        waiting = [process for process in result.processes if process.role == "consumer 0"]
        assert waiting[0].idle_wakeups_per_second is not None
        assert waiting[0].rss_bytes > 0
    run = {"case": dataclasses.asdict(case), **result.as_json()}
    jsonschema.validate(run, {"$ref": "#/$defs/local", "$defs": SCHEMA["$defs"]})


def assert_times(case: Case, sent: int | None, consumers: list) -> None:
    assert sent == case.warmup_messages + case.messages
    for consumer in consumers:
        assert len(consumer.latency_nanos) == len(consumer.end_to_end_nanos)
        assert len(consumer.latency_nanos) + len(consumer.warmup_latency_nanos) == consumer.received
        pairs = zip(consumer.latency_nanos, consumer.end_to_end_nanos, strict=True)
        assert all(0 < latency <= end_to_end for latency, end_to_end in pairs)
