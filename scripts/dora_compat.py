#!/usr/bin/env python3
"""Measures how much of dora's projects runs under Nervure unchanged, and writes the compatibility page.

Three tables, from clones of dora and dora-hub:

1. Dataflow files: accepted by `nervure validate`, and by dora's own `validate`.
2. Python programs: names of the package `dora` that they use, by their syntax, against Nervure's package.
3. Dataflows that need no hardware, weights or network: executed under `nervure run` and `dora run`, compared.

Nothing is written into the clones: the programs run in a copy in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dora_runs

ROOT = Path(__file__).resolve().parents[1]
CHECKER = ROOT / "crates/cli/src/doctor/programs.py"
COMMAND_SECONDS = 60
NODES = re.compile(r"^nodes:", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dora_clone", type=Path, help="a git clone of dora-rs/dora")
    parser.add_argument("hub_clone", type=Path, help="a git clone of dora-rs/dora-hub")
    parser.add_argument("--dora", type=Path, help="the command `dora` of the environment with dora-rs")
    parser.add_argument("--nervure", type=Path, help="the command `nervure` (default: beside this Python)")
    parser.add_argument("--package", type=Path, help="folder with Nervure's package `dora`")
    parser.add_argument("--no-runs", action="store_true", help="leave out the dataflows that are executed")
    parser.add_argument(
        "--dora-programs",
        type=Path,
        help="folder with the programs of rust-dataflow and the libraries for C, of dora's own crates",
    )
    parser.add_argument(
        "--only",
        help="execute only the dataflows whose path this expression finds; the rest of the report is kept",
    )
    parser.add_argument("--report", type=Path, help="the page to write, with data/dora.json beside it")
    arguments = parser.parse_args()
    clones = {"dora": arguments.dora_clone.resolve(), "dora-hub": arguments.hub_clone.resolve()}
    nervure = (arguments.nervure or Path(sys.executable).parent / "nervure").resolve()
    # Not resolved: Python finds its virtual environment by this link.
    dora = arguments.dora.absolute() if arguments.dora else None

    data: dict[str, Any] = {"versions": versions(clones, nervure, dora)}
    beside = arguments.report and arguments.report.parent / "data" / f"{arguments.report.stem}.json"
    if arguments.only and beside and beside.exists():
        data = json.loads(beside.read_text(encoding="utf-8"))
    else:
        data["dataflow_files"] = dataflow_files(clones, nervure, dora)
        data["programs"] = program_table(clones, arguments.package or package_folder(), dora)
    if not arguments.no_runs:
        rows = dora_runs.compare(clones, nervure, dora, arguments.dora_programs, arguments.only or "")
        for row in rows:
            row["commit"] = commit_here()
        data["runs"] = merged(data.get("runs", []), rows)
    data["hub_nodes"] = dora_runs.hub_nodes(clones["dora-hub"])
    page = render(data)
    if arguments.report:
        arguments.report.write_text(page, encoding="utf-8")
        beside.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    else:
        print(page, end="")
    return 0


def merged(kept: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The new rows and the kept ones, in the order of the runs."""
    known = {(row["clone"], row["path"]): row for row in [*kept, *rows]}
    return [known[key] for run in dora_runs.RUNS if (key := (run.clone, run.path)) in known]


def commit_here() -> str:
    return output("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD")


def output(*command: str | Path) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    return done.stdout.strip()


def versions(clones: dict[str, Path], nervure: Path, dora: Path | None) -> dict[str, str]:
    found = {"nervure": f"{output(nervure, '--version').split()[-1]}, commit {commit_here()}"}
    if dora:
        found["dora-cli"] = output(dora, "--version").split()[-1]
        python = dora_runs.python_beside(dora)
        found["dora-rs"] = output(python, "-c", "import importlib.metadata as m; print(m.version('dora-rs'))")
    for name, clone in clones.items():
        commit, date = output("git", "-C", clone, "log", "-1", "--format=%H %cs").split()
        found[f"{name} clone"] = f"{commit[:12]} of {date}"
    return found


