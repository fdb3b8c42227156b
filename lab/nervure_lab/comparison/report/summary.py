"""The sentences and table rows of the report."""

from __future__ import annotations

from dataclasses import dataclass

from nervure_lab.comparison.results import Cell, ResultSet
from nervure_lab.peer import LINK
from nervure_lab.statistics import fairness

LOSSLESS_PERCENT = 99.5
THREATS = (
    "Endpoints of most peers are Python programs, those of Fast DDS C++, that of Nervure's link Rust; on one "
    "host Nervure and iceoryx2 have rows of either language, Python and Rust. The tables name it: compare "
    "rows of one language.",
    "Nervure's link and Zenoh over QUIC encrypt; the other peers do not.",
    "On one host, compare *end to end* where APIs differ in their copies: iceoryx2, and Nervure in "
    "`nervure-loan` and `nervure-rust`, loan memory, and the latency begins after the payload was copied "
    "there; the others copy inside the send call.",
    "Both ends of the link run on one machine, with one clock and a share of the same cores; the emulator "
    "takes a part of them.",
    "The settings follow each project's own documentation, but were chosen by the authors of Nervure.",
    "Warm-up messages count for losses, not for latencies. A latency is that of delivered messages: read it "
    "beside the losses.",
    "Over the link Nervure's schedule begins when its receiver has opened the stream, and other peers probe "
    "before it; connecting is not part of any latency.",
)


@dataclass
class Row:
    adapter: str
    language: str
    delivered: str
    lost: str
    disorder: str
    median: str
    median_interval: str
    p99: str
    p99_9: str
    maximum: str
    jitter: str
    end_to_end: str
    discovery: str
    cpu: str
    memory: str
    switches: str
    note: str


def rows_of_cell(results: ResultSet, experiment: str, name: str) -> list[Row]:
    rows = []
    for adapter in results.adapters(experiment):
        cell = results.find(experiment, name, adapter["name"])
        if cell is None:
            continue
        note = f"{len(cell.problems)} of {len(cell.runs)} runs: {cell.problems[0]}" if cell.problems else ""
        language = adapter["language"] + (", encrypted" if adapter["encrypted"] else "")
        rows.append(_row(cell, language, note))
    return rows


def _row(cell: Cell, language: str, note: str) -> Row:
    latency = cell.latency
    low, high = cell.median_interval()
    none = latency["count"] == 0
    percent = cell.delivered_percent
    head, between, tail = (cell.total(f"lost_{name}") for name in ("before_first", "between", "tail"))
    cpu = [cell.cpu_percent(role) for role in (*cell.case.process_roles, "daemon")]
    switches = cell.switches_per_message()
    return Row(
        adapter=cell.adapter,
        language=language,
        delivered="-" if percent is None else f"{percent:.1f}",
        lost=f"{head} / {between} / {tail}" if cell.total("lost") else "0",
        disorder=f"{cell.total('duplicated')} / {cell.total('reordered')} / {cell.total('late')}",
        median="-" if none else time_text(latency["p50"]),
        median_interval="" if none else f"[{time_text(low)}, {time_text(high)}]",
        p99="-" if none else time_text(latency["p99"]),
        p99_9="-" if none else time_text(latency["p99_9"]),
        maximum="-" if none else time_text(latency["max"]),
        jitter="-" if none else time_text(latency["jitter"]),
        end_to_end="-" if none else time_text(cell.end_to_end["p50"]),
        discovery="-" if cell.discovery_ms is None else f"{cell.discovery_ms:.0f} ms",
        cpu=" + ".join(f"{share:.1f}" for share in cpu) if cell.measured else "-",
        memory=f"{cell.most_memory_bytes() / 2**20:.0f}" if cell.measured else "-",
        switches="-" if switches is None else f"{switches:.0f}",
        note=note,
    )


def time_text(micros: float) -> str:
    if micros != micros:
        return "-"
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(micros) >= size:
            return f"{micros / size:.3g} {unit}"
    return f"{micros:.3g} µs"


