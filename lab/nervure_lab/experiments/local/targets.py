"""The targets of Nervure on one host, and whether a result meets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeGuard

from nervure_lab.experiments.local.results import Cell, Results, compare
from nervure_lab.quantities import format_size
from nervure_lab.statistics import Ratio, Statistic, median, p99, ratio

KIB, MIB = 1024, 1024 * 1024
IMAGE_BYTES = 900 * KIB
"""The image of dora's camera nodes, measured with its programs only."""
LATENCY, END_TO_END = "latency_nanos", "end_to_end_nanos"
Verdict = Literal["met", "missed", "not measured"]


@dataclass(frozen=True)
class Finding:
    """A target and its verdict."""

    target: str
    measured: str
    verdict: Verdict
    beside: str = ""
    """The same figure of a floor and a peer, where that shows the limit of the machine."""


def findings(results: Results) -> list[Finding]:
    """Returns one finding for each target, ordered by importance."""
    return [finding for group in _GROUPS for finding in group(results)]


def _rust_latency(results: Results) -> Iterator[Finding]:
    ours = results.cell("nervure-rust", "paced", 64)
    futex = results.cell("floor-futex", "paced", 64)
    peer = results.cell("iceoryx2-rust", "paced", 64)
    yield _ratio("Rust, 64 B: latency at most 1.4x the bare futex wake-up", ours, futex, LATENCY, 1.4)
    yield _ratio("Rust, 64 B: latency at most 0.6x iceoryx2's", ours, peer, LATENCY, 0.6)
    yield _ratio("Rust, 64 B: p99 of latency no worse than iceoryx2's", ours, peer, LATENCY, 1.0, p99)
    for size in results.sizes(mode="paced", consumers=1):
        if size > 64:
            larger = results.cell("nervure-rust", "paced", size)
            target = f"Rust, {format_size(size)}: latency at most 1.5x that of 64 B"
            beside = _beside("rust", partial(_growth, results, size))
            yield replace(_ratio(target, larger, ours, LATENCY, 1.5), beside=beside)


def _python_end_to_end(results: Results) -> Iterator[Finding]:
    for size, limit in ((64, 0.65), (512 * KIB, 0.8), (4 * MIB, 0.65)):
        ours = results.cell("nervure-python", "paced", size)
        peer = results.cell("iceoryx2-python", "paced", size)
        target = f"Python, {format_size(size)}: end to end at most {limit}x iceoryx2's"
        floor = compare(results.cell("floor-futex", "paced", size), peer, END_TO_END)
        beside = f"futex wake-up {floor.value:.2f}x" if floor else ""
        yield replace(_ratio(target, ours, peer, END_TO_END, limit), beside=beside)
    for size in results.sizes(mode="paced", consumers=1):
        if size == IMAGE_BYTES:
            continue
        ours = results.cell("nervure-python", "paced", size)
        peer = results.cell("dora-python", "paced", size)
        target = f"Python, {format_size(size)}: end to end at most 0.25x dora's"
        floor = compare(results.cell("floor-socket", "paced", size), peer, END_TO_END)
        beside = f"bare unix socket {floor.value:.2f}x" if floor else ""
        yield replace(_ratio(target, ours, peer, END_TO_END, 0.25), beside=beside)


def _programs_of_dora(results: Results) -> Iterator[Finding]:
    for size, limit in ((64, 0.6), (IMAGE_BYTES, 0.75)):
        ours = results.cell("nervure-dora-python", "paced", size)
        peer = results.cell("dora-python", "paced", size)
        target = f"dora's Python programs, {format_size(size)}: end to end at most {limit}x that under dora"
        yield _ratio(target, ours, peer, END_TO_END, limit)


def _sustained(results: Results) -> Iterator[Finding]:
    cell = results.cell("nervure-python", "paced", 32 * MIB)
    yield _finding("Python, 32 MiB at 50 Hz: nothing lost", cell, _losses, lambda cell: cell.is_lossless)


def _floods(results: Results) -> Iterator[Finding]:
    yield _small_flood(results.cell("nervure-rust", "flood", 64), "Rust", 1e6)
    yield _small_flood(results.cell("nervure-python", "flood", 64), "Python", 150e3)
    ours = results.cell("nervure-rust", "flood", 4 * MIB, touch=False)
    copy = results.cell("floor-memcpy", "flood", 4 * MIB, touch=False)
    target = "Rust, 4 MiB flood: memcpy's bandwidth at most 1.1x ours"
    if not _has_data(ours) or not _has_data(copy):
        yield Finding(target, "", "not measured")
        return
    found = ratio(
        [[rate] for rate in copy.rates("window_bytes")], [[rate] for rate in ours.rates("window_bytes")]
    )
    gigabytes = median(ours.rates("window_bytes")) / 1e9
    yield Finding(target, f"{format_ratio(found)} ({gigabytes:.1f} GB/s)", _verdict(found.value <= 1.1))


def _small_flood(cell: Cell | None, language: str, messages_per_second: float) -> Finding:
    return _finding(
        f"{language}, 64 B flood, `block`: over {messages_per_second:,.0f} messages/s, no loss, in order",
        cell,
        lambda cell: f"{median(cell.rates('window_messages')):,.0f} messages/s, {_losses(cell)}",
        lambda cell: cell.is_lossless and median(cell.rates("window_messages")) > messages_per_second,
    )


