"""Computed settings of DDS: the formulas, the refusal of a stream that does not fit, and the files in the
real libraries.
"""

from __future__ import annotations

import ctypes.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nervure_lab import cli
from nervure_lab.comparison.accounting import figures
from nervure_lab.comparison.case import Case
from nervure_lab.comparison.declaration import read_declaration
from nervure_lab.comparison.samples import table_of_logs
from nervure_lab.comparison.session import Session
from nervure_lab.contract import Unavailable
from nervure_lab.peers.fastdds import LIBRARIES, has_large_data
from nervure_lab.peers.fastdds import PEER as FAST
from nervure_lab.quantities import format_size
from nervure_lab.toolchain import ENVIRONMENTS_DIRECTORY, Toolchain
from nervure_lab.tuning.budget import Budget, DoesNotFit
from nervure_lab.tuning.commands import DOES_NOT_FIT
from nervure_lab.tuning.settings import settings_text
from nervure_lab.tuning.verification import describe, drained_after, write_declaration

CAMERA = Budget(524_288, 30.0, 300e6, 0.2)
STREAM = ["--payload", "512KB", "--rate", "30", "--loss", "20%"]
AT_54 = ["--bandwidth", "54Mbps"]
AT_300 = ["--bandwidth", "300Mbps"]


@pytest.mark.parametrize(("mbit", "samples"), [(54, 7), (300, 42), (433, 61), (1000, 143)])
def test_the_history_is_what_the_link_carries_in_a_second(mbit: float, samples: int) -> None:
    assert Budget(524_288, 30.0, mbit * 1e6).history == samples


def test_the_example_of_the_authors() -> None:
    """In one unit it gives 20 samples, where their page prints 309; and the stream does not fit the link."""
    example = Budget(330_000, 30.0, 90e6)
    assert example.history == 20
    assert not example.fits
    assert not replace(example, bandwidth_bits=54e6).fits


def test_a_history_with_a_recovery_time_drains_in_it() -> None:
    limited = replace(CAMERA, recovery_seconds=1.0)
    assert limited.history == 12
    assert limited.drain_seconds <= 1.0 < replace(limited, recovery_seconds=1.1).drain_seconds
    assert replace(CAMERA, recovery_seconds=1000.0).history == CAMERA.history_of_the_poster


@given(
    payload=st.integers(64, 1 << 26),
    rate=st.floats(0.1, 2000.0),
    mbit=st.floats(0.1, 10_000.0),
    utilisation=st.floats(0.1, 1.0),
)
@example(payload=125000, rate=0.1531677505614406, mbit=1.0, utilisation=0.1531677505614406)
def test_what_the_refusal_proposes_fits(payload: int, rate: float, mbit: float, utilisation: float) -> None:
    budget = Budget(payload, rate, mbit * 1e6, utilisation=utilisation)
    if budget.fits:
        budget.require_fit()
        assert budget.drain_seconds > 0
        return
    with pytest.raises(DoesNotFit) as refused:
        budget.require_fit()
    proposals = dict(line.split()[:2] for line in str(refused.value).splitlines()[1:])
    assert replace(budget, rate_hz=float(proposals["--rate"])).fits
    bandwidth = float(proposals["--bandwidth"].strip("Mbps,"))
    assert replace(budget, bandwidth_bits=bandwidth * 1e6).fits
    if "--payload" in proposals:
        smaller = int(proposals["--payload"].removesuffix("KB")) * 1000
        assert replace(budget, payload_bytes=smaller).fits


def test_a_stream_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "settings.xml"
    words = ["tune-dds", "--for", "fast", *STREAM, *AT_54, "--output", str(file)]
    assert cli.main(words) == DOES_NOT_FIT
    assert not file.exists()
    assert capsys.readouterr().err == (
        "error: 512 KB at 30 Hz are 122.9 Mbit/s of payload, and a link of 54 Mbit/s carries 32.4 Mbit/s at "
        "a utilisation of 0.6. Each of these would fit:\n"
        "  --rate 7.9\n"
        "  --payload 134KB\n"
        "  --bandwidth 205Mbps, if there is a faster link\n"
    )


