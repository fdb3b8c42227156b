"""docs/reference/link.md, from a result file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from nervure_lab.experiments.link.figures import (
    CellFigures,
    RunFigures,
    cell_key,
    cells,
    counting,
    impossible,
    missing,
)
from nervure_lab.experiments.link.measures import CROWDED, DISTURBED, disturbance
from nervure_lab.experiments.link.plan import GROUPS
from nervure_lab.experiments.link.targets import ADAPTER, Verdict, verdicts

_COLUMNS = (
    "delivered %|mean ms|p99 ms|p99 outside stops|machine late ms|"
    "Mbit/s|of limit %|own headers off %|on air|CPU s/Gbit"
)
_KIND_COLUMNS = {
    "fresh_after_ms": "fresh after ms",
    "oldest_ms": "oldest ms",
    "delivered": "delivered",
    "accepted": "accepted",
    "accepted_lost": "of them lost",
    "share_percent": "own share %",
    "other_percent": "other's share %",
    "jain": "Jain index",
    "aggregate_percent": "together, own headers off %",
    "least_mbit": "least Mbit/s",
    "most_mbit": "most Mbit/s",
    "wire_bytes_per_byte": "bytes on air per byte",
    "first_p50_ms": "p50 ms",
    "first_p95_ms": "p95 ms",
    "first_max_ms": "longest ms",
    "one_way_ms": "one way, mean ms",
    "over_udp_ms": "there and back over UDP's, ms",
}
_GREATEST_IS_WORST = {"fresh_after_ms", "oldest_ms", "accepted_lost", "wire_bytes_per_byte", "one_way_ms"}
_GREATEST_IS_WORST |= {"first_p50_ms", "first_p95_ms", "first_max_ms", "over_udp_ms"}


def write_page(result: dict[str, Any], target: Path) -> list[str]:
    """Writes the page and returns the runs that cannot be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = [*_head(result), *_targets(result), *_sections(result), *_adapters(result), *_missing(result)]
    target.write_text("\n".join(lines).rstrip() + "\n")
    return impossible(result)


def _head(result: dict[str, Any]) -> list[str]:
    machine = result["machine"]
    lines = [
        "# The link, measured",
        "",
        "Samples at a fixed rate over an [emulated link](../guides/emulated-link.md). Loss and delay are "
        "those of either direction; a lost packet has cost its airtime.",
        "",
        f"Profile *{result['profile']}*, {machine['cpu']}, {machine['cores']} "
        f"cores{', virtual' if machine['virtual_machine'] else ''}, Linux {machine['kernel']}; load average "
        f"{result['load_average_before']:.1f} before.",
        "",
        *(f"- {session}" for session in _sessions(result)),
        "",
        "- *delivered* is the share of the schedule: sample n is due at n / rate whatever became of others.",
        "- *mean* and *p99* are from when a sample was due to its reception, of those that were delivered.",
        "- *machine late* is the longest delay with which the machine, during the run that is shown, woke up "
        "the emulator or a process that only waits. A tail that is no longer may be the machine's.",
        "- *outside stops*: a virtual machine is stopped by its host now and then. On each core a process "
        "with real-time priority, which nothing here can keep waiting, does nothing but sleep for 2 ms at a "
        "time, and notes when it wakes up more than 5 ms late. This is p99 of the samples that met no such "
        "stop on their way, and how many these are; what a stop leaves behind, a queue say, counts. A target "
        "that holds for these alone is *met outside stops*.",
        f"- A run during which such stops took more than {100 * DISTURBED:g} % of its time, or beside others "
        f"with which it kept the processors busy for more than {100 * CROWDED:g} % of it, is made anew, "
        "twice at most, and the least disturbed one counts, whatever it measured. "
        f"{_made_anew(result)}",
        "- *of limit* is the delivered payload beside what the link carries with the loss that the run drew, "
        "IP and UDP headers taken off: of 1500 bytes 1472 are left. It is the same measure for all, and a "
        "run beyond 100 % fails the experiment. Below the offered rate it says how full the link is.",
        "- *own headers off* is the same beside what Nervure's packets can carry: its encryption (29 bytes) "
        "and its own headers (35) are taken off too, so of 1500 bytes 1408 are left for samples. This is the "
        "header-adjusted limit of the targets, as in [the simulated link](link-simulated.md).",
        "- *on air* is IP bytes offered to the link for each byte delivered.",
        "- *CPU* is processor time of the sender and of the receiver for each gigabit delivered, the "
        "emulator's "
        "excluded. Python endpoints pay for Python.",
        "- Of several seeds the worst is shown.",
        "- A schedule begins when its receiver is connected and, for those that have streams or topics, has "
        "matched them; or after ten seconds.",
        "- Nervure sends 1000 samples with each seed at least. A peer sends 300; of the large and the small "
        "samples 1000 with its second seed, where the first delivered some and not all. One that delivered "
        "nothing in the first ten seconds is stopped there, and stands as 0.",
        "- Runs of which a latency is judged are made alone, but for small samples, and those "
        "that start a program for each connection; others beside each other, as long as they load the "
        "processors to 60 % at most.",
        "",
    ]
    if result["profile"] == "quick":
        lines += [
            "**A quick run: it shows where things stand. Claims need the full one (`make bench-link`).**",
            "",
        ]
    if max(result["load_average_before"], _strangers(result)) > machine["cores"]:
        lines += ["**Others used this machine meanwhile: latencies are longer than they need be.**", ""]
    if wrong := impossible(result):
        lines += ["**These runs are impossible, and the experiment has failed:**", ""]
        lines += [*(f"- {line}" for line in wrong), ""]
    return lines