def _fan_out(results: Results) -> Iterator[Finding]:
    def spread_of(adapter: str) -> float | None:
        cell = results.cell(adapter, "paced", 4 * MIB, consumers=8)
        return spread(cell) if _has_data(cell) else None

    for adapter, language in (("nervure-rust", "Rust"), ("nervure-python", "Python")):
        found = _finding(
            f"{language}, 4 MiB to 8 consumers, end to end: the slowest at most 1.5x the fastest",
            results.cell(adapter, "paced", 4 * MIB, consumers=8),
            lambda cell: f"{spread(cell):.2f}x",
            lambda cell: spread(cell) <= 1.5,
        )
        yield replace(found, beside=_beside(language.lower(), spread_of))


def _idle_cost(results: Results) -> Iterator[Finding]:
    for adapter, language in (("nervure-rust", "Rust"), ("nervure-python", "Python")):
        yield _finding(
            f"{language}, 4 MiB at 50 Hz, payload not read: consumer below 1 % of a core",
            results.cell(adapter, "paced", 4 * MIB, touch=False),
            lambda cell: f"{100 * median(cell.cpu_shares('consumer')):.2f} %",
            lambda cell: median(cell.cpu_shares("consumer")) < 0.01,
        )
    ours = results.cell("nervure-python", "idle", 64)
    bare = results.cell("floor-socket", "idle", 64)
    target = "Idle Python node: at most 12 MB above bare Python with NumPy"
    if not _has_data(ours) or not _has_data(bare):
        yield Finding(target, "", "not measured")
    else:
        above = (_of_consumer(ours, "rss_bytes") - _of_consumer(bare, "rss_bytes")) / 1e6
        yield Finding(target, f"{above:.1f} MB", _verdict(above <= 12))
    yield _finding(
        "Idle Python node: at most 4 threads",
        ours,
        lambda cell: f"{_of_consumer(cell, 'threads'):.0f}",
        lambda cell: _of_consumer(cell, "threads") <= 4,
    )
    yield _finding(
        "Idle Python node: no periodic wake-ups",
        ours,
        lambda cell: f"{_of_consumer(cell, 'idle_wakeups_per_second'):.1f} a second",
        lambda cell: _of_consumer(cell, "idle_wakeups_per_second") == 0,
    )


def _start(results: Results) -> Iterator[Finding]:
    ours = results.cell("nervure-python", "paced", 64, touch=False, rate_hz=1000.0)
    bare = results.cell("floor-socket", "paced", 64, touch=False, rate_hz=1000.0)
    target = "`nervure run` to the first message between two Python nodes: at most 0.15 s above bare Python"
    if not _has_data(ours) or not _has_data(bare):
        yield Finding(target, "", "not measured")
        return
    above = median(ours.first_messages()) - median(bare.first_messages())
    yield Finding(target, f"{above:.3f} s", _verdict(above <= 0.15))


def _mesh(results: Results) -> Iterator[Finding]:
    yield _finding(
        "1,000 edges between 200 small Rust nodes: every edge has carried a message within 3 s of the start",
        results.cell("nervure-rust", "mesh", 64, consumers=200),
        lambda cell: f"{median(cell.last_messages()):.2f} s, {_losses(cell)}",
        lambda cell: median(cell.last_messages()) <= 3 and cell.is_lossless,
    )


_GROUPS: list[Callable[[Results], Iterator[Finding]]] = [
    _rust_latency,
    _python_end_to_end,
    _programs_of_dora,
    _sustained,
    _floods,
    _fan_out,
    _idle_cost,
    _start,
    _mesh,
]


def _growth(results: Results, size: int, adapter: str) -> float | None:
    larger, small = (results.cell(adapter, "paced", bytes_) for bytes_ in (size, 64))
    found = compare(larger, small, LATENCY)
    return found.value if found else None


def _beside(language: str, of_adapter: Callable[[str], float | None]) -> str:
    """Formats the figures of the floor and the peer in the same session."""
    floor = "floor-futex" if language == "rust" else "floor-socket"
    found = [(name, of_adapter(name)) for name in (floor, f"iceoryx2-{language}")]
    parts = [(name.split("-")[0], value) for name, value in found if value is not None]
    return ", ".join(f"{name} {value:.2f}x" for name, value in parts)


def _ratio(
    target: str,
    ours: Cell | None,
    other: Cell | None,
    column: str,
    limit: float,
    statistic: Statistic = median,
) -> Finding:
    found = compare(ours, other, column, statistic)
    if found is None:
        return Finding(target, "", "not measured")
    losses = "" if ours is None or ours.is_lossless else f"; {_losses(ours)}"
    return Finding(target, format_ratio(found) + losses, _verdict(found.value <= limit and not losses))


def _finding(
    target: str, cell: Cell | None, describe: Callable[[Cell], str], is_met: Callable[[Cell], bool]
) -> Finding:
    if not _has_data(cell):
        return Finding(target, "", "not measured")
    problems = f"; {len(cell.problems)} of {len(cell.runs)} repeats hung or failed" if cell.problems else ""
    return Finding(target, describe(cell) + problems, _verdict(is_met(cell) and not cell.problems))


def _has_data(cell: Cell | None) -> TypeGuard[Cell]:
    return cell is not None and bool(cell.measured)


def _losses(cell: Cell) -> str:
    return f"{cell.count('lost')} of {cell.sent} lost, {cell.count('reordered')} reordered"


def spread(cell: Cell) -> float:
    """Returns the slowest consumer's median end to end divided by the fastest's; the median over repeats."""
    spreads = [max(medians) / min(medians) for medians in cell.medians_of_consumers(END_TO_END) if medians]
    return median(spreads) if spreads else float("inf")


def _of_consumer(cell: Cell, name: str) -> float:
    return median(cell.of_process("consumer 0", name))


def _verdict(is_met: bool) -> Verdict:
    return "met" if is_met else "missed"


def format_ratio(found: Ratio) -> str:
    return f"{found.value:.2f}x [{found.low:.2f}, {found.high:.2f}]"