@pytest.mark.parametrize("vendor", ["fast", "cyclone"])
def test_the_command_writes_the_file(
    vendor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["tune-dds", "--for", vendor, *STREAM, *AT_300]) == 0
    printed = capsys.readouterr()
    assert "history: 43 samples" in printed.out
    assert printed.err == ""
    ElementTree.parse(f"tuned-{vendor}.xml")
    narrow = ["tune-dds", "--for", vendor, *STREAM, "--bandwidth", "220Mbps"]
    assert cli.main(narrow) == 0
    assert "retransmission brings the stream to 153.6 Mbit/s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rate", "0"], "--rate: expected a number above 0, got 0"),
        (["--payload", "big"], "--payload: expected a size such as 512KB, got 'big'"),
        (["--loss", "100%"], "--loss: expected a percentage such as 5%, got '100%'"),
        (["--bandwidth", "1.2.3"], "--bandwidth: expected a rate such as 54Mbps, got '1.2.3'"),
        (["--utilisation", "1.5"], "--utilisation: expected a share from 0 to 1, got 1.5"),
        (["--mtu", "100"], "--mtu: expected 576 to 65535, got 100"),
        (["--recover-within", "-1"], "--recover-within: expected a time above 0, got -1"),
    ],
)
def test_bad_values(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tune-dds", "--for", "fast", *STREAM, *AT_300, *words]) == 2
    assert message in capsys.readouterr().err


def elements_without_a_comment(text: str) -> set[str]:
    """Settings with a value and without a comment before them, in their block of siblings."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    found = set()
    for parent in ElementTree.fromstring(text, parser).iter():
        commented = False
        for child in parent:
            if child.tag is ElementTree.Comment:
                commented = True
            elif isinstance(child.tag, str) and len(child) == 0 and not commented:
                found.add(child.tag.rpartition("}")[2])
    return found


def test_every_setting_has_its_source() -> None:
    structural = {"transport_id", "type", "kind", "sec", "nanosec"}
    assert elements_without_a_comment(settings_text("cyclone", CAMERA, "file.xml")) == set()
    assert elements_without_a_comment(settings_text("fast", CAMERA, "file.xml")) <= structural


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    return Toolchain(tmp_path_factory.mktemp("programs"))


def test_fast_dds_takes_every_setting(toolchain: Toolchain, tmp_path: Path) -> None:
    try:
        FAST.prepare(toolchain)
    except Unavailable as error:
        pytest.skip(f"Fast DDS: {error}")
    program = toolchain.cpp_program("fastdds", ["fastdds/profiles.cpp"], LIBRARIES)
    file = tmp_path / "tuned.xml"
    file.write_text(settings_text("fast", CAMERA, file.name))
    loaded = subprocess.run([program, file], capture_output=True, text=True, check=True)
    assert json.loads(loaded.stdout) == {
        "transports": 2,
        "builtin": 0,
        "keep_all": 1,
        "history": 42,
        "reader_history": 42,
        "reliable": 1,
        "heartbeat_nanos": 16_666_667,
        "response_nanos": 0,
        "blocking_nanos": 33_333_333,
        "piggyback_disabled": 1,
        "asynchronous": 1,
    }
    assert "Error" not in loaded.stderr
    file.write_text(file.read_text().replace("nackSupressionDuration", "nackSuppressionDuration"))
    assert subprocess.run([program, file], capture_output=True, check=False).returncode == 1


def test_versions_of_fast_dds_with_large_data() -> None:
    with_it = ["2.6.7", "2.10.3", "2.11.3", "2.12.0", "2.14.4", "3.0.0"]
    without = ["2.6.6", "2.9.1", "2.10.2", "2.11.2", "unknown"]
    assert [has_large_data(version) for version in with_it + without] == [True] * 6 + [False] * 5


def test_fast_dds_delivers_on_one_host_with_the_file(toolchain: Toolchain, tmp_path: Path) -> None:
    """Shared memory is still there, although the file replaces the built-in transports."""
    try:
        FAST.prepare(toolchain)
    except Unavailable as error:
        pytest.skip(f"Fast DDS: {error}")
    file = tmp_path / "tuned.xml"
    file.write_text(settings_text("fast", CAMERA, file.name))
    case = Case(payload_bytes=524_288, rate_hz=30.0, messages=20, warmup=0, keep_all=True)
    with Session(FAST, case, 1, None, str(file)) as session:
        outcome = session.measure("default-async")
    assert (outcome.outcome, outcome.reason) == ("ok", "")
    table = table_of_logs(outcome.logs, outcome.start_nanos, 0, 1, echo=False)
    assert figures(table, case)["received"] == 20


LOAD_WITH_C = (
    "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).dds_create_participant(0, None, None) < 0)"
)
LOAD_WITH_PYTHON = "from cyclonedds.domain import DomainParticipant; DomainParticipant(0)"


@pytest.mark.parametrize("library", ["C", "Python"])
def test_cyclone_dds_takes_every_setting(library: str, tmp_path: Path) -> None:
    if library == "C":
        name = ctypes.util.find_library("ddsc")
        if name is None:
            pytest.skip("Cyclone DDS for C: not installed: apt install cyclonedds-dev")
        command = [sys.executable, "-c", LOAD_WITH_C, name]
    else:
        python = ENVIRONMENTS_DIRECTORY / "cyclonedds" / "bin" / "python"
        if not python.exists():
            pytest.skip("Cyclone DDS for Python: not installed: nervure-lab setup cyclonedds")
        command = [str(python), "-c", LOAD_WITH_PYTHON]
    file = tmp_path / "tuned.xml"
    file.write_text(settings_text("cyclone", CAMERA, file.name))
    trace = "<Tracing><Category>config</Category><OutputFile>stderr</OutputFile></Tracing>"
    environment = {"CYCLONEDDS_URI": f"file://{file},<CycloneDDS><Domain>{trace}</Domain></CycloneDDS>"}
    loaded = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr
    values = dict(
        line.split("config: Domain/", 1)[1].split("{")[0].rsplit(": ", 1)
        for line in loaded.stderr.splitlines()
        if "config: Domain/" in line and "#text" in line
    )
    found = {name.removesuffix("/#text"): value.strip() for name, value in values.items()}
    assert found["General/MaxMessageSize"] == "1472 B"
    assert found["General/FragmentSize"] == "1344 B"
    assert found["Internal/HeartbeatInterval"] == "16667 us"
    assert found["Internal/Watermarks/WhcHigh"] == "21 MiB"
    assert found["Internal/DefragReliableMaxSamples"] == "42"
    file.write_text(file.read_text().replace("NackDelay", "NakDelay"))
    assert subprocess.run(command, env=environment, capture_output=True, check=False).returncode != 0


def test_the_drain_ends_with_the_first_fresh_sample() -> None:
    """An outage from 1 to 2 s; sample 2 was due in it and arrives late, sample 4 is the first fresh one."""
    due = [0.0, 0.5, 1.5, 2.0, 2.5]
    received = [0.01, 0.51, 2.1, 2.4, 2.55]
    table = pl.DataFrame(
        {
            "due_nanos": [round(value * 1e9) for value in due],
            "received_nanos": [round(value * 1e9) for value in received],
        }
    )
    assert drained_after(table, 2.0, 0.1) == pytest.approx(0.55)
    assert drained_after(table, 2.0, 0.01) is None


def test_the_verification_is_a_declared_experiment(tmp_path: Path) -> None:
    file = tmp_path / "tune-dds.toml"
    write_declaration(CAMERA, 5.0, 2.0, file)
    [planned] = read_declaration(file).plans["full"]
    assert planned.case.outage == (4.0, 5.0)
    assert planned.case.keep_all
    assert planned.case.loss_percent == pytest.approx(20.0)
    # Long enough to see the whole drain.
    assert planned.case.sending_seconds >= 4 + 5 + 2 * CAMERA.drain_seconds
    with pytest.raises(ValueError, match="no results of declared experiments"):
        list(describe(tmp_path, CAMERA))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (64, "64 B"),
        (1000, "1 KB"),
        (1024, "1 KiB"),
        (512_000, "512 KB"),
        (524_288, "512 KiB"),
        (8_000_000, "8 MB"),
        (8 << 20, "8 MiB"),
        (1000 << 20, "1000 MiB"),
        (1500, "1500 B"),
    ],
)
def test_a_size_has_the_largest_unit_of_which_it_is_a_whole_number(count: int, text: str) -> None:
    assert format_size(count) == text
