"""The command line: ``python -m nervure_lab run|report|list``."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from nervure_lab.contract import Unavailable, chosen
from nervure_lab.experiments import all_experiments
from nervure_lab.runner import Options, run_experiment
from nervure_lab.slots import MOST_JOBS
from nervure_lab.store import load
from nervure_lab.toolchain import REPOSITORY_DIRECTORY

_RESULTS = REPOSITORY_DIRECTORY / "out" / "bench"
_INTERRUPTED = 130


def main() -> int:
    arguments = _parser().parse_args()
    # SIGTERM as SIGINT: end the processes of the session and keep the runs.
    for end in (signal.SIGINT, signal.SIGTERM):
        signal.signal(end, signal.default_int_handler)
    try:
        status: int = arguments.action(arguments)
    except (ValueError, Unavailable) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, Unavailable) else 2
    return status


def _run(arguments: argparse.Namespace) -> int:
    experiment = all_experiments()[arguments.experiment]
    adapters = experiment.adapters()
    names = [adapter.name for adapter in adapters]
    wanted = arguments.adapters.split(",") if arguments.adapters else names
    if unknown := sorted(set(wanted) - set(names)):
        raise ValueError(f"no adapter {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    profile = "quick" if arguments.quick else "full"
    suffix = "-quick" if arguments.quick else ""
    output = arguments.output or _RESULTS / f"{experiment.name}{suffix}.jsonl"
    planned = experiment.plan(arguments.quick)
    result = run_experiment(
        experiment,
        chosen(planned, arguments.cells),
        [adapter for adapter in adapters if adapter.name in wanted],
        Options(profile, arguments.resume, arguments.minutes, arguments.parallel),
        output,
        whole=(planned, names),
    )
    print(output)
    status = _write_page(output, arguments.report or output.with_suffix(".md"))
    if result["interrupted"]:
        print("interrupted: the same command with --resume continues it", file=sys.stderr)
        return _INTERRUPTED
    return status


def _report(arguments: argparse.Namespace) -> int:
    if not arguments.result.exists():
        raise ValueError(f"no result file {arguments.result}; `python -m nervure_lab run` writes one")
    return _write_page(arguments.result, arguments.output)


def _write_page(source: Path, page: Path | None) -> int:
    result = load(source)
    experiment = all_experiments()[result["experiment"]]
    page = page or experiment.page or source.with_suffix(".md")
    errors = experiment.write_page(result, page)
    print(page)
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0


def _list(_arguments: argparse.Namespace) -> int:
    for experiment in all_experiments().values():
        print(f"experiment {experiment.name}: {experiment.summary}")
        for adapter in experiment.adapters():
            print(f"  adapter {adapter.name}: {adapter.title}")
        groups: dict[str, list[str]] = {}
        for planned in experiment.plan(quick=False):
            groups.setdefault(planned.group, []).append(planned.name)
        for group, names in groups.items():
            print(f"  cells, {group}: {' '.join(names)}")
    return 0


def _parallel(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {number}")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nervure_lab", description="Measure Nervure, its peers and the machine."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run an experiment and write its result file and its page")
    run.add_argument("experiment", choices=sorted(all_experiments()))
    run.add_argument("--quick", action="store_true", help="run fewer cases and repeats, for a rough picture")
    run.add_argument("--adapters", metavar="A,B", help="run only these adapters; `list` names them")
    run.add_argument(
        "--cells", metavar="A,B", help="run only these cells, by name or group, `*` allowed, in this order"
    )
    run.add_argument("--resume", action="store_true", help="continue the result file with the missing runs")
    run.add_argument("--minutes", type=float, metavar="N", help="start no run that would end later")
    run.add_argument(
        "--parallel",
        type=_parallel,
        default=MOST_JOBS,
        metavar="N",
        help=f"run at most N cells at the same time; default {MOST_JOBS}",
    )
    run.add_argument("--output", type=Path, metavar="FILE", help="default: out/bench/EXPERIMENT.jsonl")
    run.add_argument(
        "--report", type=Path, metavar="FILE", help="write the page here; default beside the results"
    )
    run.set_defaults(action=_run)
    report = commands.add_parser("report", help="write the page of a result file")
    report.add_argument("result", type=Path, nargs="?", default=_RESULTS / "local.jsonl", metavar="FILE")
    report.add_argument(
        "--output", type=Path, metavar="FILE", help="write the page here; default the reference page"
    )
    report.set_defaults(action=_report)
    listing = commands.add_parser("list", help="name the experiments, their adapters and their cells")
    listing.set_defaults(action=_list)
    return parser


sys.exit(main())