def _made_anew(result: dict[str, Any]) -> str:
    """How many runs were made beyond those that count, and how many of these were disturbed too."""
    counted = counting(result["runs"])
    anew = len(result["runs"]) - len(counted)
    still = sum(bool(disturbance(run)) for run in counted)
    return f"Of {len(result['runs'])} runs {anew} do not count; {still} of the others were disturbed as much."


def _sessions(result: dict[str, Any]) -> list[str]:
    """Who was measured when, and of which source."""
    titles = {adapter["name"]: adapter["title"] for adapter in result["adapters"]}
    told = []
    for session in result["sessions"]:
        runs = session["runs"]
        if not runs and len(result["sessions"]) > 1:
            continue
        names = dict.fromkeys(titles.get(run["adapter"], run["adapter"]) for run in runs)
        what = f"{len(runs)} run{'s' * (len(runs) != 1)}" + (f": {'; '.join(names)}" if names else "")
        sources = list(dict.fromkeys(run["source"] for run in runs)) or [session["source"]]
        told.append(f"`{session['command']}` at {', '.join(sources)}, {session['started']}, {what}")
    return told


def _strangers(result: dict[str, Any]) -> float:
    """Runnable processes that an experiment of its own cannot explain: the emulators and ends take four at
    most.
    """
    return max((run["load_average"] - 4.0 for run in result["runs"]), default=0.0)


def _targets(result: dict[str, Any]) -> list[str]:
    """All at a glance: how many are met, which are not, and what nobody knows yet."""
    found = verdicts(result)
    words = [verdict.word for verdict in found]
    lines = [
        "## Targets",
        "",
        f"Of {len(found)} targets {words.count('met')} are met, {words.count('met outside stops')} are met "
        f"outside the stops of the machine, {words.count('missed')} are missed and "
        f"{words.count('not measured')} not measured. Each is that of the worst seed.",
        "",
        "| cell | target | measured | | seeds |",
        "| :--- | :--- | ---: | :--- | ---: |",
    ]
    for word, shown in (("missed", "**missed**"), ("met outside stops", None), ("met", "met")):
        for verdict in (verdict for verdict in found if verdict.word == word):
            outside = f"met outside stops ({_number(verdict.undisturbed)})"
            figure = f"{verdict.target.text} | {_number(verdict.value)} | {shown or outside}"
            lines.append(f"| {verdict.name} | {figure} | {_seeds(verdict)} |")
    lines.append("")
    if unknown := list(dict.fromkeys(verdict.name for verdict in found if verdict.word == "not measured")):
        lines += [f"**Not measured:** {', '.join(unknown)}.", ""]
    return lines


def _missing(result: dict[str, Any]) -> list[str]:
    lacking = missing(result)
    if not lacking:
        return []
    return [
        "## What lacks",
        "",
        "Of what is planned these runs were not made; `--resume` makes them.",
        "",
        *(f"- {line}" for line in lacking),
        "",
    ]


def _seeds(verdict: Verdict) -> str:
    if verdict.seeds == verdict.planned_seeds:
        return str(verdict.seeds)
    return f"{verdict.seeds} of {verdict.planned_seeds}"


def _sections(result: dict[str, Any]) -> list[str]:
    figures = cells(result)
    titles = {entry["name"]: entry["title"] for entry in result["adapters"]}
    lines = []
    for group in GROUPS:
        tables = []
        for planned in (planned for planned in result["planned"] if planned["group"] == group.name):
            key = cell_key(planned["case"])
            rows = [figures[key, name] for name in titles if (key, name) in figures]
            own = [verdict for verdict in verdicts(result) if verdict.name == planned["name"]]
            if rows:
                tables += _table(planned["name"], rows, titles, own)
        if tables:
            lines += [f"## {group.title}", "", group.about, "", *tables]
    return lines