# Dataflow files


@dataclass(frozen=True)
class Verdict:
    accepted: bool
    reason: str = ""
    # Programs that the file names and the clone lacks. dora does not check for them.
    missing_programs: int = 0


def dataflow_files(clones: dict[str, Path], nervure: Path, dora: Path | None) -> list[dict[str, Any]]:
    files = [
        (name, clone, file)
        for name, clone in clones.items()
        for pattern in ("*.yml", "*.yaml")
        for file in sorted(clone.rglob(pattern))
        if NODES.search(file.read_text(encoding="utf-8", errors="replace"))
    ]
    if not files:
        raise SystemExit("error: the clones have no YAML file with `nodes:`")

    def judge(entry: tuple[str, Path, Path]) -> dict[str, Any]:
        name, clone, file = entry
        path = str(file.relative_to(clone))
        row: dict[str, Any] = {"clone": name, "path": path}
        row["nervure"] = vars(by_nervure(nervure, clone, path))
        if dora:
            row["dora"] = vars(by_dora(dora, clone, path))
        return row

    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(judge, files))


def by_nervure(nervure: Path, clone: Path, path: str) -> Verdict:
    done = subprocess.run(
        [nervure, "validate", "--json", path],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    findings = json.loads(done.stdout.splitlines()[0])["findings"] if done.stdout else []
    missing = [finding for finding in findings if finding["code"] in ("missing-file", "not-built")]
    errors = [finding for finding in findings if finding["severity"] == "error" and finding not in missing]
    if errors:
        return Verdict(False, "; ".join(dict.fromkeys(error["message"] for error in errors[:3])))
    if done.returncode and not missing:
        return Verdict(False, f"exit code {done.returncode}: {done.stderr.strip()[-200:]}")
    return Verdict(True, missing_programs=len(missing))


def by_dora(dora: Path, clone: Path, path: str) -> Verdict:
    done = subprocess.run(
        [dora, "validate", "--offline", path],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if done.returncode == 0:
        return Verdict(True)
    # The last cause, before the place in dora's sources and the backtrace.
    message = done.stderr.partition("[ERROR]")[2].partition("Location:")[0].strip()
    causes = message.partition("Caused by:")[2].strip() or message
    lines = [line.strip() for line in causes.splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith("hint:")]
    reason = reasons[-1] if reasons else f"exit code {done.returncode}"
    return Verdict(False, reason.replace(str(clone), "").partition(", expected one of")[0])


# Python programs


def package_folder() -> Path | None:
    """The folder that `nervure run` puts on PYTHONPATH for programs of dora."""
    folder = ROOT / "bindings" / "python" / "python"
    beside = [path for path in folder.rglob("dora/__init__.py")]
    return beside[0].parents[1] if beside else None


def program_table(
    clones: dict[str, Path], package: Path | None, dora: Path | None
) -> dict[str, list[dict[str, Any]]]:
    """The programs of dora's examples, and those of dora-hub without the tests of its nodes."""
    examples = sorted((clones["dora"] / "examples").rglob("*.py"))
    hub = [
        file
        for file in sorted(clones["dora-hub"].rglob("*.py"))
        if "tests" not in file.relative_to(clones["dora-hub"]).parts[1:]
    ]
    result: dict[str, list[dict[str, Any]]] = {}
    for name, files in (("dora", examples), ("dora-hub", hub)):
        ours = lacks(Path(sys.executable), package, files)
        theirs = lacks(dora_runs.python_beside(dora), None, files) if dora else {}
        result[name] = []
        for file, missing in ours.items():
            row: dict[str, Any] = {
                "path": str(Path(file).relative_to(clones[name])),
                "nervure_lacks": missing,
            }
            if dora:
                row["dora_lacks"] = theirs[file]
            result[name].append(row)
    return result


def lacks(python: Path, package: Path | None, files: list[Path]) -> dict[str, list[tuple[int, str]]]:
    """For each program that imports dora: line and name of each use that the package `dora` lacks."""
    environment = os.environ | ({"PYTHONPATH": str(package)} if package else {})
    done = subprocess.run(
        [python, CHECKER, *files], env=environment, check=True, capture_output=True, text=True
    )
    result = json.loads(done.stdout)
    if result["dora"] is None:
        raise SystemExit(f"error: {python} cannot import the module dora")
    return {
        file: [
            (one["line"], one["name"]) for one in found if one["kind"] in ("missing_import", "missing_name")
        ]
        for file, found in result["programs"].items()
        if any(one["kind"] == "uses_dora" for one in found)
    }


# The page


def render(data: dict[str, Any]) -> str:
    sections = [
        "# Projects of dora under Nervure\n",
        prose(
            "Written by `scripts/dora_compat.py DORA_CLONE HUB_CLONE --dora COMMAND --dora-programs FOLDER"
            " --report docs/reference/dora.md`. All rows, with every refused file and missing name, are in"
            " [data/dora.json](data/dora.json). dora is a project of its own, under the Apache-2.0 licence."
        ),
        table(["", "version"], [[name, version] for name, version in data["versions"].items()]),
        render_files(data["dataflow_files"]),
        render_programs(data["programs"]),
    ]
    if data.get("runs"):
        sections.append(render_runs(data["runs"]))
        sections.append(render_hub_nodes(data["hub_nodes"]))
    return "\n".join(sections)


def prose(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False) + "\n"


def table(heads: list[str], rows: list[list[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell(value) for value in line)} |\n" for line in lines)


def cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def name(row: dict[str, Any]) -> str:
    return f"{row['clone']}: `{row['path']}`"


def render_files(rows: list[dict[str, Any]]) -> str:
    has_dora = "dora" in rows[0]
    counts = []
    for clone in ("dora", "dora-hub", None):
        group = [row for row in rows if clone in (None, row["clone"])]
        ours = [row for row in group if row["nervure"]["accepted"]]
        line = [clone or "both", len(group), len(ours)]
        if has_dora:
            theirs = [row for row in group if row["dora"]["accepted"]]
            both = [row for row in ours if row["dora"]["accepted"]]
            line += [len(theirs), f"{len(both)} of {len(theirs)}"]
        counts.append(line)
    heads = ["clone", "files", "accepted by Nervure"]
    heads += ["accepted by dora", "by Nervure, of these"] if has_dora else []
    refused = [
        [name(row), row["nervure"]["reason"]]
        for row in rows
        if not row["nervure"]["accepted"] and (not has_dora or row["dora"]["accepted"])
    ]
    unbuilt = sum(row["nervure"]["accepted"] and row["nervure"]["missing_programs"] > 0 for row in rows)
    checkers = "`nervure validate` and `dora validate`" if has_dora else "`nervure validate`"
    text = "## Dataflow files\n\n" + prose(
        f"All YAML files with `nodes:` at the top level, checked by {checkers}. {unbuilt} of the files that"
        " Nervure accepts name programs that are not in the clone and have to be built or installed first."
    )
    text += "\n" + table(heads, counts)
    text += "\nRefused by Nervure" + (", accepted by dora:\n\n" if has_dora else ":\n\n")
    text += table(["file", "reason"], refused) if refused else "None.\n"
    if has_dora:
        invalid = [
            [name(row), row["dora"]["reason"], "yes" if row["nervure"]["accepted"] else "no"]
            for row in rows
            if not row["dora"]["accepted"]
        ]
        text += "\nRefused by dora:\n\n" + table(["file", "dora's reason", "accepted by Nervure"], invalid)
    return text


def render_programs(groups: dict[str, list[dict[str, Any]]]) -> str:
    titles = {
        "dora": "dora: Python files in `examples/` that import `dora`",
        "dora-hub": "dora-hub: Python files that import `dora`, without the tests of its nodes",
    }
    has_dora = any("dora_lacks" in row for row in groups["dora"])
    counts = []
    missing: Counter[str] = Counter()
    also_missing: set[str] = set()
    for clone, rows in groups.items():
        line = [titles[clone], len(rows), sum(not row["nervure_lacks"] for row in rows)]
        if has_dora:
            line.append(sum(not row["dora_lacks"] for row in rows))
        counts.append(line)
        for row in rows:
            missing.update(name for _, name in row["nervure_lacks"])
            also_missing.update(name for _, name in row.get("dora_lacks", []))
    text = "## Python programs\n\n" + prose(
        "Each module, function, class, method and keyword argument of `dora` that a program uses is looked"
        " for in Nervure's package. This checks names; the next section compares the effects of the calls."
    )
    text += "\n"
    heads = ["programs", "files", "all names in Nervure's `dora`"]
    text += table(heads + (["all names in dora's own package"] if has_dora else []), counts)
    rows = [[f"`{name}`", count] for name, count in missing.most_common()]
    if has_dora:
        rows = [[*row, "no" if row[0].strip("`") in also_missing else "yes"] for row in rows]
    text += "\nNames that Nervure's package lacks:\n\n"
    names = ["name", "files"] + (["in dora's own package"] if has_dora else [])
    return text + (table(names, rows) if rows else "None.\n")


def render_runs(rows: list[dict[str, Any]]) -> str:
    compared = [row for row in rows if "dora" in row["exit_codes"]]
    others = [row for row in rows if "dora" not in row["exit_codes"]]
    text = (
        "Dataflows that need no hardware, weights or network, run in a copy of their folder. *Changed* marks"
        " those with a file written for this test, because that of the clone needs hardware: their nodes are"
        " unchanged. Programs in Rust and C are built with Nervure's crates, and for dora with dora's own of"
        " the version above."
    )
    if compared:
        same = sum(row["result"] == "same" for row in compared)
        text += (
            " Compared are the exit code (0 or not) and the output of the nodes: the same lines, or as many"
            " (within a quarter) where timers set the number."
            f" {same} of {len(compared)} give the same result."
        )
    if others:
        run = sum(row["result"] == "runs" for row in others)
        text += f" {run} of {len(others)} more, that were not run under dora, end with code 0 and print the"
        text += " expected lines."
    commits = Counter(row["commit"] for row in rows if row.get("commit"))
    if commits:
        times = ", ".join(f"{count} at {commit}" for commit, count in commits.items())
        text += f" Rows that were executed again since the commit above: {times}."
    lines = []
    for row in rows:
        counts = ", ".join(
            str(shown["nervure"]) + (f"/{shown['dora']}" if "dora" in shown else "") for shown in row["shown"]
        )
        changed = " (changed)" if row["changed"] else ""
        why = ". ".join(text for text in (row["why"], row.get("note")) if text)
        lines.append([name(row) + changed, row["result"], counts or "exit code", why])
    heads = ["dataflow", "result", "lines, Nervure/dora" if compared else "lines", "difference"]
    return "## Dataflows that are executed\n\n" + prose(text) + "\n" + table(heads, lines)


def render_hub_nodes(groups: dict[str, list[str]]) -> str:
    executed = ", ".join(f"`{node}`" for node in groups[""])
    count = sum(len(nodes) for nodes in groups.values())
    text = f"{len(groups[''])} of {count} nodes are executed above: {executed}. The others need:"
    rows = [[why, len(nodes), ", ".join(nodes)] for why, nodes in groups.items() if why]
    return (
        "## Nodes of dora-hub\n\n" + prose(text) + "\n" + table(["requirement", "nodes", "their names"], rows)
    )


if __name__ == "__main__":
    sys.exit(main())
