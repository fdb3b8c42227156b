"""The measurement against systems whose delay, loss, order and duplication are known, and against bad
results.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from nervure_lab import cli
from nervure_lab.arrow_messages import ArrowMessage, header_of
from nervure_lab.bulk_tcp import goodput_mbit
from nervure_lab.comparison import recommend
from nervure_lab.comparison.accounting import (
    figures,
    interval,
    latencies_micros,
    losses,
    violations,
)
from nervure_lab.comparison.case import Case
from nervure_lab.comparison.declaration import declarations, read_declaration
from nervure_lab.comparison.experiment import DeclaredExperiment, PeerAdapter
from nervure_lab.comparison.report.summary import sentences
from nervure_lab.comparison.results import ResultSet
from nervure_lab.comparison.samples import read_table, table_of_logs, write_table
from nervure_lab.comparison.session import Session, find_emulator
from nervure_lab.contract import Unavailable
from nervure_lab.experiments import all_experiments
from nervure_lab.peer import Peer
from nervure_lab.peers import all_peers
from nervure_lab.performance_test import read_log
from nervure_lab.runner import Options, run_experiment
from nervure_lab.statistics import fairness
from nervure_lab.toolchain import ENVIRONMENTS_DIRECTORY, Toolchain
from tests.synthetic_peer import DELAY_SECONDS, MESSAGES, PEER, SLOW_SECONDS, deliveries

CASE = Case(payload_bytes=256, rate_hz=100.0, messages=MESSAGES, warmup=0)
DELAY_MICROS = DELAY_SECONDS * 1e6
PERIOD = 10_000_000


def logs_of(arrivals: list[tuple[int, int]], sent: int = 10, start: int = 0) -> dict[str, bytes]:
    """The logs of messages that were sent every 10 ms, and of their arrivals: sequence, nanoseconds after
    due.
    """
    due = [start + number * PERIOD for number in range(sent)]
    published = [[number, at, at, at + 100, at + 200] for number, at in enumerate(due)]
    received = [
        [number, 0, due[number], due[number] + 100, due[number] + late, due[number] + late]
        for number, late in arrivals
    ]
    return {
        "publications-publisher-0": np.array(published, dtype=np.int64).tobytes(),
        "receptions-subscriber-0": np.array(received, dtype=np.int64).tobytes(),
    }


def test_losses_are_counted_by_their_place() -> None:
    arrivals = [(2, 1000), (3, 1000), (5, 1000), (4, 12_000_000), (7, 1000), (7, 2000)]
    table = table_of_logs(logs_of(arrivals, start=77), 77, 0, 1, echo=False)
    assert losses(table) == {
        "sent": 10,
        "received": 5,
        "lost": 5,
        "lost_before_first": 2,
        "lost_between": 1,
        "lost_tail": 2,
        "duplicated": 1,
        "reordered": 1,
    }
    found = figures(table, Case(payload_bytes=64, rate_hz=100.0, messages=10, warmup=0))
    assert found["late"] == 1
    assert found["latency_micros"]["count"] == 5


def test_a_silent_subscriber_is_a_loss_of_everything() -> None:
    table = table_of_logs(logs_of([]), 0, 0, 1, echo=False)
    assert losses(table)["lost_before_first"] == 10
    assert figures(table, CASE)["latency_micros"] == {"count": 0}


def test_a_message_that_was_never_sent_is_refused() -> None:
    logs = logs_of([(1, 1000)])
    logs["receptions-subscriber-0"] = np.array([[99, 0, 0, 0, 0, 0]], dtype=np.int64).tobytes()
    with pytest.raises(ValueError, match="1 messages that were never sent"):
        table_of_logs(logs, 0, 0, 1, echo=False)


def test_the_interval_holds_the_true_median() -> None:
    """In about 95 of 100 experiments; with this seed in no fewer than 90."""
    generator = np.random.default_rng(7)
    holds = 0
    for number in range(100):
        repeats = [generator.exponential(100.0, 200) for _ in range(5)]
        low, high = interval(repeats, resamples=200, seed=number)
        holds += low <= 100.0 * np.log(2) <= high
    assert holds >= 90


@pytest.mark.parametrize("subscribers", [1, 3])
def test_every_statistic_of_a_system_with_known_faults(subscribers: int) -> None:
    case = Case(payload_bytes=256, rate_hz=100.0, messages=MESSAGES, warmup=0, subscribers=subscribers)
    PEER.prepare(None)
    with Session(PEER, case, 1, None) as session:
        outcome = session.measure("faulty")
    assert (outcome.outcome, outcome.reason) == ("ok", "")
    table = table_of_logs(outcome.logs, outcome.start_nanos, 0, subscribers, echo=False)
    found = figures(table, case)
    counts = [deliveries(number) for number in range(MESSAGES)]
    lost = counts.count(0) * subscribers
    assert found["lost"] == lost
    assert found["lost_before_first"] == 2 * subscribers
    assert found["lost_tail"] == subscribers
    assert found["lost_between"] == lost - 3 * subscribers
    assert found["duplicated"] == counts.count(2) * subscribers
    assert found["reordered"] == 5 * subscribers
    # No delivery is earlier than the delay, whatever the load of the machine.
    assert float(latencies_micros(table, case).min()) >= DELAY_MICROS
    assert set(outcome.discovery) == {f"publisher-0 subscriber-{index}" for index in range(subscribers)}
    assert violations(found, case, None) == []


def test_an_echo_takes_two_delays() -> None:
    case = Case(payload_bytes=256, rate_hz=100.0, messages=20, warmup=2, pattern="echo")
    PEER.prepare(None)
    with Session(PEER, case, 1, None) as session:
        outcome = session.measure("faultless")
    assert outcome.outcome == "ok"
    table = table_of_logs(outcome.logs, outcome.start_nanos, 2, 1, echo=True)
    values = latencies_micros(table, case)
    assert len(values) == 20
    assert float(values.min()) >= 2 * DELAY_MICROS
    roles = {process["role"] for process in outcome.processes}
    assert {"client-0", "echo-0"} <= roles


@pytest.mark.parametrize("pattern", ["stream", "echo"])
def test_both_ends_in_one_process(pattern: str) -> None:
    case = Case(
        payload_bytes=256, rate_hz=100.0, messages=20, warmup=0, place="process", pattern=pattern, reads=True
    )
    PEER.prepare(None)
    with Session(PEER, case, 1, None) as session:
        outcome = session.measure("faultless")
    assert (outcome.outcome, outcome.reason) == ("ok", "")
    table = table_of_logs(outcome.logs, outcome.start_nanos, 0, 1, echo=pattern == "echo")
    assert losses(table)["received"] == 20
    assert float(latencies_micros(table, case).min()) >= DELAY_MICROS
    assert [process["role"] for process in outcome.processes] == ["process"]


def test_a_late_publisher_ends_with_the_schedule() -> None:
    case = Case(payload_bytes=256, rate_hz=500.0, messages=150, warmup=50, ends_on_time=True)
    PEER.prepare(None)
    with Session(PEER, case, 1, None) as session:
        outcome = session.measure("slow")
    assert outcome.outcome == "ok"
    table = table_of_logs(outcome.logs, outcome.start_nanos, 50, 1, echo=False, warmup_seconds=0.1)
    found = losses(table)
    assert 0 < len(latencies_micros(table, case)) < found["sent"] < 50
    assert 0 < found["sent"] <= case.sending_seconds / SLOW_SECONDS + 1
    assert found["received"] == found["sent"]


def test_robots_and_a_neighbour_share_the_link() -> None:
    case = Case(
        payload_bytes=256,
        rate_hz=50.0,
        messages=50,
        warmup=0,
        place="link",
        publishers=2,
        neighbours=1,
        rate_mbit=20.0,
        half_duplex=True,
        drain_seconds=0.5,
    )
    try:
        emulator = find_emulator()
    except Unavailable as error:
        pytest.skip(str(error))
    PEER.prepare(None)
    with Session(PEER, case, 1, emulator) as session:
        outcome = session.measure("faultless")
    assert (outcome.outcome, outcome.reason) == ("ok", "")
    table = table_of_logs(outcome.logs, outcome.start_nanos, 0, 1, echo=False)
    assert losses(table)["received"] == 100
    roles = [process["role"] for process in outcome.processes if process["role"] != "lab"]
    assert roles == ["publisher-0", "publisher-1", "subscriber-0"]
    # The synthetic peer does not use the link, so that all of it is the neighbour's.
    assert 1.0 < outcome.neighbours_mbit[0] <= 20.0


def test_shares_count_what_arrived_in_time() -> None:
    case = Case(payload_bytes=125_000, rate_hz=100.0, messages=10, warmup=0, publishers=2)
    logs = logs_of([(number, 1000) for number in range(9)] + [(9, 90_000_000)])
    logs["publications-publisher-1"] = logs["publications-publisher-0"]
    table = table_of_logs(logs, 0, 0, 1, echo=False)
    shares = figures(table, case)["shares_mbit"]
    assert shares == [pytest.approx(90.0), 0.0]
    assert fairness(shares) == 0.5
    assert fairness([3.0, 3.0]) == 1.0


def test_the_goodput_of_a_neighbour_is_of_the_schedule() -> None:
    log = "100 1000\n200 2000\n1000000200 127000\n2000000000 900000\n20000"
    assert goodput_mbit(log, 200, 1_000_000_200) == pytest.approx(1.0)
    assert goodput_mbit("", 200, 1_000_000_200) == 0.0


def test_work_is_a_part_of_the_read() -> None:
    case = Case(payload_bytes=4096, rate_hz=50.0, messages=10, warmup=0, work_millis=10.0)
    PEER.prepare(None)
    with Session(PEER, case, 1, None) as session:
        outcome = session.measure("faultless")
    assert outcome.outcome == "ok"
    table = table_of_logs(outcome.logs, outcome.start_nanos, 0, 1, echo=False)
    assert losses(table)["received"] == 10
    assert int((table["read_nanos"] - table["received_nanos"]).min()) >= 10_000_000


def test_a_crash_is_a_result() -> None:
    PEER.prepare(None)
    with Session(PEER, CASE, 1, None) as session:
        outcome = session.measure("crashing")
    assert outcome.outcome == "failed"
    assert "publisher-0" in outcome.reason
    assert "the synthetic peer crashed" in outcome.reason


def test_a_hang_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nervure_lab.comparison.session.BLOCKED_SECONDS", 0.5)
    PEER.prepare(None)
    with Session(PEER, CASE, 1, None) as session:
        outcome = session.measure("blocking")
    assert outcome.outcome == "hung"
    assert "publisher-0 did not end sending" in outcome.reason


@pytest.mark.parametrize("peer", all_peers(), ids=lambda peer: peer.name)
def test_every_peer_fulfils_the_contract(peer) -> None:
    """Those whose environment exists: `nervure-lab setup` makes it."""
    assert peer.configurations
    for configuration in peer.configurations:
        assert configuration.places
        assert configuration.settings and configuration.source
    assert all("==" in it or it.startswith("numpy") for it in peer.requirements), "versions are pinned"
    if not (ENVIRONMENTS_DIRECTORY / peer.name).exists():
        pytest.skip(f"{peer.name} is not set up")
    toolchain = Toolchain(Path("/nonexistent"))
    peer.prepare(toolchain)
    assert all(peer.versions().values())
    for pattern, place in itertools.product(("stream", "echo"), ("host", "process")):
        # One for each endpoint: those of a peer differ by language.
        taking_part = [it for it in peer.configurations if place in it.places]
        for name in {it.value("language", peer): it.name for it in reversed(taking_part)}.values():
            peer.prepare_configuration(toolchain, name)
            case = Case(4096, 100.0, 10, pattern=pattern, place=place, warmup=0, reads=pattern == "stream")
            expect_all(peer, name, case)
    for message, size in (("struct", 256), ("struct", 4096), ("point-cloud", 524288)):
        if message in peer.messages:
            case = Case(size, 10.0, 10, message=message, warmup=0)
            expect_all(peer, peer.configurations[0].name, case)


def expect_all(peer: Peer, configuration: str, case: Case) -> None:
    with Session(peer, case, 1, None) as session:
        outcome = session.measure(configuration)
    assert (outcome.outcome, outcome.reason, outcome.wrong) == ("ok", "", 0)
    table = table_of_logs(outcome.logs, outcome.start_nanos, 0, 1, echo=case.pattern == "echo")
    assert losses(table)["received"] == 10


@pytest.mark.parametrize(("message", "size"), [("struct", 256), ("struct", 4096), ("point-cloud", 524288)])
def test_a_message_in_arrow_has_the_header_in_place(message: str, size: int) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    sent = ArrowMessage(message, size)
    sent.memory[:32] = bytes(range(100, 132))
    # As it arrives: not at the start of its buffers.
    received = pyarrow.concat_arrays([ArrowMessage(message, size).array, sent.array])[1:]
    assert bytes(header_of(message, received)[:32]) == bytes(range(100, 132))


def test_a_peer_without_the_type_of_a_message_is_a_row(tmp_path: Path) -> None:
    text = 'name="typed"\ntitle="a"\nquestion="a"\nsource="a"\nfigures=["types","loss-map"]\ncell="{size}"\n'
    grid = 'repeats=1\n[[{}.grid]]\npayload_bytes=256\nmessage="struct"\nrate_hz=1.0\nmessages=1\n'
    file = tmp_path / "typed.toml"
    file.write_text(text + "".join(f"[{name}]\n" + grid.format(name) for name in ("quick", "full")))
    experiment = DeclaredExperiment(read_declaration(file))
    adapters = [PeerAdapter(PEER, configuration) for configuration in PEER.configurations[:2]]
    out = tmp_path / "out" / "typed.jsonl"
    run_experiment(experiment, experiment.plan(True), adapters, Options("quick", False, None), out)
    assert cli.main(["report", str(out.parent)]) == 0
    report = (out.parent / "report.md").read_text()
    assert "- synthetic-faulty, Struct256B: no such type: Synthetic: payloads are bytes" in report
    assert "no type" in (out.parent / "report.html").read_text(), "in the map of deliveries"
    assert cli.main(["recommend", str(out.parent), "--payload", "256B", "--rate", "1"]) == 3


def small_experiment() -> DeclaredExperiment:
    declaration = next(it for it in declarations() if it.name == "local-latency")
    experiment = DeclaredExperiment(declaration)
    adapters = [PeerAdapter(PEER, configuration) for configuration in PEER.configurations[:2]]
    experiment.adapters = lambda: adapters  # type: ignore[method-assign]
    return experiment


def run_small(directory: Path, *, resume: bool = False, minutes: float | None = None) -> dict:
    experiment = small_experiment()
    planned = [entry for entry in experiment.plan(quick=True) if entry.name == "64B-50hz"]
    options = Options("quick", resume, minutes)
    output = directory / "local-latency.jsonl"
    return run_experiment(experiment, planned, experiment.adapters(), options, output)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("results")
    run_small(directory)
    return directory


def test_a_report_holds_every_part(stored: Path) -> None:
    assert cli.main(["report", str(stored)]) == 0
    html = (stored / "report.html").read_text()
    assert "synthetic-faulty" in html and "Threats to validity" in html
    assert html.count("<svg") == html.count("data:text/csv;base64,") > 2
    assert "http://" not in html.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ), "the report is self-contained"
    assert "| synthetic-faultless |" in (stored / "report.md").read_text()
    assert "`" not in html.split("Versions and settings")[1], "settings are Markdown in the sources alone"


def test_runs_are_exported_as_logs_of_performance_test(stored: Path, tmp_path: Path) -> None:
    assert cli.main(["export", str(stored), str(tmp_path)]) == 0
    folder = tmp_path / "local-latency" / "64B-50hz" / "synthetic-faulty" / "run01"
    sent, received = read_log(folder / "pub_log_0"), read_log(folder / "sub_log_0")
    run = ResultSet.load(stored).find("local-latency", "64B-50hz", "synthetic-faulty")
    assert run is not None
    found = run.measured[0]["figures"]
    assert sent.total("sent") == found["sent"] and sent.preamble["Publishing rate"] == "50"
    assert received.total("received") == found["received"]
    # The tool counts gaps between receptions: not head and tail, but also samples that later ones overtake.
    assert received.total("lost") == found["lost_between"] + found["reordered"]
    assert received.total("data_received") == 64 * found["received"]
    assert min(received.latencies()) >= 1000 * DELAY_SECONDS * 0.99
    assert sum("log" in file.name for file in tmp_path.rglob("*_log_*")) == 8


def test_a_resumed_run_repeats_nothing(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (stored / "local-latency.jsonl").read_text().count('"kind":"run"')
    result = run_small(stored, resume=True)
    assert len(result["runs"]) == before == 4
    assert "4 runs are in the file already" in capsys.readouterr().err


def test_an_interrupted_run_continues(stored: Path, tmp_path: Path) -> None:
    lines = (stored / "local-latency.jsonl").read_text().splitlines()
    kept = [line for line in lines if '"kind":"end"' not in line][:3]
    # Killed in the middle of a line.
    (tmp_path / "local-latency.jsonl").write_text("\n".join(kept) + "\n" + lines[3][: len(lines[3]) // 2])
    (tmp_path / "samples").symlink_to(stored / "samples")
    result = run_small(tmp_path, resume=True)
    assert sorted((run["adapter"], run["repeat"]) for run in result["runs"]) == [
        ("synthetic-faultless", 0),
        ("synthetic-faultless", 1),
        ("synthetic-faulty", 0),
        ("synthetic-faulty", 1),
    ]


def copied(stored: Path, tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "samples").mkdir(parents=True)
    (tmp_path / "local-latency.jsonl").write_text((stored / "local-latency.jsonl").read_text())
    for file in (stored / "samples").iterdir():
        (tmp_path / "samples" / file.name).write_bytes(file.read_bytes())
    return tmp_path, sorted((tmp_path / "samples").iterdir())[0]


def test_a_truncated_file_is_named(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, file = copied(stored, tmp_path)
    file.write_bytes(file.read_bytes()[:100])
    assert cli.main(["report", str(directory)]) == 2
    assert f"error: {file}: not a whole Parquet file" in capsys.readouterr().err


def test_a_wrong_row_is_named(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, file = copied(stored, tmp_path)
    table = read_table(file)
    place = int(table["received_nanos"].is_not_null().arg_max() or 0)
    broken = table.with_columns(
        received_nanos=pl.when(pl.int_range(pl.len()) == place)
        .then(-(10**12))
        .otherwise(pl.col("received_nanos"))
    )
    write_table(broken, file)
    assert cli.main(["report", str(directory)]) == 2
    assert f"{file}: row {place}: message" in capsys.readouterr().err


def test_a_corrupt_line_is_named(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, _ = copied(stored, tmp_path)
    file = directory / "local-latency.jsonl"
    lines = file.read_text().splitlines()
    lines[1] = lines[1].replace('"case":', '"cse":')
    file.write_text("\n".join(lines) + "\n")
    assert cli.main(["report", str(directory)]) == 2
    assert "run 1 (synthetic-faulty)" in capsys.readouterr().err


def test_a_full_disk_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_parquet(self: pl.DataFrame, file: Path, **_: object) -> None:
        file.write_bytes(b"PAR1")
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr(pl.DataFrame, "write_parquet", write_parquet)
    table = table_of_logs(logs_of([(1, 1000)]), 0, 0, 1, echo=False)
    with pytest.raises(OSError, match="No space left"):
        write_table(table, tmp_path / "samples" / "a.parquet")
    assert list((tmp_path / "samples").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "mininett"], "no experiment is called mininett; did you mean mininet?"),
        (["run", "rtt", "--peers", "zenho"], "no peer is called zenho; did you mean zenoh"),
        (["setup", "zeromg"], "no peer is called zeromg; did you mean zeromq"),
        (["run", "rtt", "--cells", "7K"], "no cell is called 7K"),
        (["report", "/nonexistent"], "no results /nonexistent"),
        (["recommend", "/x", "--payload", "12 apples", "--rate", "30"], "--payload: expected a size"),
    ],
)
def test_bad_input_names_what_is_wrong(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err


def test_missing_rights_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    emulator = tmp_path / "bin" / "nervure-linkemu"
    emulator.parent.mkdir()
    emulator.write_text("#!/bin/sh\necho 'cannot create a network namespace' >&2\nexit 1\n")
    emulator.chmod(0o755)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert cli.main(["run", "mininet", "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "cannot create a network namespace" in error and "run as root" in error


def test_every_declaration_is_sound() -> None:
    for declaration in declarations():
        assert {"quick", "full"} == set(declaration.plans)
        for plan in declaration.plans.values():
            names = [entry.name for entry in plan]
            assert len(names) == len(set(names)), declaration.name
            assert all(entry.repeats > 0 for entry in plan)
    assert {"rtt", "local-latency", "mininet", "large-data", "local", "link"} <= set(all_experiments())


@pytest.mark.parametrize(
    ("name", "sizes", "places"),
    [
        (
            "buildfarm",
            {1024 << shift for shift in (0, 2, 4, 5, 9, 10, 11, 12, 13)} | {61440},
            {"process", "host"},
        ),
        ("composition", {921600}, {"process", "host"}),
        ("inference", {640 * 480 * 3}, {"host"}),
        ("lan", {32768, 4194304}, {"link"}),
    ],
)
def test_an_experiment_has_the_sizes_of_its_source(name: str, sizes: set[int], places: set[str]) -> None:
    plan = next(it for it in declarations() if it.name == name).plans["full"]
    assert places == {entry.case.place for entry in plan}
    for place in places:
        assert sizes <= {entry.case.payload_bytes for entry in plan if entry.case.place == place}
    # The stream has to fit the link: other experiments have an overloaded link.
    assert all(entry.case.payload_mbit < entry.case.rate_mbit for entry in plan if entry.case.place == "link")


def test_the_grid_of_the_report_has_its_30_configurations() -> None:
    mininet = next(it for it in declarations() if it.name == "mininet")
    assert len(mininet.plans["full"]) == 30
    assert len(mininet.plans["quick"]) == 6
    lossy = next(it.case for it in mininet.plans["full"] if it.case.hop_loss_percent == 40.0)
    assert lossy.host_to_host_loss == pytest.approx(0.64)


def test_a_wrong_declaration_names_file_and_key(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = 'name="a"\ntitle="a"\nquestion="a"\nsource="a"\nfigures=["bars"]\ncell="{size}"\n'
    grid = "repeats=1\n[[{}.grid]]\npayload_byte=64\nrate_hz=1.0\nmessages=1\n"
    file.write_text(text + "".join(f"[{name}]\n" + grid.format(name) for name in ("quick", "full")))
    with pytest.raises(ValueError, match=r"mine.toml: .*payload_byte.*did you mean payload_bytes"):
        read_declaration(file)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ('message="strukt"\npayload_bytes=256', "there is no type of messages 'strukt'; did you mean struct"),
        ('message="struct"\npayload_bytes=300', "expected a struct of 256 or 4096 bytes, got 300"),
        ('message="point-cloud"\npayload_bytes=1000', "a multiple of 32 bytes, got 1000"),
        ('message="struct"\npayload_bytes=256\npattern="echo"', "not for the link, an echo"),
    ],
)
def test_a_wrong_type_of_messages_is_named(tmp_path: Path, values: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    text = 'name="a"\ntitle="a"\nquestion="a"\nsource="a"\nfigures=["bars"]\ncell="{size}"\n'
    grid = f"repeats=1\n[[NAME.grid]]\n{values}\nrate_hz=1.0\nmessages=1\n"
    file.write_text(text + "".join(f"[{name}]\n" + grid.replace("NAME", name) for name in ("quick", "full")))
    with pytest.raises(ValueError, match=message):
        read_declaration(file)


def test_a_goodput_above_the_capacity_is_untrue() -> None:
    case = Case(payload_bytes=100_000, rate_hz=100.0, messages=10, warmup=0, place="link", rate_mbit=50.0)
    found = figures(table_of_logs(logs_of([(n, 1000) for n in range(10)]), 0, 0, 1, echo=False), case)
    carried_less = {"hosts": [{"delivered": {"bytes": 5}}]}
    reasons = violations(found, case, carried_less)
    assert any("above the capacity" in reason for reason in reasons)
    assert any("took another way" in reason for reason in reasons)


def test_a_recommendation_stays_within_the_results(stored: Path) -> None:
    known = recommend.answer(stored, recommend.Wanted.parse("64B", 50.0, "0%", None))
    assert known.known
    assert known.text.index("synthetic-faultless") < known.text.index("synthetic-faulty")
    beyond = recommend.answer(stored, recommend.Wanted.parse("4MB", 50.0, "0%", None))
    assert not beyond.known
    assert "measured from 64 to 64" in beyond.text and "nervure-lab run local-latency" in beyond.text
    link = recommend.answer(stored, recommend.Wanted.parse("512KB", 30.0, "5%", "54Mbps"))
    assert not link.known and "mininet" in link.text


def test_the_endpoint_needs_the_standard_library_alone() -> None:
    modules = ["nervure_lab.peer_endpoint", "nervure_lab.experiments.local.endpoints"]
    modules += [type(peer).__module__ for peer in all_peers()]
    program = "import sys; sys.modules['numpy'] = sys.modules['polars'] = None\n"
    program += "".join(f"import {module}\n" for module in modules)
    lab = Path(__file__).parent.parent
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(lab)})


def test_languages_are_ranked_apart_on_one_host(stored: Path) -> None:
    results = ResultSet.load(stored)
    (together,) = sentences(results, "local-latency")
    assert together.startswith("64B-50hz: lowest median synthetic-faultless (")
    results.adapters("local-latency")[0]["language"] = "Rust"
    (apart,) = sentences(results, "local-latency")
    assert apart.startswith(
        "64B-50hz: in Rust no peer delivered 99.5 %; most arrived with synthetic-faulty, "
    )
    assert "; in Python lowest median synthetic-faultless (" in apart


def test_results_load_as_a_set(stored: Path) -> None:
    results = ResultSet.load(stored)
    cell = results.find("local-latency", "64B-50hz", "synthetic-faultless")
    assert cell is not None
    assert cell.delivered_percent == 100.0
    low, high = cell.median_interval()
    assert DELAY_MICROS <= low <= cell.latency["p50"] <= high
