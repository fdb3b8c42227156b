"""The page docs/reference/link.md; its figures and their origin go into files in `data/` beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nervure_lab.experiments.link.figures import impossible
from nervure_lab.experiments.link.measures import CROWDED, DISTURBED
from nervure_lab.experiments.link.plan import GROUPS
from nervure_lab.experiments.link.tables import KIND_COLUMNS, Row, Tables, tables

_HEAD = Path(__file__).with_name("page_head.md")


def write_page(result: dict[str, Any], target: Path) -> list[str]:
    """Writes the page and its data; returns the runs that claim more than the link carried."""
    errors = impossible(result)
    found = tables(result)
    found.runs["impossible"] = errors
    found.write(target.parent / "data")
    target.write_text(page(found))
    return errors


def page(found: Tables) -> str:
    head = _HEAD.read_text().format(disturbed_percent=100 * DISTURBED, crowded_percent=100 * CROWDED)
    lines = ["# The link, measured", "", *head.splitlines(), *_origin(found.runs), *_targets(found)]
    for group in GROUPS:
        rows = [row for row in found.figures if row["group"] == group.name]
        if rows:
            lines += [f"## {group.title}", "", group.about, "", *_table(rows, found), ""]
    return "\n".join([*lines, *_adapters(found.runs)]).rstrip() + "\n"


def _origin(runs: dict[str, Any]) -> list[str]:
    machine = runs["machine"]
    virtual = ", virtual" if machine["virtual_machine"] else ""
    sources = list(dict.fromkeys(source for session in runs["sessions"] for source in session["sources"]))
    others = list(dict.fromkeys(it["machine"] for it in runs["sessions"] if "machine" in it))
    text = (
        f"- Measured at {', '.join(sources)} on {machine['cpu']}, {machine['cores']} cores{virtual}, "
        f"Linux {machine['kernel']}, load average {runs['load_average_before']:.1f} before"
    )
    text += f"; in part on {', '.join(others)}" if others else ""
    text += f"; {len(runs['notes'])} notes on single rows are in link-runs.json" if runs["notes"] else ""
    text += f". Runs of {len(runs['missing'])} cells are missing (`--resume`)" if runs["missing"] else ""
    lines = [f"{text}."]
    lines.append("")
    if runs["profile"] == "quick":
        lines += ["**A quick run is a rough picture. Claims need the full one (`make bench-link`).**", ""]
    if max(runs["load_average_before"], runs["greatest_load_of_others"]) > machine["cores"]:
        lines += ["**Other work used this machine meanwhile, which lengthens latencies.**", ""]
    if wrong := runs.get("impossible"):
        lines += ["**These runs are impossible, and the experiment has failed:**", ""]
        lines += [*(f"- {line}" for line in wrong), ""]
    return lines


def _targets(found: Tables) -> list[str]:
    words = [row["verdict"] for row in found.targets]
    lines = [
        "## Targets",
        "",
        f"Of {len(words)} targets {words.count('met')} are met, {words.count('met outside stops')} are met "
        f"outside the stops of the machine, {words.count('missed')} are missed and "
        f"{words.count('not measured')} are not measured. Each counts with the worst seed.",
        "",
    ]
    if failed := [row for row in found.targets if row["verdict"] in ("missed", "met outside stops")]:
        lines += ["| cell | target | measured | | seeds |", "| :--- | :--- | ---: | :--- | ---: |"]
        for row in failed:
            outside = f"met outside stops ({row.get('outside_stops', '')})"
            verdict = "**missed**" if row["verdict"] == "missed" else outside
            seeds = f"{row['seeds']} of {row['planned_seeds']}"
            lines.append(f"| {row['cell']} | {row['target']} | {row['measured']} | {verdict} | {seeds} |")
        lines.append("")
    return lines


def _table(rows: list[Row], found: Tables) -> list[str]:
    kind = [column for column in KIND_COLUMNS if any(column in row for row in rows)]
    if kind:
        return _kind_table(rows, kind, found)
    titles = {entry["name"]: entry["title"] for entry in found.runs["adapters"]}
    names = [name for name in titles if any(row["adapter"] == name for row in rows)]
    lines = [
        f"| cell | link | {' | '.join(titles[name] for name in names)} | targets |",
        f"| :--- | :--- |{' ---: |' * len(names)} :--- |",
    ]
    for cell in dict.fromkeys(row["cell"] for row in rows):
        of_cell = {row["adapter"]: row for row in rows if row["cell"] == cell}
        link = next(iter(of_cell.values()))["link"]
        streams = [_stream(of_cell[name]) if name in of_cell else "" for name in names]
        lines.append(f"| {cell} | {link} | {' | '.join(streams)} | {_targets_of(cell, found)} |")
    return lines


def _kind_table(rows: list[Row], kind: list[str], found: Tables) -> list[str]:
    titles = {entry["name"]: entry["title"] for entry in found.runs["adapters"]}
    lines = [
        f"| cell | link | | {' | '.join(KIND_COLUMNS[column] for column in kind)} | targets |",
        f"| :--- | :--- | :--- |{' ---: |' * len(kind)} :--- |",
    ]
    previous = ""
    for row in rows:
        is_first = row["cell"] != previous
        previous = row["cell"]
        link, targets = (row["link"], _targets_of(previous, found)) if is_first else ("", "")
        values = [row["fault"]] if "fault" in row else [row.get(column, "") for column in kind]
        values += [""] * (len(kind) - len(values))
        cells = [previous, link, titles[row["adapter"]], *values, targets]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _stream(row: Row) -> str:
    if "fault" in row:
        return row["fault"]
    if row["delivered_percent"] == "0":
        return "0"
    return f"{row['delivered_percent']} · {row['mean_ms']} · {row['p99_ms']}"


def _targets_of(cell: str, found: Tables) -> str:
    parts = []
    for row in found.targets:
        if row["cell"] == cell:
            word = f" **{row['verdict']}**" if row["verdict"] != "met" else ""
            parts.append(f"{row['target']}: {row.get('measured', '')}{word}")
    return "; ".join(parts)


def _adapters(runs: dict[str, Any]) -> list[str]:
    lines = ["## How each was set up", ""]
    for entry in runs["adapters"]:
        versions = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
        if entry["available"]:
            lines.append(f"- **{entry['title']}** ({versions}): {entry['settings']}")
        else:
            lines.append(f"- **{entry['title']}** was not measured: {entry['reason'].splitlines()[0]}")
    return lines
