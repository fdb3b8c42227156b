"""Commands that read stored results: reports, a recommendation, a comparison, an export."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from nervure_lab.comparison import recommend

CHANGED = 4
"""Exit code of `compare` for a significant change."""
UNDECIDED = 5
"""Exit code of `compare` if no figure has enough repeats."""


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("recommend", help="name the peers that stored results speak for")
    parser.add_argument("results", type=Path, metavar="DIR", help="a results directory of `run`")
    parser.add_argument("--payload", required=True, metavar="SIZE", help="such as 64B, 512KB or 4MB")
    parser.add_argument("--rate", required=True, type=float, metavar="HZ", help="messages per second")
    parser.add_argument(
        "--loss", default="0%", metavar="PERCENT", help="packets lost from host to host; default 0%%"
    )
    parser.add_argument(
        "--bandwidth", metavar="RATE", help="of the link, such as 54Mbps; default: both ends on one host"
    )
    parser.set_defaults(action=_recommend)
    comparing = commands.add_parser("compare", help="say what changed between two sets of stored results")
    comparing.add_argument("before", type=Path, metavar="A", help="a results directory of `run`")
    comparing.add_argument("after", type=Path, metavar="B", help="another one, of the same experiments")
    comparing.add_argument("--all", action="store_true", help="list every figure, also without a change")
    comparing.set_defaults(action=_compare)
    exporting = commands.add_parser("export", help="write stored runs as logs of performance_test")
    exporting.add_argument("results", type=Path, metavar="DIR", help="a results directory of `run`")
    exporting.add_argument("target", type=Path, metavar="TARGET", help="directory for the logs")
    exporting.set_defaults(action=_export)


def write_reports(directory: Path, page: Path | None = None) -> None:
    from nervure_lab.comparison.report.page import write_report

    print(write_report(directory, page))


def _recommend(arguments: argparse.Namespace) -> int:
    wanted = recommend.Wanted.parse(arguments.payload, arguments.rate, arguments.loss, arguments.bandwidth)
    answer = recommend.answer(arguments.results, wanted)
    print(answer.text)
    return 0 if answer.known else 3


def _export(arguments: argparse.Namespace) -> int:
    from nervure_lab.comparison.export import export
    from nervure_lab.comparison.results import ResultSet

    written = export(ResultSet.load(arguments.results), arguments.target)
    print(f"{written} logs in {arguments.target}")
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    from nervure_lab.comparison import difference
    from nervure_lab.comparison.results import ResultSet

    before, after = (ResultSet.load(directory) for directory in (arguments.before, arguments.after))
    found = difference.compare(before, after)
    for line in difference.lines(found, everything=arguments.all):
        print(line)
    if not found.decidable:
        return UNDECIDED
    return CHANGED if found.changed else 0
