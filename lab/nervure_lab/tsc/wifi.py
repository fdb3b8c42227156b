"""The WiFi section: a stream of Array60k over a home router, until it is full."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt

from nervure_lab.performance_test import Log, parse_log
from nervure_lab.tsc.document import DIFFERS, HOLDS, Cell, Figure, Finding, Section, Table
from nervure_lab.tsc.drawing import BLUE, ORANGE, figure
from nervure_lab.tsc.ends import SILENT_SECONDS, Ends
from nervure_lab.tsc.source import Source

_LOGS = ("wifi.tar.xz", "wifi")
_NAME = re.compile(r"([fc])-([ps])-(\d{1,4})-(\d{1,3})\.txt")
_MIDDLEWARES = {"f": "Fast RTPS", "c": "Cyclone DDS"}
_COLOURS = {"f": ORANGE, "c": BLUE}


@dataclass(frozen=True)
class _Run(Ends):
    middleware: str
    rate: int
    number: int


def section(source: Source) -> Section:
    runs = _runs(source)
    table = _table(runs)
    return Section(
        "WiFi: a stream at the limit of a home router",
        "Two laptops and a router at 2.4 GHz; Array60k (61440 bytes), reliable, keep last 10, 80, 100 and "
        "120 Hz, 30 s, ten runs "
        "of each. The first second is not logged. A run ended in silence if its last five seconds received "
        "nothing.",
        _findings(runs),
        [table],
        [_figure(runs)],
        (
            "The two laptops' clocks were not synchronised: the logged latencies (about -7e8 ms) have no "
            "meaning.",
            "One room, one router, one channel; neighbours' traffic is not known, and the runs were not "
            "interleaved.",
            "Publisher and subscriber were started by hand: up to two seconds of the streams do not overlap.",
        ),
        facts={
            f"{_MIDDLEWARES[name]} {rate} {what}": _mean(_of(runs, name, rate), what)
            for name in _MIDDLEWARES
            for rate in _rates(runs)
            for what in ("sent", "received")
        }
        | {f"{_MIDDLEWARES[name]} ended silent": _silent(runs, name) for name in _MIDDLEWARES},
    )


def _runs(source: Source) -> list[_Run]:
    logs: dict[tuple[str, int, int], dict[str, Log]] = {}
    for path, text in source.logs(_LOGS):
        if found := _NAME.fullmatch(path.rsplit("/", 1)[-1]):
            name, end, rate, number = found.groups()
            logs.setdefault((name, int(rate), int(number)), {})[end] = parse_log(text, path)
    for (name, rate, number), ends in logs.items():
        if missing := {"p", "s"} - ends.keys():
            raise ValueError(
                f"wifi: expected {name}-{missing.pop()}-{rate}-{number}.txt beside its other end, got none"
            )
    return [_Run(ends["p"], ends["s"], *key) for key, ends in sorted(logs.items())]


def _of(runs: Sequence[_Run], name: str, rate: int) -> list[_Run]:
    return [run for run in runs if (run.middleware, run.rate) == (name, rate)]


def _rates(runs: Sequence[_Run]) -> list[int]:
    return sorted({run.rate for run in runs})


def _mean(runs: Sequence[_Run], what: str) -> float:
    return float(sum(getattr(run, what) for run in runs) / len(runs))


def _silent(runs: Sequence[_Run], name: str) -> int:
    return sum(run.ended_silent for run in runs if run.middleware == name)


def _table(runs: Sequence[_Run]) -> Table:
    rows: list[list[Cell]] = []
    for name, title in _MIDDLEWARES.items():
        for rate in _rates(runs):
            found = _of(runs, name, rate)
            sent, received = _mean(found, "sent"), _mean(found, "received")
            counts = sorted(run.received for run in found)
            silent = sum(run.ended_silent for run in found)
            rows.append(
                [
                    title,
                    rate,
                    len(found),
                    sent,
                    received,
                    100 * received / sent,
                    counts[0],
                    counts[-1],
                    silent,
                ]
            )
    columns = [
        "middleware",
        "Hz",
        "runs",
        "sent",
        "received",
        "received, %",
        "least",
        "most",
        "ended in silence",
    ]
    return Table("wifi", "Messages of a run, means of ten runs.", columns, rows)


def _findings(runs: Sequence[_Run]) -> list[Finding]:
    def shares(rate: int) -> str:
        found = {title: _of(runs, name, rate) for name, title in _MIDDLEWARES.items()}
        return f"{rate} Hz: " + ", ".join(
            f"{title} {_mean(of_one, 'received'):.0f} of {_mean(of_one, 'sent'):.0f}"
            for title, of_one in found.items()
        )

    def change(name: str) -> float:
        """Of the messages received at 100 Hz against those at 80 Hz, in percent."""
        return 100 * (_mean(_of(runs, name, 100), "received") / _mean(_of(runs, name, 80), "received") - 1)

    rates = "; ".join(map(shares, _rates(runs)))
    fast, cyclone = _silent(runs, "f"), _silent(runs, "c")
    number = sum(run.middleware == "f" for run in runs)
    return [
        Finding(
            "3",
            "Both begin to suffer at similar frequencies, between 80 and 100 Hz.",
            DIFFERS,
            f"Mean received of sent: {rates}. From 80 to 100 Hz Fast RTPS delivers {change('f'):+.0f} %, "
            f"Cyclone DDS {change('c'):+.0f} %; "
            "at 120 Hz both collapse.",
        ),
        Finding(
            "3",
            "Neither implementation is obviously better.",
            DIFFERS,
            "At 100 Hz Cyclone DDS delivered "
            f"{_mean(_of(runs, 'c', 100), 'received') / _mean(_of(runs, 'f', 100), 'received'):.1f} "
            "times as many messages, at 120 Hz "
            f"{_mean(_of(runs, 'c', 120), 'received') / _mean(_of(runs, 'f', 120), 'received'):.1f} times.",
        ),
        Finding(
            "3.4",
            "At higher frequencies no more messages are received after some time.",
            HOLDS,
            f"Runs that ended in at least {SILENT_SECONDS} s of silence: Fast RTPS {fast} of {number}, "
            f"Cyclone DDS {cyclone} "
            f"of {number}. Users expect that fewer messages arrive past the limit, but that they keep "
            "arriving.",
        ),
    ]


def _figure(runs: Sequence[_Run]) -> Figure:
    rates = _rates(runs)
    drawing, grid = plt.subplots(2, len(rates), figsize=(8, 4.4), sharex=True, sharey=True, squeeze=False)
    rows: list[list[Cell]] = []
    for line, (name, title) in zip(grid, _MIDDLEWARES.items(), strict=True):
        for axes, rate in zip(line, rates, strict=True):
            for run in _of(runs, name, rate):
                seconds, counts = run.subscriber.column("T_experiment"), run.subscriber.column("received")
                axes.plot(seconds, counts, color=_COLOURS[name], alpha=0.55, lw=0.9)
                rows += [
                    [title, rate, run.number, second, count]
                    for second, count in zip(seconds, counts, strict=True)
                ]
            axes.axhline(rate, color="black", lw=0.8, ls=":")
            axes.set_title(f"{title}, {rate} Hz", fontsize=9)
    grid[0][0].set_ylim(bottom=0)
    drawing.supxlabel("seconds", fontsize=9)
    drawing.supylabel("messages received a second", fontsize=9)
    data = Table("", "", ["middleware", "Hz", "run", "second", "received"], rows)
    caption = "Messages received in each second; a line is a run, the dotted line the nominal rate."
    return figure("wifi-rates", caption, drawing, data)
