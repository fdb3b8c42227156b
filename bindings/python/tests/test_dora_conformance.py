"""The scenarios of dora programs: nodes have the same reports under Nervure as under dora.

With the path of a ``dora`` command in ``NERVURE_DORA``, that dora is compared with the recording as well.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import Dataflow
from dora_scenarios import RECORDED, SCENARIOS, run_dora

REPORTS = json.loads(RECORDED.read_text())["reports"]
DORA = os.environ.get("NERVURE_DORA")


@pytest.mark.parametrize("name", SCENARIOS)
def test_under_nervure(name: str, dataflow: Dataflow) -> None:
    scenario = SCENARIOS[name]
    file = scenario.write(dataflow.folder)
    dataflow.start(file=file)
    process = dataflow.process
    assert process
    scenario.interrupt_when_due(dataflow.folder, lambda: process.poll() is None, dataflow.interrupt)
    result = dataflow.finish(returncode=None)
    assert scenario.reports(dataflow.folder) == REPORTS[name], result


@pytest.mark.skipif(DORA is None, reason="NERVURE_DORA does not name a `dora` command")
@pytest.mark.parametrize("name", SCENARIOS)
def test_under_dora(name: str, tmp_path: Path) -> None:
    assert DORA
    assert run_dora(DORA, SCENARIOS[name], tmp_path) == REPORTS[name]


def test_every_scenario_is_recorded() -> None:
    assert REPORTS.keys() == SCENARIOS.keys()
