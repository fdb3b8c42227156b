"""The page ``docs/reference/performance.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nervure_lab.experiments.local.results import Cell, Results, compare, timing
from nervure_lab.experiments.local.targets import (
    END_TO_END,
    LATENCY,
    MIB,
    findings,
    format_ratio,
    spread,
)
from nervure_lab.quantities import format_size
from nervure_lab.statistics import median

_LANGUAGES = {"rust": "Rust", "python": "Python"}
_FIRST_MESSAGE_RATE_HZ = 1000.0


def write_page(result: dict[str, Any], output: Path) -> None:
    """Writes the page from the loaded result file of the experiment ``local``."""
    sections = _sections(Results(result))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("\n\n".join(section.strip() for section in sections if section) + "\n")


def _sections(results: Results) -> Iterator[str]:
    yield _introduction(results)
    yield _missing(results)
    yield _targets(results)
    yield _HOW_TO_READ
    for language, title in _LANGUAGES.items():
        yield _sizes(results, language, title)
    for language, title in _LANGUAGES.items():
        yield _fan_out(results, language, title)
    yield _flood(results)
    yield _cost(results)
    yield _idle(results)
    yield _first_message(results)
    yield _losses(results)
    yield _set_up(results)
    yield _all_cells(results)


def _introduction(results: Results) -> str:
    document, machine = results.document, results.document["machine"]
    commands = f"```bash\nexport PYTHONPATH=lab\n{document['command']}\npython -m nervure_lab report\n```"
    where = " (virtual machine)" if machine["virtual_machine"] else ""
    machine_line = (
        f"{machine['cpu']}, {machine['cores']} cores{where}, "
        f"Linux {machine['kernel']}, governor {machine['governor']}, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB of memory"
    )
    quick = (
        "\n\nThis is a **quick** run: few repeats, wide intervals. Not a basis for claims."
        if document["profile"] == "quick"
        else ""
    )
    interrupted = (
        "\n\nThis run was **interrupted**: later repeats are missing." if document["interrupted"] else ""
    )
    return (
        "# Performance\n\nNervure, its peers, and the floors of the machine, measured in turns within one "
        f"run. This page is generated, by `make bench` or:\n\n{commands}\n\nMeasured "
        f"{document['started']} at commit {document['source']}, in {document['seconds'] / 60:.0f} minutes, "
        f"on {machine_line}. Load average {document['load_average_before']:.2f} before and "
        f"{document['load_average_after']:.2f} after.{quick}{interrupted}"
    )


def _missing(results: Results) -> str:
    absent = [entry for entry in results.adapters.values() if not entry["available"]]
    return "\n".join(f"**Not run: {entry['title']}**: {entry['reason']}." for entry in absent)


def _targets(results: Results) -> str:
    rows = [
        [finding.target, finding.measured, finding.beside, f"**{finding.verdict}**"]
        for finding in findings(results)
    ]
    return (
        "## Targets\n\nRatios are of medians unless the target names p99; their 95 % confidence interval is "
        "in brackets. A target is met if the ratio itself is within it and no message was lost. *Beside it* "
        "is the same ratio of a floor and a peer in the same run, where it shows the limit of the host.\n\n"
        + _table(["target", "measured", "beside it", ""], rows)
    )


_HOW_TO_READ = """\
## How to read the tables

- **Floors** are the costs of the machine without middleware: `futex wake-up` is two processes that share one
  block and a futex word; `memcpy` copies into one hot block in one process; `unix socket` is bare Python.
  A middleware with queues and ownership cannot be below them, except when the machine drifts.
