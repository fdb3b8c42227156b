#!/usr/bin/env python3
"""Draw the trace of a link, as `nervure link bench send --trace FILE` writes it.

Needs matplotlib. One column of plots for each peer: rates, delays, loss, bytes in flight. Grey: the path
is silent.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MEGABIT = 8e-6


@dataclass
class Peer:
    """The records of one peer. Times are in seconds."""

    times: list[float] = field(default_factory=list)
    feedback: list[dict] = field(default_factory=list)
    silences: list[tuple[float, float]] = field(default_factory=list)
    silent_since: float | None = None
    last: float = 0.0

    def add(self, record: dict) -> None:
        self.last = record["time"] / 1e3
        data = record["data"]
        if record["name"] == "feedback":
            self.times.append(self.last)
            self.feedback.append(data)
        elif record["name"] == "phase" and data["to"] == "silent":
            self.silent_since = self.last
        elif record["name"] == "phase" and self.silent_since is not None:
            self.silences.append((self.silent_since, self.last))
            self.silent_since = None

    def end(self) -> None:
        if self.silent_since is not None:
            self.silences.append((self.silent_since, self.last))

    def values(self, name: str, factor: float = 1.0) -> list[float]:
        return [data[name] * factor for data in self.feedback]


def read(lines: Iterable[str], file: str) -> dict[str, Peer]:
    """The records by peer."""
    peers: dict[str, Peer] = {}
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if "peer" in record:
                peers.setdefault(record["peer"], Peer()).add(record)
            elif record["name"] == "missing":
                print(f"{file}: {record['data']['records']} records are missing", file=sys.stderr)
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{file}:{number}: expected a record of a link's trace: {error!r}") from error
    for peer in peers.values():
        peer.end()
    return peers


def draw(peers: dict[str, Peer], output: Path) -> None:
    """Write the plots to a file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(
        4, len(peers), sharex=True, squeeze=False, figsize=(9 * len(peers), 10), layout="constrained"
    )
    plots = [
        (
            "Mbit/s",
            [
                ("rate", "bytes_per_second", MEGABIT),
                ("bottleneck", "bottleneck_bytes_per_second", MEGABIT),
            ],
        ),
        ("ms", [("round trip", "rtt_ms", 1), ("smallest", "base_rtt_ms", 1), ("queue", "queue_ms", 1)]),
        ("loss, %", [("loss", "loss", 100)]),
        ("kB in flight", [("in flight", "in_flight_bytes", 1e-3)]),
    ]
    for column, (key, peer) in enumerate(peers.items()):
        rows[0][column].set_title(key[:24])
        for row, (unit, lines) in zip(rows, plots, strict=True):
            for label, name, factor in lines:
                row[column].plot(peer.times, peer.values(name, factor), label=label, linewidth=1)
            for begin, end in peer.silences:
                row[column].axvspan(begin, end, color="0.85")
            row[column].set_ylabel(unit)
            row[column].set_ylim(bottom=0)
            row[column].legend(loc="upper right")
        rows[-1][column].set_xlabel("s")
    figure.savefig(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("trace", type=Path, help="the file of --trace")
    parser.add_argument("-o", "--output", type=Path, help="the image; default: the trace's name with .png")
    arguments = parser.parse_args()
    with arguments.trace.open() as lines:
        peers = read(lines, str(arguments.trace))
    if not any(peer.feedback for peer in peers.values()):
        raise SystemExit(f"{arguments.trace}: no feedback in the trace: nothing to draw")
    output = arguments.output or arguments.trace.with_suffix(".png")
    draw(peers, output)
    print(output)


if __name__ == "__main__":
    main()