def _table(name: str, rows: list[CellFigures], titles: dict[str, str], own: list[Verdict]) -> list[str]:
    kind = [column for column in _KIND_COLUMNS if any(column in run.more for row in rows for run in row.runs)]
    columns = [_KIND_COLUMNS[column] for column in kind] if kind else _COLUMNS.split("|")
    lines = [
        f"### {_title(rows[0].case)}",
        "",
        f"| {name} | {' | '.join(columns)} | seeds |",
        f"| :--- |{' ---: |' * (len(columns) + 1)}",
    ]
    for row in rows:
        values = _kind_values(row, kind) if kind else _stream_values(row.worst, row.adapter == ADAPTER)
        values += [""] * (len(columns) - len(values))
        lines.append(f"| {titles[row.adapter]} | {' | '.join(values)} | {len(row.runs)} |")
    lines.append("")
    if own:
        lines += [f"Targets: {'; '.join(map(_told, own))}.", ""]
    return lines


def _told(verdict: Verdict) -> str:
    if verdict.value is None:
        return f"{verdict.target.text}: {verdict.word}"
    outside = f", {_number(verdict.undisturbed)} outside stops" if verdict.undisturbed is not None else ""
    return f"{verdict.target.text}: {verdict.word} ({_number(verdict.value)}{outside})"


def _stream_values(worst: RunFigures, is_own: bool) -> list[str]:
    if worst.fault:
        return [worst.fault]
    if worst.delivered_percent == 0:
        return ["0", "", "", "", _late(worst), "0", "0"]
    return [
        f"{worst.delivered_percent:.1f}",
        f"{worst.mean_ms:.0f}",
        f"{worst.p99_ms:.0f}",
        f"{worst.undisturbed.p99_ms:.0f} of {worst.undisturbed.samples}" if worst.undisturbed else "",
        _late(worst),
        f"{worst.goodput_mbit:.1f}",
        f"{worst.limit_percent:.0f}",
        f"{worst.own_limit_percent:.0f}" if is_own else "",
        f"{worst.bytes_per_byte:.2f}",
        " + ".join("?" if cpu is None else f"{cpu:.2f}" for cpu in (worst.sender_cpu, worst.receiver_cpu)),
    ]


def _late(run: RunFigures) -> str:
    return "" if run.machine_late_ms is None else f"{run.machine_late_ms:.0f}"


def _kind_values(row: CellFigures, kind: list[str]) -> list[str]:
    """Each the worst of its seeds."""
    faults = [run.fault for run in row.runs if run.fault]
    if faults:
        return [faults[0]]
    values = []
    for column in kind:
        seen = [value for run in row.runs if not math.isnan(value := run.more.get(column, math.nan))]
        values.append(_number((max if column in _GREATEST_IS_WORST else min)(seen)) if seen else "")
    return values


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if math.isinf(value):
        return "never" if value > 0 else "nothing"
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.4g}"


def _title(cell: dict[str, Any]) -> str:
    text = _size(cell["payload_bytes"])
    stream = f"{text} at {cell['rate_hz']:g} Hz"
    if cell["veth"]:
        return f"Ethernet pair; {stream}"
    parts = [f"{cell['rate_mbit']:g} Mbit/s, {cell['loss_percent']:g} % loss"]
    if cell["connects"]:
        parts.append(f"{cell['connects']} connections, each for {text}")
    else:
        parts.append(stream + (f" from each of {cell['robots']}" if cell["robots"] > 1 else ""))
    parts.append(f"RTT {cell['round_trip_ms']:g} ms, queue {cell['queue_ms']:g} ms")
    if cell["jitter_ms"]:
        parts.append(f"jitter {cell['jitter_ms']:g} ms")
    if cell["fade"]:
        good, bad = cell["fade"].split(":")[:2]
        parts.append(f"fades of {bad} every {good}")
    if cell["half_duplex"]:
        parts.append("half-duplex")
    if cell["keep_all"]:
        parts.append("KEEP_ALL")
    elif cell["keep_last"] != 10:
        parts.append(f"KEEP_LAST({cell['keep_last']})")
    if cell["lifespan_ms"]:
        parts.append(f"lifespan {cell['lifespan_ms']:g} ms")
    if cell["outage"]:
        parts.append("outage of {1:g} s after {0:g} s".format(*cell["outage"]))
    others = {
        "cubic-first": "joins one TCP flow",
        "cubic-later": "one TCP flow joins",
        "same-later": "another of its kind joins",
    }
    if cell["beside"]:
        parts.append(others[cell["beside"]])
    return "; ".join(parts)


def _size(size_bytes: int) -> str:
    for unit, of_unit in (("KiB", 1024), ("MB", 1_000_000), ("KB", 1000)):
        if size_bytes % of_unit == 0:
            return f"{size_bytes // of_unit} {unit}"
    return f"{size_bytes / 1000:g} KB"


def _adapters(result: dict[str, Any]) -> list[str]:
    lines = ["## How each was set up", ""]
    for entry in result["adapters"]:
        versions = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
        if entry["available"]:
            lines.append(f"- **{entry['title']}** ({versions}): {entry['settings']}")
        else:
            lines.append(f"- **{entry['title']}** was not measured: {entry['reason'].splitlines()[0]}")
    return [*lines, ""]