def sentences(results: ResultSet, experiment: str) -> list[str]:
    """The conclusions for an engineer: for each cell the best rows, and the rank of Nervure. On one host,
    endpoints in each language are compared by themselves.
    """
    languages = {adapter["name"]: adapter["language"] for adapter in results.adapters(experiment)}
    found = []
    for name in results.names(experiment):
        cells = list(results.measured(experiment, name))
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            on_host = cell.case.place != LINK
            groups.setdefault(languages[cell.adapter] if on_host else "", []).append(cell)
        rankings = [
            (f"in {language} " if len(groups) > 1 else "") + _ranking(group)
            for language, group in (groups or {"": cells}).items()
        ]
        found.append(f"{name}: " + "; ".join(rankings) + _sharing(cells) + _ages(cells) + ".")
    return found


def _ranking(cells: list[Cell]) -> str:
    whole = [
        cell
        for cell in cells
        if (cell.delivered_percent or 0.0) >= LOSSLESS_PERCENT and cell.latency["count"]
    ]
    if not whole:
        text = "no peer delivered 99.5 %"
        best = max(cells, key=lambda cell: cell.delivered_percent or 0.0, default=None)
        if best is not None and best.delivered_percent:
            text += f"; most arrived with {best.adapter}, {best.delivered_percent:.1f} %"
        return text
    by_median = sorted(whole, key=lambda cell: cell.latency["p50"])
    by_p99 = min(whole, key=lambda cell: cell.latency["p99"])
    best = by_median[0]
    text = f"lowest median {best.adapter} ({time_text(best.latency['p50'])})"
    if _overlaps(best, by_median[1:]):
        text += ", not significantly below " + _overlaps(best, by_median[1:])
    text += f"; lowest p99 {by_p99.adapter} ({time_text(by_p99.latency['p99'])})"
    if len(whole) < len(cells):
        text += f"; {len(whole)} of {len(cells)} delivered 99.5 % or more"
    return text + _place_of_nervure(by_median, cells)


def _sharing(cells: list[Cell]) -> str:
    """Fairness of the robots' shares of the link, or the share left beside a neighbour."""
    if not cells or cells[0].case.place != "link":
        return ""
    case = cells[0].case
    if case.publishers > 1:
        index = {cell.adapter: fairness(cell.shares_mbit) for cell in cells}
        least, most = min(index, key=lambda name: index[name]), max(index, key=lambda name: index[name])
        if index[most] - index[least] < 0.005:
            return f"; fairness {index[most]:.2f} with all"
        return f"; fairness from {index[least]:.2f} ({least}) to {index[most]:.2f} ({most})"
    if case.neighbours:
        left = {cell.adapter: sum(cell.shares_mbit) for cell in cells}
        least, most = min(left, key=lambda name: left[name]), max(left, key=lambda name: left[name])
        return (
            f"; beside TCP from {left[least]:.1f} ({least}) to {left[most]:.1f} ({most}) of "
            f"{case.payload_mbit:.1f} Mbit/s arrived in time"
        )
    return ""


def _ages(cells: list[Cell]) -> str:
    """The age of results where subscribers compute: there a long queue costs more than losses."""
    ages = {cell.adapter: cell.end_to_end["p50"] for cell in cells if cell.end_to_end["count"]}
    if not ages or not cells[0].case.work_millis:
        return ""
    least, most = min(ages, key=lambda name: ages[name]), max(ages, key=lambda name: ages[name])
    words = f"{time_text(ages[least])} ({least}) to {time_text(ages[most])} ({most})"
    return f"; median age of the results from {words}"


def _overlaps(best: Cell, others: list[Cell]) -> str:
    """The next one, if the intervals of the medians overlap."""
    if others and best.median_interval()[1] >= others[0].median_interval()[0]:
        return others[0].adapter
    return ""


def _place_of_nervure(ordered: list[Cell], cells: list[Cell]) -> str:
    places = [place for place, cell in enumerate(ordered) if cell.adapter.startswith("nervure")]
    if not places:
        lossy = next((cell for cell in cells if cell.adapter.startswith("nervure")), None)
        return "" if lossy is None else f"; Nervure delivered {lossy.delivered_percent:.1f} %"
    if places[0] == 0:
        return ""
    own, best = ordered[places[0]], ordered[0]
    return (
        f"; Nervure is number {places[0] + 1} by median, {own.latency['p50'] / best.latency['p50']:.1f} "
        f"times that of {best.adapter}"
    )


def unavailable(results: ResultSet) -> list[tuple[str, str]]:
    found = {}
    for experiment in results.documents:
        for adapter in results.adapters(experiment):
            if not adapter["available"]:
                found[adapter["title"]] = adapter["reason"]
    return sorted(found.items())
