"""Logs of performance_test: read, written as the tool does, and refused when damaged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nervure_lab.performance_test import (
    COLUMNS,
    END,
    MAX_BYTES,
    START,
    Log,
    LogError,
    format_log,
    parse_log,
    read_log,
    write_log,
)


def row(second: int, received: int = 0, **values: float) -> tuple[float, ...]:
    """A second of a subscriber."""
    silent = {"relative_loss": math.nan, "latency_min (ms)": math.inf, "latency_max (ms)": -math.inf}
    given_values = {"T_experiment": second + 0.5, "T_loop": 1.0, "received": received} | (
        {} if received else silent
    )
    return tuple((given_values | values).get(column, 0.0) for column in COLUMNS)


def log(*rows: tuple[float, ...], ended: bool = True) -> Log:
    return Log({"Topic name": "Array1k", "Logfile name": ""}, COLUMNS, rows, ended)


def test_a_log_survives_writing_and_reading(tmp_path: Path) -> None:
    first = log(row(1), row(2, 30, **{"latency_mean (ms)": 0.5, "lost": 2.0, "sent": 31.0}))
    write_log(first, tmp_path / "log")
    read = read_log(tmp_path / "log")
    assert read.preamble == first.preamble
    assert read.ended
    assert read.column("received") == [0, 30]
    assert read.column("latency_min (ms)") == [math.inf, 0]
    assert math.isnan(read.column("relative_loss")[0])
    assert read.latencies() == [0.5]
    assert read.total("lost") == 2
    assert format_log(read) == format_log(first)


def test_the_layout_is_that_of_the_tool() -> None:
    lines = format_log(log(row(1, 30, **{"ru_maxrss": 29556, "latency_variance (ms)": 0.0005863}))).split(
        "\n"
    )
    assert lines[0] == "Topic name: Array1k"
    assert lines[2:4] == ["", START]
    assert lines[4].startswith("T_experiment,\tT_loop,\treceived,\t")
    assert lines[4].endswith("cpu_usage (%),\t")
    assert lines[5].startswith("1.500000,\t\t1.000000,\t\t30,\t\t0,\t\t0,\t\t0.00,\t\t")
    assert "\t0.0005863,\t\t" in lines[5]
    assert "\t29556,\t\t" in lines[5]
    assert lines[5].endswith("0,\t\t")
    assert lines[6:] == [END, ""]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace(START, "START"), r"the-log: expected a line ---EXPERIMENT-START---"),
        (
            lambda text: text.replace("30,\t\t", "many,\t\t", 1),
            r"line 6 \(row 1\), column received: .*'many'",
        ),
        (lambda text: text.replace("30,\t\t", "", 1), r"line 6 \(row 1\): expected 36 values, got 35"),
        (lambda text: text.replace("received", "got", 1), r"line 5: expected a column received"),
        (lambda text: text.replace("T_loop", "sent", 1), r"line 5: column sent appears twice"),
        (
            lambda text: text.replace("Topic name:", "Topic name"),
            r"line 1: expected `Key: value`, got 'Topic",
        ),
        (lambda text: text[: text.index(START) + len(START)], r"expected the header after"),
        (lambda text: text[:-60], r"the-log, line 6.*: expected 36 values, got "),
        (lambda text: text + "1,\t\t2\n", r"line 8: expected nothing after `Maximum runtime"),
    ],
)
def test_a_damaged_log_is_refused_with_its_line(change, message: str) -> None:
    with pytest.raises(LogError, match=message):
        parse_log(change(format_log(log(row(1, 30)))), "the-log")


def test_a_log_cut_after_a_value_is_truncated() -> None:
    text = format_log(log(row(1, 30), ended=False))
    with pytest.raises(LogError, match="truncated"):
        parse_log(text.rstrip("\n"), "the-log")


def test_files_that_are_no_logs(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot be read, No such file"):
        read_log(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(LogError, match="expected text in UTF-8"):
        read_log(tmp_path / "binary")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(LogError, match="expected a log of at most"):
        read_log(tmp_path / "huge")


@given(st.text(max_size=300))
def test_no_text_causes_another_error(text: str) -> None:
    header = ",".join(COLUMNS)
    for whole in (text, f"{START}\n{text}", f"{START}\n{header}\n{text}"):
        try:
            parse_log(whole, "fuzzed")
        except LogError as error:
            assert str(error).startswith("fuzzed")


counts = st.integers(0, 10**7).map(float)
times = st.floats(1e-3, 1e6).map(lambda value: float(f"{value:.4g}"))


@given(st.lists(st.tuples(counts, times, counts), max_size=5))
def test_values_in_the_precision_of_the_tool_survive(seconds: list[tuple[float, float, float]]) -> None:
    rows = [
        row(at, int(received), **{"latency_mean (ms)": latency, "ru_maxrss": memory})
        for at, (received, latency, memory) in enumerate(seconds)
    ]
    again = parse_log(format_log(log(*rows)), "written")
    for column in ("received", "latency_mean (ms)", "ru_maxrss", "T_experiment"):
        assert again.column(column) == log(*rows).column(column)
