"""The section on repositories: how fast issues and pull requests are closed."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from scipy.stats import CensoredData, ecdf

from nervure_lab.tsc.document import DIFFERS, FAILS, HOLDS, Cell, Figure, Finding, Section, Table
from nervure_lab.tsc.drawing import BLUE, GREEN, ORANGE, PURPLE, figure, grouped_bars
from nervure_lab.tsc.github import Client, Item
from nervure_lab.tsc.source import Source, numbers

_REPOSITORIES = {
    "cyclone": ("Cyclone DDS", "eclipse-cyclonedds/cyclonedds", BLUE),
    "fast": ("Fast DDS", "eProsima/Fast-DDS", ORANGE),
    "cyclone_rmw": ("rmw_cyclonedds", "ros2/rmw_cyclonedds", GREEN),
    "fast_rmw": ("rmw_fastrtps", "ros2/rmw_fastrtps", PURPLE),
}
WINDOW_DAYS = 180


@dataclass(frozen=True)
class _Times:
    """Hours to close of the closed ones, and ages of the open ones."""

    closed: tuple[float, ...]
    open: tuple[float, ...]
    unknown: int = 0
    """Closed ones without a stored time, which no median counts."""

    @property
    def number(self) -> int:
        return len(self.closed) + len(self.open) + self.unknown

    @property
    def median_of_closed(self) -> float | None:
        return float(np.median(self.closed)) if self.closed else None

    @property
    def median(self) -> float | None:
        """Kaplan and Meier's median (1958): an open one counts as one that takes longer than its age. None if
        fewer than half were closed.
        """
        if not self.closed:
            return None
        times = ecdf(CensoredData(uncensored=self.closed, right=self.open)).sf
        below = np.flatnonzero(times.probabilities <= 0.5)
        return float(times.quantiles[below[0]]) if below.size else None


@dataclass(frozen=True)
class _Repository:
    title: str
    colour: str
    pulls: _Times
    listed_issues: _Times
    """As the API lists them: with pull requests."""
    issues: _Times
    """Without pull requests."""
    pulls_among_issues: int


def section(source: Source, client: Client | None = None, now: datetime.datetime | None = None) -> Section:
    found = {key: _stored(source, key) for key in _REPOSITORIES}
    tables = [_table("repositories", "The 180 days before 2020-10-17; times in hours.", found)]
    if client is not None:
        tables += _fresh(client, now or datetime.datetime.now(datetime.timezone.utc))
    return Section(
        "Repositories: issues and pull requests",
        "From the stored times of the GitHub API. The published method takes the median over closed ones. "
        "The corrected one "
        "counts an open one as one that takes longer than its age (Kaplan and Meier 1958), and takes pull "
        "requests off the list "
        "of issues, where the API lists them too. With `--github` the same statistics of the last 180 days "
        "stand beside.",
        _findings(found),
        tables,
        [_counts(found), _turnaround(found)],
        (
            "A tenth of the closed ones have no stored time; no median counts them, and which they are is "
            "not known.",
            "Time to close says how long work took, not how soon someone answered.",
            "Bots, stale policies and the habit of opening an issue for each change move these numbers.",
            "Six months of two projects of different age and size; tests of significance would not make "
            "them comparable.",
        ),
        facts={
            "Cyclone DDS pull requests": found["cyclone"].pulls.median_of_closed or 0.0,
            "Fast DDS pull requests": found["fast"].pulls.median_of_closed or 0.0,
        },
    )


def _stored(source: Source, key: str) -> _Repository:
    title, _, colour = _REPOSITORIES[key]
    pull_path, issue_path = (f"git_metrics/{key}_{kind}.csv" for kind in ("pr", "issue"))
    pulls = source.table([pull_path], ["state", "opened_on", "time_to_close", "number"])
    issues = source.table([issue_path], ["state", "created_at", "turn_round", "number"])
    pulls = numbers(pulls, "time_to_close", pull_path)
    issues = numbers(issues, "turn_round", issue_path)
    pulls = _opened(pulls, "opened_on", pull_path)
    issues = _opened(issues, "created_at", issue_path)
    end = max(*issues["opened"].to_list(), *pulls["opened"].to_list())
    numbers_of_pulls = pulls["number"].to_list()
    pure = issues.filter(~pl.col("number").is_in(numbers_of_pulls))
    return _Repository(
        title,
        colour,
        _times(pulls, "time_to_close", end),
        _times(issues, "turn_round", end),
        _times(pure, "turn_round", end),
        issues.height - pure.height,
    )


def _opened(table: pl.DataFrame, column: str, path: str) -> pl.DataFrame:
    opened = table[column].str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    if opened.null_count():
        row = opened.is_null().arg_true()[0]
        raise ValueError(
            f"{path}, row {row + 2}, column {column}: expected a time, got {table[column][row]!r}"
        )
    return table.with_columns(opened.alias("opened"))


def _times(table: pl.DataFrame, column: str, end: datetime.datetime) -> _Times:
    closed = [seconds / 3600 for seconds in table[column].drop_nulls()]
    without = table.filter(pl.col(column).is_null())
    still_open = without.filter(pl.col("state") == "open")["opened"]
    ages = [(end - opened).total_seconds() / 3600 for opened in still_open]
    return _Times(tuple(closed), tuple(ages), without.height - len(ages))


def _table(name: str, caption: str, found: dict[str, _Repository]) -> Table:
    rows: list[list[Cell]] = []
    for repository in found.values():
        kinds = {
            "pull requests": repository.pulls,
            "issues as listed": repository.listed_issues,
            "issues alone": repository.issues,
        }
        for kind, times in kinds.items():
            numbers_of = [times.number, len(times.open), times.unknown]
            rows.append([repository.title, kind, *numbers_of, times.median_of_closed, times.median])
    columns = [
        "repository",
        "kind",
        "opened",
        "still open",
        "time unknown",
        "median of closed, h",
        "median with open, h",
    ]
    return Table(name, caption, columns, rows)


def _findings(found: dict[str, _Repository]) -> list[Finding]:
    cyclone, fast, cyclone_rmw, fast_rmw = (
        found[key] for key in ("cyclone", "fast", "cyclone_rmw", "fast_rmw")
    )
    listed = sum(repository.pulls_among_issues for repository in found.values())
    total = sum(repository.listed_issues.number for repository in found.values())
    ratio = fast.pulls.number / cyclone.pulls.number
    with_rmw = (fast.pulls.number + fast_rmw.pulls.number) / (cyclone.pulls.number + cyclone_rmw.pulls.number)

    def medians(repository: _Repository) -> str:
        pulls, issues = repository.pulls, repository.issues
        return f"{repository.title} {pulls.median_of_closed:.1f} h and {_hours(issues.median)}"

    faster = all(
        (a.median_of_closed or 0) < (b.median_of_closed or 0)
        for a, b in (
            (fast_rmw.pulls, cyclone_rmw.pulls),
            (fast_rmw.issues, cyclone_rmw.issues),
        )
    )
    return [
        Finding(
            "4.2",
            "The plots show issues beside pull requests.",
            FAILS if listed else HOLDS,
            f"{listed} of {total} listed issues are pull requests, which the API lists with the issues, and "
            "so count twice. "
            f"Issues alone: {', '.join(f'{one.title} {one.issues.number}' for one in found.values())}.",
        ),
        Finding(
            "4.3",
            "Both respond well to issues and pull requests.",
            DIFFERS,
            f"Median time to close a pull request (closed ones) and an issue (with open ones): "
            f"{'; '.join(map(medians, found.values()))}. As listed and of closed ones only, issues appear "
            "to take "
            f"{cyclone.listed_issues.median_of_closed:.1f} h and {fast.listed_issues.median_of_closed:.1f} "
            "h.",
        ),
        Finding(
            "4.3",
            "For the RMW layers Fast RTPS is slightly faster.",
            HOLDS if faster else DIFFERS,
            f"Pull requests {fast_rmw.pulls.median_of_closed:.1f} h against "
            f"{cyclone_rmw.pulls.median_of_closed:.1f} h, issues as "
            f"listed {fast_rmw.listed_issues.median_of_closed:.1f} h against "
            f"{cyclone_rmw.listed_issues.median_of_closed:.1f} h. "
            f"Issues alone, closed ones: {fast_rmw.issues.median_of_closed:.1f} h against "
            f"{cyclone_rmw.issues.median_of_closed:.1f} h; with open ones: {_hours(fast_rmw.issues.median)} "
            "against "
            f"{_hours(cyclone_rmw.issues.median)}, of "
            f"{fast_rmw.issues.number} and {cyclone_rmw.issues.number}.",
        ),
        Finding(
            "4.3",
            "Fast RTPS had almost three times as many pull requests.",
            HOLDS if ratio >= 2.5 else DIFFERS,
            f"{fast.pulls.number} against {cyclone.pulls.number}, {ratio:.1f} times; with the RMW layers "
            f"{with_rmw:.1f} times.",
        ),
        Finding(
            "4.2.2",
            "The sample period of the histograms is 90 days.",
            FAILS,
            f"The data hold {WINDOW_DAYS} days (from 2020-04-21 on), as section 4.1 says.",
        ),
    ]


def _hours(value: float | None) -> str:
    return "not yet half closed" if value is None else f"{value:.1f} h"


def _counts(found: dict[str, _Repository]) -> Figure:
    drawing, line = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
    for axes, (title, kind) in zip(
        line, (("pull requests", "pulls"), ("issues alone", "issues")), strict=True
    ):
        times = [getattr(repository, kind) for repository in found.values()]
        names = [repository.title for repository in found.values()]
        closed = [len(one.closed) + one.unknown for one in times]
        still_open = [len(one.open) for one in times]
        grouped_bars(axes, names, [("closed", BLUE, closed), ("open", ORANGE, still_open)])
        axes.set_title(title, fontsize=9)
        axes.tick_params(axis="x", labelsize=8)
    line[0].legend(fontsize=8)
    caption = "Pull requests and issues, closed and open, of 180 days."
    return figure("repositories-counts", caption, drawing, _table("", "", found))


def _turnaround(found: dict[str, _Repository]) -> Figure:
    drawing, line = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
    rows: list[list[Cell]] = []
    for axes, (title, kind) in zip(
        line, (("pull requests", "pulls"), ("issues alone", "issues")), strict=True
    ):
        for repository, style in zip(found.values(), ("-", "--", "-.", ":"), strict=True):
            times = getattr(repository, kind)
            if not times.closed:
                continue
            share = ecdf(CensoredData(uncensored=times.closed, right=times.open)).cdf
            axes.step(
                share.quantiles,
                100 * share.probabilities,
                style,
                where="post",
                color=repository.colour,
                label=repository.title,
            )
            rows += [
                [repository.title, kind, hours, probability]
                for hours, probability in zip(
                    share.quantiles.tolist(), share.probabilities.tolist(), strict=True
                )
            ]
        axes.set_xscale("log")
        axes.set_xticks([0.1, 1, 24, 168, 720, 4320], ["6 min", "1 h", "1 d", "1 w", "30 d", "180 d"])
        axes.minorticks_off()
        axes.set_title(title, fontsize=9)
    line[0].set_ylabel("closed, %")
    line[0].legend(fontsize=8)
    data = Table("", "", ["repository", "kind", "hours", "share closed"], rows)
    caption = "Share closed within a time. Open ones count as censored at their age."
    return figure("repositories-turnaround", caption, drawing, data)


def _fresh(client: Client, now: datetime.datetime) -> list[Table]:
    """The same table of the days before now, and the times that it is computed from."""
    since = now - datetime.timedelta(days=WINDOW_DAYS)
    found: dict[str, _Repository] = {}
    rows: list[list[Cell]] = []
    for key, (title, name, colour) in _REPOSITORIES.items():
        items = client.items(name, since)
        pulls = [item for item in items if item.is_pull]
        issues = [item for item in items if not item.is_pull]
        of_pulls, of_all, of_issues = (_of_items(some, now) for some in (pulls, items, issues))
        found[key] = _Repository(title, colour, of_pulls, of_all, of_issues, len(pulls))
        for item in items:
            closed = item.closed.isoformat() if item.closed else None
            kind = "pull request" if item.is_pull else "issue"
            rows.append([name, item.number, kind, item.opened.isoformat(), closed])
    window = f"The {WINDOW_DAYS} days before {now:%Y-%m-%d}, from the GitHub API; times in hours."
    data = Table("repositories-fresh-times", "", ["repository", "number", "kind", "opened", "closed"], rows)
    return [_table("repositories-fresh", window, found), data]


def _of_items(items: Sequence[Item], now: datetime.datetime) -> _Times:
    closed = tuple((item.closed - item.opened).total_seconds() / 3600 for item in items if item.closed)
    ages = tuple((now - item.opened).total_seconds() / 3600 for item in items if not item.closed)
    return _Times(closed, ages)
