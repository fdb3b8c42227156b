"""The analysis of the evaluation of 2020: its golden numbers, its page, and its errors for damaged data."""

from __future__ import annotations

import csv
import io
import lzma
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from nervure_lab.toolchain import LAB_DIRECTORY
from nervure_lab.tsc import build_farm, mininet, page, quality, repositories, survey, wifi
from nervure_lab.tsc.document import FAILS, HOLDS, Section
from nervure_lab.tsc.mininet_runs import read_runs
from nervure_lab.tsc.source import MissingData, Source

DATA = LAB_DIRECTORY / "data" / "ros-middleware-evaluation-2020"


@pytest.fixture(scope="module")
def sections() -> dict[str, Section]:
    source = Source(DATA)
    modules = {
        "build farm": build_farm,
        "mininet": mininet,
        "wifi": wifi,
        "repositories": repositories,
        "survey": survey,
    }
    return {name: module.section(source) for name, module in modules.items()}


def finding(section: Section, part: str) -> str:
    found = [one for one in section.findings if part in one.claim]
    assert len(found) == 1, part
    return f"{found[0].verdict}: {found[0].numbers}"


def test_the_raw_logs_are_those_of_the_summary_table(sections) -> None:
    facts = sections["mininet"].facts
    assert (facts["pairs"], facts["mismatches"]) == (900, 0)
    assert finding(sections["mininet"], "summary table").startswith(
        f"{HOLDS}: 900 pairs of logs, 62092 cells"
    )


def test_the_classes_of_the_configurations(sections) -> None:
    facts = sections["mininet"].facts
    names = ("acceptable", "zero", "Cyclone DDS only", "degraded")
    assert [facts[f"class {name}"] for name in names] == [5, 11, 4, 10]


def test_latency_as_published_and_corrected(sections) -> None:
    facts = sections["mininet"].facts
    assert facts["published latency"] == pytest.approx(40.3, abs=0.05)
    assert facts["corrected latency"] == pytest.approx(201.7, abs=0.05)
    assert (facts["published lower"], facts["corrected lower"]) == (6, 8)


def test_the_errors_of_the_report_are_findings(sections) -> None:
    section = sections["mininet"]
    alone = finding(section, "alone delivered")
    assert [share in alone for share in ("1.14 %", "3.16 %", "0.53 %", "0.21 %")] == [True] * 4
    assert finding(section, "lower CPU").startswith(FAILS)
    assert "1.37 and 1.20 %" in finding(section, "lower CPU")
    assert finding(section, "async beside").startswith(FAILS)
    assert "drawn 0.175 %, measured 0.194 %" in finding(section, "async beside")
    assert "19, 36, 51, 64 %" in finding(section, "packet loss was")
    assert "20.3 head" in finding(section, "transport of messages")
    assert "10.7 of 30 Hz" in finding(section, "delivered more of PointCloud512k")


def test_the_shares_of_the_loss_add_up(sections) -> None:
    table = next(table for table in sections["mininet"].tables if table.name == "mininet-cells")
    at = {
        name: table.columns.index(f"{name}, %") for name in ("lost", "silent runs", "head", "between", "tail")
    }
    assert len(table.rows) == 90
    for row in table.rows:
        parts = sum(float(row[at[name]] or 0) for name in at if name != "lost")
        # In six runs the subscriber counts a few samples more than the publisher logged.
        assert parts == pytest.approx(row[at["lost"]], abs=0.3)


def test_the_build_farm(sections) -> None:
    facts = sections["build farm"].facts
    assert facts["node memory Cyclone"] == pytest.approx(10.0, abs=0.05)
    assert facts["node cpu Cyclone"] == pytest.approx(0.03, abs=0.005)
    assert facts["node memory Fast least"] == pytest.approx(16.3, abs=0.05)
    assert facts["node memory Fast most"] == pytest.approx(16.8, abs=0.05)
    names = ("Fast RTPS async", "Fast RTPS sync", "Cyclone DDS sync")
    assert [round(facts[f"Array4m {name}"]) for name in names] == [92, 325, 229]
    assert [round(facts[f"Array8m {name}"]) for name in names] == [9, 116, 73]


