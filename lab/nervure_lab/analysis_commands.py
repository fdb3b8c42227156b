"""The commands that analyse stored data. Their libraries are loaded when a command runs, so that measuring
needs none of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from nervure_lab.contract import Unavailable
from nervure_lab.toolchain import REPOSITORY_DIRECTORY


def add_commands(commands: Any) -> None:
    """Adds the commands to the parser's subcommands."""
    analyze = commands.add_parser("analyze", help="analyse stored data of an evaluation")
    kinds = analyze.add_subparsers(required=True, metavar="KIND")
    tsc = kinds.add_parser("tsc", help="recompute the ROS middleware evaluation of 2020 from its raw data")
    tsc.add_argument("directory", type=Path, metavar="DIR", help="the folder with logs and tables")
    tsc.add_argument(
        "--out",
        type=Path,
        default=REPOSITORY_DIRECTORY / "out" / "evaluation-2020",
        metavar="DIR",
        help="write pages, figures and data here; default out/evaluation-2020",
    )
    tsc.add_argument(
        "--github",
        action="store_true",
        help="add the repositories' last 180 days from the GitHub API, with the token in GITHUB_TOKEN",
    )
    tsc.add_argument(
        "--quality", type=Path, metavar="FILE", help="read the table of code quality from this YAML file"
    )
    tsc.set_defaults(action=_analyze_tsc)


def _analyze_tsc(arguments: argparse.Namespace) -> int:
    try:
        from nervure_lab.tsc.command import analyze
    except ImportError as error:
        raise Unavailable(
            f"the analysis needs {error.name}: python -m pip install "
            f"'{REPOSITORY_DIRECTORY / 'lab'}[analysis]'"
        ) from error
    return analyze(
        arguments.directory, arguments.out, github=arguments.github, quality_file=arguments.quality
    )
