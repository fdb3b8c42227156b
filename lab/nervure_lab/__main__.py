"""The command line: ``python -m nervure_lab run|report|list``."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from nervure_lab.adapters import all_adapters
from nervure_lab.contract import Unavailable
from nervure_lab.experiments import all_experiments
from nervure_lab.link.adapters import all_link_adapters
from nervure_lab.link.plan import GROUPS, chosen, plan
from nervure_lab.link.report import write_link_report
from nervure_lab.link.runner import Options, run_link
from nervure_lab.link.slots import MOST
from nervure_lab.report.markdown import write_report
from nervure_lab.runner import run_experiment
from nervure_lab.toolchain import REPOSITORY_DIRECTORY

_RESULTS = REPOSITORY_DIRECTORY / "out" / "bench"
_REPORT = REPOSITORY_DIRECTORY / "docs" / "reference" / "performance.md"
_LINK_REPORT = REPOSITORY_DIRECTORY / "docs" / "reference" / "link.md"


def main() -> int:
    arguments = _parser().parse_args()
    status: int = arguments.action(arguments)
    return status


def _run(arguments: argparse.Namespace) -> int:
    adapters = all_adapters()
    wanted = _wanted(arguments, {adapter.name for adapter in adapters})
    if wanted is None:
        return 2
    experiment = all_experiments()[arguments.experiment]
    output = arguments.output or _RESULTS / f"{experiment.name}.json"
    chosen = [adapter for adapter in adapters if adapter.name in wanted]
    result = run_experiment(experiment, chosen, quick=arguments.quick, output=output)
    print(output)
    if arguments.report:
        write_report([output], arguments.report)
        print(arguments.report)
    return 130 if result["interrupted"] else 0


def _run_link(arguments: argparse.Namespace) -> int:
    adapters = all_link_adapters()
    wanted = _wanted(arguments, {adapter.name for adapter in adapters})
    if wanted is None:
        return 2
    profile = "quick" if arguments.quick else "full"
    output = arguments.output or _RESULTS / ("link-quick.jsonl" if arguments.quick else "link.jsonl")
    chosen_adapters = [adapter for adapter in adapters if adapter.name in wanted]
    options = Options(profile, arguments.resume, arguments.minutes, arguments.parallel)
    # Asked to end, by whomever, it ends what it has started and keeps what there is.
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, signal.default_int_handler)
    try:
        planned = plan(arguments.quick)
        cells = chosen(planned, arguments.cells)
        of = (planned, [adapter.name for adapter in adapters])
        result = run_link(cells, chosen_adapters, options, output, of=of)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Unavailable as error:
        print(f"error: the emulated link does not run here: {error}", file=sys.stderr)
        return 1
    print(output)
    impossible = write_link_report(output, arguments.report or output.with_suffix(".md"))
    for line in impossible:
        print(f"error: {line}", file=sys.stderr)
    if result["interrupted"]:
        print("interrupted: the same command with --resume goes on", file=sys.stderr)
        return 130
    return 1 if impossible else 0


def _wanted(arguments: argparse.Namespace, names: set[str]) -> set[str] | None:
    wanted = set(arguments.adapters.split(",")) if arguments.adapters else names
    if unknown := wanted - names:
        print(
            f"error: no adapter {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}",
            file=sys.stderr,
        )
        return None
    return wanted


def _report(arguments: argparse.Namespace) -> int:
    missing = [str(path) for path in arguments.results if not path.exists()]
    if missing:
        print(
            f"error: no result file {', '.join(missing)}; `python -m nervure_lab run` writes one",
            file=sys.stderr,
        )
        return 2
    try:
        write_report(arguments.results, arguments.output)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(arguments.output)
    return 0


def _report_link(arguments: argparse.Namespace) -> int:
    if not arguments.result.exists():
        print(f"error: no result file {arguments.result}; `run link` writes one", file=sys.stderr)
        return 2
    try:
        impossible = write_link_report(arguments.result, arguments.output)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(arguments.output)
    for line in impossible:
        print(f"error: {line}", file=sys.stderr)
    return 1 if impossible else 0


def _list(_arguments: argparse.Namespace) -> int:
    for experiment in all_experiments().values():
        print(f"experiment {experiment.name}: {experiment.summary}")
    print("experiment link: samples over an emulated bad link")
    for adapter in all_adapters():
        print(f"{adapter.kind} {adapter.name}: {adapter.title}")
    for link_adapter in all_link_adapters():
        print(f"over the link: {link_adapter.name}: {link_adapter.title}")
    planned = plan(quick=False)
    for group in GROUPS:
        names = [cell.name for cell in planned if cell.group == group.name]
        print(f"cells of the link: {group.name}: {' '.join(names)}")
    return 0


def _parallel(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {number}")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nervure_lab", description="Measures Nervure and its peers."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run an experiment and write its result file")
    run.add_argument("experiment", choices=sorted([*all_experiments(), "link"]))
    run.add_argument("--quick", action="store_true", help="fewer sizes and repeats: two to three minutes")
    run.add_argument("--adapters", metavar="A,B", help="only these; `list` names them")
    run.add_argument(
        "--output", type=Path, metavar="FILE", help="default: out/bench/EXPERIMENT.json (link: .jsonl)"
    )
    run.add_argument("--report", type=Path, metavar="FILE", help="also write the report, as `report` does")
    link = run.add_argument_group("link only")
    link.add_argument(
        "--cells", metavar="A,B", help="only these, by name or group, `*` allowed; in this order"
    )
    link.add_argument("--resume", action="store_true", help="go on with the result file: make what it lacks")
    link.add_argument("--minutes", type=float, metavar="N", help="begin nothing that would end later")
    together = f"runs at the same time, at most; default {MOST}"
    link.add_argument("--parallel", type=_parallel, default=MOST, metavar="N", help=together)
    run.set_defaults(action=lambda given: _run_link(given) if given.experiment == "link" else _run(given))
    report = commands.add_parser("report", help="turn result files into docs/reference/performance.md")
    report.add_argument("results", type=Path, nargs="*", default=[_RESULTS / "local.json"], metavar="FILE")
    report.add_argument("--output", type=Path, default=_REPORT, metavar="FILE")
    report.set_defaults(action=_report)
    link_report = commands.add_parser(
        "report-link", help="turn a result of `run link` into docs/reference/link.md"
    )
    link_report.add_argument("result", type=Path, nargs="?", default=_RESULTS / "link.jsonl", metavar="FILE")
    link_report.add_argument("--output", type=Path, default=_LINK_REPORT, metavar="FILE")
    link_report.set_defaults(action=_report_link)
    listing = commands.add_parser("list", help="name the experiments and the adapters")
    listing.set_defaults(action=_list)
    return parser


sys.exit(main())