@pytest.mark.parametrize(
    ("middleware", "rate", "received", "sent"),
    [
        ("Fast RTPS", 80, 1951, 2292),
        ("Fast RTPS", 100, 1349, 2873),
        ("Fast RTPS", 120, 422, 3448),
        ("Cyclone DDS", 80, 2159, 2292),
        ("Cyclone DDS", 100, 2164, 2860),
        ("Cyclone DDS", 120, 772, 3323),
    ],
)
def test_the_sums_over_wifi(sections, middleware: str, rate: int, received: int, sent: int) -> None:
    facts = sections["wifi"].facts
    assert facts[f"{middleware} {rate} received"] == pytest.approx(received, abs=0.51)
    assert facts[f"{middleware} {rate} sent"] == pytest.approx(sent, abs=0.51)


def test_runs_over_wifi_that_ended_in_silence(sections) -> None:
    facts = sections["wifi"].facts
    assert (facts["Fast RTPS ended silent"], facts["Cyclone DDS ended silent"]) == (17, 10)


def test_the_repositories(sections) -> None:
    facts = sections["repositories"].facts
    assert facts["Cyclone DDS pull requests"] == pytest.approx(21.8, abs=0.05)
    assert facts["Fast DDS pull requests"] == pytest.approx(32.6, abs=0.05)
    assert "508 of 641 listed issues" in finding(sections["repositories"], "issues beside")


def test_the_survey(sections) -> None:
    facts = sections["survey"].facts
    means = [round(facts[f"Q{n} {name}"], 2) for n in (3, 13) for name in ("Fast RTPS", "Cyclone DDS")]
    assert means == [3.74, 4.53, 4.12, 4.5]
    assert "significant after correction for 19 questions: Q3, Q4." in finding(sections["survey"], "For most")


def test_quality_declares_what_nervure_does_not_have() -> None:
    section = quality.section()
    table = section.tables[0]
    own = [row[list(table.columns).index("Nervure 0.1.0")] for row in table.rows]
    assert own[0] == "none; meets level 5"
    assert "no coverage tracking" in str(own)


def test_the_page_has_every_part(sections, tmp_path: Path) -> None:
    html, markdown = page.write([*sections.values(), quality.section()], tmp_path, "the data")
    text = html.read_text()
    assert 1_000_000 < len(text) < 5_000_000
    assert "http://" not in text.replace("http://www.w3.org/", "")
    assert "<script" not in text
    for section in sections.values():
        assert section.title in text
        for figure in section.figures:
            assert f"figures/{figure.name}.svg" in markdown.read_text()
            assert (tmp_path / "figures" / f"{figure.name}.svg").read_text().endswith("</svg>\n")
            rows = list(csv.reader((tmp_path / "data" / f"figure-{figure.name}.csv").open()))
            assert len(rows) == len(figure.data.rows) + 1 > 1
    ids = [part.split('"')[0] for part in text.split(' id="')[1:]]
    assert len(ids) == len(set(ids))


