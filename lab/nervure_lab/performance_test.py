"""Logs of performance_test, the load generator of ROS 2: reads them, and writes them as the tool does.

A log is a preamble of `Key: value` lines, an empty line, `---EXPERIMENT-START---`, a header, and one row a
second. Values are separated by a comma and tabs, with a separator after the last one. A second without
samples has an infinite minimum, a negative infinite maximum, and a relative loss that is not a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

START = "---EXPERIMENT-START---"
END = "Maximum runtime reached. Exiting."
MAX_BYTES = 64 << 20
"""A log of two weeks; a larger file is refused before it is read."""
MAX_COLUMNS = 256

COLUMNS = (
    "T_experiment",
    "T_loop",
    "received",
    "sent",
    "lost",
    "relative_loss",
    "data_received",
    *(
        f"{value}_{statistic} (ms)"
        for value in ("latency", "pub_loop_res", "sub_loop_res")
        for statistic in ("min", "max", "mean", "variance")
    ),
    *(
        f"ru_{field}"
        for field in (
            *("utime", "stime", "maxrss", "ixrss", "idrss", "isrss", "minflt", "majflt", "nswap", "inblock"),
            *("oublock", "msgsnd", "msgrcv", "nsignals", "nvcsw", "nivcsw"),
        )
    ),
    "cpu_usage (%)",
)
"""The columns of the version of 2020. `ru_*` are cumulative; the variance of a time is in s^2 x 1000."""
_REQUIRED = ("T_experiment", "received", "sent", "lost")
_FIXED = {"T_experiment": 6, "T_loop": 6, "relative_loss": 2}
"""Columns with a fixed number of decimals; the others have four significant digits."""


class LogError(ValueError):
    """A file is not such a log; the message names the file and the line."""


@dataclass(frozen=True)
class Log:
    preamble: Mapping[str, str]
    columns: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    ended: bool = True
    """Whether the tool wrote that its run time was over."""
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", {name: at for at, name in enumerate(self.columns)})

    def column(self, name: str) -> list[float]:
        if name not in self._index:
            raise KeyError(f"no column {name}; there are {', '.join(self.columns)}")
        at = self._index[name]
        return [row[at] for row in self.rows]

    def total(self, name: str) -> float:
        return sum(self.column(name))

    def mean(self, name: str) -> float:
        """The unweighted mean of the rows."""
        values = self.column(name)
        return sum(values) / len(values) if values else math.nan

    def latencies(self) -> list[float]:
        """The mean latency of each second that received a sample, in milliseconds."""
        pairs = zip(self.column("latency_mean (ms)"), self.column("received"), strict=True)
        return [latency for latency, received in pairs if received > 0]


def read_log(path: Path) -> Log:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise LogError(f"{path}: expected a log of at most {MAX_BYTES} bytes, got {size}")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise LogError(f"{path}: expected text in UTF-8, {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise LogError(f"{path}: cannot be read, {error.strerror}") from error
    return parse_log(text, str(path))


def parse_log(text: str, source: str) -> Log:
    """Returns the log in a text; `source` names the file in errors."""
    lines = text.split("\n")
    try:
        start = lines.index(START)
    except ValueError:
        raise LogError(f"{source}: expected a line {START}, found none in {len(lines)} lines") from None
    preamble = _preamble(lines[:start], source)
    if start + 1 >= len(lines) or not lines[start + 1]:
        raise LogError(f"{source}, line {start + 2}: expected the header after {START}, got the end")
    columns = _header(lines[start + 1], source, start + 2)
    rows: list[tuple[float, ...]] = []
    ended = False
    for number, line in enumerate(lines[start + 2 :], start=start + 3):
        if line == END:
            ended = True
        elif ended and line:
            raise LogError(f"{source}, line {number}: expected nothing after `{END}`, got {_short(line)}")
        elif line:
            rows.append(_row(line, columns, source, number, len(rows) + 1))
    if lines[-1]:
        raise LogError(f"{source}, line {len(lines)}: the last line is not complete: the log was truncated")
    return Log(preamble, columns, tuple(rows), ended)


def _preamble(lines: Sequence[str], source: str) -> dict[str, str]:
    preamble: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        key, colon, value = line.partition(":")
        if not colon:
            raise LogError(f"{source}, line {number}: expected `Key: value`, got {_short(line)}")
        preamble[key.strip()] = value.strip()
    return preamble


def _header(line: str, source: str, number: int) -> tuple[str, ...]:
    columns = tuple(_values(line))
    where = f"{source}, line {number}"
    if len(columns) > MAX_COLUMNS:
        raise LogError(f"{where}: expected at most {MAX_COLUMNS} columns, got {len(columns)}")
    if missing := [name for name in _REQUIRED if name not in columns]:
        raise LogError(f"{where}: expected a column {', '.join(missing)}, got {_short(line)}")
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise LogError(f"{where}: column {', '.join(twice)} appears twice")
    return columns


def _row(line: str, columns: Sequence[str], source: str, number: int, row: int) -> tuple[float, ...]:
    values = _values(line)
    where = f"{source}, line {number} (row {row})"
    if len(values) != len(columns):
        raise LogError(
            f"{where}: expected {len(columns)} values, got {len(values)}: damaged or cut off, {_short(line)}"
        )
    try:
        return tuple(map(float, values))
    except ValueError:
        bad = next(
            (name, value) for name, value in zip(columns, values, strict=True) if not _is_number(value)
        )
        raise LogError(f"{where}, column {bad[0]}: expected a number, got {_short(bad[1])}") from None


def _values(line: str) -> list[str]:
    values = [value.strip() for value in line.split(",")]
    # The tool ends each line with a separator.
    return values[:-1] if not values[-1] else values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "..")


def format_log(log: Log) -> str:
    """Returns the log as the tool writes it, with the tool's number of digits."""
    lines = [f"{key}: {value}" for key, value in log.preamble.items()]
    lines += ["", START, _line(log.columns, ",\t")]
    lines += [_line(map(_formatted, log.columns, row), ",\t\t") for row in log.rows]
    lines += [END] if log.ended else []
    return "\n".join([*lines, ""])


def write_log(log: Log, path: Path) -> None:
    path.write_text(format_log(log), encoding="utf-8")


def _line(values: Iterable[str], separator: str) -> str:
    return "".join(value + separator for value in values)


def _formatted(column: str, value: float) -> str:
    if math.isnan(value):
        return "-nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if column in _FIXED:
        return f"{value:.{_FIXED[column]}f}"
    if value == int(value) and (_is_count(column) or value == 0):
        return str(int(value))
    return f"{value:.4g}"


def _is_count(column: str) -> bool:
    return column in ("received", "sent", "lost", "data_received") or (
        column.startswith("ru_") and column not in ("ru_utime", "ru_stime")
    )