- **Peers** run with the settings listed under [Set-up](#set-up).
- **Latency**: from the moment the payload is filled to the moment the consumer's receive call returns,
  before it touches the payload. If the API copies inside its send call, the latency contains that copy;
  those rows are marked †.
- **End to end**: from before the producer takes memory and copies into it, to after the consumer has read
  all of it.
- Paced runs send 50 messages a second to consumers that sleep in between; nothing polls. Times are
  microseconds of `CLOCK_MONOTONIC`, **median · p99** over all repeats and consumers, warm-up apart.
- **L** marks cells where messages were lost or arrived out of order: their latencies are those of the
  delivered messages alone. See [Losses](#losses-hangs-and-failures)."""


def _sizes(results: Results, language: str, title: str) -> str:
    sizes = results.sizes(mode="paced", consumers=1)
    names = _participants(results, language)
    if not sizes or not names:
        return ""
    ours = f"nervure-{language}"
    parts = [f"## {title} to {title}, one consumer"]
    for column, heading in ((LATENCY, "Latency"), (END_TO_END, "End to end")):
        rows = _timing_rows(results, names, sizes, 1, column)
        parts.append(
            f"### {heading}, {title}\n\n" + _table(["µs, median · p99", *map(format_size, sizes)], rows)
        )
    ratios = _ratio_rows(results, ours, names, sizes, 1)
    if ratios:
        parts.append(
            f"### Nervure over each, {title}, end to end\n\n"
            + _table(["ratio", *map(format_size, sizes)], ratios)
        )
    return "\n\n".join(parts)


def _fan_out(results: Results, language: str, title: str) -> str:
    parts = []
    for consumers in (4, 8):
        sizes = results.sizes(mode="paced", consumers=consumers)
        rows = _timing_rows(
            results, _participants(results, language), sizes, consumers, END_TO_END, with_spread=True
        )
        if rows:
            parts.append(
                f"### {title}, 1 to {consumers}\n\n"
                + _table(["µs, median · p99 (slowest/fastest)", *map(format_size, sizes)], rows)
            )
    if not parts:
        return ""
    return f"## {title} to {title}, several consumers, end to end\n\n" + "\n\n".join(parts)


def _timing_rows(
    results: Results,
    names: Iterable[str],
    sizes: list[int],
    consumers: int,
    column: str,
    *,
    with_spread: bool = False,
) -> list[list[str]]:
    rows = []
    for name in names:
        cells = [results.cell(name, "paced", size, consumers=consumers) for size in sizes]
        if all(cell is None or (column == LATENCY and not cell.has_producer) for cell in cells):
            continue
        entry = results.adapters[name]
        mark = " †" if entry["copies_in_send"] and column == LATENCY else ""
        rows.append(
            [entry["title"] + mark, *(_timing_text(cell, column, with_spread=with_spread) for cell in cells)]
        )
    return rows


def _timing_text(cell: Cell | None, column: str, *, with_spread: bool) -> str:
    if cell is None:
        return "-"
    found = timing(cell, column)
    if found is None:
        return cell.problems[0].partition(":")[0] if cell.problems else "all lost"
    text = f"{_micros(found.median)} · {_micros(found.p99)}"
    if with_spread:
        text += f" ({spread(cell):.1f}x)"
    if cell.problems:
        text += f", {len(cell.problems)} of {len(cell.runs)} hung or failed"
    return text if cell.is_lossless else f"{text} **L**"


def _ratio_rows(
    results: Results, ours: str, names: list[str], sizes: list[int], consumers: int
) -> list[list[str]]:
    rows = []
    for name in names:
        if name == ours:
            continue
        found = [
            compare(
                results.cell(ours, "paced", size, consumers=consumers),
                results.cell(name, "paced", size, consumers=consumers),
                END_TO_END,
            )
            for size in sizes
        ]
        if any(found):
            rows.append(
                [results.adapters[name]["title"], *(format_ratio(ratio) if ratio else "-" for ratio in found)]
            )
    return rows


def _flood(results: Results) -> str:
    rows = []
    for name, entry in results.adapters.items():
        small = results.cell(name, "flood", 64)
        read, unread = (results.cell(name, "flood", 4 * MIB, touch=touch) for touch in (True, False))
        if any((small, read, unread)):
            rows.append(
                [
                    entry["title"],
                    _rate_text(small, "window_messages", 1, "{:,.0f}"),
                    _loss_text(small),
                    _rate_text(read, "window_bytes", 1e9, "{:.2f}"),
                    _loss_text(read),
                    _rate_text(unread, "window_bytes", 1e9, "{:.2f}"),
                    _loss_text(unread),
                ]
            )
    if not rows:
        return ""
    header = ["", "64 B, messages/s", "lost", "4 MiB read, GB/s", "lost", "4 MiB not read, GB/s", "lost"]
    return (
        "## Flood\n\nThe producer sends at full speed, with `block` or the peer's kind of backpressure; "
        "queues of 256 (64 B) and 10 (4 MiB). Rates are medians over repeats, at the consumer, after a "
        "warm-up.\n\n" + _table(header, rows)
    )


def _cost(results: Results) -> str:
    rows = []
    for name, entry in results.adapters.items():
        read, unread = (results.cell(name, "paced", 4 * MIB, touch=touch) for touch in (True, False))
        if read is None or not read.measured:
            continue
        rows.append(
            [
                entry["title"],
                _share_text(read.cpu_shares("producer")),
                _share_text(read.cpu_shares("consumer")),
                _share_text(unread.cpu_shares("consumer") if unread else []),
                _share_text(_daemon_shares(read)),
                _megabytes(read.of_process("producer 0", "max_rss_bytes")),
                _megabytes(read.of_process("consumer 0", "max_rss_bytes")),
                _megabytes(read.of_process("daemon", "max_rss_bytes")),
            ]
        )
    if not rows:
        return ""
    header = [
        "4 MiB at 50 Hz, one consumer",
        "producer CPU",
        "consumer CPU",
        "consumer CPU, payload not read",
        "daemons CPU",
        "producer RSS",
        "consumer RSS",
        "daemons RSS",
    ]
    return (
        "## Cost\n\nPer cent of one core, and peak resident memory, which counts shared pages in every "
        "process that maps them. Daemons are all processes that are neither producer nor consumer.\n\n"
        + _table(header, rows)
    )


def _idle(results: Results) -> str:
    rows = []
    for name, entry in results.adapters.items():
        cell = results.cell(name, "idle", 64)
        if cell is None or not cell.measured:
            continue
        wakeups = cell.of_process("consumer 0", "idle_wakeups_per_second")
        rows.append(
            [
                entry["title"],
                _megabytes(cell.of_process("consumer 0", "rss_bytes")),
                f"{median(cell.of_process('consumer 0', 'threads')):.0f}",
                f"{median(wakeups):.1f}" if wakeups else "-",
            ]
        )
    if not rows:
        return ""
    header = ["", "RSS", "threads", "wake-ups a second"]
    return (
        "## An idle Python node\n\nA consumer that waits and receives nothing. The unix socket is bare "
        "Python with NumPy; dora's API also loads pyarrow.\n\n" + _table(header, rows)
    )


def _first_message(results: Results) -> str:
    rows = []
    for name, entry in results.adapters.items():
        cell = results.cell(name, "paced", 64, touch=False, rate_hz=_FIRST_MESSAGE_RATE_HZ)
        if cell is not None and cell.has_producer and cell.first_messages():
            rows.append([entry["title"], f"{median(cell.first_messages()):.3f}"])
    if not rows:
        return ""
    return (
        "## From start to the first message\n\nFrom spawning the first process (`nervure run`, `dora run`, "
        "or the endpoints themselves) to the first message at the consumer. The unix socket is bare Python "
        "with the same imports.\n\n" + _table(["", "seconds, median"], rows)
    )


def _losses(results: Results) -> str:
    rows = []
    for name, key, cell in results.all_cells():
        where = f"{key.mode}, {format_size(key.payload_bytes)}, 1 to {key.consumers}"
        if cell.measured and not cell.is_lossless:
            rows.append([results.adapters[name]["title"], where, _loss_text(cell)])
        rows += [
            [results.adapters[name]["title"], where, problem.replace("|", "\\|")] for problem in cell.problems
        ]
    text = "## Losses, hangs and failures\n\n"
    if not rows:
        return text + "None."
    return text + "Runs that hung or failed are results too.\n\n" + _table(["", "case", "outcome"], rows)


def _set_up(results: Results) -> str:
    rows = []
    for entry in results.adapters.values():
        versions = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
        rows.append([entry["title"], versions or entry["reason"], entry["settings"]])
    return "## Set-up\n\n" + _table(["", "versions", "settings"], rows)


def _all_cells(results: Results) -> str:
    rows = []
    for name, key, cell in results.all_cells():
        if key.mode != "paced" or key.rate_hz == _FIRST_MESSAGE_RATE_HZ:
            continue
        found = timing(cell, LATENCY)
        warm = cell.pooled("warmup_end_to_end_nanos")
        rows.append(
            [
                results.adapters[name]["title"],
                f"{format_size(key.payload_bytes)}{'' if key.touch else ', not read'}",
                f"1 to {key.consumers}",
                str(found.samples if found else 0),
                _medians_text(cell.medians_of_repeats(LATENCY)) if cell.has_producer else "-",
                _medians_text(cell.medians_of_repeats(END_TO_END)),
                _micros(median(warm) / 1e3) if warm else "-",
                _loss_text(cell),
            ]
        )
    header = [
        "",
        "size",
        "fan-out",
        "samples",
        "latency, median of each repeat",
        "end to end, median of each repeat",
        "warm-up, end to end",
        "lost",
    ]
    return "## Every paced cell, repeat by repeat\n\nMicroseconds.\n\n" + _table(header, rows)


def _participants(results: Results, language: str) -> list[str]:
    return [
        name
        for name, entry in results.adapters.items()
        if entry["available"] and entry["language"] == language
    ]


def _rate_text(cell: Cell | None, what: str, unit: float, form: str) -> str:
    if cell is None:
        return "-"
    if not cell.measured:
        return cell.problems[0].partition(":")[0]
    return form.format(median(cell.rates(what)) / unit)


def _loss_text(cell: Cell | None) -> str:
    if cell is None or not cell.measured:
        return "-"
    lost, reordered, duplicates = (cell.count(name) for name in ("lost", "reordered", "duplicates"))
    parts = [f"{lost:,} of {cell.sent:,} ({100 * lost / cell.sent:.1f} %)" if lost else "0"]
    if reordered:
        parts.append(f"{reordered:,} reordered")
    if duplicates:
        parts.append(f"{duplicates:,} twice")
    return ", ".join(parts)


def _daemon_shares(cell: Cell) -> list[float]:
    shares = []
    for run in cell.measured:
        case = run["case"]
        seconds = (case["warmup_messages"] + case["messages"]) / case["rate_hz"]
        used = [process["cpu_seconds"] for process in run["processes"] if process["role"] == "daemon"]
        shares += [sum(used) / seconds] if used else []
    return shares


def _share_text(shares: list[float]) -> str:
    return f"{100 * median(shares):.1f} %" if shares else "-"


def _megabytes(values: list[float]) -> str:
    return f"{median(values) / 1e6:.0f} MB" if values else "-"


def _medians_text(nanos: list[float]) -> str:
    return ", ".join(_micros(value / 1e3) for value in nanos) or "-"


def _micros(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _table(header: list[str], rows: list[list[str]]) -> str:
    alignment = [":---", *("---:" for _ in header[1:])] if _is_numeric(rows) else [":---" for _ in header]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, alignment, *rows])


def _is_numeric(rows: list[list[str]]) -> bool:
    return all(text[:1].isdigit() or text[:1] == "-" for row in rows for text in row[1:])
