"""The figures of the link experiment, its targets and its page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from link_document import PLAIN, a_host, a_planned, a_result, a_run, a_session
from nervure_lab.experiments.link.case import LinkCase
from nervure_lab.experiments.link.figures import CellFigures, Undisturbed, cells, impossible, missing
from nervure_lab.experiments.link.plan import plan
from nervure_lab.experiments.link.report import page, write_page
from nervure_lab.experiments.link.tables import Tables
from nervure_lab.experiments.link.targets import TARGETS, verdicts
from nervure_lab.experiments.link.ticker import Lateness, merged_stops
from nervure_lab.store import command_to_repeat, load
from nervure_lab.toolchain import REPOSITORY_DIRECTORY

MEGA = 1_000_000


def only(result: dict) -> CellFigures:
    (cell,) = cells(result).values()
    return cell


def the_page(directory: Path, planned: dict, *runs: dict) -> str:
    return the_page_of(
        directory, {"kind": "session"} | a_session(planned), *({"kind": "run"} | run for run in runs)
    )


def the_page_of(directory: Path, *lines: dict) -> str:
    end = {"kind": "end", "interrupted": False, "seconds": 60.0, "load_average_after": 0.2}
    source = directory / "link.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in (*lines, end)))
    assert write_page(load(source), directory / "link.md") == []
    return (directory / "link.md").read_text()


def test_figures_are_of_the_schedule_and_of_the_limit() -> None:
    run = only(a_result(a_run())).worst
    assert run.delivered_percent == 50
    assert run.goodput_mbit == pytest.approx(50 * 150_000 * 8e-6 / 10)
    assert run.limit_percent == pytest.approx(100 * 6 / (40 * 0.8 * 1472 / 1500))
    assert run.own_limit_percent == pytest.approx(100 * 6 / (40 * 0.8 * 1408 / 1500))
    assert run.attainable_percent == pytest.approx(100 * 6 / 12)
    assert run.bytes_per_byte == pytest.approx(2)
    gigabits = 50 * 150_000 * 8e-9
    assert (run.sender_cpu, run.receiver_cpu) == (
        pytest.approx(1.2 / gigabits),
        pytest.approx(0.6 / gigabits),
    )
    assert run.fault == ""


def test_sessions_are_stored_beside_the_page_with_their_own_runs(tmp_path: Path) -> None:
    planned = a_planned(nervure=1, udp=1)
    later = {"command": "python -m nervure_lab run link --resume", "source": "def"}
    text = the_page_of(
        tmp_path,
        {"kind": "session"} | a_session(planned),
        {"kind": "run"} | a_run(),
        {"kind": "session"} | a_session(planned) | later,
        {"kind": "run"} | a_run("nervure") | {"source": "def"},
        {"kind": "run"} | a_run(seed=2) | {"source": "def"},
    )
    first, second = Tables.read(tmp_path / "data").runs["sessions"]
    assert (first["sources"], first["runs"], first["adapters"]) == (["abc"], 1, ["udp"])
    assert (second["sources"], second["runs"], second["adapters"]) == (["def"], 2, ["nervure", "udp"])
    assert second["command"] == later["command"]
    assert "Measured at abc, def on a processor" in text


def test_the_worst_seed_is_shown() -> None:
    cell = only(a_result(a_run(seed=1), a_run(seed=2, delivered=20), a_run(seed=3, delivered=70)))
    assert (cell.worst.seed, len(cell.runs)) == (2, 3)


def test_fewer_samples_are_of_the_same_cell() -> None:
    cell = only(a_result(a_run(), a_run(seed=2, delivered=25, cell=replace(PLAIN, samples=50))))
    assert [run.delivered_percent for run in cell.runs] == [50, 50]


def test_more_than_the_link_carried_fails_the_run() -> None:
    assert "came over the link" in impossible(a_result(a_run(delivered=100)))[0]
    assert "of airtime" in impossible(a_result(a_run(airtime_seconds=13.1)))[0]
    too_fast = a_run()
    too_fast["flows"][0]["receiver"]["seconds"] = 1.5
    assert "the limit is" in impossible(a_result(too_fast))[0]
    # Bytes of the flow beside it came over the link too.
    beside = a_run(cell=replace(PLAIN, beside="cubic-first")) | {"beside": [[0, 5 * MEGA]]}
    assert "12500000 bytes delivered, 12000000 came" in impossible(a_result(beside))[0]
    assert impossible(a_result(a_run())) == []


def test_hosts_that_share_the_air_share_its_time() -> None:
    run = a_run(cell=replace(PLAIN, half_duplex=True))
    run["link"]["hosts"][0]["airtime_seconds"] = 10.5
    assert "13.5 s of airtime in 13.0 s" in impossible(a_result(run))[0]


def test_a_run_without_a_report_is_the_worst() -> None:
    silent = a_run(seed=2)
    silent["flows"][0]["receiver"] = None
    worst = only(a_result(a_run(), silent)).worst
    assert (worst.fault, worst.delivered_percent) == ("no report", 0)


def test_the_report_of_nervure_is_understood() -> None:
    run = a_run("nervure")
    latency = {"samples": 50, "mean_ms": 5.0, "p99_ms": 9.0, "max_ms": 9.0}
    streams = {"bench/0": {"delivered": 50, "latency": latency}}
    link = {"cpu_s": 0.3}
    run["flows"][0]["receiver"] = {"kind": "summary", "seconds": 10.0, "streams": streams, "link": link}
    worst = only(a_result(run)).worst
    assert (worst.delivered_percent, worst.p99_ms) == (50, 9.0)
    assert worst.goodput_mbit == pytest.approx(6.0)
    assert worst.receiver_cpu == pytest.approx(0.3 / (50 * 150_000 * 8e-9))


def test_an_outage_is_judged_by_what_came_after_it() -> None:
    cell = replace(PLAIN, outage=(10.0, 20.0), lifespan_ms=500.0)
    run = a_run(cell=cell)
    # Fresh before it, too old just after it, then fresh.
    ages_millis = {9_000: 20, 30_010: 700, 30_050: 30, 30_150: 30}
    run["flows"][0]["receptions_micros"] = [
        [number, (at - age) * 1000, at * 1000] for number, (at, age) in enumerate(ages_millis.items())
    ]
    more = only(a_result(run)).worst.more
    assert more["fresh_after_ms"] == pytest.approx(50)
    assert more["oldest_ms"] == pytest.approx(700)
    run["flows"][0]["receptions_micros"] = run["flows"][0]["receptions_micros"][:2]
    assert only(a_result(run)).worst.more["fresh_after_ms"] == float("inf")


def test_keep_all_accounts_for_every_accepted_sample() -> None:
    run = a_run("nervure", cell=replace(PLAIN, outage=(10.0, 20.0), keep_all=True))
    run["flows"][0]["sender"] = {"streams": {"bench/0": {"accepted": 4}}}
    run["flows"][0]["receptions_micros"] = [[number, 0, 1000] for number in (0, 2, 1, 1)]
    more = only(a_result(run)).worst.more
    assert (more["accepted_lost"], more["duplicates"], more["out_of_order"]) == (1, 1, 1)


def test_shares_are_of_the_time_in_which_both_have_settled() -> None:
    cell = LinkCase(100, 0, 125_000, 80.0, samples=1600, beside="cubic-later")
    run = a_run(cell=cell)
    # 100 Mbit/s alone until 8 s, then 40 beside 50, measured from 13 s to 20 s.
    alone = [[number, 0, number * 10_000] for number in range(800)]
    beside = [[800 + number, 0, 8 * MEGA + number * 25_000] for number in range(481)]
    run["flows"][0]["receptions_micros"] = alone + beside
    run["beside"] = [[8 * MEGA + step * 100_000, step * 625_000] for step in range(121)]
    more = only(a_result(run)).worst.more
    carried = 100 * 1472 / 1500
    assert more["shared_seconds"] == pytest.approx(7)
    assert more["share_percent"] == pytest.approx(100 * 40 / carried, rel=0.01)
    assert more["other_percent"] == pytest.approx(100 * 50 / carried, rel=0.01)
    assert more["apart_percent"] == pytest.approx(100 * 10 / 45, rel=0.05)


def test_robots_are_judged_by_fairness_and_by_what_a_byte_costs() -> None:
    cell = LinkCase(54, 0, 10_000, 100.0, half_duplex=True, robots=2)
    run = a_run(cell=cell)
    run["link"]["hosts"] = [a_host(1000, 0, 1.0), a_host(10_000, 0, 1.0), a_host(10_000, 0, 1.0)]
    # One at 8 Mbit/s and one at 4, for ten seconds.
    flow = run["flows"][0]
    fast = [[number, 0, number * 10_000] for number in range(1001)]
    slow = [[number, 0, number * 20_000] for number in range(501)]
    run["flows"] = [flow | {"receptions_micros": fast}, flow | {"receptions_micros": slow}]
    more = only(a_result(run)).worst.more
    assert more["jain"] == pytest.approx(12**2 / (2 * (64 + 16)))
    assert more["aggregate_percent"] == pytest.approx(100 * 12 / (54 * 1408 / 1500))
    assert more["wire_bytes_per_byte"] == pytest.approx(21_000 * 1500 / (1502 * 10_000))
    # A flow without any sample counts, and a flow that stopped receiving does not shorten the time.
    for starved in ([], slow[:2]):
        run["flows"][1]["receptions_micros"] = starved
        more = only(a_result(run)).worst.more
        assert (more["jain"], more["shared_seconds"]) == (pytest.approx(0.5), pytest.approx(5))


def test_a_connection_without_a_sample_took_for_ever() -> None:
    run = a_run(cell=replace(PLAIN, connects=3))
    run["flows"][0]["sender"] = {"starts_micros": [[0, 0], [1 * MEGA, 0], [2 * MEGA, 0]]}
    run["flows"][0]["receptions_micros"] = [[0, 5_000, 12_000], [0, 2 * MEGA + 3_000, 2 * MEGA + 9_000]]
    more = only(a_result(run)).worst.more
    assert more["connections"] == 3
    assert more["first_p50_ms"] == pytest.approx(12)
    assert more["first_p95_ms"] == float("inf")


def test_without_a_link_udp_is_the_measure() -> None:
    cell = replace(PLAIN, veth=True)
    nervure, udp = a_run("nervure", cell=cell) | {"link": None}, a_run("udp", cell=cell) | {"link": None}
    nervure["flows"][0]["receiver"]["mean_ms"] = 20.2
    by_adapter = {figures.adapter: figures for figures in cells(a_result(nervure, udp)).values()}
    assert by_adapter["nervure"].worst.more["over_udp_ms"] == pytest.approx(0.4)


def test_without_udp_the_comparison_is_not_measured(tmp_path: Path) -> None:
    cell = replace(PLAIN, veth=True)
    runs = {seed: a_run("nervure", seed, cell=cell) | {"link": None} for seed in (1, 2)}
    udp = a_run("udp", 2, cell=cell) | {"link": None}
    planned = a_planned("veth-10K", cell, "veth", nervure=2, udp=2)
    (alone,) = verdicts(a_result(runs[1], planned=(planned,)))
    assert (alone.word, alone.value, alone.seeds) == ("not measured", None, 0)
    (beside,) = verdicts(a_result(*runs.values(), udp, planned=(planned,)))
    assert (beside.word, beside.value, beside.seeds) == ("met", 0, 1)
    text = the_page(tmp_path, planned, runs[1])
    assert "there and back over UDP's at most 0.5 ms:  **not measured**" in text
    assert "| veth-10K | Ethernet pair; 150 KB at 10 Hz | Nervure | 20 |  |" in text


def test_a_tail_stands_beside_what_the_machine_did() -> None:
    run = a_run()
    assert only(a_result(run)).worst.machine_late_ms is None
    run["link"]["late_longest_micros"] = 20_500
    assert only(a_result(run)).worst.machine_late_ms == 20.5
    run["machine"] = {"worst_ms": 31.0}
    assert only(a_result(run)).worst.machine_late_ms == 31


def test_a_ticker_records_late_wake_ups() -> None:
    lateness = Lateness(0)
    for late_nanos in (0, 1_000_000, 30_000_000, 0):
        lateness.woke_up(lateness.due_nanos + late_nanos)
    assert lateness.figures == {"worst_ms": 30, "stops_nanos": [(4_000_000, 36_000_000)]}


def test_a_stop_of_one_core_is_a_stop_of_the_machine() -> None:
    one = {"realtime": True, "worst_ms": 9.0, "stops_nanos": [[10, 20], [50, 60]]}
    other = {"realtime": True, "worst_ms": 7.0, "stops_nanos": [[15, 30], [70, 80]]}
    found = merged_stops([one, other])
    assert (found["realtime"], found["worst_ms"]) == (True, 9.0)
    assert found["stops_nanos"] == [[10, 30], [50, 60], [70, 80]]
    assert found["stopped_ms"] == pytest.approx(40e-6)
    assert not merged_stops([one, other | {"realtime": False}])["realtime"]
    assert not merged_stops([])["realtime"]


def test_what_met_a_stop_is_set_apart_and_said_to_be() -> None:
    cell = LinkCase(300, 20)
    run = a_run("nervure", cell=cell, delivered=1000)
    run["flows"][0]["receiver"] |= {"p99_ms": 60.0, "seconds": 33.0}
    run["link"] |= {"seconds": 40.0, "hosts": [a_host(), a_host(500_000, 125_000, 20.0)]}
    period = 33_000
    # Every fiftieth is under way in a stop of 20 ms.
    run["flows"][0]["receptions_micros"] = [
        [number, number * period, number * period + (60_000 if number % 50 == 0 else 20_000)]
        for number in range(1000)
    ]
    run["machine"] = {"realtime": True, "worst_ms": 50.0, "stopped_ms": 400.0}
    assert only(a_result(run)).worst.undisturbed is None
    stops = [[number * period + 5_000, number * period + 25_000] for number in range(0, 1000, 50)]
    run["machine"]["stops_micros"] = stops
    apart = only(a_result(run)).worst.undisturbed
    assert apart == Undisturbed(980, 20.0, 20.0)
    planned = a_planned("300-20-512K", cell, nervure=1)
    [p99] = [
        verdict for verdict in verdicts(a_result(run, planned=(planned,))) if verdict.target.what == "p99"
    ]
    assert (p99.word, p99.value, p99.undisturbed) == ("met outside stops", 60.0, 20.0)
    # A delay of a waiting process without priority proves nothing.
    run["machine"]["realtime"] = False
    [p99] = [
        verdict for verdict in verdicts(a_result(run, planned=(planned,))) if verdict.target.what == "p99"
    ]
    assert (p99.word, p99.undisturbed) == ("missed", None)


def test_the_command_is_what_another_reader_would_type() -> None:
    given = ["run", "link", "--report", "/x/link.md", "--cells", "veth", "--output=/x.jsonl", "--resume"]
    assert command_to_repeat(given) == "python -m nervure_lab run link --cells veth --resume"


def test_a_target_takes_the_worst_seed() -> None:
    cell = LinkCase(300, 20)
    good, slow = (a_run("nervure", seed, delivered=1000, cell=cell, airtime_seconds=12.0) for seed in (1, 2))
    for run, p99_ms in ((good, 20.0), (slow, 33.1)):
        run["flows"][0]["receiver"] |= {"p99_ms": p99_ms, "seconds": 33.3}
        run["link"] |= {"seconds": 40.0, "hosts": [a_host(), a_host(500_000, 125_000, 20.0)]}
    planned = (a_planned("300-20-512K", cell, nervure=2),)
    found = {verdict.target.what: verdict for verdict in verdicts(a_result(good, slow, planned=planned))}
    assert (found["delivered"].word, found["delivered"].value) == ("met", 100)
    assert (found["p99"].word, found["p99"].value, found["p99"].seeds) == ("missed", 33.1, 2)


def test_a_run_without_a_report_misses_every_target() -> None:
    cell = LinkCase(300, 20)
    hung = a_run("nervure", cell=cell)
    hung["flows"][0]["receiver"] = None
    planned = (a_planned("300-20-512K", cell, nervure=5),)
    assert [verdict.word for verdict in verdicts(a_result(hung, planned=planned))] == ["missed", "missed"]
    assert [verdict.word for verdict in verdicts(a_result(planned=planned))] == ["not measured"] * 2


def test_every_target_concerns_a_planned_cell() -> None:
    planned = [a_planned(cell.name, cell.case, cell.group, nervure=5) for cell in plan(quick=False)]
    concerned = {verdict.target for verdict in verdicts(a_result(planned=tuple(planned)))}
    assert concerned == set(TARGETS)


def test_what_lacks_is_named() -> None:
    planned = (
        a_planned(nervure=5, udp=2),
        a_planned("the-same", nervure=5, udp=2),
        a_planned("other", replace(PLAIN, rate_mbit=54), nervure=5),
    )
    result = a_result(*(a_run("udp", seed) for seed in (1, 2)), a_run("nervure"), planned=planned)
    assert missing(result) == ["a-cell: nervure (1 of 5 seeds)", "everything of other"]


def test_the_page_has_figures_verdicts_and_missing_runs(tmp_path: Path) -> None:
    planned = a_planned("300-20-512K", LinkCase(300, 20), nervure=2, udp=1)
    silent = a_run("udp", delivered=0, cell=LinkCase(300, 20))
    good = a_run("nervure", delivered=999, cell=LinkCase(300, 20))
    good["flows"][0]["receiver"]["seconds"] = 33.0
    good["link"] |= {"seconds": 40.0, "hosts": [a_host(), a_host(500_000, 125_000, 20.0)]}
    text = the_page(tmp_path, planned, good, silent)
    link = "300 Mbit/s, 20 % loss; 512 KiB at 30 Hz; RTT 2 ms, queue 100 ms"
    targets = "delivered at least 99.5 %: 99.9; p99 at most 33 ms: 40 **missed**"
    assert f"| 300-20-512K | {link} | 99.9 · 20 · 40 | 0 | {targets} |" in text
    assert "| 300-20-512K | p99 at most 33 ms | 40 | **missed** | 1 of 2 |" in text
    assert (
        "Of 2 targets 1 are met, 0 are met outside the stops of the machine, 1 are missed and 0 are not "
        "measured." in text
    )
    assert "Runs of 1 cells are missing" in text
    assert "**Zenoh** was not measured: no pip" in text
    found = Tables.read(tmp_path / "data")
    assert [verdict["verdict"] for verdict in found.targets] == ["met", "missed"]
    assert found.runs["missing"] == ["300-20-512K: nervure (1 of 2 seeds)"]
    nervure, udp = found.figures
    assert (nervure["goodput_mbit"], nervure["own_headers_off_percent"]) == ("127.0", "56")
    assert (udp["delivered_percent"], "mean_ms" in udp) == ("0", False)


def test_the_page_of_the_repository_is_made_of_the_figures_beside_it() -> None:
    reference = REPOSITORY_DIRECTORY / "docs" / "reference"
    text = page(Tables.read(reference / "data"))
    assert text == (reference / "link.md").read_text()
    assert len(text.splitlines()) <= 200
