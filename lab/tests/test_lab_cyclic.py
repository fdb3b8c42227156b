"""The experiment with the control loop: a run of a second, and the page."""

from __future__ import annotations

import array
from pathlib import Path

import pytest
from nervure_lab.contract import Unavailable
from nervure_lab.experiments.cyclic import BOUNDS_MICROS, EXPERIMENT, CyclicBuild, CyclicCase, loop_figures
from nervure_lab.toolchain import Toolchain


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> CyclicBuild:
    build = CyclicBuild()
    try:
        build.prepare(Toolchain(tmp_path_factory.mktemp("cyclic")))
    except Unavailable as reason:
        pytest.skip(str(reason))
    return build


@pytest.mark.parametrize("composed", [False, True])
def test_a_short_run_has_the_turns_of_all_loops(build: CyclicBuild, tmp_path: Path, composed: bool) -> None:
    figures = EXPERIMENT.measure(build, CyclicCase(composed, 1), tmp_path)
    assert figures["load_average"] > 0
    assert list(figures["loops"]) == ["bare", "sensor", "actuator"]
    for loop in figures["loops"].values():
        assert 0 < loop["turns"] <= 1100
        assert sum(loop["histogram"]) == loop["turns"]
        assert 0 <= loop["percentiles"][0] <= loop["percentiles"][-1] <= loop["max"]
    # Its clock catches up with a late wake-up, that of a node skips the turns that it is late for.
    assert figures["loops"]["bare"]["turns"] == 1000


def test_the_page_has_percentiles_and_a_histogram() -> None:
    loops = {
        "bare": loop_figures(array.array("q", [4_000] * 999 + [1_500_000])),
        "sensor": loop_figures(array.array("q", [5_000, 30_000] * 500)),
        "actuator": loop_figures(array.array("q", [40_000] * 1000)),
    }
    assert loops["sensor"]["histogram"] == [500, 0, 0, 500, *[0] * (len(BOUNDS_MICROS) - 3)]
    figures = {"load_average": 4.2, "deadlines_missed": 3, "loops": loops}
    lines = EXPERIMENT.lines([{"case": {"composed": True, "seconds": 600}, "figures": figures}])
    assert lines[0] == "in one process, 600 s, load average 4.2 at the end"
    assert "| bare | 1000 | 4.0 | 4.0 | 1500.0 | 1500.0 | 1 |" in lines
    assert "| at most 50 | 0 | 500 | 1000 |" in lines
    assert lines[-1].endswith("0.02x that of the bare loop; deadlines of the sensor missed: 3")