def test_the_command_names_missing_parts_and_fails(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shutil.copytree(DATA / "survey", tmp_path / "data" / "survey")
    command = [
        sys.executable,
        "-m",
        "nervure_lab",
        "analyze",
        "tsc",
        tmp_path / "data",
        "--out",
        tmp_path / "out",
    ]
    ended = subprocess.run(command, cwd=LAB_DIRECTORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "error: WiFi: no wifi.tar.xz or wifi in" in ended.stderr
    text = (tmp_path / "out" / "evaluation-2020.html").read_text()
    assert text.count("Not analysed:") == 4
    assert "Likert" in text


def test_the_command_refuses_no_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nervure_lab", "analyze", "tsc", tmp_path / "absent"]
    ended = subprocess.run(command, cwd=LAB_DIRECTORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "absent: expected a folder with the data" in ended.stderr


@pytest.fixture
def run_files() -> Iterator[dict[str, bytes]]:
    """The files of one run."""
    with tarfile.open(DATA / "mininet_raw.tar.xz", mode="r|xz") as archive:
        files: dict[str, bytes] = {}
        for member in archive:
            if member.isfile():
                files[member.name] = archive.extractfile(member).read()
                if len(files) == 3:
                    break
    yield files


def written(files: dict[str, bytes], directory: Path) -> Source:
    with tarfile.open(directory / "mininet_raw.tar.xz", mode="w:xz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return Source(directory)


def test_one_run_is_read(run_files, tmp_path: Path) -> None:
    (run,) = read_runs(written(run_files, tmp_path))
    assert run.sent > 0


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("sub_log", None, "expected a run with its subscriber, got none"),
        ("config", lambda content: b"{", "experiment_config.json: expected JSON"),
        ("config", lambda content: content.replace(b'"loss"', b'"lost"'), "expected loss as int"),
        (
            "config",
            lambda content: content.replace(b"fastrtps", b"slowrtps"),
            "unknown middleware 'rmw_slowrtps",
        ),
        ("pub_log", lambda content: content[:-30], r"pub_log.*, line 38.*: expected 36 values, got"),
        (
            "pub_log",
            lambda content: b"\xff" + content,
            r"pub_log.*: expected text, invalid start byte at byte 0",
        ),
    ],
)
def test_damaged_runs_are_named(run_files, tmp_path: Path, part: str, change, message: str) -> None:
    name = next(name for name in run_files if part in name)
    content = run_files.pop(name)
    if change is not None:
        run_files[name] = change(content)
    with pytest.raises(ValueError, match=message):
        read_runs(written(run_files, tmp_path))


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    content = (DATA / "wifi.tar.xz").read_bytes()
    (tmp_path / "wifi.tar.xz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"wifi.tar.xz: expected an archive of logs, .*corrupt or truncated"):
        wifi.section(Source(tmp_path))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("nervure_lab.tsc.source.MAX_BYTES", 1000)
    shutil.copy(DATA / "wifi.tar.xz", tmp_path)
    with pytest.raises(ValueError, match="expected at most 20000 files and 1000 bytes, got more"):
        list(Source(tmp_path).logs(["wifi.tar.xz"]))
    (tmp_path / "table.csv.xz").write_bytes(lzma.compress(b"a\n" * 1000))
    with pytest.raises(ValueError, match="unpacks to more than 1000 bytes"):
        Source(tmp_path).table(["table.csv.xz"], ["a"])


def test_tables_with_errors_are_named(tmp_path: Path) -> None:
    source = Source(tmp_path)
    with pytest.raises(MissingData, match=r"no absent.csv in"):
        source.table(["absent.csv"], [])
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"table.csv: expected a column c, got a, b"):
        source.table(["table.csv"], ["a", "c"])
    shutil.copytree(DATA / "git_metrics", tmp_path / "git_metrics")
    bad = tmp_path / "git_metrics" / "fast_pr.csv"
    bad.write_text(bad.read_text().replace("18243.0", "soon"))
    with pytest.raises(
        ValueError, match=r"fast_pr.csv, row 3, column time_to_close: expected a number, got 'soon'"
    ):
        repositories.section(source)


def test_an_answer_outside_the_scale_is_named(tmp_path: Path) -> None:
    (tmp_path / "survey").mkdir()
    text = (DATA / "survey" / "2020RMWUserSurvey.csv").read_text()
    (tmp_path / "survey" / "2020RMWUserSurvey.csv").write_text(text.replace("Strongly Agree", "Maybe", 1))
    with pytest.raises(ValueError, match=r"row 2, question 1: expected Strongly Disagree, .*, got 'Maybe'"):
        survey.section(Source(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("requirements: [", "expected a table of quality in YAML"),
        ("[]", "expected keys requirements and packages"),
        (
            "{requirements: [Testing], packages: [{name: a, source: b, level: 1}]}",
            "package 1: expected entries",
        ),
        (
            "{requirements: [Testing], packages: [{name: a, source: b, level: 1, entries: {Tests: c}}]}",
            r"package 1 \(a\): unknown requirement 'Tests'; there are Testing",
        ),
    ],
)
def test_a_table_of_quality_with_errors(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "quality.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        quality.section(tmp_path / "quality.yaml")
