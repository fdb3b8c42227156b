"""Runs of the link experiment: its plan, concurrent jobs, its result file, and real runs over the emulated
link.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from link_document import PLAIN, a_planned, a_result, a_run, a_session
from nervure_lab.comparison import session as peer_session
from nervure_lab.contract import Job, Unavailable, chosen
from nervure_lab.experiments.link import experiment as link_experiment
from nervure_lab.experiments.link import peer_run
from nervure_lab.experiments.link.adapters import all_adapters
from nervure_lab.experiments.link.adapters.baselines import ADAPTERS as BASELINES
from nervure_lab.experiments.link.case import LinkCase
from nervure_lab.experiments.link.emulator import Commands, build_emulator, run_programs
from nervure_lab.experiments.link.experiment import Link, job_of, jobs
from nervure_lab.experiments.link.figures import cell_key, cells, counting, missing
from nervure_lab.experiments.link.measures import cores_taken, disturbance
from nervure_lab.experiments.link.plan import PlannedCase, plan
from nervure_lab.processes import Processes
from nervure_lab.runner import Options, run_experiment
from nervure_lab.slots import Slots
from nervure_lab.store import ResultFile, load, session
from nervure_lab.toolchain import Toolchain

ADAPTERS = [adapter.name for adapter in all_adapters()]


def a_job(rate_mbit: float, seconds: float = 10.0, seed: int = 1, rate_hz: float = 30.0) -> Job:
    cell = LinkCase(rate_mbit, 0, rate_hz=rate_hz)
    planned = PlannedCase("headline", f"{rate_mbit}", cell, frozenset())
    return replace(job_of("nervure", seed, planned), at_most_seconds=seconds)


def a_plan() -> PlannedCase:
    return PlannedCase("headline", "a-cell", PLAIN, frozenset({"udp"}))


def run_link(*arguments: Any, **options: Any) -> dict[str, Any]:
    return run_experiment(Link(), *arguments, **options)


def simulate(waiting: list[Job], budget_cores: float, most: int) -> tuple[list[tuple[float, Job]], float]:
    """The start of each job, and the end of all, on a simulated clock."""
    slots, now = Slots(waiting, budget_cores, most), 0.0
    began, running = [], []
    while True:
        while job := slots.next(now):
            began.append((now, job))
            running.append((now + job.at_most_seconds, job))
            assert len(running) <= most
            assert len(running) == 1 or sum(job.cores for _, job in running) <= budget_cores
        if not running:
            return began, now
        running.sort(key=lambda entry: entry[0])
        now, job = running.pop(0)
        slots.finished(job)


def test_plans_have_seeds_and_samples() -> None:
    for planned in plan(quick=False):
        assert planned.case.connects >= 200 or (planned.seeds >= 5 and planned.case.samples >= 1000), planned
    assert sum(planned.case.sending_seconds for planned in plan(quick=True)) < 60
    names = [planned.name for planned in plan(quick=False)]
    assert len(set(names)) == len(names)
    assert len(set(ADAPTERS)) == len(ADAPTERS)
    assert {peer for planned in plan(quick=False) for peer in planned.peers} <= set(ADAPTERS)


def test_the_grid_has_thirty_cells_with_the_loss_of_both_hops() -> None:
    grid = chosen(plan(quick=False), "grid")
    assert len(grid) == 30
    assert {planned.case.loss_percent for planned in grid} == {0, 19, 36, 51, 64}


def test_the_full_plan_takes_less_than_three_hours_on_two_cores() -> None:
    began, end = simulate(jobs(plan(quick=False), ADAPTERS), budget_cores=1.2, most=12)
    assert end < 3 * 3600
    alone = {job.name for _, job in began if job.cores > 1.2}
    assert {"300-40-512K", "1000-0-512K", "rtt-40", "gigabit-4M", "robots-30"} <= alone
    assert {"veth-10K", "connect-0", "connect-40"} <= alone
    assert not {"300-0-512K", "300-40-1K", "54-0-512K", "grid-1000-0-512k"} & alone


def test_every_first_seed_runs_before_any_second() -> None:
    seeds = [job.repeat for job in jobs(plan(quick=False), ADAPTERS)]
    assert seeds == sorted(seeds)


def test_a_cell_of_two_groups_is_run_once() -> None:
    names = [job.name for job in jobs(chosen(plan(quick=False), "headline,grid"), ["nervure"])]
    assert "grid-300-0-512k" not in names and "grid-300-10-512k" in names
    assert names.count("300-0-512K") == 5
    by_name = {planned.name: planned.case for planned in plan(quick=False)}
    keys = [cell_key(asdict(by_name[name])) for name in ("300-0-512K", "grid-300-0-512k", "poster-0-512K")]
    assert len(set(keys)) == 1


def test_cells_are_chosen_by_name_and_group_in_the_order_of_the_patterns() -> None:
    names = [planned.name for planned in chosen(plan(quick=False), "rtt-*,veth,rtt-40")]
    assert names == ["rtt-40", "rtt-200", "veth-10K"]
    with pytest.raises(ValueError, match="no cell is called nothing; there are the groups headline, small"):
        chosen(plan(quick=False), "headline,nothing")


def test_as_many_run_together_as_the_budget_has_room_for() -> None:
    began, end = simulate([a_job(300, seed=seed) for seed in range(4)], budget_cores=0.8, most=4)
    assert [at for at, _ in began] == [0, 0, 10, 10]
    assert end == 20


def test_on_a_machine_on_which_runs_take_more_fewer_run_together() -> None:
    def together(*took: tuple[str, str, float, float]) -> int:
        slots = Slots([a_job(300, seed=seed) for seed in range(4)], budget_cores=0.8, most=4)
        for run in took:
            slots.took(*run)
        return len(list(iter(lambda: slots.next(0.0), None)))

    job = a_job(300)
    assert together() == 2
    # Another adapter's runs say nothing about this one's.
    assert together(("fastdds", job.name, job.cores, 1.0)) == 2
    other = ("nervure", "other", job.cores, job.cores * 1.5)
    assert together(other) == 1
    assert together(other, ("nervure", job.name, job.cores, 0.2)) == 4


def test_only_single_streams_teach_what_runs_take() -> None:
    run = a_run()
    run["link"]["cpu_seconds"] = 2.1
    expected, taken = Link().cores(run) or (0.0, 0.0)
    assert (expected, taken) == (job_of("udp", 1, a_plan()).cores, pytest.approx((2.1 + 0.6 + 1.2) / 13))
    run["case"]["connects"] = 200
    assert Link().cores(run) is None


def test_what_a_run_took_is_that_of_the_emulator_and_both_ends() -> None:
    run = a_run()
    assert cores_taken(run) is None
    run["link"]["cpu_seconds"] = 2.1
    assert cores_taken(run) == pytest.approx((2.1 + 0.6 + 1.2) / 13)
    run["flows"][0]["sender"] = None
    assert cores_taken(run) is None


@pytest.mark.parametrize(
    ("beside_others", "busy_share", "reason"), [(True, 0.8, "80 %"), (False, 0.8, ""), (True, 0.7, "")]
)
def test_runs_that_took_the_processors_from_each_other_are_disturbed(
    beside_others: bool, busy_share: float, reason: str
) -> None:
    run = a_run() | {"beside_others": beside_others, "machine": {"busy_share": busy_share}}
    assert (reason in disturbance(run)) if reason else not disturbance(run)
    calm = a_run(delivered=1) | {"beside_others": True, "machine": {"busy_share": 0.5}}
    assert counting([run, calm]) == [calm if reason else run]


def test_what_is_larger_than_the_budget_runs_alone() -> None:
    began, _ = simulate([a_job(54), a_job(1000, rate_hz=120), a_job(54, 20, seed=2)], 1.2, most=4)
    starts = {job.name + str(job.repeat): at for at, job in began}
    assert starts == {"541": 0, "10001": 10, "542": 20}


def test_small_ones_fill_the_room_that_a_large_one_waits_for_and_do_not_delay_it() -> None:
    waiting = [a_job(300, 30), a_job(1000, rate_hz=120), a_job(54, 40), a_job(54, 20, seed=2)]
    began, _ = simulate(waiting, budget_cores=1.2, most=4)
    starts = {job.name + str(job.repeat): at for at, job in began}
    # The one of 20 s ends before that of 30 s, the one of 40 s would not.
    assert starts == {"3001": 0, "542": 0, "10001": 30, "541": 40}


def test_a_stream_that_asks_for_little_takes_little() -> None:
    assert a_job(1000, rate_hz=0.1).cores < 0.05
    assert 0.35 < a_job(1000).cores < 0.4
    # It asks for more than the link carries.
    assert a_job(54).cores > a_job(300).cores


def test_nothing_is_begun_that_would_end_too_late() -> None:
    slots = Slots([a_job(54, 30), a_job(54, 10, seed=2)], 1.2, 4)
    slots.drop_those_that_end_after(end=100, now=85)
    assert [job.repeat for job in slots.waiting] == [2]


def test_an_experiment_goes_on_where_it_was_interrupted(tmp_path: Path, fake_link: FakeLink) -> None:
    planned = [PlannedCase("headline", "a-cell", PLAIN, frozenset({"udp"}), seeds=2)]
    output = tmp_path / "link.jsonl"
    fake_link.interrupted_at = 3
    first = run_link(planned, fake_link.adapters, Options("full", parallel=1), output)
    assert first["interrupted"] and len(first["runs"]) == 2
    # Killed while it wrote.
    with output.open("a") as file:
        file.write('{"kind": "run", "adap')
    fake_link.interrupted_at = None
    second = run_experiment(
        Link(), planned, fake_link.adapters, Options("full", resume=True, parallel=1), output
    )
    assert not second["interrupted"]
    made = [(run["adapter"], run["repeat"]) for run in second["runs"]]
    assert sorted(made) == [("nervure", 1), ("nervure", 2), ("udp", 1), ("udp", 2)]
    # Without --resume it starts a new file and keeps the old one.
    third = run_link(planned[:1], fake_link.adapters[:1], Options("full", parallel=1), output)
    assert len(third["runs"]) == 2
    assert len(load(tmp_path / "link.jsonl.before")["runs"]) == 4


def test_what_was_not_wanted_lacks_nevertheless(tmp_path: Path, fake_link: FakeLink) -> None:
    wanted = PlannedCase("headline", "a-cell", PLAIN, frozenset({"udp", "zenoh"}), seeds=1)
    other = PlannedCase("small", "other", replace(PLAIN, rate_mbit=54), frozenset(), seeds=1)
    whole = ([wanted, other], ["nervure", "udp", "zenoh"])
    result = run_experiment(
        Link(), [wanted], fake_link.adapters[:1], Options("full"), tmp_path / "link.jsonl", whole=whole
    )
    assert missing(result) == ["a-cell: udp, zenoh", "everything of other"]


def test_a_short_run_is_no_substitute_for_a_long_one(tmp_path: Path, fake_link: FakeLink) -> None:
    output = tmp_path / "link.jsonl"
    short = [PlannedCase("headline", "a-cell", replace(PLAIN, samples=10), frozenset(), seeds=1)]
    run_link(short, fake_link.adapters, Options("quick"), output)
    full = [PlannedCase("headline", "a-cell", PLAIN, frozenset(), seeds=1)]
    result = run_link(full, fake_link.adapters, Options("full", resume=True), output)
    assert [run["case"]["samples"] for run in result["runs"]] == [10, 100]


@pytest.mark.parametrize(
    ("stopped_ms", "made", "counts"),
    [([64], [64], 64), ([80, 10], [80, 10], 10), ([90, 70, 80], [90, 70, 80], 70)],
)
def test_a_run_during_which_the_machine_was_stopped_is_repeated(
    tmp_path: Path, fake_link: FakeLink, stopped_ms: list[float], made: list[float], counts: float
) -> None:
    # Of 13 s.
    fake_link.stopped_ms = list(stopped_ms)
    planned = [PlannedCase("headline", "a-cell", PLAIN, frozenset(), seeds=1)]
    output, adapters = tmp_path / "link.jsonl", fake_link.adapters[:1]
    for resume in (False, True):
        result = run_link(planned, adapters, Options("full", resume=resume, parallel=1), output)
        assert [run["machine"]["stopped_ms"] for run in result["runs"]] == made
        assert [run["machine"]["stopped_ms"] for run in counting(result["runs"])] == [counts]
    [figures] = cells(result).values()
    assert len(figures.runs) == 1


@pytest.mark.parametrize(("share", "expected"), [(0.0, 300), (0.5, 1000), (1.0, 300)])
def test_a_peer_that_delivers_some_is_measured_in_full(
    tmp_path: Path, fake_link: FakeLink, share: float, expected: int
) -> None:
    fake_link.share = share
    planned = [PlannedCase("headline", "a-cell", LinkCase(300, 20), frozenset({"udp"}), seeds=2)]
    result = run_experiment(
        Link(), planned, fake_link.adapters, Options("full", parallel=1), tmp_path / "link.jsonl"
    )
    samples = {(run["adapter"], run["repeat"]): run["case"]["samples"] for run in result["runs"]}
    assert samples == {("nervure", 1): 1000, ("nervure", 2): 1000, ("udp", 1): 300, ("udp", 2): expected}


def test_sessions_add_up(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "link.jsonl", resume=False)
    for planned in (a_planned(nervure=5), a_planned(udp=2)):
        file.add("session", a_session(planned))
        file.add("run", a_run())
        file.add("end", {"interrupted": False, "seconds": 30.0, "load_average_after": 0.1})
    result = load(tmp_path / "link.jsonl")
    assert (len(result["runs"]), result["seconds"]) == (2, 60.0)
    assert [entry["repeats"] for entry in result["planned"]] == [{"nervure": 5, "udp": 2}]


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps({"schema": "nervure-lab/result@1"}) + "\n")
    with pytest.raises(ValueError, match="expected a result file of the lab"):
        load(tmp_path / "other.json")


def test_a_session_is_stored_however_it_ends() -> None:
    stored: list[tuple[str, dict]] = []

    def add(kind: str, fields: dict) -> None:
        stored.append((kind, fields))

    with session("link", "full", {"adapters": []}, add):
        raise KeyboardInterrupt
    with pytest.raises(RuntimeError), session("link", "full", {}, add):
        raise RuntimeError
    assert [kind for kind, _ in stored] == ["session", "end"] * 2
    assert [end["interrupted"] for kind, end in stored if kind == "end"] == [True, False]
    assert {"adapters", "machine", "command"} <= set(stored[0][1])


class FakeLink:
    """Adapters and an emulator that answer at once."""

    def __init__(self) -> None:
        self.interrupted_at: int | None = None
        self.share = 1.0
        self.stopped_ms: list[float] = []
        """Of the runs from the first on; then nothing is stopped."""
        self._runs = 0
        self.adapters = [FakeAdapter("nervure", self), FakeAdapter("udp", self)]

    def run(self, adapter: str, case: LinkCase, seed: int) -> dict:
        self._runs += 1
        if self._runs == self.interrupted_at:
            raise KeyboardInterrupt
        stopped_ms = self.stopped_ms.pop(0) if self.stopped_ms else 0.0
        machine = {"machine": {"realtime": True, "stopped_ms": stopped_ms}}
        return a_run(adapter, seed, int(case.samples * self.share), case) | machine


class FakeAdapter:
    settings = ""

    def __init__(self, name: str, link: FakeLink) -> None:
        self.name = self.title = name
        self._link = link

    def prepare(self, _toolchain: Toolchain) -> None: ...

    def versions(self) -> dict[str, str]:
        return {}

    def run(self, _emulator: Path, case: LinkCase, seed: int, _processes: Processes) -> dict:
        return self._link.run(self.name, case, seed)


@pytest.fixture
def fake_link(monkeypatch: pytest.MonkeyPatch) -> FakeLink:
    link = FakeLink()
    monkeypatch.setattr(link_experiment, "build_emulator", lambda _toolchain: Path("emulator"))
    return link


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build_emulator(Toolchain(tmp_path_factory.mktemp("toolchain")))
    except Unavailable as error:
        pytest.skip(str(error))


COMMON = {"adapter": "udp", "name": "a-cell", "repeat": 1, "source": "abc", "load_average": 0.0}


@pytest.fixture
def over_the_link(emulator: Path, tmp_path: Path) -> Callable[[str, LinkCase], dict]:
    """Runs a cell over a baseline and returns the result."""

    def run(name: str, case: LinkCase) -> dict:
        adapter = next(it for it in BASELINES if it.name == name)
        adapter.prepare(Toolchain(tmp_path))
        return COMMON | adapter.run(emulator, case, 1, Processes())

    return run


@pytest.mark.parametrize("name", ["udp", "tcp-cubic"])
def test_a_clean_link_delivers_every_sample(
    name: str, over_the_link: Callable[[str, LinkCase], dict]
) -> None:
    run = over_the_link(name, LinkCase(100, 0, payload_bytes=10_000, rate_hz=50, samples=20))
    assert run["flows"][0]["receiver"]["delivered"] == 20, run["stderr"]
    # Something waited beside it on every core, and every sample has its time.
    assert run["machine"]["worst_ms"] >= 0
    assert all(0 < begin < end for begin, end in run["machine"]["stops_micros"])
    assert [number for number, _, _ in run["flows"][0]["receptions_micros"]] == list(range(20))
    (figures,) = cells(a_result(run)).values()
    assert figures.worst.fault == ""
    # At least a packet of 1472 bytes for 1460 of the sample; probes and acknowledgements come on top.
    assert 1 < figures.worst.bytes_per_byte < 1.1
    assert figures.worst.sender_cpu and figures.worst.receiver_cpu


def test_an_outage_is_at_its_place_in_the_schedule(
    over_the_link: Callable[[str, LinkCase], dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (peer_run, peer_session):
        monkeypatch.setattr(module, "FIXED_START_SECONDS", 3.0)
    case = LinkCase(100, 0, payload_bytes=1000, rate_hz=50, samples=100, outage=(0.5, 1.0))
    run = over_the_link("udp", case)
    arrived = {number for number, _, _ in run["flows"][0]["receptions_micros"]}
    # 50 samples of 100 fall into it; its edges may take a few more or less.
    assert {0, 10, 90, 99} <= arrived and not arrived & set(range(30, 70)), run["stderr"]
    assert run["flows"][0]["receptions_micros"][0][1] < 1_000_000


def test_a_peer_that_hears_nothing_is_a_result(
    over_the_link: Callable[[str, LinkCase], dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_session, "DISCOVERY_SECONDS", 1.0)
    run = over_the_link("udp", LinkCase(100, 100, payload_bytes=1000, rate_hz=50, samples=20))
    receiver = run["flows"][0]["receiver"]
    assert (receiver["delivered"], receiver["gave_up"]) == (0, True), run["stderr"]


def test_a_tcp_flow_runs_beside_programs(emulator: Path) -> None:
    program = ["sh", "-c", """sleep 2; echo '{"delivered": 0}'"""]
    case = LinkCase(20, 0, payload_bytes=1000, rate_hz=50, samples=50, beside="cubic-later")
    run = COMMON | run_programs(
        emulator, lambda _case, _flow: Commands(program, program), case, 1, Processes()
    )
    assert run["flows"][0]["receiver"] == {"delivered": 0}, run["stderr"]
    first = COMMON | run_programs(
        emulator,
        lambda _case, _flow: Commands(["sh", "-c", "sleep 3; echo '{}'"], program),
        replace(case, beside="cubic-first"),
        1,
        Processes(),
    )
    assert first["beside"] and first["beside"][-1][1] > 100_000, first["stderr"]


def test_without_a_link_samples_arrive_too(over_the_link: Callable[[str, LinkCase], dict]) -> None:
    run = over_the_link("udp", LinkCase(0, 0, payload_bytes=10_000, rate_hz=50, samples=20, veth=True))
    if "root is needed" in run["stderr"]:
        pytest.skip(run["stderr"])
    assert run["link"] is None
    assert run["flows"][0]["receiver"]["delivered"] == 20, run["stderr"]
