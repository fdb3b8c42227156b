"""Runs of misbehaving endpoints: real processes, tiny programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from nervure_lab.experiments.local import session as session_module
from nervure_lab.experiments.local.case import Case, RunResult
from nervure_lab.experiments.local.session import Session

CASE = Case(language="python", mode="paced", payload_bytes=64, warmup_messages=0, messages=1)
HELLO = (
    "import json, os, socket, sys, time\n"
    "case = json.loads(os.environ['NERVURE_LAB_CASE'])\n"
    "driver = socket.socket(socket.AF_UNIX)\n"
    "driver.connect(case['rendezvous'])\n"
    "hello = {'role': case['role'], 'index': case['index'], 'pid': os.getpid()}\n"
    "driver.sendall(json.dumps(hello).encode() + b'\\n')\n"
    "driver.recv(64)\n"
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "START_TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(session_module, "DRAIN_TIMEOUT_SECONDS", 0.5)


def test_an_endpoint_that_fails_is_a_failed_run_with_its_last_words() -> None:
    result, _ = run("raise SystemExit('no such service')")
    assert result.outcome == "failed"
    assert "exited with 1" in result.reason
    assert "no such service" in result.reason


def test_endpoints_that_never_say_hello_hang() -> None:
    result, _ = run("import time; time.sleep(60)")
    assert (result.outcome, result.reason) == ("hung", "consumer 0, producer 0 did not say hello within 1 s")


def test_endpoints_that_leave_quietly_are_a_failed_run() -> None:
    result, _ = run("pass")
    assert result.outcome == "failed"
    assert "left before their reports" in result.reason


def test_endpoints_that_never_report_hang_and_are_ended() -> None:
    result, directory = run(HELLO + "time.sleep(60)")
    assert result.outcome == "hung"
    assert "did not report" in result.reason
    assert [process.role for process in result.processes] == ["consumer 0", "producer 0"]
    assert not directory.exists()
    assert not [path for path in Path("/proc").glob("[0-9]*/environ") if directory.name in _read(path)]


def run(program: str) -> tuple[RunResult, Path]:
    with Session(CASE) as session:
        session.spawn([sys.executable, "-c", program], role="consumer")
        session.spawn([sys.executable, "-c", program], role="producer")
        return session.result(), session.directory


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
