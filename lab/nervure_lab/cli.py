"""The command line: ``nervure-lab list|setup|run|report|recommend ..``."""

from __future__ import annotations

import argparse
import errno
import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nervure_lab.comparison.declaration import read_declaration
from nervure_lab.comparison.experiment import DeclaredExperiment
from nervure_lab.contract import Adapter, Experiment, Unavailable, chosen
from nervure_lab.experiments import all_experiments
from nervure_lab.nearest import suggestion
from nervure_lab.runner import Options, prepare_all, run_experiment
from nervure_lab.slots import MOST_JOBS
from nervure_lab.store import load
from nervure_lab.toolchain import IN_CHECKOUT, REPOSITORY_DIRECTORY

_RESULTS = (REPOSITORY_DIRECTORY if IN_CHECKOUT else Path.cwd()) / "out" / "bench"
_INTERRUPTED = 130
COMMAND_MODULES = (
    "nervure_lab.comparison.commands",
    "nervure_lab.tuning.commands",
    "nervure_lab.analysis_commands",
)
"""Modules with further commands, each with ``add_commands(commands)``."""


def main(words: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(words)
    # SIGTERM as SIGINT: end the processes of the session and keep the runs.
    for end in (signal.SIGINT, signal.SIGTERM):
        signal.signal(end, signal.default_int_handler)
    try:
        status: int = arguments.action(arguments)
    except Unavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        print(
            f"error: no space is left for {error.filename or 'the results'}: {error.strerror}; every ended "
            "run is kept. Free some space and repeat the command with --resume",
            file=sys.stderr,
        )
        return 1
    return status


def entry() -> None:
    sys.exit(main())


def _run(arguments: argparse.Namespace) -> int:
    names: list[str] = arguments.experiment
    if len(names) > 1 and arguments.output:
        raise ValueError("--output names the result file of one experiment; use --out DIR for several")
    experiments = [experiment_named(name) for name in names]
    statuses = [_run_one(experiment, arguments) for experiment in experiments]
    declared = [experiment for experiment in experiments if isinstance(experiment, DeclaredExperiment)]
    if declared and _INTERRUPTED not in statuses:
        from nervure_lab.comparison.commands import write_reports

        write_reports(_output(declared[0], arguments).parent)
    return max(statuses)


def experiment_named(name: str) -> Experiment[Any, Any]:
    if name.endswith(".toml"):
        return DeclaredExperiment(read_declaration(Path(name)))
    experiments = all_experiments()
    if name not in experiments:
        raise ValueError(f"no experiment is called {name}{suggestion(name, experiments)}")
    return experiments[name]


def _output(experiment: Experiment[Any, Any], arguments: argparse.Namespace) -> Path:
    suffix = "-quick" if arguments.quick else ""
    if arguments.output:
        return Path(arguments.output)
    if arguments.out:
        return Path(arguments.out) / f"{experiment.name}.jsonl"
    if isinstance(experiment, DeclaredExperiment):
        return _RESULTS / f"lab{suffix}" / f"{experiment.name}.jsonl"
    return _RESULTS / f"{experiment.name}{suffix}.jsonl"


def _run_one(experiment: Experiment[Any, Any], arguments: argparse.Namespace) -> int:
    adapters = experiment.adapters()
    wanted = choose_adapters(adapters, arguments.adapters)
    profile = "quick" if arguments.quick else "full"
    output = _output(experiment, arguments)
    planned = experiment.plan(arguments.quick)
    print(f"{experiment.name}: {experiment.summary}", file=sys.stderr)
    result = run_experiment(
        experiment,
        chosen(planned, arguments.cells),
        wanted,
        Options(profile, arguments.resume, arguments.minutes, arguments.parallel),
        output,
        whole=(planned, [adapter.name for adapter in adapters]),
    )
    print(output)
    status = _write_page(output, arguments.report, experiment)
    if result["interrupted"]:
        print("interrupted: the same command with --resume continues it", file=sys.stderr)
        return _INTERRUPTED
    return status


def choose_adapters(adapters: Sequence[Adapter], text: str | None) -> list[Adapter]:
    """By name of the adapter, or of the peer for all its configurations."""
    if not text:
        return list(adapters)
    known = {adapter.name for adapter in adapters} | {_peer_of(adapter) for adapter in adapters}
    found: list[Adapter] = []
    for name in text.split(","):
        if name not in known:
            raise ValueError(f"no peer is called {name}{suggestion(name, known)}")
        found += [
            adapter
            for adapter in adapters
            if name in (adapter.name, _peer_of(adapter)) and adapter not in found
        ]
    return found


def _peer_of(adapter: Adapter) -> str:
    peer = getattr(adapter, "peer", None)
    return str(peer.name) if peer is not None else adapter.name


def _report(arguments: argparse.Namespace) -> int:
    if not arguments.result.exists():
        raise ValueError(f"no results {arguments.result}; `nervure-lab run` writes them")
    if arguments.result.is_dir():
        from nervure_lab.comparison.commands import write_reports

        write_reports(arguments.result, arguments.output)
        return 0
    return _write_page(arguments.result, arguments.output)


def _write_page(source: Path, page: Path | None, experiment: Experiment[Any, Any] | None = None) -> int:
    result = load(source)
    experiment = experiment or experiment_named(result["experiment"])
    page = page or experiment.page or source.with_suffix(".md")
    errors = experiment.write_page(result, page)
    if page.exists():
        print(page)
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0


def _setup(arguments: argparse.Namespace) -> int:
    """Prepares the adapters of all experiments that belong to the peers, and prints a row for each."""
    experiments = [it for it in all_experiments().values() if isinstance(it, DeclaredExperiment)]
    every = {adapter.name: adapter for experiment in experiments for adapter in experiment.adapters()}
    wanted = choose_adapters(list(every.values()), ",".join(arguments.peers))
    entries = prepare_all(wanted)
    for adapter, entry in zip(wanted, entries, strict=True):
        versions = " ".join(f"{name} {version}" for name, version in entry["versions"].items())
        print(f"{adapter.name}: {versions if entry['available'] else 'not available: ' + entry['reason']}")
    return 0 if all(entry["available"] for entry in entries) else 1


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
        prog="nervure-lab",
        description="Measure Nervure, its peers and the machine under the same conditions.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="name the experiments, their adapters and their cells")
    listing.set_defaults(action=_list)
    setup = commands.add_parser("setup", help="install peers, each into an environment of its own")
    setup.add_argument("peers", nargs="*", metavar="PEER", help="default: all")
    setup.set_defaults(action=_setup)
    _add_run(commands.add_parser("run", help="run experiments and write their results and reports"))
    report = commands.add_parser(
        "report", help="write the report of a results directory, or the page of a file"
    )
    report.add_argument("result", type=Path, nargs="?", default=_RESULTS / "local.jsonl", metavar="DIR|FILE")
    report.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write it here; default in the directory, or the reference page",
    )
    report.set_defaults(action=_report)
    for name in COMMAND_MODULES:
        importlib.import_module(name).add_commands(commands)
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "experiment", nargs="+", metavar="NAME", help="experiments of `list`, or files NAME.toml"
    )
    length = run.add_mutually_exclusive_group()
    length.add_argument(
        "--quick", action="store_true", help="run fewer cases and repeats, for a rough picture"
    )
    length.add_argument("--full", action="store_true", help="run all cases; the default")
    run.add_argument(
        "--peers",
        "--adapters",
        dest="adapters",
        metavar="A,B",
        help="run only these peers; `list` names them",
    )
    run.add_argument(
        "--cells", metavar="A,B", help="run only these cells, by name or group, `*` allowed, in this order"
    )
    run.add_argument(
        "--out", type=Path, metavar="DIR", help="keep results, samples and report in this directory"
    )
    run.add_argument("--resume", action="store_true", help="continue the results with the missing runs")
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
