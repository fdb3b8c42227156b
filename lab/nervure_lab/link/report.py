"""docs/reference/link.md, from a result file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nervure_lab.link.analysis import CellFigures, cells, impossible, load


def write_link_report(source: Path, target: Path) -> list[str]:
    """Writes the page and returns the runs that cannot be."""
    result = load(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join([*_head(result), *_tables(result), *_adapters(result)]).rstrip() + "\n")
    return impossible(result)


def _head(result: dict[str, Any]) -> list[str]:
    machine = result["machine"]
    samples = result["runs"][0]["cell"]["samples"] if result["runs"] else 0
    lines = [
        "# The link, measured",
        "",
        "Samples at a fixed rate over an [emulated link](../guides/emulated-link.md). Loss and delay are "
        "those of either direction; a lost packet has cost its airtime.",
        "",
        f"`{result['command']}` at {result['source']}, {result['started']}, profile *{result['profile']}*: "
        f"{samples} samples a run. {machine['cpu']}, {machine['cores']} cores"
        f"{', virtual' if machine['virtual_machine'] else ''}, Linux {machine['kernel']}; load average "
        f"{result['load_average_before']:.1f} before and {result['load_average_after']:.1f} after.",
        "",
        "- *delivered* is the share of the schedule: sample n is due at n / rate whatever became of others.",
        "- *mean* and *p99* are from when a sample was due to its reception, of those that were delivered.",
        "- *of limit* is the delivered payload beside what the link carries with the loss that the run drew, "
        "IP and UDP headers taken off. Below the offered rate it says how full the link is.",
        "- *on air* is IP bytes offered to the link for each byte delivered.",
        "- Of several seeds the worst is shown.",
        "",
    ]
    if result["profile"] == "quick":
        lines += [
            "**A quick run: it shows where things stand. Claims need the full one (`make bench-link`).**",
            "",
        ]
    if max(result["load_average_before"], result["load_average_after"]) > machine["cores"]:
        lines += ["**Others used this machine meanwhile: latencies are longer than they need be.**", ""]
    if result["interrupted"]:
        lines += ["**The run was interrupted: cells are missing.**", ""]
    if wrong := impossible(result):
        lines += ["**These runs are impossible, and the experiment has failed:**", ""]
        lines += [*(f"- {line}" for line in wrong), ""]
    return lines


def _tables(result: dict[str, Any]) -> list[str]:
    titles = {entry["name"]: entry["title"] for entry in result["adapters"]}
    by_cell: dict[str, list[CellFigures]] = {}
    for figures in cells(result):
        by_cell.setdefault(_title(figures.cell), []).append(figures)
    lines = []
    for title, rows in by_cell.items():
        lines += [
            f"## {title}",
            "",
            "| | delivered % | mean ms | p99 ms | Mbit/s | of limit % | on air | seeds |",
            "| :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for row in sorted(rows, key=lambda row: list(titles).index(row.adapter)):
            worst = row.worst
            if worst.fault:
                values = [worst.fault, "", "", "", "", ""]
            elif worst.delivered_percent == 0:
                values = ["0", "", "", "0", "0", ""]
            else:
                values = [
                    f"{worst.delivered_percent:.1f}",
                    f"{worst.mean_ms:.0f}",
                    f"{worst.p99_ms:.0f}",
                    f"{worst.goodput_mbit:.1f}",
                    f"{worst.limit_percent:.0f}",
                    f"{worst.bytes_per_byte:.2f}",
                ]
            lines.append(f"| {titles[row.adapter]} | {' | '.join(values)} | {len(row.runs)} |")
        lines.append("")
    return lines


def _title(cell: dict[str, Any]) -> str:
    size = cell["payload_bytes"]
    text = f"{size // 1024} KiB" if size >= 1024 else f"{size} B"
    parts = [
        f"{cell['rate_mbit']:g} Mbit/s, {cell['loss_percent']:g} % loss",
        f"{text} at {cell['rate_hz']:g} Hz",
        f"RTT {cell['round_trip_ms']:g} ms, queue {cell['queue_ms']:g} ms",
    ]
    if cell["jitter_ms"]:
        parts.append(f"jitter {cell['jitter_ms']:g} ms")
    if cell["fade"]:
        good, bad = cell["fade"].split(":")[:2]
        parts.append(f"fades of {bad} every {good}")
    if cell["half_duplex"]:
        parts.append("half-duplex")
    return "; ".join(parts)


def _adapters(result: dict[str, Any]) -> list[str]:
    lines = ["## How each was set up", ""]
    for entry in result["adapters"]:
        versions = ", ".join(f"{name} {version}" for name, version in entry["versions"].items())
        if entry["available"]:
            lines.append(f"- **{entry['title']}** ({versions}): {entry['settings']}")
        else:
            lines.append(f"- **{entry['title']}** was not measured: {entry['reason'].splitlines()[0]}")
    return lines
