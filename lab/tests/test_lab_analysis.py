from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from lab_document import Document
from nervure_lab.experiments.local.case import Case
from nervure_lab.experiments.local.report import write_page
from nervure_lab.experiments.local.results import Results, compare, timing
from nervure_lab.experiments.local.targets import findings
from nervure_lab.store import load

SMALL = Case(language="rust", mode="paced", payload_bytes=64)
FAN_OUT = Case(language="rust", mode="paced", payload_bytes=4 * 1024 * 1024, consumers=2)
SCHEMA = json.loads((Path(__file__).parent.parent / "schema" / "result.schema.json").read_text())


@pytest.fixture
def document() -> Document:
    return Document()


def test_repeats_of_a_case_become_a_cell(document: Document) -> None:
    document.add_adapter("iceoryx2-rust")
    document.add_run("iceoryx2-rust", SMALL, [[10, 20, 30]], repeat=0)
    document.add_run("iceoryx2-rust", SMALL, [[40, 50, 60]], repeat=1, lost=2)
    cell = Results(document.content).cell("iceoryx2-rust", "paced", 64)
    assert cell is not None
    found = timing(cell, "latency_nanos")
    assert found is not None
    assert (found.median, found.samples) == (35.0, 6)
    assert cell.medians_of_repeats("latency_nanos") == [20_000, 50_000]
    assert (cell.count("lost"), cell.sent, cell.is_lossless) == (2, 8, False)


def test_losses_count_deliveries(document: Document) -> None:
    document.add_adapter("iceoryx2-rust")
    document.add_run("iceoryx2-rust", FAN_OUT, [[10, 10], [30, 30]], lost=1)
    cell = Results(document.content).cell("iceoryx2-rust", "paced", 4 * 1024 * 1024, consumers=2)
    assert cell is not None
    assert (cell.count("lost"), cell.sent) == (2, 6)
    assert cell.medians_of_consumers("latency_nanos") == [[10_000, 30_000]]


def test_a_hung_repeat_is_kept_and_keeps_the_others_in_step(document: Document) -> None:
    for name in ("nervure-rust", "iceoryx2-rust"):
        document.add_adapter(name)
    for repeat, drift in enumerate((1, 100)):
        hung = repeat == 0
        document.add_run("nervure-rust", SMALL, [[10 * drift] * 20], repeat=repeat)
        document.add_run(
            "iceoryx2-rust",
            SMALL,
            [[20 * drift] * 20],
            repeat=repeat,
            outcome="hung" if hung else "ok",
            reason="consumer 0 did not report" if hung else "",
        )
    results = Results(document.content)
    ours, peer = (results.cell(name, "paced", 64) for name in ("nervure-rust", "iceoryx2-rust"))
    assert peer is not None
    assert peer.problems == ["hung: consumer 0 did not report"]
    found = compare(ours, peer, "latency_nanos")
    assert found is not None
    assert found.value == pytest.approx(0.5)


def test_what_an_adapter_refuses_is_no_cell(document: Document) -> None:
    document.add_adapter("floor-futex")
    document.add_run("floor-futex", SMALL, [], outcome="not_run", reason="has no queue to flood")
    results = Results(document.content)
    assert results.cell("floor-futex", "paced", 64) is None
    assert results.cell("never-heard-of", "paced", 64) is None
    assert results.all_cells() == []


def test_targets_are_met_missed_or_not_measured(document: Document) -> None:
    for name, micros in (("nervure-rust", 25), ("floor-futex", 20), ("iceoryx2-rust", 30)):
        document.add_adapter(name)
        for repeat in range(3):
            document.add_run(name, SMALL, [[micros] * 20], repeat=repeat)
    verdicts = {finding.target: finding for finding in findings(Results(document.content))}
    futex = verdicts["Rust, 64 B: latency at most 1.4x the bare futex wake-up"]
    assert (futex.verdict, futex.measured) == ("met", "1.25x [1.25, 1.25]")
    assert verdicts["Rust, 64 B: latency at most 0.6x iceoryx2's"].verdict == "missed"
    assert verdicts["Python, 32 MiB at 50 Hz: nothing lost"].verdict == "not measured"


def test_a_target_within_nervure_shows_what_floor_and_peer_reach(document: Document) -> None:
    large = replace(SMALL, payload_bytes=4 << 20)
    for name, micros in (("nervure-rust", 25), ("floor-futex", 20), ("iceoryx2-rust", 30)):
        document.add_adapter(name)
        document.add_run(name, SMALL, [[micros] * 20])
        document.add_run(name, large, [[3 * micros] * 20])
    found = {finding.target: finding for finding in findings(Results(document.content))}
    growth = found["Rust, 4 MiB: latency at most 1.5x that of 64 B"]
    assert (growth.measured, growth.beside) == ("3.00x [3.00, 3.00]", "floor 3.00x, iceoryx2 3.00x")
    assert growth.verdict == "missed"


def test_no_target_is_met_by_losing_messages(document: Document) -> None:
    for name, micros, lost in (("nervure-rust", 10, 1), ("floor-futex", 20, 0)):
        document.add_adapter(name)
        document.add_run(name, SMALL, [[micros] * 20], lost=lost)
    first = findings(Results(document.content))[0]
    assert first.verdict == "missed"
    assert "1 of 21 lost" in first.measured


def test_the_report_says_what_is_missing_lost_and_hung(document: Document, tmp_path: Path) -> None:
    document.add_adapter("iceoryx2-rust")
    document.add_adapter("dora-python", reason="`pip install` failed: no network")
    document.add_run("iceoryx2-rust", SMALL, [[10] * 20], repeat=0, lost=5)
    document.add_run("iceoryx2-rust", SMALL, [], repeat=1, outcome="hung", reason="consumer 0 did not report")
    text = _report(document, tmp_path)
    assert "**Not run: the dora-python**: `pip install` failed: no network." in text
    assert "10.0 · 10.0, 1 of 2 hung or failed **L**" in text
    assert "hung: consumer 0 did not report" in text
    assert "5 of 25 (20.0 %)" in text
    assert "python -m nervure_lab run local" in text


def test_a_report_of_nothing_is_still_a_report(document: Document, tmp_path: Path) -> None:
    assert "not measured" in _report(document, tmp_path)


def test_documents_follow_the_schema(document: Document) -> None:
    document.add_adapter("iceoryx2-rust")
    document.add_run("iceoryx2-rust", SMALL, [[10, 20]])
    document.add_run("iceoryx2-rust", SMALL, [], outcome="failed", reason="exited with 1")
    for line in document.lines():
        jsonschema.validate(line, SCHEMA)


def test_another_schema_is_refused(document: Document, tmp_path: Path) -> None:
    document.content["schema"] = "something/else@9"
    with pytest.raises(ValueError, match=r"local\.jsonl: expected .* got something/else@9"):
        _report(document, tmp_path)


def _report(document: Document, directory: Path) -> str:
    result, page = directory / "local.jsonl", directory / "performance.md"
    result.write_text("".join(json.dumps(line) + "\n" for line in document.lines()))
    write_page(load(result), page)
    return page.read_text()
